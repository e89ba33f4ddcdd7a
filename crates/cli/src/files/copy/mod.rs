//! `cp`: copies trees between volumes and the host.

mod applied;
mod attributes;
mod content;
mod existing;
mod layer;

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::vec;

use self::existing::Existing;
pub(super) use self::layer::Layer;
use super::args::CpArgs;
use super::left_out::LeftOut;
use super::meter::Meter;
use super::place::Place;
use super::spot::Spot;
use super::tree::{
    Content, Entered, Finish, GUARDS, Item, Kind, Made, Named, Permissions, SET_GID, Source, Tree,
    check_depth,
};
use super::volumes::Volumes;
use crate::failure::{Code, Failure, Result};

/// Bytes that are copied at a time.
const PART: usize = 1 << 20;

/// Runs `stetfs cp`.
pub(super) fn run(args: &CpArgs, json: bool) -> Result<Code> {
    let (from, to) = args.sources_and_target()?;
    if from
        .iter()
        .chain([&to])
        .all(|p| matches!(p, Place::Host(_)))
    {
        let message = "neither a source nor the destination is in a volume";
        return Err(Failure::new(Code::Usage, message)
            .hint("write IMAGE:/PATH for it, such as disk.img:/etc"));
    }
    let mut volumes = Volumes::default();
    let mut meter = Meter::start();
    let done = copy_all(args, from, &to, &mut volumes, &mut meter);
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
    // The target comes first, because its volume is opened for writing.
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
        if *place == Place::Host("-".into()) && target.path.is_none() {
            let message = "standard input has no name for a file in a directory";
            return Err(Failure::new(Code::Usage, message).hint("name the file as the target"));
        }
        let path = match (&source.name, &target.path) {
            (Some(name), None) if !args.dest.no_target_directory => Path::new(name),
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
            existing: Existing {
                stays: args.no_clobber,
                stays_if_newer: args.update,
            },
            follows: args.dereference,
            above: Vec::new(),
            copied: &mut copied,
            top: None,
            levels: Vec::new(),
            entered: Entered::default(),
            layer: None,
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
    copied.guard(meter)
}

/// Most symbolic links to directories that are followed inside each other.
const LINKS_MOST: usize = 40;

/// The files that a command has copied so far.
#[derive(Default)]
struct Copied {
    /// Files with several names, by their identity in the source.
    links: HashMap<(u64, u64), Link>,
    /// The command has several sources.
    several: bool,
    /// The number of sources that are done.
    sources: usize,
    /// The files made, except directories, each with the number of its source.
    made: HashMap<(u64, u64), usize>,
    /// Files with several names that will get guarding flags (immutable, append only), with their
    /// paths.
    guarded: Vec<(PathBuf, Box<dyn Made>, Finish)>,
}

impl Copied {
    /// Sets the guarding flags, which come last, when the files get no further names.
    fn guard(self, meter: &mut Meter) -> Result {
        for (path, made, guarded) in self.guarded {
            made.finish(&path, &guarded, meter)?;
        }
        Ok(())
    }
}

/// The copy of a file that has several names.
struct Link {
    path: PathBuf,
    id: (u64, u64),
    uid: u32,
}

/// A directory under copy.
struct Level {
    item: Item,
    made: Box<dyn Made>,
    /// The directory was not there before.
    is_new: bool,
    /// The names still to be copied.
    names: vec::IntoIter<OsString>,
}

/// The copy of a tree.
struct Copy<'a> {
    from: &'a dyn Tree,
    to: &'a dyn Tree,
    archive: bool,
    /// Modes are kept as they are.
    keeps_modes: bool,
    /// Attributes with power are kept: set-user-id and set-group-id, devices, `security.*`.
    keeps_special: bool,
    owner: Option<(u32, u32)>,
    to_host: bool,
    existing: Existing,
    /// Symbolic links are followed everywhere (`-L`).
    follows: bool,
    /// With `-L`, the directories of each tree whose links led here.
    above: Vec<Vec<(u64, u64)>>,
    copied: &'a mut Copied,
    /// The directory into which everything is copied.
    top: Option<(u64, u64)>,
    /// The directories under copy, each inside the one before it.
    levels: Vec<Level>,
    entered: Entered,
    /// The copy is a layer: it replaces whatever has its names.
    layer: Option<Layer<'a>>,
    buf: &'a mut [u8],
    meter: &'a mut Meter,
}

impl Copy<'_> {
    /// Copies the file or the tree at `from`.
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

    /// Copies a file, or enters a directory.
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
            Some(item) if self.layer.is_some_and(|layer| layer.is_whiteout(&item)) => self.hide(to),
            Some(item) if item.kind == Kind::Dir => self.enter(from, to, item),
            Some(item) if item.kind == Kind::Symlink && self.follows => self.followed(from, to),
            Some(item) => self.file(from, to, &item, None),
        }
    }

    /// Copies the file or tree to which the symbolic link at `from` leads.
    fn followed(&mut self, from: &Path, to: &Path) -> Result {
        let target = self.from.follow(from);
        let Some(target) = self.meter.troubles.pass(target)? else {
            return Ok(());
        };
        let here: Vec<_> = self.levels.iter().map(|level| level.item.id).collect();
        let mut above = self.above.clone();
        above.push(here);
        if above.iter().flatten().any(|id| *id == target.item.id) || above.len() > LINKS_MOST {
            let from = self.from.shown(from);
            let message = format!("{} leads back to a directory above it", from.display());
            self.meter
                .troubles
                .tell(&Failure::new(Code::Usage, message));
            return Ok(());
        }
        let mut copy = Copy {
            from: &*target.tree,
            to: self.to,
            copied: self.copied,
            above,
            levels: Vec::new(),
            entered: Entered::default(),
            buf: self.buf,
            meter: self.meter,
            ..*self
        };
        copy.tree(&target.path, to)
    }

    /// Copies anything but a directory; `content` is the content of a file that is open already.
    fn file(
        &mut self,
        from: &Path,
        to: &Path,
        item: &Item,
        content: Option<Box<dyn Content>>,
    ) -> Result {
        let there = self.to.item(to)?;
        if there
            .as_ref()
            .is_some_and(|there| self.existing.keeps(there, item))
        {
            return Ok(());
        }
        if there.as_ref().is_some_and(|there| there.id == item.id) {
            let (from, to) = (self.from.shown(from), self.to.shown(to));
            let message = format!("{} and {} are one file", from.display(), to.display());
            return Err(Failure::new(Code::Usage, message));
        }
        if self.has_names(item) && self.copied.links.contains_key(&item.id) {
            self.make_way(to, there.as_ref(), item.kind)?;
            self.link(to, item)?;
            self.meter.entry();
            return Ok(());
        }
        // The source is opened before an existing file gives way to its copy.
        let source = Source::of(self.from, from, item, content);
        let Some(source) = self.meter.troubles.pass(source)? else {
            return Ok(());
        };
        let replaced = self.replaced(to, there.as_ref(), item)?;
        self.make_way(to, there.as_ref(), item.kind)?;
        if let Some(made) = self.make(source, to, item)? {
            self.complete(made, from, to, item, replaced)?;
        }
        self.meter.entry();
        Ok(())
    }

    /// Removes the existing file at the target, if it may be replaced.
    fn make_way(&self, to: &Path, there: Option<&Item>, copied: Kind) -> Result {
        if let Some(there) = there {
            if let Some(layer) = self.layer {
                return layer.to.remove_all(to);
            }
            self.check_replaceable(to, there, copied)?;
            self.to.remove(to)?;
        }
        Ok(())
    }

    /// Gives a copy its attributes, those of `replaced` if it took a file's place, and notes it.
    fn complete(
        &mut self,
        made: Box<dyn Made>,
        from: &Path,
        to: &Path,
        item: &Item,
        replaced: Option<Finish>,
    ) -> Result {
        let shown = self.to.shown(to);
        let mut finish = match replaced {
            Some(finish) => finish,
            None => self.finish(from, item, true)?,
        };
        let flags = finish.flags.unwrap_or(0);
        let waits = self.has_names(item) && flags & GUARDS != 0;
        if waits {
            finish.flags = Some(flags & !GUARDS);
        }
        made.finish(&shown, &finish, self.meter)?;
        let copy = made.item(&shown)?;
        if self.copied.several {
            self.copied.made.insert(copy.id, self.copied.sources);
        }
        if self.has_names(item) {
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

    /// Whether the file may come again under another name: as with cp(1), with `-a` a followed
    /// symbolic link is a name, too.
    fn has_names(&self, item: &Item) -> bool {
        item.links > 1 || self.follows && self.archive
    }

    /// Makes another name of a file that was copied before.
    fn link(&self, to: &Path, item: &Item) -> Result {
        let Some(link) = self.copied.links.get(&item.id) else {
            return Ok(());
        };
        self.to.hard_link(&link.path, to)?;
        // Others could have replaced the first name meanwhile.
        let is = self.to.item(to)?;
        if is.is_none_or(|is| (is.id, is.uid) != (link.id, link.uid)) {
            self.to.remove(to)?;
            let path = self.to.shown(&link.path);
            let message = format!("{} was replaced while it was copied", path.display());
            return Err(Failure::new(Code::Io, message));
        }
        Ok(())
    }

    /// Checks that the existing file may give way to the copy. A file that another source brought
    /// may not; neither may a device, pipe or socket to a regular file (such as /dev/null), nor a
    /// symbolic link named as the target, whose target was meant.
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
                .hint("name its target, or remove it first")),
            _ => Ok(()),
        }
    }

    /// Enters a directory: makes its copy, and lists its names.
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
        if self.layer.is_some() {
            self.uncover(from, to)?;
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

    /// Leaves a directory whose content is complete.
    fn leave(&mut self, from: &Path, to: &Path) -> Result {
        let Some(level) = self.levels.pop() else {
            return Ok(());
        };
        let shown = self.to.shown(to);
        let mut finish = self.finish(from, &level.item, level.is_new)?;
        if let (Some(Permissions::Kept(mode)), false) = (&mut finish.permissions, self.archive) {
            // Its files keep its group, if the directory in which it was made has set-group-id.
            *mode |= level.made.item(&shown)?.mode & SET_GID;
        }
        level.made.finish(&shown, &finish, self.meter)?;
        self.meter.entry();
        Ok(())
    }

    /// Makes anything but a directory; `None` if it is left out.
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
            // Directories are handled by `enter`.
            Source::Dir => return Ok(None),
            Source::Content(content, runs) => {
                let sink = self.to.make_file(to, self.permissions(item))?;
                self.content(&*content, runs, item.size, &*sink)?;
                return Ok(Some(sink));
            }
        }
        self.to.hold(to, item.kind).map(Some)
    }

    fn in_the_way(&self, to: &Path, what: &str) -> Failure {
        let to = self.to.shown(to);
        let message = format!("{} {what}, and blocks the copy", to.display());
        Failure::new(Code::Usage, message)
    }
}
