//! Unpacking.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use stetfs::{Node, Volume};
use tar::{Archive, Entry, EntryType};

use super::archive::{PART, XATTR, unreadable};
use super::bounded::{Bounded, Holes, HolesOfEntry};
use super::unpacked::Unpacked;
use crate::failure::{Code, Failure, Result};
use crate::files::args::TarArgs;
use crate::files::meter::Meter;
use crate::files::tree::{Finish, Inside, Kind, Permissions, Sink, Tree, Xattr, check_depth};

/// In front of a name that a layer removes.
const WHITEOUT: &[u8] = b".wh.";
/// The rest of the name where a directory hides all that was there before.
const OPAQUE: &[u8] = b".wh..opq";

/// Unpacks into `base`, which is made if it is not there.
pub(super) fn extract(
    args: &TarArgs,
    volume: &Volume,
    base: &Path,
    archive: Box<dyn Read>,
    meter: &mut Meter,
) -> Result {
    volume.create_dir_all(base)?;
    let tree = &Inside::below(volume, base)?;
    let (archive, holes) = Bounded::new(archive);
    let mut unpack = Unpack {
        tree,
        holes,
        places: Unpacked::new(tree, base),
        owner: args.owner,
        whiteouts: args.whiteouts,
        made: BTreeSet::new(),
        dirs: BTreeMap::new(),
        buf: vec![0; PART],
        meter,
    };
    let mut archive = Archive::new(archive);
    for entry in archive.entries().map_err(unreadable)? {
        unpack.meter.go_on()?;
        unpack.entry(&mut entry.map_err(unreadable)?)?;
        unpack.meter.entry();
    }
    // Now that nothing comes into them any more.
    for (path, finish) in unpack.dirs {
        // A whiteout or another entry may have taken its place.
        if tree.item(&path)?.is_some_and(|item| item.kind == Kind::Dir) {
            unpack
                .meter
                .left_out(tree.hold(&path, Kind::Dir)?.finish(&finish)?);
        }
    }
    Ok(())
}

struct Unpack<'a> {
    tree: &'a Inside,
    places: Unpacked<'a>,
    holes: HolesOfEntry,
    owner: Option<(u32, u32)>,
    whiteouts: bool,
    /// What came from this archive, if it may have whiteouts: these hide only what was there
    /// before.
    made: BTreeSet<PathBuf>,
    /// Directories of the archive, and what they are to have in the end.
    dirs: BTreeMap<PathBuf, Finish>,
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

type Archived<'a> = Entry<'a, Bounded<Box<dyn Read>>>;

impl Unpack<'_> {
    fn entry(&mut self, entry: &mut Archived<'_>) -> Result {
        let kind = entry.header().entry_type();
        // Says something of those that follow, which none needs.
        if kind == EntryType::XGlobalHeader {
            return Ok(());
        }
        let name = tidy(&entry.path_bytes())?;
        if self.whiteouts && self.hides(&name)? {
            return Ok(());
        }
        let pax = pax(entry)?;
        let finish = self.finish(entry, pax)?;
        let Some(path) = self.places.place(&name, true)? else {
            let message = format!("there is no directory for {}", name.display());
            return Err(Failure::new(Code::NotFound, message));
        };
        if kind == EntryType::Directory {
            self.need_dir(&path)?;
            self.note(&path);
            self.dirs.insert(path, finish);
            return Ok(());
        }
        self.make_way(&path)?;
        let kind = match kind {
            EntryType::Link => {
                let target = link_target(entry)?;
                self.link(&tidy(target.as_os_str().as_bytes())?, &path)?;
                self.note(&path);
                return Ok(());
            }
            EntryType::Symlink => {
                self.tree.make_link(&link_target(entry)?, &path)?;
                self.places.made_link(&path);
                Kind::Symlink
            }
            EntryType::Char | EntryType::Block | EntryType::Fifo => self.node(entry, &path)?,
            EntryType::Regular | EntryType::Continuous => {
                let size = entry.size();
                let whole = || Holes {
                    size,
                    runs: std::iter::once(0..size).collect(),
                };
                let holes = self.holes.take().unwrap_or_else(whole);
                let permissions = Permissions::Kept(0);
                let sink = self.tree.make_file(&path, permissions)?;
                self.content(entry, &*sink, &holes)?;
                Kind::File
            }
            other => {
                tracing::warn!("{} is left out: an entry of type {other:?}", path.display());
                return Ok(());
            }
        };
        self.meter
            .left_out(self.tree.hold(&path, kind)?.finish(&finish)?);
        self.note(&path);
        Ok(())
    }

    /// Makes another name of a file.
    fn link(&mut self, target: &Path, path: &Path) -> Result {
        let Some(target) = self.places.place(target, false)? else {
            let message = format!(
                "{} is a link to {}, which is not there",
                path.display(),
                target.display()
            );
            return Err(Failure::new(Code::Usage, message));
        };
        self.tree.hard_link(&target, path)?;
        if self.is(path, Kind::Symlink)? {
            self.places.made_link(path);
        }
        Ok(())
    }

    fn is(&self, path: &Path, kind: Kind) -> Result<bool> {
        let item = self.tree.item(path)?;
        Ok(item.is_some_and(|item| item.kind == kind))
    }

    fn note(&mut self, path: &Path) {
        if self.whiteouts {
            self.made.insert(path.to_owned());
        }
    }

    /// Makes a directory, in place of anything else of this name.
    fn need_dir(&mut self, path: &Path) -> Result {
        match self.tree.item(path)? {
            Some(item) if item.kind == Kind::Dir => Ok(()),
            Some(item) => {
                self.remove(path, item.kind)?;
                self.tree.make_dir(path)
            }
            None => self.tree.make_dir(path),
        }
    }

    /// Takes away what stands where something else than a directory is to be.
    fn make_way(&mut self, path: &Path) -> Result {
        match self.tree.item(path)? {
            None => Ok(()),
            Some(item) if item.kind == Kind::Dir && (!self.whiteouts || is_base(path)) => {
                let message = format!(
                    "./{} is a directory, and something else in the archive",
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
            self.places.removed();
        }
        self.tree.remove_all(path)
    }

    /// Does what a whiteout says; answers whether it is one.
    fn hides(&mut self, name: &Path) -> Result<bool> {
        let Some(hidden) = name
            .file_name()
            .and_then(|last| last.as_bytes().strip_prefix(WHITEOUT))
        else {
            return Ok(false);
        };
        if matches!(hidden, b"" | b"." | b"..") {
            let message = format!("{} is no whiteout that makes sense", name.display());
            return Err(Failure::new(Code::Usage, message));
        }
        let Some(place) = self.places.place(name, false)? else {
            return Ok(true);
        };
        let dir = place.parent().unwrap_or(Path::new(""));
        if hidden == OPAQUE {
            if self.is(dir, Kind::Dir)? {
                for name in self.tree.names(dir)? {
                    self.hide(&dir.join(name))?;
                }
            }
        } else {
            self.hide(&dir.join(OsStr::from_bytes(hidden)))?;
        }
        Ok(true)
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
        if self.is(path, Kind::Dir)? {
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
        let mode = header.mode().map_err(unreadable)? & 0o7777;
        Ok(Finish {
            owner: Some(owner),
            permissions: Some(Permissions::Kept(mode)),
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
        self.tree.make_node(path, node, Permissions::Kept(0))?;
        Ok(Kind::Node(node))
    }

    fn content(&mut self, entry: &mut Archived<'_>, sink: &dyn Sink, holes: &Holes) -> Result {
        let mut written = 0;
        for run in &holes.runs {
            let mut at = run.start;
            while at < run.end {
                let most = usize::try_from(run.end - at).unwrap_or(PART).min(PART);
                let n = fill(entry, self.buf.get_mut(..most).unwrap_or_default())?;
                if n == 0 {
                    return Err(unreadable(std::io::ErrorKind::UnexpectedEof.into()));
                }
                sink.write_at(self.buf.get(..n).unwrap_or_default(), at)?;
                at += n as u64;
                written = at;
                self.meter.bytes(n as u64)?;
            }
        }
        match written < holes.size {
            true => sink.set_len(holes.size),
            false => Ok(()),
        }
    }
}

/// A name of the archive, as a path that leads on from the base.
///
/// # Errors
/// A name with `..`.
fn tidy(name: &[u8]) -> Result<PathBuf> {
    let name = Path::new(OsStr::from_bytes(name));
    let mut path = PathBuf::new();
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
    check_depth(&path)?;
    Ok(path)
}

fn is_base(path: &Path) -> bool {
    path.as_os_str().is_empty()
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
