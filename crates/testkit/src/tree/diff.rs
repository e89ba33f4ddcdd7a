//! The differences of two snapshots, as sentences.

use std::fmt::Debug;

use super::entry::{Entry, Tree};

/// Most differences of one field that are listed; further ones are only counted.
const LISTED: usize = 200;

/// The differences, one per line, each beginning with its path; empty if the snapshots are equal.
/// Fields that only one snapshot holds are not compared.
pub fn diff(a: &Tree, b: &Tree) -> Vec<String> {
    let mut lines = Vec::new();
    for (path, entry) in &a.entries {
        match b.entries.get(path) {
            None => lines.push(format!(
                "{}: only in the first ({})",
                shown(path),
                brief(entry)
            )),
            Some(other) => compare(path, entry, other, &mut lines),
        }
    }
    for (path, entry) in &b.entries {
        if !a.entries.contains_key(path) {
            lines.push(format!(
                "{}: only in the second ({})",
                shown(path),
                brief(entry)
            ));
        }
    }
    if lines.len() > LISTED {
        let more = lines.len() - LISTED;
        lines.truncate(LISTED);
        lines.push(format!("… and {more} more differences"));
    }
    lines
}

fn shown(path: &str) -> &str {
    if path.is_empty() { "(root)" } else { path }
}

fn brief(entry: &Entry) -> String {
    format!(
        "{:?} {:o}, {} bytes",
        entry.kind,
        entry.mode,
        entry.size.unwrap_or(0)
    )
}

fn compare(path: &str, a: &Entry, b: &Entry, lines: &mut Vec<String>) {
    let path = shown(path);
    let mut differs = |what: &str, x: &dyn Debug, y: &dyn Debug| {
        lines.push(format!("{path}: {what} {x:?} ≠ {y:?}"));
    };
    macro_rules! always {
        ($($field:ident),*) => { $(
            if a.$field != b.$field { differs(stringify!($field), &a.$field, &b.$field); }
        )* };
    }
    macro_rules! if_both {
        ($($field:ident),*) => { $(
            if let (Some(x), Some(y)) = (&a.$field, &b.$field) && x != y { differs(stringify!($field), x, y); }
        )* };
    }
    always!(kind, uid, gid, nlink, rdev, target, link_of);
    if a.mode != b.mode {
        differs(
            "mode",
            &format_args!("{:o}", a.mode),
            &format_args!("{:o}", b.mode),
        );
    }
    if_both!(size, content, data, blocks, inode);
    for (what, x, y) in [
        ("mtime", a.mtime, b.mtime),
        ("ctime", a.ctime, b.ctime),
        ("atime", a.atime, b.atime),
    ] {
        if let (Some(x), Some(y)) = (x, y)
            && x != y
        {
            differs(what, &format_args!("{x}"), &format_args!("{y}"));
        }
    }
    if let (Some(x), Some(y)) = (a.flags, b.flags)
        && x != y
    {
        differs("flags", &format_args!("{x:#x}"), &format_args!("{y:#x}"));
    }
    if a.xattrs != b.xattrs {
        let names: std::collections::BTreeSet<&String> =
            a.xattrs.keys().chain(b.xattrs.keys()).collect();
        for name in names {
            let (x, y) = (a.xattrs.get(name), b.xattrs.get(name));
            if x != y {
                differs(&format!("xattr {name}"), &x, &y);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use crate::{CaptureOptions, Scratch, Tree};

    use super::diff;

    fn capture(dir: &std::path::Path) -> Tree {
        Tree::capture(
            dir,
            &CaptureOptions {
                ctime: true,
                ..CaptureOptions::default()
            },
        )
        .unwrap()
    }

    #[test]
    fn every_kind_of_change_is_seen() {
        let scratch = Scratch::new("diff").unwrap();
        let dir = scratch.path();
        std::fs::write(dir.join("kept"), "x").unwrap();
        std::fs::write(dir.join("content"), "old").unwrap();
        std::fs::write(dir.join("mode"), "").unwrap();
        std::fs::write(dir.join("gone"), "").unwrap();
        std::fs::write(dir.join("linked"), "").unwrap();
        symlink("one", dir.join("symlink")).unwrap();
        let before = capture(dir);
        assert!(diff(&before, &capture(dir)).is_empty());

        std::fs::write(dir.join("content"), "new").unwrap();
        std::fs::set_permissions(dir.join("mode"), PermissionsExt::from_mode(0o4711)).unwrap();
        std::fs::remove_file(dir.join("gone")).unwrap();
        std::fs::hard_link(dir.join("linked"), dir.join("name")).unwrap();
        std::fs::remove_file(dir.join("symlink")).unwrap();
        symlink("two", dir.join("symlink")).unwrap();
        rustix::fs::setxattr(
            dir.join("content"),
            "user.a",
            b"1",
            rustix::fs::XattrFlags::empty(),
        )
        .unwrap();
        let lines = diff(&before, &capture(dir)).join("\n");
        for expected in [
            "content: content ",
            "content: xattr user.a None ≠ Some(\"1\")",
            "mode: mode 644 ≠ 4711",
            "gone: only in the first",
            "linked: nlink 1 ≠ 2",
            "linked: link_of None ≠ Some(\"linked\")",
            "name: only in the second",
            "symlink: target Some(\"one\") ≠ Some(\"two\")",
        ] {
            assert!(lines.contains(expected), "{expected:?} is not in\n{lines}");
        }
        assert!(!lines.contains("kept"), "{lines}");
    }

    #[test]
    fn a_snapshot_survives_json_with_names_that_are_not_text() {
        use std::os::unix::ffi::OsStrExt;
        let scratch = Scratch::new("json").unwrap();
        let name = std::ffi::OsStr::from_bytes(b"a\xff\\\n");
        std::fs::write(scratch.path().join(name), "x").unwrap();
        let tree = capture(scratch.path());
        assert!(
            tree.entries.contains_key("a\\xff\\x5c\\x0a"),
            "{:?}",
            tree.entries.keys()
        );
        let json = serde_json::to_string(&tree).unwrap();
        assert_eq!(serde_json::from_str::<Tree>(&json).unwrap(), tree);
    }
}
