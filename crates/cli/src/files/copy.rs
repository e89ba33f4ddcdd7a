//! `cp`.

use std::collections::HashMap;
use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::vec;

use super::args::CpArgs;
use super::left_out::LeftOut;
use super::meter::Meter;
use super::place::Place;
use super::spot::Spot;
use super::tree::{
    Content, Entered, Finish, GUARDS, Item, Kind, Made, Named, Permissions, SET_GID, Sink, Source,
    Tree, check_depth, needs_owner, tame,
};
use super::volumes::Volumes;
use crate::failure::{Code, Failure, Result};

/// Bytes that are moved at a time.
const PART: usize = 1 << 20;

/// `stetfs cp`.
pub(super) fn run(args: &CpArgs, json: bool) -> Result<Code> {
    let Some((to, from)) = args.places.split_last() else {
        return Ok(Code::Done);
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
    done.and_then(|()| meter.troubles.end("copied", json))
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
        let source = Spot::source(place, args, volumes);
        let Some(source) = meter.troubles.pass(source)? else {
            continue;
        };
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
            levels: Vec::new(),
            entered: Entered::default(),
            buf: &mut buf,
            meter,
        };
        let from = source.path.as_deref().unwrap_or(Path::new(""));
        match source.named {
            Some(Named { item, content }) => copy.file(from, path, &item, content)?,
            None => copy.tree(from, path)?,
        }
        copied.sources += 1;
    }
    // Now that they get no further name.
    for (path, made, guarded) in copied.guarded {
        made.finish(&path, &guarded, meter)?;
    }
    Ok(())
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
    /// Files with several names that are to be immutable, or to grow only, with their paths.
    guarded: Vec<(PathBuf, Box<dyn Made>, Finish)>,
}

/// A copy of a file that has several names.
struct Link {
    path: PathBuf,
    id: (u64, u64),
    uid: u32,
}

/// A directory that is being copied.
struct Level {
    item: Item,
    made: Box<dyn Made>,
    /// It was not there before.
    is_new: bool,
    /// Names that are to be copied yet.
    names: vec::IntoIter<OsString>,
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
    /// The directories that are being copied, each in the one before it.
    levels: Vec<Level>,
    entered: Entered,
    buf: &'a mut [u8],
    meter: &'a mut Meter,
}

impl Copy<'_> {
    /// Copies what is at `from`, with all that is below.
    fn tree(&mut self, from: &Path, to: &Path) -> Result {
        let (mut from, mut to) = (from.to_owned(), to.to_owned());
        self.entry(&from, &to)?;
        while let Some(level) = self.levels.last_mut() {
            let Some(name) = level.names.next() else {
                self.leave(&from, &to)?;
                if !self.levels.is_empty() {
                    from.pop();
                    to.pop();
                }
                continue;
            };
            from.push(&name);
            to.push(&name);
            let depth = self.levels.len();
            self.entry(&from, &to)?;
            if self.levels.len() == depth {
                from.pop();
                to.pop();
            }
        }
        Ok(())
    }

    /// Copies a file, or goes into a directory.
    fn entry(&mut self, from: &Path, to: &Path) -> Result {
        self.meter.go_on()?;
        let item = self.from.item(from).and_then(|item| {
            item.ok_or_else(|| {
                let from = self.from.shown(from);
                let message = format!("cannot copy {}: there is no such file", from.display());
                Failure::new(Code::NotFound, message)
            })
        });
        match self.meter.troubles.pass(item)? {
            None => Ok(()),
            Some(item) if item.kind == Kind::Dir => self.enter(from, to, item),
            Some(item) => self.file(from, to, &item, None),
        }
    }

    /// Copies what is no directory; `content` is what is open of it already.
    fn file(
        &mut self,
        from: &Path,
        to: &Path,
        item: &Item,
        content: Option<Box<dyn Content>>,
    ) -> Result {
        let there = self.to.item(to)?;
        if there.as_ref().is_some_and(|there| there.id == item.id) {
            let (from, to) = (self.from.shown(from), self.to.shown(to));
            let message = format!("{} and {} are one file", from.display(), to.display());
            return Err(Failure::new(Code::Usage, message));
        }
        if item.links > 1 && self.copied.links.contains_key(&item.id) {
            self.make_way(to, there.as_ref(), item.kind)?;
            self.link(to, item)?;
            self.meter.entry();
            return Ok(());
        }
        // Before anything has to give way to it.
        let source = Source::of(self.from, from, item, content);
        let Some(source) = self.meter.troubles.pass(source)? else {
            return Ok(());
        };
        self.make_way(to, there.as_ref(), item.kind)?;
        if let Some(made) = self.make(source, to, item)? {
            self.complete(made, from, to, item)?;
        }
        self.meter.entry();
        Ok(())
    }

    /// Takes away what is in the way, if it may be.
    fn make_way(&self, to: &Path, there: Option<&Item>, copied: Kind) -> Result {
        if let Some(there) = there {
            self.check_replaceable(to, there, copied)?;
            self.to.remove(to)?;
        }
        Ok(())
    }

    /// Gives what was made all that it is to have, and notes it.
    fn complete(&mut self, made: Box<dyn Made>, from: &Path, to: &Path, item: &Item) -> Result {
        let shown = self.to.shown(to);
        let mut finish = self.finish(from, item, true)?;
        let flags = finish.flags.unwrap_or(0);
        let waits = item.links > 1 && flags & GUARDS != 0;
        if waits {
            finish.flags = Some(flags & !GUARDS);
        }
        made.finish(&shown, &finish, self.meter)?;
        let copy = made.item(&shown)?;
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
            self.copied.guarded.push((shown, made, guarded));
        }
        Ok(())
    }

    /// Makes another name of what was copied before.
    fn link(&self, to: &Path, item: &Item) -> Result {
        let Some(link) = self.copied.links.get(&item.id) else {
            return Ok(());
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
        Ok(())
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

    /// Makes a directory, and goes into it.
    fn enter(&mut self, from: &Path, to: &Path, item: Item) -> Result {
        check_depth(from)?;
        if self.top == Some(item.id) {
            let from = self.from.shown(from.parent().unwrap_or(from));
            let message = format!("{} would be copied into itself", from.display());
            return Err(Failure::new(Code::Usage, message));
        }
        if self.from.names_dirs_once() {
            let entered = self.entered.add(&self.from.shown(from), item.id);
            if self.meter.troubles.pass(entered)?.is_none() {
                return Ok(());
            }
        }
        let is_new = match self.to.item(to)? {
            None => {
                self.to.make_dir(to)?;
                true
            }
            Some(there) if there.kind == Kind::Dir => false,
            Some(_) => return Err(self.in_the_way(to, "is no directory")),
        };
        let made = self.to.hold(to, Kind::Dir)?;
        if self.top.is_none() {
            self.top = Some(made.item(&self.to.shown(to))?.id);
        }
        let names = self.meter.troubles.pass(self.from.names(from))?;
        self.levels.push(Level {
            item,
            made,
            is_new,
            names: names.unwrap_or_default().into_iter(),
        });
        Ok(())
    }

    /// Leaves a directory, in which everything is by now.
    fn leave(&mut self, from: &Path, to: &Path) -> Result {
        let Some(level) = self.levels.pop() else {
            return Ok(());
        };
        let shown = self.to.shown(to);
        let mut finish = self.finish(from, &level.item, level.is_new)?;
        if let (Some(Permissions::Kept(mode)), false) = (&mut finish.permissions, self.archive) {
            // Its files keep its group, if those of the directory where it was made do.
            *mode |= level.made.item(&shown)?.mode & SET_GID;
        }
        level.made.finish(&shown, &finish, self.meter)?;
        self.meter.entry();
        Ok(())
    }

    /// Makes what is no directory; `None` if it is left out.
    fn make(&mut self, source: Source, to: &Path, item: &Item) -> Result<Option<Box<dyn Made>>> {
        match source {
            Source::Link(target) => self.to.make_link(&target, to)?,
            Source::Node(node) => {
                let wanted = self.keeps_special || !item.kind.is_device();
                if !wanted || !self.to.make_node(to, node, self.permissions(item))? {
                    self.meter.left_out(LeftOut {
                        nodes: 1,
                        ..LeftOut::default()
                    });
                    return Ok(None);
                }
            }
            // Directories are gone into.
            Source::Dir => return Ok(None),
            Source::Content(content, runs) => {
                let sink = self.to.make_file(to, self.permissions(item))?;
                self.content(&*content, runs, item.size, &*sink)?;
                return Ok(Some(sink));
            }
        }
        self.to.hold(to, item.kind).map(Some)
    }

    /// Copies content. What cannot be read of it is told; the copy has what comes before.
    fn content(
        &mut self,
        source: &dyn Content,
        runs: Vec<Range<u64>>,
        size: u64,
        sink: &dyn Sink,
    ) -> Result {
        let ends_with_hole = runs.last().is_some_and(Range::is_empty);
        // Behind the size there may be more: of a file in /proc, of a pipe, of one that grows.
        let behind = std::iter::once(size..u64::MAX);
        for data in runs.into_iter().chain(behind) {
            let mut at = data.start;
            while at < data.end {
                let most = usize::try_from(data.end - at).unwrap_or(PART).min(PART);
                let part = self.buf.get_mut(..most).unwrap_or_default();
                let Some(n) = self.meter.troubles.pass(source.read_at(part, at))? else {
                    return Ok(());
                };
                if n == 0 {
                    // The end, or it was cut short meanwhile.
                    return match at == size && ends_with_hole {
                        true => sink.set_len(size),
                        false => Ok(()),
                    };
                }
                sink.write_at(part.get(..n).unwrap_or_default(), at)?;
                at += n as u64;
                self.meter.bytes(n as u64)?;
            }
        }
        Ok(())
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

    /// The attributes that a copy gets. Without `-a` a directory that was there keeps its mode.
    fn finish(&mut self, from: &Path, item: &Item, is_new: bool) -> Result<Finish> {
        let mut finish = Finish {
            owner: self.owner,
            permissions: (is_new || self.archive).then(|| self.permissions(item)),
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
            let xattrs = self.from.xattrs(from);
            finish.xattrs = self.meter.troubles.pass(xattrs)?.unwrap_or_default();
            let flags = self.from.flags(from, item);
            finish.flags = self.meter.troubles.pass(flags)?.flatten();
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
