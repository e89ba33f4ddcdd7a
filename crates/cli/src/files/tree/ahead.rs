//! A tree of the host that a thread reads ahead, in the order in which a copy goes through it: the
//! thread waits for the host while the copy works on the volume.
//!
//! Only successes are read ahead. What the thread left out (errors, large files, files with holes)
//! the copy asks the host for, as without it.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use stetfs::Node;

use super::host::Host;
use super::host_dir::{Held, HostDir, xattrs_of};
use super::host_item::{flags_of, to_item};
use super::{Content, Followed, Item, Kind, Made, Permissions, Sink, Tree, Xattr};
use crate::failure::Result;

/// Largest file that is read ahead, bytes.
const FILE_MOST: u64 = 1 << 20;
/// Files and bytes that are handed over at a time, and most such parts that wait.
const PART_FILES: usize = 64;
const PART_BYTES: u64 = 1 << 20;
const PARTS: usize = 4;
/// Deepest directory that is read ahead: each takes a descriptor.
const DEPTH_MOST: usize = 200;

/// A file that was read.
struct Ready {
    path: PathBuf,
    item: Option<Item>,
    names: Option<Vec<OsString>>,
    link: Option<PathBuf>,
    xattrs: Option<Vec<Xattr>>,
    flags: Option<Option<u32>>,
    content: Option<Vec<u8>>,
}

/// The files below a directory of the host, read ahead.
pub(in crate::files) struct Ahead {
    host: Host,
    state: RefCell<State>,
    reader: Option<JoinHandle<()>>,
}

struct State {
    /// `None` when nothing more comes.
    parts: Option<Receiver<Vec<Ready>>>,
    part: std::vec::IntoIter<Ready>,
    /// The file that the copy is at, below the directories above it.
    here: Vec<Ready>,
}

impl Ahead {
    /// The files below `path`, as [`Host::below`] has them. They are expected to be asked for in
    /// the order of their names, a directory before what is in it.
    ///
    /// # Errors
    /// As [`Host::below`].
    pub(in crate::files) fn below(path: &Path) -> Result<Ahead> {
        let host = Host::below(path)?;
        let (out, parts) = sync_channel(PARTS);
        let base = HostDir::open(path).map_err(|e| crate::files::failed::host("open", path, e))?;
        let thread = std::thread::Builder::new().name("stet-ahead".into());
        let reader = thread.spawn(move || Reader::new(out).tree(&base));
        let reader = reader.inspect_err(|e| tracing::debug!("nothing is read ahead: {e}"));
        Ok(Ahead {
            host,
            state: RefCell::new(State {
                parts: Some(parts),
                part: Vec::new().into_iter(),
                here: Vec::new(),
            }),
            reader: reader.ok(),
        })
    }

    /// A part of the file at `path`; `None` if it was not read.
    fn ready<T>(&self, path: &Path, take: impl FnOnce(&mut Ready) -> Option<T>) -> Option<T> {
        let mut state = self.state.borrow_mut();
        let at = state.here.iter_mut().rev();
        take(at.into_iter().find(|ready| ready.path == path)?)
    }
}

impl State {
    /// Goes on to the file at `path`.
    fn reach(&mut self, path: &Path) {
        while self.here.last().is_none_or(|ready| ready.path != path) {
            let next = self.part.next().or_else(|| {
                let part = self.parts.as_ref()?.recv().ok()?;
                self.part = part.into_iter();
                self.part.next()
            });
            let Some(next) = next else {
                self.parts = None;
                return;
            };
            let is_above = |ready: &Ready| next.path.starts_with(&ready.path);
            while self.here.last().is_some_and(|last| !is_above(last)) {
                self.here.pop();
            }
            self.here.push(next);
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // The thread ends at the next part that nobody takes.
        self.state.get_mut().parts = None;
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// The thread's part.
struct Reader {
    out: SyncSender<Vec<Ready>>,
    part: Vec<Ready>,
    bytes: u64,
    /// Files with several names that were read: their other names are links.
    linked: HashSet<(u64, u64)>,
}

/// The copy wants no more.
struct Ended;

impl Reader {
    fn new(out: SyncSender<Vec<Ready>>) -> Reader {
        Reader {
            out,
            part: Vec::new(),
            bytes: 0,
            linked: HashSet::new(),
        }
    }

    fn tree(mut self, base: &HostDir) {
        let done = self.file(base, OsStr::new("."), PathBuf::new(), 0);
        if done.is_ok() {
            // Without a receiver the copy has ended.
            let _ = self.send();
        }
    }

    fn send(&mut self) -> std::result::Result<(), Ended> {
        self.bytes = 0;
        self.out
            .send(std::mem::take(&mut self.part))
            .map_err(|_| Ended)
    }

    /// Reads the file `name` of a directory, and all that is below it.
    fn file(
        &mut self,
        dir: &HostDir,
        name: &OsStr,
        path: PathBuf,
        depth: usize,
    ) -> std::result::Result<(), Ended> {
        let ready = self.read(dir, name, path.clone());
        let names = ready.names.clone();
        self.bytes += ready.content.as_ref().map_or(0, |bytes| bytes.len() as u64);
        self.part.push(ready);
        if self.part.len() >= PART_FILES || self.bytes >= PART_BYTES {
            self.send()?;
        }
        let (Some(names), true) = (names, depth < DEPTH_MOST) else {
            return Ok(());
        };
        let Ok(below) = dir.dir(name) else {
            return Ok(());
        };
        for name in names {
            self.file(&below, &name, path.join(&name), depth + 1)?;
        }
        Ok(())
    }

    fn read(&mut self, dir: &HostDir, name: &OsStr, path: PathBuf) -> Ready {
        let mut ready = Ready {
            path,
            item: dir.stat(name).ok().map(|m| to_item(&m)),
            names: None,
            link: None,
            xattrs: None,
            flags: None,
            content: None,
        };
        let kind = ready.item.as_ref().map(|item| item.kind);
        match kind {
            Some(Kind::File) => self.content(dir, name, &mut ready),
            Some(kind) => {
                let held = dir.hold(name).ok();
                ready.xattrs = held.and_then(|held: Held| held.xattrs().ok());
                match kind {
                    Kind::Dir => {
                        ready.names = dir.sorted_names(name).ok();
                        let open = dir.open_file(name).ok();
                        ready.flags = open.and_then(|file| flags_of(&file).ok());
                    }
                    Kind::Symlink => ready.link = dir.link(name).ok(),
                    _ => {}
                }
            }
            None => {}
        }
        ready
    }

    /// Reads a file through one descriptor, so that all belongs together.
    fn content(&mut self, dir: &HostDir, name: &OsStr, ready: &mut Ready) {
        let Ok(file) = dir.open_file(name) else {
            return;
        };
        let item = rustix::fs::fstat(&file).ok().map(|m| to_item(&m));
        let Some(item) = item.filter(|item| item.kind == Kind::File) else {
            ready.item = None;
            return;
        };
        ready.flags = flags_of(&file).ok();
        ready.xattrs = xattrs_of(&file).ok();
        let is_first = item.links < 2 || self.linked.insert(item.id);
        if is_first && !item.is_sparse && item.size <= FILE_MOST {
            let mut bytes = Vec::with_capacity(usize::try_from(item.size).unwrap_or(0));
            let read = (&file).take(item.size).read_to_end(&mut bytes);
            let is_whole = read.is_ok_and(|n| n as u64 == item.size);
            ready.content = is_whole.then_some(bytes);
        }
        ready.item = Some(item);
    }
}

/// A file that was read whole.
struct Whole(Vec<u8>);

impl Content for Whole {
    fn next_data(&self, from: u64) -> Result<Option<Range<u64>>> {
        let size = self.0.len() as u64;
        Ok((from < size).then_some(from..size))
    }

    fn read_at(&self, buf: &mut [u8], at: u64) -> Result<usize> {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let rest = self.0.get(at..).unwrap_or_default();
        let n = rest.len().min(buf.len());
        if let (Some(to), Some(from)) = (buf.get_mut(..n), rest.get(..n)) {
            to.copy_from_slice(from);
        }
        Ok(n)
    }
}

impl Tree for Ahead {
    fn shown(&self, path: &Path) -> PathBuf {
        self.host.shown(path)
    }

    fn item(&self, path: &Path) -> Result<Option<Item>> {
        self.state.borrow_mut().reach(path);
        match self.ready(path, |ready| ready.item.clone()) {
            Some(item) => Ok(Some(item)),
            None => self.host.item(path),
        }
    }

    fn names(&self, dir: &Path) -> Result<Vec<OsString>> {
        let names = self.ready(dir, |ready| ready.names.take());
        names.map_or_else(|| self.host.names(dir), Ok)
    }

    fn names_dirs_once(&self) -> bool {
        self.host.names_dirs_once()
    }

    fn link(&self, path: &Path) -> Result<PathBuf> {
        let link = self.ready(path, |ready| ready.link.take());
        link.map_or_else(|| self.host.link(path), Ok)
    }

    fn follow(&self, path: &Path) -> Result<Followed> {
        self.host.follow(path)
    }

    fn xattrs(&self, path: &Path) -> Result<Vec<Xattr>> {
        let xattrs = self.ready(path, |ready| ready.xattrs.clone());
        xattrs.map_or_else(|| self.host.xattrs(path), Ok)
    }

    fn flags(&self, path: &Path, item: &Item) -> Result<Option<u32>> {
        if !matches!(item.kind, Kind::File | Kind::Dir) {
            return Ok(None);
        }
        let flags = self.ready(path, |ready| ready.flags);
        flags.map_or_else(|| self.host.flags(path, item), Ok)
    }

    fn open(&self, path: &Path, item: &Item) -> Result<Box<dyn Content>> {
        match self.ready(path, |ready| ready.content.take()) {
            Some(bytes) => Ok(Box::new(Whole(bytes))),
            None => self.host.open(path, item),
        }
    }

    fn make_dir(&self, path: &Path) -> Result {
        self.host.make_dir(path)
    }

    fn make_file(&self, path: &Path, permissions: Permissions) -> Result<Box<dyn Sink>> {
        self.host.make_file(path, permissions)
    }

    fn make_link(&self, target: &Path, path: &Path) -> Result {
        self.host.make_link(target, path)
    }

    fn make_node(&self, path: &Path, node: Node, permissions: Permissions) -> Result<bool> {
        self.host.make_node(path, node, permissions)
    }

    fn hard_link(&self, path: &Path, name: &Path) -> Result {
        self.host.hard_link(path, name)
    }

    fn hold(&self, path: &Path, what: Kind) -> Result<Box<dyn Made>> {
        self.host.hold(path, what)
    }

    fn remove(&self, path: &Path) -> Result {
        self.host.remove(path)
    }
}
