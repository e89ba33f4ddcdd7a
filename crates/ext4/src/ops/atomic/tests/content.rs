//! Model test of the content of files in groups: reads through a group, reads of the file after the
//! end of the group and after the volume is opened again, and the content after a power cut behind
//! a commit.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const FILES: usize = 4;
/// Blocks in which changes lie, except appends.
const SPAN: u64 = 120;

/// A volume on which groups soon need early writes.
#[derive(Clone, Debug)]
struct Setup {
    journal: &'static str,
    block: u32,
    /// Size of the cache, bytes: groups may use a quarter of it.
    cache: u64,
}

#[derive(Clone, Debug)]
enum Change {
    Write { at: u64, len: u64 },
    Append { len: u64 },
    Size(u64),
    Punch { at: u64, len: u64 },
    Zero { at: u64, len: u64 },
    Grow { at: u64, len: u64 },
    Allocate { at: u64, len: u64 },
}

impl Change {
    fn is_write(&self) -> bool {
        matches!(self, Change::Write { .. } | Change::Append { .. })
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Begins a group of those files that are in no group.
    Begin(Vec<usize>),
    /// Adds a file that is in no group to the group of another file.
    Join(usize, usize),
    /// Changes a file, through its group if it is in one.
    Change(usize, Change),
    Early(usize),
    Commit(usize),
    Abort(usize),
    Sync(usize),
}

fn change(block: u64) -> impl Strategy<Value = Change> {
    let span = SPAN * block;
    let place = (0..span, 1..24 * block).prop_map(|(at, len)| (at, len));
    let whole = (0..SPAN, 1..24u64).prop_map(move |(at, len)| (at * block, len * block));
    let range = prop_oneof![place, whole];
    prop_oneof![
        6 => range.clone().prop_map(|(at, len)| Change::Write { at, len }),
        6 => prop_oneof![Just(10_000), 1..30_000u64].prop_map(|len| Change::Append { len }),
        2 => (0..span).prop_map(Change::Size),
        2 => range.clone().prop_map(|(at, len)| Change::Punch { at, len }),
        1 => range.clone().prop_map(|(at, len)| Change::Zero { at, len }),
        1 => range.clone().prop_map(|(at, len)| Change::Grow { at, len }),
        1 => range.prop_map(|(at, len)| Change::Allocate { at, len }),
    ]
}

fn step(block: u64) -> impl Strategy<Value = Step> {
    let file = 0..FILES;
    prop_oneof![
        3 => prop::collection::vec(file.clone(), 1..3).prop_map(Step::Begin),
        1 => (file.clone(), file.clone()).prop_map(|(of, file)| Step::Join(of, file)),
        30 => (file.clone(), change(block)).prop_map(|(file, change)| Step::Change(file, change)),
        1 => file.clone().prop_map(Step::Early),
        1 => file.clone().prop_map(Step::Commit),
        1 => file.clone().prop_map(Step::Abort),
        1 => file.prop_map(Step::Sync),
    ]
}

fn run() -> impl Strategy<Value = (Setup, Vec<Step>)> {
    let journal = prop::sample::select(vec!["data", "ldj", "stet"]);
    let setup = (journal, prop::sample::select(vec![1024, 4096u32]), 6..40u64);
    let setup = setup.prop_map(|(journal, block, blocks)| Setup {
        journal,
        block,
        cache: blocks * 4 * u64::from(block),
    });
    setup.prop_flat_map(|setup| {
        let steps = prop::collection::vec(step(u64::from(setup.block)), 10..80);
        (Just(setup), steps)
    })
}

/// The expected content of a file: on the volume, and in its group.
struct Expected {
    own: Vec<u8>,
    group: Option<(usize, Vec<u8>)>,
}

struct Run {
    v: Volume,
    files: Vec<Expected>,
    groups: BTreeMap<usize, AtomicGroup>,
    begun: usize,
    /// A number that makes the bytes of each write different.
    key: u64,
}

impl Run {
    fn new(setup: &Setup) -> Run {
        let mkfs = Mkfs::blocks(setup.block).journal_mib(setup.block / 1024);
        let sizes = [0, 700, 30_000, 50_000];
        let v = Volume::new(
            u64::from(setup.block / 64),
            &mkfs,
            options(setup.journal),
            &sizes,
        );
        v.fs.set_cache_bytes(setup.cache);
        let own = |nr| Expected {
            own: v.content(nr),
            group: None,
        };
        let files = (0..FILES).map(own).collect();
        Run {
            v,
            files,
            groups: BTreeMap::new(),
            begun: 0,
            key: 0,
        }
    }

    fn bytes(&mut self, at: u64, len: u64) -> Vec<u8> {
        self.key += 1;
        let byte = |i: u64| ((self.key * 37 + (i >> 8)) % 255 + 1) as u8;
        (at..at + len).map(byte).collect()
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Begin(files) => self.begin(files),
            Step::Join(of, file) => self.join(*of, *file),
            Step::Change(file, change) => self.change(*file, change),
            Step::Early(file) => {
                if let Some(group) = self.group_of(*file) {
                    group.write_early(&Ctx::ROOT).unwrap();
                }
            }
            Step::Commit(file) => self.end(*file, true),
            Step::Abort(file) => self.end(*file, false),
            Step::Sync(file) => self.v.sync(*file),
        }
    }

    fn group_of(&mut self, file: usize) -> Option<&mut AtomicGroup> {
        let (group, _) = self.files[file].group.as_ref()?;
        self.groups.get_mut(group)
    }

    fn begin(&mut self, files: &[usize]) {
        let is_free = |file: &&usize| self.files[**file].group.is_none();
        let files: Vec<usize> = files.iter().filter(is_free).copied().collect();
        if files.is_empty() {
            return;
        }
        let open: Vec<OpenRef> = files.iter().map(|nr| self.v.files[*nr].clone()).collect();
        let group = self.v.fs.atomic_group(&open).unwrap();
        self.begun += 1;
        self.groups.insert(self.begun, group);
        for file in files {
            let file = &mut self.files[file];
            file.group = Some((self.begun, file.own.clone()));
        }
    }

    fn join(&mut self, of: usize, file: usize) {
        let Some((group, _)) = self.files[of].group else {
            return;
        };
        if self.files[file].group.is_none() {
            let joins = &self.v.files[file];
            let group_of = self.groups.get_mut(&group).unwrap();
            group_of.join(&Ctx::ROOT, joins).unwrap();
            let file = &mut self.files[file];
            file.group = Some((group, file.own.clone()));
        }
    }

    fn change(&mut self, file: usize, change: &Change) {
        let expected = &self.files[file];
        let now = expected
            .group
            .as_ref()
            .map_or(&expected.own, |(_, now)| now);
        let size = now.len() as u64;
        let mut next = now.clone();
        let done = match *change {
            Change::Write { at, len } => self.write(file, at, len, &mut next),
            Change::Append { len } => self.write(file, size, len, &mut next),
            Change::Size(size) => {
                next.resize(size as usize, 0);
                self.set_size(file, size)
            }
            Change::Punch { at, len } => {
                zero(&mut next, at, len);
                self.fallocate(file, FallocateMode::PunchHole, at, len)
            }
            Change::Zero { at, len } => {
                // A group has no space behind the end of a file.
                let len = len.min(size.saturating_sub(at));
                if len == 0 {
                    return;
                }
                zero(&mut next, at, len);
                let mode = FallocateMode::ZeroRange { keep_size: true };
                self.fallocate(file, mode, at, len)
            }
            Change::Grow { at, len } => {
                next.resize(size.max(at + len) as usize, 0);
                zero(&mut next, at, len);
                let mode = FallocateMode::ZeroRange { keep_size: false };
                self.fallocate(file, mode, at, len)
            }
            Change::Allocate { at, len } => {
                next.resize(size.max(at + len) as usize, 0);
                let mode = FallocateMode::Allocate { keep_size: false };
                self.fallocate(file, mode, at, len)
            }
        };
        let expected = &mut self.files[file];
        match (done, &mut expected.group) {
            (Ok(()), None) => expected.own = next,
            (Ok(()), Some((_, now))) => *now = next,
            // Memory is used up by this change or other groups; nothing is changed.
            (Err(e), Some(_)) if e.errno() == libc::ENOMEM => {}
            // One transaction must hold all of a range, but a write is split into pieces.
            (Err(e), Some(_)) if e.errno() == libc::EFBIG && !change.is_write() => {}
            (Err(e), _) => panic!("{change:?} of {file}: {e}"),
        }
        self.check(file);
    }

    /// `next`: the expected content of the file after a complete write.
    fn write(&mut self, file: usize, at: u64, len: u64, next: &mut Vec<u8>) -> Result<(), FsError> {
        let bytes = self.bytes(at, len);
        let ino = self.v.ino(file);
        let n = match self.group_of(file) {
            Some(group) => group.write(&Ctx::ROOT, ino, at, &bytes)?,
            None => self
                .v
                .fs
                .write(&Ctx::ROOT, &self.v.files[file], at, &bytes, false)?,
        };
        *next = over(next, at as usize, &bytes[..n]);
        Ok(())
    }

    fn set_size(&mut self, file: usize, size: u64) -> Result<(), FsError> {
        let ino = self.v.ino(file);
        if let Some(group) = self.group_of(file) {
            return group.set_size(&Ctx::ROOT, ino, size);
        }
        let set = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        self.v.fs.setattr(&Ctx::ROOT, ino, &set).map(drop)
    }

    fn fallocate(
        &mut self,
        file: usize,
        mode: FallocateMode,
        at: u64,
        len: u64,
    ) -> Result<(), FsError> {
        let ino = self.v.ino(file);
        match self.group_of(file) {
            Some(group) => group.fallocate(&Ctx::ROOT, ino, mode, at, len),
            None => {
                let file = &self.v.files[file];
                self.v.fs.fallocate(&Ctx::ROOT, file, mode, at, len)
            }
        }
    }

    fn end(&mut self, file: usize, commits: bool) {
        let Some((nr, _)) = self.files[file].group else {
            return;
        };
        let group = self.groups.remove(&nr).unwrap();
        match commits {
            true => group.commit().unwrap(),
            false => group.abort(),
        }
        for file in &mut self.files {
            if let Some((_, new)) = file.group.take_if(|(of, _)| *of == nr)
                && commits
            {
                file.own = new;
            }
        }
        self.check_all();
        if commits {
            self.check_left();
        }
    }

    /// Everything before a commit is durable with it, in groups and outside.
    fn check_left(&self) {
        let device = Arc::new(self.v.device.fork());
        let left = Fs::open(device.clone(), FsOptions::default()).unwrap();
        let left = Volume::of(device, left, FILES);
        for (nr, file) in self.files.iter().enumerate() {
            assert_same(&left.content(nr), &file.own, "left by a power cut", nr);
        }
        drop(left.files);
        left.fs.unmount().unwrap();
    }

    fn check_all(&mut self) {
        (0..FILES).for_each(|file| self.check(file));
    }

    /// The file is unchanged, and its group shows the changes.
    fn check(&mut self, file: usize) {
        let ino = self.v.ino(file);
        assert_same(&self.v.content(file), &self.files[file].own, "beside", file);
        let seen = self.group_of(file).map(|group| seen(group, ino));
        if let (Some(seen), Some((_, expected))) = (seen, &self.files[file].group) {
            assert_same(&seen, expected, "in its group", file);
        }
    }

    /// Groups that are still open leave nothing.
    fn finish(mut self) {
        self.groups.clear();
        self.files.iter_mut().for_each(|file| file.group = None);
        self.check_all();
        assert_eq!(self.v.fs.data.state.groups.0.load(Ordering::Relaxed), 0);
        let Volume { device, fs, files } = self.v;
        drop(files);
        fs.unmount().unwrap();
        fsck(&device);
        let fs = Fs::open(device.clone(), FsOptions::default()).unwrap();
        let again = Volume::of(device, fs, FILES);
        for (nr, file) in self.files.iter().enumerate() {
            assert_same(&again.content(nr), &file.own, "opened again", nr);
        }
        again.close();
    }
}

fn zero(content: &mut [u8], at: u64, len: u64) {
    let size = content.len() as u64;
    content[at.min(size) as usize..(at + len).min(size) as usize].fill(0);
}

fn assert_same(found: &[u8], expected: &[u8], how: &str, file: usize) {
    assert_eq!(found.len(), expected.len(), "{how}: the size of {file}");
    let differs = found.iter().zip(expected).position(|(a, b)| a != b);
    if let Some(at) = differs {
        let (is, want) = (found[at], expected[at]);
        panic!("{how}: byte {at} of {file} is {is}, not {want}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 40,
        max_shrink_iters: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_is_read_is_what_was_written((setup, steps) in run()) {
        let mut run = Run::new(&setup);
        steps.iter().for_each(|step| run.step(step));
        run.finish();
    }
}
