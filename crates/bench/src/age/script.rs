//! The script of a volume's life, generated from a seed: files are made, grown by several writers
//! at a time, cut, overwritten and deleted, day by day, at a given fullness.
//!
//! The script is independent of the file system that it runs on, so every file system gets exactly
//! the same calls.

use std::f64::consts::TAU;

use fastrand::Rng;

/// Number of files written at the same time.
pub(super) const WRITERS: usize = 8;

/// The parameters of a script.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// The seed.
    pub(super) seed: u64,
    /// Block size of the volume, bytes.
    pub(super) block: u64,
    /// Number of blocks available to files.
    pub(super) capacity: u64,
    /// Amount written per day, as a fraction of the capacity.
    pub(super) churn: f64,
}

/// A call. Files and directories are identified by numbers; a slot holds an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// Makes a directory (without a parent, in the root).
    MakeDir { dir: u32, parent: Option<u32> },
    /// Removes an empty directory.
    RemoveDir { dir: u32 },
    /// Makes a file and opens it.
    Create { slot: usize, file: u32, dir: u32 },
    /// Opens a file.
    Open { slot: usize, file: u32 },
    /// Writes to the open file.
    Write { slot: usize, at: u64, len: usize },
    /// Makes the open file durable.
    Sync { slot: usize },
    /// Closes the open file.
    Close { slot: usize },
    /// Sets the size of a file that is not open.
    Truncate { file: u32, len: u64 },
    /// Renames `file` over `old` in the same directory; `old` is gone.
    Replace { file: u32, old: u32 },
    /// Deletes a file.
    Remove { file: u32 },
    /// The end of a day: everything becomes durable.
    SyncAll,
}

#[derive(Clone, Copy, Debug)]
struct File {
    id: u32,
    dir: u32,
    bytes: u64,
    /// The file is a log: it grows day by day.
    log: bool,
}

/// Number of directories below the root at first, and in each of them.
const TOP: u32 = 16;
const BELOW: u32 = 6;
/// One file in this many is a log.
const LOGS: usize = 40;
/// Size of the median file, bytes, and the standard deviation of the logarithm.
const MEDIAN: f64 = 12_288.0;
const SIGMA: f64 = 2.3;
/// Size of the largest file, as a fraction of the capacity.
const LARGEST: f64 = 1.0 / 64.0;

/// Generates the calls, and keeps track of the existing files.
#[derive(Debug)]
pub(super) struct Script {
    shape: Shape,
    rng: Rng,
    files: Vec<File>,
    /// Directories with files, each with its parent.
    dirs: Vec<(u32, Option<u32>)>,
    next_file: u32,
    next_dir: u32,
    /// Number of blocks in use.
    used: u64,
    written: u64,
    out: Vec<Op>,
}

impl Script {
    /// Starts a script.
    pub(super) fn new(shape: Shape) -> Self {
        let mut this = Self {
            shape,
            rng: Rng::with_seed(shape.seed),
            files: Vec::new(),
            dirs: Vec::new(),
            next_file: 0,
            next_dir: 0,
            used: 0,
            written: 0,
            out: Vec::new(),
        };
        for _ in 0..TOP {
            let top = this.make_dir(None);
            for _ in 0..BELOW {
                this.make_dir(Some(top));
            }
        }
        this
    }

    /// The calls of one day; the volume is at most `target` full (0 to 1) all the time. A day ends
    /// when enough was written, or (with `fill`) when the target is reached.
    pub(super) fn day(&mut self, target: f64, fill: bool) -> Vec<Op> {
        let limit = (target * self.shape.capacity as f64) as u64;
        let quota = (self.shape.churn * (self.shape.capacity * self.shape.block) as f64) as u64;
        self.written = 0;
        while self.written < quota && (!fill || self.used < limit - limit / 200) {
            match self.rng.u32(..100) {
                0..45 => self.new_files(limit),
                45..75 => self.grow_files(limit),
                75..85 => self.overwrite(),
                85..93 => self.cut(),
                93..98 => self.replace(limit),
                _ => self.new_project(),
            }
        }
        self.out.push(Op::SyncAll);
        std::mem::take(&mut self.out)
    }

    fn blocks(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.shape.block)
    }

    fn make_dir(&mut self, parent: Option<u32>) -> u32 {
        let dir = self.next_dir;
        self.next_dir += 1;
        self.out.push(Op::MakeDir { dir, parent });
        self.dirs.push((dir, parent));
        self.used += 1;
        dir
    }

    /// A random size, log-normal.
    fn size(&mut self) -> u64 {
        let (a, b) = (1.0 - self.rng.f64(), self.rng.f64());
        let normal = (-2.0 * a.ln()).sqrt() * (TAU * b).cos();
        let most = LARGEST * (self.shape.capacity * self.shape.block) as f64;
        (MEDIAN * (SIGMA * normal).exp()).clamp(1.0, most) as u64
    }

    fn any_dir(&mut self) -> u32 {
        let at = self.rng.usize(..self.dirs.len());
        self.dirs[at].0
    }

    /// Deletes files until `blocks` more fit below the limit.
    fn make_room(&mut self, blocks: u64, limit: u64) {
        while self.used + blocks > limit && !self.files.is_empty() {
            let at = self.rng.usize(..self.files.len());
            self.remove(at);
        }
    }

    fn remove(&mut self, at: usize) {
        let gone = self.files.swap_remove(at);
        self.used -= self.blocks(gone.bytes);
        self.out.push(Op::Remove { file: gone.id });
    }

    /// Makes new files, some in the same directory, and writes them concurrently.
    fn new_files(&mut self, limit: u64) {
        let mut dir = self.any_dir();
        let sizes: [u64; WRITERS] = std::array::from_fn(|_| self.size());
        let blocks = sizes.iter().map(|s| self.blocks(*s)).sum();
        self.make_room(blocks, limit);
        let mut jobs = Vec::new();
        for (slot, bytes) in sizes.into_iter().enumerate() {
            if self.rng.bool() {
                dir = self.any_dir();
            }
            let file = self.create(slot, dir);
            jobs.push((slot, 0, bytes));
            self.add(file, dir, bytes);
        }
        self.write(jobs);
    }

    fn create(&mut self, slot: usize, dir: u32) -> u32 {
        let file = self.next_file;
        self.next_file += 1;
        self.out.push(Op::Create { slot, file, dir });
        file
    }

    fn add(&mut self, id: u32, dir: u32, bytes: u64) {
        self.used += self.blocks(bytes);
        let log = self.rng.usize(..LOGS) == 0;
        self.files.push(File {
            id,
            dir,
            bytes,
            log,
        });
    }

    /// Grows files concurrently: mostly logs, by little; others by a part of their size.
    fn grow_files(&mut self, limit: u64) {
        let mut jobs: Vec<(usize, u64, u64)> = Vec::new();
        let mut chosen: Vec<u32> = Vec::new();
        for slot in 0..WRITERS {
            let Some(at) = self.choose_growing(&chosen) else {
                continue;
            };
            let file = self.files[at];
            let most = if file.log { 96 << 10 } else { file.bytes / 2 };
            let more = 1 + self.rng.u64(..most.max(4096));
            let blocks = self.blocks(file.bytes + more) - self.blocks(file.bytes);
            if self.used + blocks > limit {
                continue;
            }
            self.used += blocks;
            self.files[at].bytes += more;
            chosen.push(file.id);
            let slot_taken = Op::Open {
                slot,
                file: file.id,
            };
            self.out.push(slot_taken);
            jobs.push((slot, file.bytes, more));
        }
        if jobs.is_empty() {
            let room = limit / 100;
            self.make_room(room, limit);
        }
        self.write(jobs);
    }

    fn choose_growing(&mut self, but: &[u32]) -> Option<usize> {
        let logs_only = self.rng.u32(..4) > 0;
        for _ in 0..4 * LOGS {
            let at = self.rng.usize(..self.files.len().max(1));
            let file = self.files.get(at)?;
            if (!logs_only || file.log) && !but.contains(&file.id) {
                return Some(at);
            }
        }
        None
    }

    /// Writes jobs (slot, offset, bytes) in pieces; each piece is of a random job.
    fn write(&mut self, mut jobs: Vec<(usize, u64, u64)>) {
        while !jobs.is_empty() {
            let at = self.rng.usize(..jobs.len());
            let piece = (4096u64 << self.rng.u32(..6)) - u64::from(self.rng.u32(..3)) * 700;
            let (slot, offset, left) = &mut jobs[at];
            let len = piece.min(*left);
            let slot = *slot;
            self.out.push(Op::Write {
                slot,
                at: *offset,
                len: len as usize,
            });
            *offset += len;
            *left -= len;
            self.written += len;
            let done = *left == 0;
            if self.rng.u32(..if done { 8 } else { 48 }) == 0 {
                self.out.push(Op::Sync { slot });
            }
            if done {
                self.out.push(Op::Close { slot });
                jobs.swap_remove(at);
            }
        }
    }

    /// Overwrites a part of a file in place.
    fn overwrite(&mut self) {
        if self.files.is_empty() {
            return self.written += 1;
        }
        let at = self.rng.usize(..self.files.len());
        let file = self.files[at];
        let from = self.rng.u64(..file.bytes);
        let len = 1 + self.rng.u64(..(file.bytes - from).min(256 << 10));
        self.out.push(Op::Open {
            slot: 0,
            file: file.id,
        });
        self.write(vec![(0, from, len)]);
    }

    /// Truncates a file; it may grow again later.
    fn cut(&mut self) {
        if self.files.is_empty() {
            return self.written += 1;
        }
        let at = self.rng.usize(..self.files.len());
        let file = self.files[at];
        let len = 1 + self.rng.u64(..file.bytes);
        self.used -= self.blocks(file.bytes) - self.blocks(len);
        self.files[at].bytes = len;
        self.out.push(Op::Truncate { file: file.id, len });
    }

    /// Saves a file as editors do: a new one is written, synced, and renamed over the old one.
    fn replace(&mut self, limit: u64) {
        if self.files.is_empty() {
            return self.written += 1;
        }
        let at = self.rng.usize(..self.files.len());
        let bytes = self.files[at].bytes;
        self.make_room(self.blocks(bytes), limit);
        if self.files.is_empty() {
            return;
        }
        let old = self.files[at.min(self.files.len() - 1)];
        if self.used + self.blocks(old.bytes) > limit {
            return;
        }
        let file = self.create(0, old.dir);
        self.write(vec![(0, 0, old.bytes)]);
        // The file is synced before the rename, through a new descriptor because it was closed.
        self.out.push(Op::Open { slot: 0, file });
        self.out.push(Op::Sync { slot: 0 });
        self.out.push(Op::Close { slot: 0 });
        self.out.push(Op::Replace { file, old: old.id });
        let at = at.min(self.files.len() - 1);
        self.files[at].id = file;
    }

    /// Removes a directory with its content, and makes another one elsewhere.
    fn new_project(&mut self) {
        let at = self.rng.usize(..self.dirs.len());
        let (dir, parent) = self.dirs[at];
        if parent.is_some() {
            while let Some(at) = self.files.iter().position(|f| f.dir == dir) {
                self.remove(at);
            }
            self.dirs.swap_remove(at);
            self.used -= 1;
            self.out.push(Op::RemoveDir { dir });
        }
        let tops: Vec<u32> = self
            .dirs
            .iter()
            .filter(|(_, parent)| parent.is_none())
            .map(|(dir, _)| *dir)
            .collect();
        let parent = tops[self.rng.usize(..tops.len())];
        self.make_dir(Some(parent));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const SHAPE: Shape = Shape {
        seed: 1,
        block: 4096,
        capacity: 20_000,
        churn: 0.1,
    };

    #[test]
    fn a_seed_is_a_script() {
        let days = |seed| {
            let mut script = Script::new(Shape { seed, ..SHAPE });
            (0..5)
                .flat_map(|_| script.day(0.8, false))
                .collect::<Vec<_>>()
        };
        assert_eq!(days(1), days(1));
        assert_ne!(days(1), days(2));
    }

    /// The fullness by the sizes in the calls equals the fullness that the script assumes.
    #[test]
    fn the_volume_is_as_full_as_asked() {
        let mut script = Script::new(SHAPE);
        let mut sizes: HashMap<u32, u64> = HashMap::new();
        let mut slots = [0; WRITERS];
        let mut dirs = 0;
        for day in 0..40 {
            let target = if day < 30 { 0.8 } else { 0.95 };
            for op in script.day(target, false) {
                match op {
                    Op::Create { slot, file, .. } => {
                        slots[slot] = file;
                        assert_eq!(sizes.insert(file, 0), None);
                    }
                    Op::Open { slot, file } => {
                        assert!(sizes.contains_key(&file));
                        slots[slot] = file;
                    }
                    Op::Write { slot, at, len } => {
                        let size = sizes.entry(slots[slot]).or_default();
                        assert!(at <= *size && len > 0, "no holes");
                        *size = (*size).max(at + len as u64);
                    }
                    Op::Truncate { file, len } => {
                        assert!(sizes.insert(file, len).is_some_and(|old| len <= old));
                    }
                    Op::Replace { file, old } => {
                        assert_ne!(file, old);
                        assert!(sizes.remove(&old).is_some() && sizes.contains_key(&file));
                    }
                    Op::Remove { file } => assert!(sizes.remove(&file).is_some()),
                    Op::MakeDir { .. } => dirs += 1,
                    Op::RemoveDir { .. } => dirs -= 1,
                    Op::Sync { .. } | Op::Close { .. } | Op::SyncAll => {}
                }
                let used: u64 = dirs + sizes.values().map(|s| s.div_ceil(4096)).sum::<u64>();
                assert!(
                    used as f64 <= target * 20_000.0 + 1.0,
                    "{used} on day {day}"
                );
            }
            let used: u64 = dirs + sizes.values().map(|s| s.div_ceil(4096)).sum::<u64>();
            assert_eq!(used, script.used);
            assert_eq!(sizes.len(), script.files.len());
        }
        assert!(script.used > 18_000, "{}", script.used);
    }
}
