//! Unpacking.

use std::collections::{BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use stetfs::Node;
use tar::{Archive, Entry, EntryType};

use super::archive::{PART, XATTR, unreadable};
use crate::failure::{Code, Failure, Result};
use crate::files::args::TarArgs;
use crate::files::meter::Meter;
use crate::files::tree::{Finish, Kind, Sink, Tree, Xattr};

/// In front of a name that a layer removes.
const WHITEOUT: &[u8] = b".wh.";
/// Of a directory that hides all that was there before.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Bytes of a file with holes that are looked at together.
const HOLE: usize = 4096;

/// Unpacks into `base`, which is made if it is not there.
pub(super) fn extract(
    args: &TarArgs,
    tree: &dyn Tree,
    base: &Path,
    archive: Box<dyn Read>,
    meter: &mut Meter,
) -> Result {
    let mut unpack = Unpack {
        tree,
        base,
        owner: args.owner,
        whiteouts: args.whiteouts,
        known: HashSet::new(),
        made: BTreeSet::new(),
        dirs: Vec::new(),
        buf: vec![0; PART],
        meter,
    };
    unpack.parents(base)?;
    unpack.need_dir(base)?;
    let mut archive = Archive::new(archive);
    for entry in archive.entries().map_err(unreadable)? {
        unpack.meter.go_on()?;
        unpack.entry(&mut entry.map_err(unreadable)?)?;
        unpack.meter.entry();
    }
    // Now that nothing comes into them any more.
    for (path, finish) in unpack.dirs.into_iter().rev() {
        // A whiteout or another entry may have taken its place.
        if tree.item(&path)?.is_some_and(|item| item.kind == Kind::Dir) {
            tree.finish(&path, Kind::Dir, &finish)?;
        }
    }
    Ok(())
}

struct Unpack<'a> {
    tree: &'a dyn Tree,
    base: &'a Path,
    owner: Option<(u32, u32)>,
    whiteouts: bool,
    /// Directories that are there.
    known: HashSet<PathBuf>,
    /// What came from this archive, if it may have whiteouts: these hide only what was there
    /// before.
    made: BTreeSet<PathBuf>,
    /// Directories of the archive, and what they are to have in the end.
    dirs: Vec<(PathBuf, Finish)>,
    buf: Vec<u8>,
    meter: &'a mut Meter,
}

/// What PAX headers say of an entry beside its names and size.
#[derive(Default)]
struct Pax {
    uid: Option<u32>,
    gid: Option<u32>,
    modified: Option<SystemTime>,
    xattrs: Vec<Xattr>,
}

type Archived<'a> = Entry<'a, Box<dyn Read>>;

impl Unpack<'_> {
    fn entry(&mut self, entry: &mut Archived<'_>) -> Result {
        let kind = entry.header().entry_type();
        // Says something of those that follow, which none needs.
        if kind == EntryType::XGlobalHeader {
            return Ok(());
        }
        let path = self.path(&entry.path_bytes())?;
        if self.whiteouts && self.hides(&path)? {
            return Ok(());
        }
        let pax = pax(entry)?;
        let finish = self.finish(entry, pax)?;
        self.parents(&path)?;
        if kind == EntryType::Directory {
            self.need_dir(&path)?;
            self.note(&path);
            self.dirs.push((path, finish));
            return Ok(());
        }
        self.make_way(&path)?;
        let kind = match kind {
            EntryType::Link => {
                let target = link_target(entry)?;
                let target = self.path(target.as_os_str().as_bytes())?;
                self.tree.hard_link(&target, &path)?;
                self.note(&path);
                return Ok(());
            }
            EntryType::Symlink => {
                self.tree.make_link(&link_target(entry)?, &path)?;
                Kind::Symlink
            }
            EntryType::Char | EntryType::Block | EntryType::Fifo => self.node(entry, &path)?,
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                let sink = self.tree.make_file(&path)?;
                self.content(entry, &*sink)?;
                Kind::File
            }
            other => {
                tracing::warn!("{} is left out: an entry of type {other:?}", path.display());
                return Ok(());
            }
        };
        self.tree.finish(&path, kind, &finish)?;
        self.note(&path);
        Ok(())
    }

    /// Where a name of the archive leads: below the base, whatever it says.
    ///
    /// # Errors
    /// A name with `..`.
    fn path(&self, name: &[u8]) -> Result<PathBuf> {
        let name = Path::new(OsStr::from_bytes(name));
        let mut path = self.base.to_owned();
        for part in name.components() {
            match part {
                Component::Normal(part) => path.push(part),
                Component::ParentDir => {
                    let message = format!(
                        "the archive holds the name {}, which leads out of it",
                        name.display()
                    );
                    return Err(Failure::new(Code::Usage, message));
                }
                _ => {}
            }
        }
        Ok(path)
    }

    fn note(&mut self, path: &Path) {
        if self.whiteouts {
            self.made.insert(path.to_owned());
        }
    }

    /// Makes the directories above, of which archives need not speak.
    fn parents(&mut self, path: &Path) -> Result {
        let Some(parent) = path.parent().filter(|dir| !self.known.contains(*dir)) else {
            return Ok(());
        };
        let above: Vec<&Path> = parent.ancestors().collect();
        for dir in above.into_iter().rev() {
            if self.known.contains(dir) {
                continue;
            }
            if !self.tree.is_dir(dir) {
                self.tree.make_dir(dir)?;
            }
            self.known.insert(dir.to_owned());
        }
        Ok(())
    }

    /// Makes a directory, in place of anything else of this name.
    fn need_dir(&mut self, path: &Path) -> Result {
        match self.tree.item(path)? {
            Some(item) if item.kind == Kind::Dir => {}
            // The place where all goes may be behind a symbolic link.
            Some(_) if path == self.base && self.tree.is_dir(path) => {}
            Some(item) => {
                self.remove(path, item.kind)?;
                self.tree.make_dir(path)?;
            }
            None => self.tree.make_dir(path)?,
        }
        self.known.insert(path.to_owned());
        Ok(())
    }

    /// Takes away what stands where something else than a directory is to be.
    fn make_way(&mut self, path: &Path) -> Result {
        match self.tree.item(path)? {
            None => Ok(()),
            Some(item) if item.kind == Kind::Dir && !self.whiteouts => {
                let message = format!(
                    "{} is a directory, and something else in the archive",
                    path.display()
                );
                Err(Failure::new(Code::Usage, message))
            }
            Some(item) => self.remove(path, item.kind),
        }
    }

    fn remove(&mut self, path: &Path, kind: Kind) -> Result {
        // Only these may be the directory of something.
        if matches!(kind, Kind::Dir | Kind::Symlink) {
            self.known.retain(|dir| !dir.starts_with(path));
        }
        self.tree.remove_all(path)
    }

    /// Does what a whiteout says; answers whether it is one.
    fn hides(&mut self, path: &Path) -> Result<bool> {
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok(false);
        };
        if name.as_bytes() == OPAQUE {
            if self.tree.is_dir(dir) {
                for name in self.tree.names(dir)? {
                    self.hide(&dir.join(name))?;
                }
            }
            return Ok(true);
        }
        let Some(hidden) = name.as_bytes().strip_prefix(WHITEOUT) else {
            return Ok(false);
        };
        match hidden {
            b"" | b"." | b".." => {
                let message = format!("{} is no whiteout that makes sense", path.display());
                Err(Failure::new(Code::Usage, message))
            }
            hidden => self
                .hide(&dir.join(OsStr::from_bytes(hidden)))
                .map(|()| true),
        }
    }

    /// Removes what was there before, and leaves what this archive brought.
    fn hide(&mut self, path: &Path) -> Result {
        // What lies below a path comes right behind it.
        let mut from_here = self.made.range(path.to_owned()..);
        let brought = from_here.next().is_some_and(|made| made.starts_with(path));
        if !brought {
            return match self.tree.item(path)? {
                Some(item) => self.remove(path, item.kind),
                None => Ok(()),
            };
        }
        if self
            .tree
            .item(path)?
            .is_some_and(|item| item.kind == Kind::Dir)
        {
            for name in self.tree.names(path)? {
                self.hide(&path.join(name))?;
            }
        }
        Ok(())
    }

    fn finish(&self, entry: &Archived<'_>, pax: Pax) -> Result<Finish> {
        let header = entry.header();
        let id = |id: u64| {
            u32::try_from(id).map_err(|_| {
                Failure::new(
                    Code::Usage,
                    format!("the archive has an owner {id}, which is none"),
                )
            })
        };
        let owner = match self.owner {
            Some(owner) => owner,
            None => (
                pax.uid
                    .map_or_else(|| id(header.uid().map_err(unreadable)?), Ok)?,
                pax.gid
                    .map_or_else(|| id(header.gid().map_err(unreadable)?), Ok)?,
            ),
        };
        // The crate does not see the sign of times before 1970.
        let seconds = header.mtime().map_err(unreadable)?.cast_signed();
        let span = Duration::from_secs(seconds.unsigned_abs());
        let modified = match seconds < 0 {
            true => UNIX_EPOCH.checked_sub(span),
            false => UNIX_EPOCH.checked_add(span),
        };
        Ok(Finish {
            owner: Some(owner),
            mode: Some(header.mode().map_err(unreadable)? & 0o7777),
            modified: pax.modified.or(modified),
            accessed: None,
            xattrs: pax.xattrs,
        })
    }

    fn node(&self, entry: &Archived<'_>, path: &Path) -> Result<Kind> {
        let header = entry.header();
        // Of a pipe the fields may be empty.
        let number =
            |n: std::io::Result<Option<u32>>| Ok::<_, Failure>(n.map_err(unreadable)?.unwrap_or(0));
        let device = || -> Result<(u32, u32)> {
            Ok((
                number(header.device_major())?,
                number(header.device_minor())?,
            ))
        };
        let node = match header.entry_type() {
            EntryType::Char => device().map(|(major, minor)| Node::CharDevice(major, minor)),
            EntryType::Block => device().map(|(major, minor)| Node::BlockDevice(major, minor)),
            _ => Ok(Node::Fifo),
        }?;
        self.tree.make_node(path, node)?;
        Ok(Kind::Node(node))
    }

    fn content(&mut self, entry: &mut Archived<'_>, sink: &dyn Sink) -> Result {
        let holes = entry.header().entry_type() == EntryType::GNUSparse;
        let (mut at, mut written) = (0, 0);
        loop {
            let n = fill(entry, &mut self.buf)?;
            if n == 0 {
                break;
            }
            let part = self.buf.get(..n).unwrap_or_default();
            for piece in part.chunks(if holes { HOLE } else { PART }) {
                if !holes || piece.iter().any(|b| *b != 0) {
                    sink.write_at(piece, at)?;
                    written = at + piece.len() as u64;
                }
                at += piece.len() as u64;
            }
            self.meter.bytes(n as u64)?;
        }
        match written < at {
            true => sink.set_len(at),
            false => Ok(()),
        }
    }
}

/// Fills the buffer, as far as the entry goes.
fn fill(entry: &mut Archived<'_>, buf: &mut [u8]) -> Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buf.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match entry.read(rest) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(unreadable(e)),
        }
    }
    Ok(filled)
}

fn link_target(entry: &Archived<'_>) -> Result<PathBuf> {
    match entry.link_name_bytes() {
        Some(target) => Ok(OsString::from_vec(target.into_owned()).into()),
        None => Err(Failure::new(
            Code::Usage,
            "the archive has a link that leads nowhere",
        )),
    }
}

fn pax(entry: &mut Archived<'_>) -> Result<Pax> {
    let mut pax = Pax::default();
    let Some(extensions) = entry.pax_extensions().map_err(unreadable)? else {
        return Ok(pax);
    };
    // The crate takes a newline in a value for its end.
    let mut torn = false;
    for extension in extensions {
        let Ok(extension) = extension else {
            torn = true;
            continue;
        };
        let Ok(key) = extension.key() else { continue };
        let (value, text) = (extension.value_bytes(), extension.value().ok());
        if key.starts_with("GNU.sparse.") {
            let message = "the archive has a file with holes in a form (PAX) that is not read";
            return Err(Failure::new(Code::Usage, message)
                .hint("pack it with `tar --format=gnu`, or without --sparse"));
        }
        match (key, text) {
            ("uid", Some(text)) => pax.uid = text.parse().ok(),
            ("gid", Some(text)) => pax.gid = text.parse().ok(),
            ("mtime", Some(text)) => pax.modified = time(text),
            _ => {
                if let Some(name) = key.strip_prefix(XATTR) {
                    pax.xattrs.push((name.into(), value.to_vec()));
                }
            }
        }
    }
    if torn {
        let path = entry.path_bytes();
        let name = String::from_utf8_lossy(&path);
        tracing::warn!("{name}: an attribute whose value has a newline in it is left out");
    }
    Ok(pax)
}

/// Seconds since 1970, perhaps with a fraction.
fn time(text: &str) -> Option<SystemTime> {
    let (sign, text) = match text.strip_prefix('-') {
        Some(text) => (true, text),
        None => (false, text),
    };
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let nanos = format!("{:0<9}", fraction.get(..9).unwrap_or(fraction));
    let span = Duration::new(seconds.parse().ok()?, nanos.parse().ok()?);
    match sign {
        true => UNIX_EPOCH.checked_sub(span),
        false => UNIX_EPOCH.checked_add(span),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_pax_headers_have_fractions() {
        let after = |s, n| Some(UNIX_EPOCH + Duration::new(s, n));
        assert_eq!(time("12"), after(12, 0));
        assert_eq!(time("12.5"), after(12, 500_000_000));
        assert_eq!(time("12.1234567891"), after(12, 123_456_789));
        assert_eq!(time("-1.5"), Some(UNIX_EPOCH - Duration::from_millis(1500)));
        assert_eq!(time("soon"), None);
    }
}
