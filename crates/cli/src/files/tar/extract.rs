//! Unpacking: makes the files of an archive in a volume.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use stetfs::{Node, Volume};
use tar::{Archive, Entry, EntryType};

use super::archive::{PART, unreadable};
use super::bounded::{Aside, AsideOfEntry, Bounded, Holes};
use super::chosen::Chosen;
use super::pax::Pax;
use super::told::Told;
use super::unpacked::Unpacked;
use crate::failure::{Code, Failure, Result};
use crate::files::meter::Meter;
use crate::files::tree::{Finish, Inside, Kind, Permissions, Sink, Tree, check_depth};

/// The prefix of a whiteout, a name that a layer removes.
pub(super) const WHITEOUT: &[u8] = b".wh.";
/// The name of an opaque whiteout: its directory hides everything that was there before.
const OPAQUE: &[u8] = b".wh..opq";

/// The way in which the entries of an archive are unpacked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unpacking {
    /// Owner and group of everything; `None` for those of the archive.
    pub(super) owner: Option<(u32, u32)>,
    /// Names that begin with `.wh.` remove what was there before.
    pub(super) whiteouts: bool,
}

/// Unpacks into `base`, which is created if it does not exist.
pub(super) fn extract(
    how: Unpacking,
    volume: &Volume,
    base: &Path,
    archive: &mut dyn Read,
    (chosen, told): (&mut Chosen, &mut Told),
    meter: &mut Meter,
) -> Result {
    volume.create_dir_all(base)?;
    let tree = &Inside::below(volume, base)?;
    let (archive, aside) = Bounded::new(archive);
    let mut unpack = Unpack {
        tree,
        aside,
        places: Unpacked::new(tree, base),
        owner: how.owner,
        whiteouts: how.whiteouts,
        chosen,
        told,
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
    // Directories get their attributes last, when nothing is added to them any more.
    for (path, finish) in unpack.dirs {
        // A whiteout or another entry may have taken its place.
        if tree.item(&path)?.is_some_and(|item| item.kind == Kind::Dir) {
            let made = tree.hold(&path, Kind::Dir)?;
            made.finish(&tree.shown(&path), &finish, unpack.meter)?;
        }
    }
    Ok(())
}

struct Unpack<'a> {
    tree: &'a Inside,
    places: Unpacked<'a>,
    aside: AsideOfEntry,
    owner: Option<(u32, u32)>,
    whiteouts: bool,
    chosen: &'a mut Chosen,
    told: &'a mut Told,
    /// The paths that came from this archive, if it may have whiteouts: these hide only what was
    /// there before.
    made: BTreeSet<PathBuf>,
    /// Directories of the archive, with the attributes that they get at the end.
    dirs: BTreeMap<PathBuf, Finish>,
    buf: Vec<u8>,
    meter: &'a mut Meter,
}

type Archived<'a, 'r> = Entry<'a, Bounded<&'r mut dyn Read>>;

impl Unpack<'_> {
    fn entry(&mut self, entry: &mut Archived<'_, '_>) -> Result {
        let kind = entry.header().entry_type();
        let Aside { mut pax, holes } = self.aside.take();
        let name = match pax.name() {
            Some(name) => tidy(name)?,
            None => tidy(&entry.path_bytes())?,
        };
        let link = pax.link.take();
        if !self.chosen.takes(&name) {
            return Ok(());
        }
        self.told.name(&told_name(&name, kind))?;
        if self.whiteouts && self.hides(&name)? {
            return Ok(());
        }
        for unread in &pax.unread {
            let message = format!(
                "{} was unpacked without an attribute: {unread}",
                name.display()
            );
            self.meter
                .troubles
                .tell(&Failure::new(Code::Usage, message));
        }
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
                let target = link_target(link, entry)?;
                self.link(&tidy(target.as_os_str().as_bytes())?, &path)?;
                self.note(&path);
                return Ok(());
            }
            EntryType::Symlink => {
                self.tree.make_link(&link_target(link, entry)?, &path)?;
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
                let holes = holes.unwrap_or_else(whole);
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
        let made = self.tree.hold(&path, kind)?;
        made.finish(&self.tree.shown(&path), &finish, self.meter)?;
        self.note(&path);
        Ok(())
    }

    /// Makes another name of a file.
    fn link(&mut self, target: &Path, path: &Path) -> Result {
        let Some(target) = self.places.place(target, false)? else {
            let message = format!(
                "{} is a link to {}, which does not exist",
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

    /// Makes a directory, and replaces anything else of this name.
    fn need_dir(&mut self, path: &Path) -> Result {
        match self.tree.item(path)? {
            Some(item) if item.kind == Kind::Dir => Ok(()),
            Some(_) => {
                self.tree.remove_all(path)?;
                self.tree.make_dir(path)
            }
            None => self.tree.make_dir(path),
        }
    }

    /// Removes the existing file where something other than a directory is to be made.
    fn make_way(&mut self, path: &Path) -> Result {
        match self.tree.item(path)? {
            None => Ok(()),
            Some(item) if item.kind == Kind::Dir && (!self.whiteouts || is_base(path)) => {
                let message = format!(
                    "./{} is a directory here, but not in the archive",
                    path.display()
                );
                Err(Failure::new(Code::Usage, message))
            }
            Some(_) => self.tree.remove_all(path),
        }
    }

    /// Carries out a whiteout; returns whether `name` is one.
    fn hides(&mut self, name: &Path) -> Result<bool> {
        let Some(hidden) = name
            .file_name()
            .and_then(|last| last.as_bytes().strip_prefix(WHITEOUT))
        else {
            return Ok(false);
        };
        if matches!(hidden, b"" | b"." | b"..") {
            let message = format!("{} is not a valid whiteout", name.display());
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

    /// Removes what was there before, and keeps what this archive brought.
    fn hide(&mut self, path: &Path) -> Result {
        // Paths below a path follow it directly in the order.
        let mut from_here = self.made.range(path.to_owned()..);
        let brought = from_here.next().is_some_and(|made| made.starts_with(path));
        if !brought {
            return match self.tree.item(path)? {
                Some(_) => self.tree.remove_all(path),
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

    fn finish(&self, entry: &Archived<'_, '_>, pax: Pax) -> Result<Finish> {
        let header = entry.header();
        let id = |id: u64| {
            u32::try_from(id).map_err(|_| {
                Failure::new(
                    Code::Usage,
                    format!("the archive has the owner id {id}, which is not valid"),
                )
            })
        };
        let owner = match self.owner {
            Some(owner) => owner,
            None => (
                id(pax
                    .uid
                    .map_or_else(|| header.uid(), Ok)
                    .map_err(unreadable)?)?,
                id(pax
                    .gid
                    .map_or_else(|| header.gid(), Ok)
                    .map_err(unreadable)?)?,
            ),
        };
        // The crate drops the sign of times before 1970.
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
            xattrs: pax.xattrs(),
            flags: None,
        })
    }

    fn node(&self, entry: &Archived<'_, '_>, path: &Path) -> Result<Kind> {
        let header = entry.header();
        // The fields of a pipe may be empty.
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

    fn content(&mut self, entry: &mut Archived<'_, '_>, sink: &dyn Sink, holes: &Holes) -> Result {
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

/// A name of the archive, as a path relative to the base.
///
/// # Errors
/// The name contains `..`.
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

/// The name as `-v` tells it.
fn told_name(name: &Path, kind: EntryType) -> OsString {
    let mut told = match name.as_os_str().is_empty() {
        true => OsString::from("."),
        false => OsString::from(name),
    };
    if kind == EntryType::Directory {
        told.push("/");
    }
    told
}

fn is_base(path: &Path) -> bool {
    path.as_os_str().is_empty()
}

/// Fills the buffer from the entry, as far as its data goes; returns the number of bytes.
fn fill(entry: &mut Archived<'_, '_>, buf: &mut [u8]) -> Result<usize> {
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

/// The target of a link: from its PAX header if there is one, else from its own header.
fn link_target(said: Option<Vec<u8>>, entry: &Archived<'_, '_>) -> Result<PathBuf> {
    match said.or_else(|| entry.link_name_bytes().map(Cow::into_owned)) {
        Some(target) => Ok(OsString::from_vec(target).into()),
        None => Err(Failure::new(
            Code::Usage,
            "the archive has a link that leads nowhere",
        )),
    }
}
