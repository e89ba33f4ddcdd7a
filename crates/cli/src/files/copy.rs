//! `cp`.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::args::CpArgs;
use super::meter::Meter;
use super::place::Place;
use super::tree::{Entered, Finish, Host, Inside, Item, Kind, Tree, runs};
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
    let (target, path) = tree(to, Use::Write, args, volumes)?;
    let is_dir = target.is_dir(path);
    if !is_dir && (from.len() > 1 || ends_with_slash(path)) {
        let message = format!("{} is no directory", path.display());
        return Err(Failure::new(Code::Usage, message));
    }
    let mut links = HashMap::new();
    let mut buf = vec![0; PART];
    for place in from {
        let (source, source_path) = tree(place, Use::Read, args, volumes)?;
        let path = match last_name(source_path) {
            Some(name) if is_dir => path.join(name),
            _ => path.to_owned(),
        };
        let mut copy = Copy {
            from: &*source,
            to: &*target,
            archive: args.archive,
            owner: args.owner,
            links: &mut links,
            top: None,
            entered: Entered::default(),
            buf: &mut buf,
            meter,
        };
        copy.tree(source_path, &path)?;
    }
    Ok(())
}

/// The name that a copy gets in a directory; none of what ends in `.` or `..`, and of a root: what
/// is in it is copied.
fn last_name(path: &Path) -> Option<&OsStr> {
    let text = path.as_os_str().as_encoded_bytes();
    match text.ends_with(b"/.") || text == b"." {
        true => None,
        false => path.file_name(),
    }
}

fn ends_with_slash(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(b"/")
}

/// The files among which a place is, and its path there.
fn tree<'p>(
    place: &'p Place,
    how: Use,
    args: &CpArgs,
    volumes: &mut Volumes,
) -> Result<(Box<dyn Tree>, &'p Path)> {
    Ok(match place {
        Place::Host(path) => (Box::new(Host), path),
        Place::Inside { image, path } => (
            Box::new(Inside(volumes.get(image, how, &args.opening)?)),
            path,
        ),
    })
}

/// A copy of a tree.
struct Copy<'a> {
    from: &'a dyn Tree,
    to: &'a dyn Tree,
    archive: bool,
    owner: Option<(u32, u32)>,
    /// Files with several names that were copied, and where to.
    links: &'a mut HashMap<(u64, u64), PathBuf>,
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
            let message = format!("cannot copy {}: there is no such file", from.display());
            Failure::new(Code::NotFound, message)
        })?;
        if item.kind == Kind::Dir {
            return self.dir(from, to, &item);
        }
        if let Some(there) = self.to.item(to)? {
            if there.id == item.id {
                let message = format!("{} and {} are one file", from.display(), to.display());
                return Err(Failure::new(Code::Usage, message));
            }
            self.check_replaceable(to, there.kind, item.kind)?;
            self.to.remove(to)?;
        }
        if item.links > 1
            && let Some(copied) = self.links.get(&item.id)
        {
            self.to.hard_link(copied, to)?;
        } else if self.file(from, to, &item)? {
            let finish = self.finish(from, &item)?;
            self.to.finish(to, item.kind, &finish)?;
            if item.links > 1 {
                self.links.insert(item.id, to.to_owned());
            }
        } else {
            tracing::warn!("{} is left out: it may not be made here", from.display());
        }
        self.meter.entry();
        Ok(())
    }

    /// What is there may give way to what is copied: not /dev/null to a file, nor a link to one
    /// where the link was named, and what it leads to was meant.
    fn check_replaceable(&self, to: &Path, there: Kind, copied: Kind) -> Result {
        match (there, copied) {
            (Kind::Dir, _) => Err(in_the_way(to, "is a directory")),
            (Kind::Node(_), Kind::File) => Err(in_the_way(to, "is a device, pipe or socket")
                .hint("remove it first; stetfs cat IMAGE:/PATH > FILE writes into one")),
            (Kind::Symlink, Kind::File) if self.top.is_none() => {
                Err(in_the_way(to, "is a symbolic link")
                    .hint("name what it leads to, or remove it first"))
            }
            _ => Ok(()),
        }
    }

    fn dir(&mut self, from: &Path, to: &Path, item: &Item) -> Result {
        if self.from.names_dirs_once() {
            self.entered.add(from, item.id)?;
        }
        match self.to.item(to)? {
            None => self.to.make_dir(to)?,
            Some(there) if there.kind == Kind::Dir => {}
            // Where all goes may be behind a symbolic link, what is below not.
            Some(_) if self.top.is_none() && self.to.is_dir(to) => {}
            Some(_) => return Err(in_the_way(to, "is no directory")),
        }
        if self.top.is_none() {
            self.top = self.to.item(to)?.map(|there| there.id);
        }
        for name in self.from.names(from)? {
            let below = from.join(&name);
            let id = self.from.item(&below)?.map(|item| item.id);
            if id.is_some() && id == self.top {
                let message = format!("{} would be copied into itself", from.display());
                return Err(Failure::new(Code::Usage, message));
            }
            self.tree(&below, &to.join(&name))?;
        }
        let finish = self.finish(from, item)?;
        self.to.finish(to, Kind::Dir, &finish)?;
        self.meter.entry();
        Ok(())
    }

    /// Makes what is no directory; says whether that is permitted.
    fn file(&mut self, from: &Path, to: &Path, item: &Item) -> Result<bool> {
        match item.kind {
            Kind::Symlink => self.to.make_link(&self.from.link(from)?, to)?,
            Kind::Node(node) => return self.to.make_node(to, node),
            Kind::File | Kind::Dir => self.content(from, to, item.size)?,
        }
        Ok(true)
    }

    fn content(&mut self, from: &Path, to: &Path, size: u64) -> Result {
        let source = self.from.open(from)?;
        let sink = self.to.make_file(to)?;
        for data in runs(&*source, size)? {
            let mut at = data.start;
            while at < data.end {
                let most = usize::try_from(data.end - at).unwrap_or(PART).min(PART);
                let part = self.buf.get_mut(..most).unwrap_or_default();
                let n = source.read_at(part, at)?;
                if n == 0 {
                    // It was cut short meanwhile.
                    return Ok(());
                }
                sink.write_at(part.get(..n).unwrap_or_default(), at)?;
                at += n as u64;
                self.meter.bytes(n as u64)?;
            }
            if data.is_empty() {
                sink.set_len(size)?;
            }
        }
        Ok(())
    }

    fn finish(&self, from: &Path, item: &Item) -> Result<Finish> {
        let mut finish = Finish {
            owner: self.owner,
            mode: Some(item.mode),
            ..Finish::default()
        };
        if self.archive {
            finish.owner = self.owner.or(Some((item.uid, item.gid)));
            finish.modified = Some(item.modified);
            finish.accessed = Some(item.accessed);
            finish.xattrs = self.from.xattrs(from)?;
        }
        Ok(finish)
    }
}

fn in_the_way(path: &Path, what: &str) -> Failure {
    let message = format!(
        "{} {what}, and in the way of what is copied there",
        path.display()
    );
    Failure::new(Code::Usage, message)
}
