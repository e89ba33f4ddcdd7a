//! Sections with directories and names: sizes of directories, long names, symlinks, device nodes,
//! hard links, renames.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink as make_symlink;
use std::path::PathBuf;

use anyhow::{Context, Result};
use rustix::fs::{CWD, FileType, Mode, RenameFlags, makedev, mknodat, renameat_with};

use super::site::Site;

/// Longest name in ext4, in bytes.
const NAME_MAX: usize = 255;
/// Most hard links of one inode; ext4's limit is 65,000.
const LINKS_EACH: u32 = 10_000;

pub(super) fn directories(site: &Site<'_>) -> Result<()> {
    fs::create_dir(site.path("empty"))?;
    fs::create_dir(site.path("one"))?;
    fs::write(site.path("one/entry"), "1")?;
    fs::create_dir(site.path("hundred"))?;
    for i in 0..100 {
        fs::write(site.path(&format!("hundred/entry-{i}")), i.to_string())?;
    }
    many(site)?;

    let mut deep = site.path("deep");
    fs::create_dir(&deep)?;
    for i in 0..40 {
        deep.push(format!("level-{i}"));
        fs::create_dir(&deep)?;
    }
    fs::write(deep.join("bottom"), "here")?;

    // A directory that was emptied keeps its blocks, full of unused entries.
    let emptied = site.path("emptied");
    fs::create_dir(&emptied)?;
    for i in 0..300 {
        fs::write(emptied.join(format!("{i}-{}", "x".repeat(60))), "")?;
    }
    for i in 0..299 {
        fs::remove_file(emptied.join(format!("{i}-{}", "x".repeat(60))))?;
    }
    Ok(())
}

/// A directory that needs an index (htree). If there are few inodes, most entries are further names
/// of few files.
fn many(site: &Site<'_>) -> Result<()> {
    let dir = site.path("many");
    fs::create_dir(&dir)?;
    let total = site.plan.entries;
    let files = u32::try_from(site.free_inodes / 8)
        .unwrap_or(u32::MAX)
        .min(2_000)
        .max(total / LINKS_EACH + 1);
    let name = |i: u32| {
        dir.join(format!(
            "entry-{i:05}{}",
            "-and-more".repeat(i as usize % 5)
        ))
    };
    for i in 0..total {
        if i < files {
            fs::write(name(i), format!("{i}")).with_context(|| format!("entry {i}"))?;
        } else {
            fs::hard_link(name(i % files), name(i)).with_context(|| format!("entry {i}"))?;
        }
    }
    // These removals make holes in the leaves of the index.
    for i in (0..total).filter(|i| i % 7 == 3) {
        fs::remove_file(name(i)).with_context(|| format!("removing entry {i}"))?;
    }
    Ok(())
}

pub(super) fn long_names(site: &Site<'_>) -> Result<()> {
    for i in 0..30u8 {
        let name = format!("{i:03}{}", "n".repeat(NAME_MAX - 3));
        fs::write(site.path(&name), [i])?;
    }
    fs::create_dir(site.path(&"d".repeat(NAME_MAX)))?;
    for (i, raw) in [
        &b"not-utf8-\xff\xfe"[..],
        b"new\nline",
        b"back\\slash",
        b" ",
        b"...",
        b"\x01",
        "gr\u{fc}n-\u{1F600}".as_bytes(),
    ]
    .into_iter()
    .enumerate()
    {
        fs::write(site.dir.join(OsStr::from_bytes(raw)), i.to_string())?;
    }
    Ok(())
}

pub(super) fn symlinks(site: &Site<'_>) -> Result<()> {
    fs::write(site.path("target"), "reached")?;
    // Targets up to 59 bytes are stored in the inode, longer ones in a block. The limit is PATH_MAX
    // (4096, with the final NUL) or the block.
    let longest = usize::try_from(site.block)?.min(4096) - 1;
    for length in [1, 59, 60, 61, 255, 1000, longest] {
        make_symlink("t".repeat(length), site.path(&format!("length-{length}")))
            .with_context(|| format!("length {length}"))?;
    }
    make_symlink("target", site.path("good"))?;
    make_symlink("nowhere/at/all", site.path("dangling"))?;
    make_symlink("..", site.path("up"))?;
    make_symlink(OsStr::from_bytes(b"\xff\xfe"), site.path("not-text"))?;
    Ok(())
}

pub(super) fn special(site: &Site<'_>) -> Result<()> {
    // ext4 stores device numbers above 8 bits in the new form.
    let nodes = [
        ("char-old", FileType::CharacterDevice, makedev(1, 3)),
        (
            "char-new",
            FileType::CharacterDevice,
            makedev(511, 1_000_000),
        ),
        ("block-old", FileType::BlockDevice, makedev(7, 200)),
        ("block-new", FileType::BlockDevice, makedev(259, 70_000)),
        ("fifo", FileType::Fifo, 0),
        ("socket", FileType::Socket, 0),
    ];
    for (name, kind, device) in nodes {
        mknodat(
            CWD,
            site.path(name),
            kind,
            Mode::from_raw_mode(0o640),
            device,
        )
        .context(name)?;
    }
    Ok(())
}

pub(super) fn hard_links(site: &Site<'_>) -> Result<()> {
    fs::create_dir(site.path("a"))?;
    fs::create_dir(site.path("b"))?;
    fs::write(site.path("original"), site.bytes.get(1, 9_000))?;
    for i in 0..20 {
        let dir = if i % 2 == 0 { "a" } else { "b" };
        fs::hard_link(site.path("original"), site.path(&format!("{dir}/link-{i}")))?;
    }
    for i in 0..5 {
        fs::remove_file(site.path(&format!("a/link-{}", i * 2)))?;
    }
    make_symlink("original", site.path("symlink"))?;
    fs::hard_link(site.path("symlink"), site.path("a/link-of-symlink"))?;
    mknodat(
        CWD,
        site.path("fifo"),
        FileType::Fifo,
        Mode::from_raw_mode(0o600),
        0,
    )?;
    fs::hard_link(site.path("fifo"), site.path("b/link-of-fifo"))?;
    Ok(())
}

pub(super) fn renames(site: &Site<'_>) -> Result<()> {
    let p = |name: &str| -> PathBuf { site.path(name) };
    for dir in ["from", "to", "from/sub", "to/empty", "tree", "tree/inner"] {
        fs::create_dir(p(dir))?;
    }
    for i in 0..12u64 {
        fs::write(p(&format!("from/file-{i}")), site.bytes.get(i, 2_000))?;
    }
    fs::write(p("to/file-3"), "replaced")?;
    fs::write(p("from/sub/inside"), "a directory that moves")?;
    fs::write(p("tree/inner/leaf"), "deep")?;
    fs::rename(p("from/file-0"), p("from/renamed"))?;
    fs::rename(
        p("from/file-1"),
        p("from/a-much-longer-name-than-before-so-that-the-entry-moves"),
    )?;
    fs::rename(p("from/file-2"), p("to/file-2"))?;
    fs::rename(p("from/file-3"), p("to/file-3")).context("over an existing file")?;
    fs::rename(p("from/sub"), p("to/empty")).context("a directory over an empty one")?;
    fs::rename(p("tree"), p("to/tree")).context("a directory across directories")?;
    let with = |from: &str, to: &str, flags| renameat_with(CWD, p(from), CWD, p(to), flags);
    with("from/file-4", "to/file-4", RenameFlags::NOREPLACE).context("RENAME_NOREPLACE")?;
    with("from/file-5", "to/file-4", RenameFlags::EXCHANGE).context("RENAME_EXCHANGE of files")?;
    with("from/file-6", "to/tree", RenameFlags::EXCHANGE)
        .context("RENAME_EXCHANGE of a file and a directory")?;
    with("from/file-7", "to/file-7", RenameFlags::WHITEOUT).context("RENAME_WHITEOUT")?;
    Ok(())
}
