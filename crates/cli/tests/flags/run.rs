//! Runs a row. The kernel makes the cells, so that they are the same for every subject.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, SeekFrom, XattrFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use stetfs_testkit::tree::Entry;
use stetfs_testkit::{CaptureOptions, Image, Mkfs, Mounted, Mounter, Scratch, Tree, cmd};

use super::ops::{self, Cell, JOURNAL_DATA, Op, Sees};
use super::rows::Row;
use super::table::{Cells, Outcome, Survival};

/// No commit happens because of age meanwhile.
const NO_COMMITS: &str = "commit=300";
const BYTES: u64 = 64 << 20;
const EXTENTS: u32 = 0x8_0000;
/// Number of crashed volumes checked at the same time.
const AT_ONCE: usize = 12;

/// The tested implementation, with its options beside the row's.
pub(crate) struct Subject {
    pub(crate) mounter: fn(&str) -> Mounter,
    pub(crate) options: &'static str,
}

fn joined(parts: &[&str]) -> String {
    let parts: Vec<&str> = parts.iter().copied().filter(|p| !p.is_empty()).collect();
    parts.join(",")
}

/// The outcome of every cell of the row, by the operation's name.
pub(crate) fn run(row: &Row, ops: &[Op], subject: &Subject) -> Cells {
    let ops = ops.iter().filter(|op| row.groups.contains(&op.group));
    let ops: Vec<&Op> = ops.collect();
    let (image, made) = match prepare(row, &ops) {
        Some(prepared) => prepared,
        None => return Cells::from([("prepare".to_owned(), Outcome::refused())]),
    };
    if let Err(e) = made {
        return Cells::from([("prepare".to_owned(), Outcome::of_error(&e))]);
    }
    let options = joined(&[
        subject.options,
        row.options,
        if row.crash { NO_COMMITS } else { "" },
    ]);
    let mounted = match (subject.mounter)(&options).mount(image.path()) {
        Ok(mounted) => mounted,
        Err(e) => {
            println!("{}: {e:#}", row.name);
            return Cells::from([("mount".to_owned(), Outcome::refused())]);
        }
    };
    let mut cells = Cells::new();
    let mut crashed = Vec::new();
    for op in ops {
        let cell = Cell(mounted.path().join(&op.name));
        let before = State::of(&cell.0, op.sees);
        let result = op.run(&cell);
        let snapshot =
            (row.crash && op.can_be_durable() && result.is_ok()).then(|| crash(&image, &mounted));
        let after = State::of(&cell.0, op.sees);
        let outcome = Outcome::new(&result, before.changes(&after));
        if let Some(image) = snapshot.filter(|_| !outcome.changes.is_empty()) {
            crashed.push(Crashed {
                op,
                image,
                before,
                after,
            });
        }
        cells.insert(op.name.clone(), outcome);
        if crashed.len() == AT_ONCE {
            survivals(subject, &mut crashed, &mut cells);
        }
    }
    survivals(subject, &mut crashed, &mut cells);
    mounted.umount().unwrap();
    image.e2fsck_fn().unwrap();
    cells
}

/// A volume that crashed after an operation.
struct Crashed<'a> {
    op: &'a Op,
    image: Image,
    before: State,
    after: State,
}

/// Checks several crashed volumes at the same time, because kernel mounts are slow.
fn survivals(subject: &Subject, crashed: &mut Vec<Crashed<'_>>, cells: &mut Cells) {
    let left: Vec<Survival> = thread::scope(|scope| {
        let all: Vec<_> = crashed
            .iter()
            .map(|one| scope.spawn(|| one.survival(subject)))
            .collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    for (one, survival) in crashed.drain(..).zip(left) {
        cells
            .entry(one.op.name.clone())
            .and_modify(|o| o.survival = survival);
    }
}

impl Crashed<'_> {
    /// The fate of the operation's cell: recovered by the subject, read by the kernel.
    fn survival(&self, subject: &Subject) -> Survival {
        (subject.mounter)("").recover(self.image.path()).unwrap();
        let mounted = Mounter::ext4("").mount(self.image.path()).unwrap();
        let left = State::of(&mounted.path().join(&self.op.name), self.op.sees);
        mounted.umount().unwrap();
        match self.after.changes(&left) {
            same if same.is_empty() => Survival::Kept,
            _ if self.before.changes(&left).is_empty() => Survival::Lost,
            part => Survival::Part(part),
        }
    }
}

/// A volume with a cell for each operation. `None` if the kernel does not mount such a volume; an
/// error if it refuses the row's properties.
fn prepare(row: &Row, ops: &[&Op]) -> Option<(Image, io::Result<()>)> {
    let mut mkfs = Mkfs::blocks(4096).journal_mib(4);
    if row.features.contains("^has_journal") {
        mkfs.journal_mib = None;
    }
    if !row.features.is_empty() {
        mkfs = mkfs.feature(row.features);
    }
    mkfs.args = vec!["-N".into(), "8192".into()];
    let image = Image::make(BYTES, &mkfs).unwrap();
    if !row.tune.is_empty() {
        cmd::run(
            Command::new("tune2fs")
                .args(row.tune.split(' '))
                .arg(image.path()),
        )
        .unwrap();
    }
    let mounted = Mounter::ext4("").mount(image.path()).ok()?;
    let made = ops
        .iter()
        .try_for_each(|op| make_cell(&mounted.path().join(&op.name), row));
    mounted.umount().unwrap();
    for op in ops {
        journal_data(&image, &op.name, row);
    }
    Some((image, made))
}

/// Gives `f` and `d` the flag that takes a privilege which root does not always have
/// (CAP_SYS_RESOURCE).
fn journal_data(image: &Image, cell: &str, row: &Row) {
    for (name, flags) in ["f", "d"].iter().zip(row.flags) {
        if flags & JOURNAL_DATA != 0 {
            let flags = flags | EXTENTS;
            let request = format!("set_inode_field /{cell}/{name} flags {flags:#x}");
            image.debugfs_write(&request).unwrap();
        }
    }
}

fn make_cell(dir: &Path, row: &Row) -> io::Result<()> {
    let at = |name: &str| dir.join(name);
    for name in ["", "d", "d/sub", "e", "e/under"] {
        fs::create_dir(at(name))?;
    }
    for name in ["f", "g", "d/x", "e/y"] {
        let long = if name.len() == 1 { 20_000 } else { 100 };
        fs::write(at(name), vec![name.as_bytes()[name.len() - 1]; long])?;
        fs::set_permissions(at(name), Permissions::from_mode(0o644))?;
    }
    for name in ["f", "d"] {
        rustix::fs::setxattr(at(name), "user.old", b"value", XattrFlags::empty())?;
    }
    symlink("f", at("l"))?;
    rustix::fs::mknodat(CWD, at("p"), FileType::Fifo, Mode::from_raw_mode(0o644), 0)?;
    chown(at("d"), None, Some(77))?;
    for (name, flags) in ["f", "d"]
        .iter()
        .zip(row.flags)
        .filter(|(_, flags)| *flags != 0)
    {
        let flags = flags & !JOURNAL_DATA;
        ops::set_flags(&at(name), ops::flags(&at(name))? | flags)?;
    }
    Ok(())
}

/// The content of a cell.
struct State {
    tree: Tree,
    projects: BTreeMap<String, u32>,
}

impl State {
    fn of(dir: &Path, sees: Sees) -> State {
        let options = CaptureOptions {
            atime: sees == Sees::Times,
            mtime: sees == Sees::Times,
            blocks: sees == Sees::Blocks,
            flags: true,
            exclude: Vec::new(),
            ..CaptureOptions::default()
        };
        let tree = Tree::capture(dir, &options).unwrap();
        let projects = tree
            .entries
            .iter()
            .filter(|(_, e)| e.flags.is_some())
            .filter_map(|(name, _)| Some((name.clone(), ops::project(&dir.join(name)).ok()?)))
            .filter(|(_, project)| *project != 0)
            .collect();
        State { tree, projects }
    }

    /// The differences of `other`, in short form.
    fn changes(&self, other: &State) -> String {
        let (old, new) = (&self.tree.entries, &other.tree.entries);
        let mut said = Vec::new();
        for name in old.keys().filter(|name| !new.contains_key(*name)) {
            said.push(format!("-{name}"));
        }
        for (name, entry) in new {
            let project = other.projects.get(name);
            let fields = match old.get(name) {
                None => Some(format!("+{name}: {}", described(entry, project))),
                Some(before) if (before, self.projects.get(name)) != (entry, project) => {
                    let before = described(before, self.projects.get(name));
                    let after = described(entry, project);
                    let both = before.split(' ').zip(after.split(' '));
                    let changed: Vec<&str> = both.filter(|(a, b)| a != b).map(|(_, b)| b).collect();
                    (!changed.is_empty()).then(|| format!("{name}: {}", changed.join(" ")))
                }
                Some(_) => None,
            };
            said.extend(fields);
        }
        said.join("; ")
    }
}

/// An entry as words, each stating one attribute, always in the same order.
fn described(e: &Entry, project: Option<&u32>) -> String {
    let time = |t: Option<stetfs_testkit::tree::Time>| match t.map(|t| t.0) {
        None => "-",
        Some(t) if t <= 1_000_000_000 => "long-ago",
        Some(t) if t > now() + 1800 => "later",
        Some(_) => "now",
    };
    let content = e.content.as_deref().unwrap_or("-");
    let xattrs: Vec<String> = e.xattrs.iter().map(|(n, v)| format!("{n}={v}")).collect();
    [
        format!("{:?}", e.kind).to_lowercase(),
        format!("{:o}", e.mode),
        format!("owner={}:{}", e.uid, e.gid),
        format!("links={}", e.nlink),
        format!("size={}", e.size.unwrap_or(0)),
        format!("flags={:#x}", e.flags.unwrap_or(0)),
        format!("project={}", project.unwrap_or(&0)),
        format!("atime={}", time(e.atime)),
        format!("mtime={}", time(e.mtime)),
        format!("blocks={}", e.blocks.unwrap_or(0)),
        format!("content={}", &content[..content.len().min(8)]),
        format!("target={}", e.target.as_deref().map_or(0, str::len)),
        format!("rdev={:?}", e.rdev.unwrap_or_default()).replace(' ', ""),
        format!("same={}", e.link_of.as_deref().unwrap_or("-")),
        format!("xattrs={}", xattrs.join(",").replace(' ', "_")),
    ]
    .join(" ")
}

fn now() -> i64 {
    std::time::UNIX_EPOCH
        .elapsed()
        .unwrap_or_default()
        .as_secs() as i64
}

/// The volume as it would be found if its host died now.
fn crash(image: &Image, mounted: &Mounted) -> Image {
    let stopped = match mounted {
        // The server stands still, lest it empty its log during the copy.
        Mounted::Stetfs { mount, .. } => mount.pid().map(Stopped::stop),
        Mounted::Kernel(_) => None,
    };
    let copy = copy(image.path());
    drop(stopped);
    copy
}

/// Copies an image without its holes.
fn copy(from: &Path) -> Image {
    let from = File::open(from).unwrap();
    let scratch = Scratch::new("img").unwrap();
    let path = scratch.path().join("image");
    let to = File::create(&path).unwrap();
    to.set_len(BYTES).unwrap();
    let mut at = 0;
    loop {
        let start = match rustix::fs::seek(&from, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => break,
            start => start.unwrap(),
        };
        at = rustix::fs::seek(&from, SeekFrom::Hole(start)).unwrap();
        let mut bytes = vec![0; (at - start) as usize];
        from.read_exact_at(&mut bytes, start).unwrap();
        to.write_all_at(&bytes, start).unwrap();
    }
    Image::at(path, scratch)
}

/// A process that is stopped until this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn stop(pid: u32) -> Stopped {
        let process = Pid::from_raw(pid as i32).unwrap();
        kill_process(process, Signal::STOP).unwrap();
        let stopped = Stopped(process);
        let stands = |task: fs::DirEntry| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ")
                .is_none_or(|(_, rest)| rest.starts_with('T'))
        };
        let until = Instant::now() + Duration::from_secs(20);
        while !fs::read_dir(format!("/proc/{pid}/task"))
            .unwrap()
            .flatten()
            .all(stands)
        {
            assert!(Instant::now() < until, "the server does not stop");
            std::thread::sleep(Duration::from_micros(200));
        }
        stopped
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}
