//! `cp`.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::args::CpArgs;
use super::left_out::LeftOut;
use super::meter::Meter;
use super::place::{Place, ends_with_slash, last_name, split};
use super::tree::{
    Entered, Finish, GUARDS, Host, Inside, Item, Kind, Made, Permissions, Tree, check_depth,
    needs_owner, runs, tame,
};
use super::volumes::{Use, Volumes};
use crate::failure::{Code, Failure, Result};

/// Bytes that are moved at a time.
const PART: usize = 1 << 20;

/// `stetfs cp`.
pub(super) fn run(args: &CpArgs, json: bool) -> Result {
    let Some((to, from)) = args.places.split_last() else {
        return Ok(());
    };
    if args.places.iter().all(|p| matches!(p, Place::Host(_))) {
        let message = "neither a source nor the destination is in a volume";
        return Err(Failure::new(Code::Usage, message)
            .hint("write IMAGE:/PATH for it, such as disk.img:/etc"));
    }
    let mut volumes = Volumes::default();
    let mut meter = Meter::start();
    let done = copy_all(args, from, to, &mut volumes, &mut meter);
    let done = volumes.close(done);
    meter.end(json && done.is_ok());
    done
}

fn copy_all(
    args: &CpArgs,
    from: &[Place],
    to: &Place,
    volumes: &mut Volumes,
    meter: &mut Meter,
) -> Result {
    // First, for it is opened for writing.
    let to_host = matches!(to, Place::Host(_));
    let target = Spot::target(to, from.len(), args, volumes)?;
    let mut copied = Copied {
        several: from.len() > 1,
        ..Copied::default()
    };
    let mut buf = vec![0; PART];
    for place in from {
        let source = Spot::source(place, args, volumes)?;
        let path = match (&source.name, &target.path) {
            (Some(name), None) => Path::new(name),
            (_, path) => path.as_deref().unwrap_or(Path::new("")),
        };
        let mut copy = Copy {
            from: &*source.tree,
            to: &*target.tree,
            archive: args.archive,
            keeps_modes: args.archive || !to_host,
            keeps_special: !args.no_special && (args.archive || !to_host),
            owner: args.owner,
            to_host,
            copied: &mut copied,
            top: None,
            entered: Entered::default(),
            buf: &mut buf,
            meter,
        };
        copy.tree(source.path.as_deref().unwrap_or(Path::new("")), path)?;
        copied.sources += 1;
    }
    // Now that they get no further name.
    for (made, guarded) in copied.guarded {
        meter.left_out(made.finish(&guarded)?);
    }
    Ok(())
}

/// The file that an argument names: a directory and a name in it, so that symbolic links are
/// followed as far as the user named them, and no further.
struct Spot {
    tree: Box<dyn Tree>,
    /// Below the directory; `None` is the directory itself.
    path: Option<PathBuf>,
    /// The name that a copy of it gets in a directory.
    name: Option<OsString>,
}

impl Spot {
    fn source(place: &Place, args: &CpArgs, volumes: &mut Volumes) -> Result<Spot> {
        Spot::open(place, Use::Read, false, args, volumes)
    }

    /// The target of copies of so many sources.
    fn target(place: &Place, sources: usize, args: &CpArgs, volumes: &mut Volumes) -> Result<Spot> {
        let (is_dir, path) = match place {
            Place::Host(path) => (path.is_dir(), path),
            Place::Inside { image, path } => {
                let volume = volumes.get(image, Use::Write, &args.opening)?;
                (volume.metadata(path).is_ok_and(|m| m.is_dir()), path)
            }
        };
        if !is_dir && (sources > 1 || ends_with_slash(path)) {
            let message = format!("{} is no directory", path.display());
            return Err(Failure::new(Code::Usage, message));
        }
        Spot::open(place, Use::Write, is_dir, args, volumes)
    }

    fn open(
        place: &Place,
        how: Use,
        is_dir: bool,
        args: &CpArgs,
        volumes: &mut Volumes,
    ) -> Result<Spot> {
        let (Place::Host(path) | Place::Inside { path, .. }) = place;
        let (base, below) = match is_dir {
            true => (path.as_path(), None),
            false => split(path),
        };
        let tree: Box<dyn Tree> = match place {
            Place::Host(_) => Box::new(Host::below(base)?),
            Place::Inside { image, .. } => {
                let volume = volumes.get(image, how, &args.opening)?;
                Box::new(Inside::below(&volume, base)?)
            }
        };
        Ok(Spot {
            tree,
            path: below.map(PathBuf::from),
            name: last_name(path).map(OsStr::to_owned),
        })
    }
}

/// The files that a command has copied.
#[derive(Default)]
struct Copied {
    /// Files with several names, by what they are in the source.
    links: HashMap<(u64, u64), Link>,
    /// There are several sources.
    several: bool,
    /// Sources that are done.
    sources: usize,
    /// Files made that are no directories, each with its source.
    made: HashMap<(u64, u64), usize>,
    /// Files with several names that are to be immutable, or to grow only.
    guarded: Vec<(Box<dyn Made>, Finish)>,
}

/// A copy of a file that has several names.
struct Link {
    path: PathBuf,
    id: (u64, u64),
    uid: u32,
}

/// A copy of a tree.
struct Copy<'a> {
    from: &'a dyn Tree,
    to: &'a dyn Tree,
    archive: bool,
    /// Modes, as they are.
    keeps_modes: bool,
    /// Attributes that give power: set-user-id and set-group-id, devices, `security.*`.
    keeps_special: bool,
    owner: Option<(u32, u32)>,
    to_host: bool,
    copied: &'a mut Copied,
    /// The directory into which all is copied.
    top: Option<(u64, u64)>,
    entered: Entered,
    buf: &'a mut [u8],
    meter: &'a mut Meter,
}

impl Copy<'_> {
    fn tree(&mut self, from: &Path, to: &Path) -> Result {
        self.meter.go_on()?;
        let item = self.from.item(from)?.ok_or_else(|| {
            let from = self.from.shown(from);
            let message = format!("cannot copy {}: there is no such file", from.display());
            Failure::new(Code::NotFound, message)
        })?;
        if item.kind == Kind::Dir {
            return self.dir(from, to, &item);
        }
        if let Some(there) = self.to.item(to)? {
            if there.id == item.id {
                let (from, to) = (self.from.shown(from), self.to.shown(to));
                let message = format!("{} and {} are one file", from.display(), to.display());
                return Err(Failure::new(Code::Usage, message));
            }
            self.check_replaceable(to, &there, item.kind)?;
            self.to.remove(to)?;
        }
        let linked = match item.links > 1 {
            true => self.link(to, &item)?,
            false => false,
        };
        if !linked && let Some(made) = self.make(from, to, &item)? {
            let mut finish = self.finish(from, &item, true)?;
            let flags = finish.flags.unwrap_or(0);
            let waits = item.links > 1 && flags & GUARDS != 0;
            if waits {
                finish.flags = Some(flags & !GUARDS);
            }
            self.meter.left_out(made.finish(&finish)?);
            let copy = made.item()?;
            if self.copied.several {
                self.copied.made.insert(copy.id, self.copied.sources);
            }
            if item.links > 1 {
                let (path, id, uid) = (to.to_owned(), copy.id, copy.uid);
                self.copied.links.insert(item.id, Link { path, id, uid });
            }
            if waits {
                let guarded = Finish {
                    flags: Some(flags),
                    ..Finish::default()
                };
                self.copied.guarded.push((made, guarded));
            }
        }
        self.meter.entry();
        Ok(())
    }

    /// Makes another name of what was copied before; answers whether it was.
    fn link(&self, to: &Path, item: &Item) -> Result<bool> {
        let Some(link) = self.copied.links.get(&item.id) else {
            return Ok(false);
        };
        self.to.hard_link(&link.path, to)?;
        // The name was there for others to put something else in its place.
        let is = self.to.item(to)?;
        if is.is_none_or(|is| (is.id, is.uid) != (link.id, link.uid)) {
            self.to.remove(to)?;
            let path = self.to.shown(&link.path);
            let message = format!("{} was replaced while it was copied", path.display());
            return Err(Failure::new(Code::Io, message));
        }
        Ok(true)
    }

    /// What is there may give way to what is copied: not /dev/null to a file, nor a link to one
    /// where the link was named, and what it leads to was meant; nor what another source brought.
    fn check_replaceable(&self, to: &Path, there: &Item, copied: Kind) -> Result {
        let brought = self.copied.made.get(&there.id);
        if brought.is_some_and(|source| *source != self.copied.sources) {
            return Err(self
                .in_the_way(to, "was copied just now")
                .hint("two sources have this name: copy them to two directories"));
        }
        match (there.kind, copied) {
            (Kind::Dir, _) => Err(self.in_the_way(to, "is a directory")),
            (Kind::Node(_), Kind::File) => Err(self
                .in_the_way(to, "is a device, pipe or socket")
                .hint("remove it first; stetfs cat IMAGE:/PATH > FILE writes into one")),
            (Kind::Symlink, Kind::File) if self.top.is_none() => Err(self
                .in_the_way(to, "is a symbolic link")
                .hint("name what it leads to, or remove it first")),
            _ => Ok(()),
        }
    }

    fn dir(&mut self, from: &Path, to: &Path, item: &Item) -> Result {
        check_depth(from)?;
        if self.from.names_dirs_once() {
            self.entered.add(&self.from.shown(from), item.id)?;
        }
        let new = match self.to.item(to)? {
            None => {
                self.to.make_dir(to)?;
                true
            }
            Some(there) if there.kind == Kind::Dir => false,
            Some(_) => return Err(self.in_the_way(to, "is no directory")),
        };
        let made = self.to.hold(to, Kind::Dir)?;
        if self.top.is_none() {
            self.top = Some(made.item()?.id);
        }
        for name in self.from.names(from)? {
            let below = from.join(&name);
            let id = self.from.item(&below)?.map(|item| item.id);
            if id.is_some() && id == self.top {
                let from = self.from.shown(from);
                let message = format!("{} would be copied into itself", from.display());
                return Err(Failure::new(Code::Usage, message));
            }
            self.tree(&below, &to.join(&name))?;
        }
        let finish = self.finish(from, item, new)?;
        self.meter.left_out(made.finish(&finish)?);
        self.meter.entry();
        Ok(())
    }

    /// Makes what is no directory; `None` if it is left out.
    fn make(&mut self, from: &Path, to: &Path, item: &Item) -> Result<Option<Box<dyn Made>>> {
        match item.kind {
            Kind::Symlink => self.to.make_link(&self.from.link(from)?, to)?,
            Kind::Node(node) => {
                let wanted = self.keeps_special || !item.kind.is_device();
                if !wanted || !self.to.make_node(to, node, self.permissions(item))? {
                    self.meter.left_out(LeftOut {
                        nodes: 1,
                        ..LeftOut::default()
                    });
                    return Ok(None);
                }
            }
            Kind::File | Kind::Dir => return Ok(Some(self.content(from, to, item)?)),
        }
        self.to.hold(to, item.kind).map(Some)
    }

    fn content(&mut self, from: &Path, to: &Path, item: &Item) -> Result<Box<dyn Made>> {
        let source = self.from.open(from, item)?;
        let sink = self.to.make_file(to, self.permissions(item))?;
        let size = item.size;
        for data in runs(&*source, size)? {
            let mut at = data.start;
            while at < data.end {
                let most = usize::try_from(data.end - at).unwrap_or(PART).min(PART);
                let part = self.buf.get_mut(..most).unwrap_or_default();
                let n = source.read_at(part, at)?;
                if n == 0 {
                    // It was cut short meanwhile.
                    return Ok(sink);
                }
                sink.write_at(part.get(..n).unwrap_or_default(), at)?;
                at += n as u64;
                self.meter.bytes(n as u64)?;
            }
            if data.is_empty() {
                sink.set_len(size)?;
            }
        }
        Ok(sink)
    }

    /// Whether the copy may have what has power. On the host not where `--owner` makes it somebody
    /// else's.
    fn may_have_power(&self, item: &Item) -> bool {
        let is_its = self.owner.is_none_or(|owner| owner == (item.uid, item.gid));
        self.keeps_special && (is_its || !self.to_host)
    }

    fn permissions(&self, item: &Item) -> Permissions {
        match self.keeps_modes {
            false => Permissions::New(item.mode),
            true if self.may_have_power(item) => Permissions::Kept(item.mode),
            true => Permissions::Kept(tame(item.kind, item.mode)),
        }
    }

    /// The attributes that a copy gets. A directory that was there keeps its mode where modes are
    /// not copied.
    fn finish(&mut self, from: &Path, item: &Item, new: bool) -> Result<Finish> {
        let mut finish = Finish {
            owner: self.owner,
            permissions: (new || self.keeps_modes).then(|| self.permissions(item)),
            ..Finish::default()
        };
        if let Some(Permissions::Kept(mode)) = finish.permissions {
            self.meter.left_out(LeftOut {
                bits: u64::from(item.kind != Kind::Symlink && mode != item.mode),
                ..LeftOut::default()
            });
        }
        if self.archive {
            finish.owner = self.owner.or(Some((item.uid, item.gid)));
            finish.modified = Some(item.modified);
            finish.accessed = Some(item.accessed);
            finish.xattrs = self.from.xattrs(from)?;
            finish.flags = self.from.flags(from, item)?;
        }
        if !self.may_have_power(item) {
            let guards = finish.flags.unwrap_or(0) & GUARDS;
            finish.flags = finish.flags.map(|flags| flags & !GUARDS);
            let all = finish.xattrs.len();
            finish.xattrs.retain(|(name, _)| !needs_owner(name));
            self.meter.left_out(LeftOut {
                attributes: (all - finish.xattrs.len()) as u64,
                flags: u64::from(guards != 0),
                ..LeftOut::default()
            });
        }
        Ok(finish)
    }

    fn in_the_way(&self, to: &Path, what: &str) -> Failure {
        let to = self.to.shown(to);
        let message = format!(
            "{} {what}, and in the way of what is copied there",
            to.display()
        );
        Failure::new(Code::Usage, message)
    }
}
