//! Model test of files: random operations, against vectors of bytes.

use proptest::prelude::*;
use stetfs_ext4::*;

use crate::data::volume::{Shape, Volume};
use stetfs_ext4::Ctx;

const FILES: usize = 3;
/// Files stay below this size, except for long writes.
const MOST: u64 = 400 << 10;
/// The length of writes that are longer than a transaction's chunk.
const LONG: usize = 1_300_000;

#[derive(Clone, Debug)]
enum Op {
    Write {
        at: u64,
        len: usize,
    },
    Append {
        len: usize,
    },
    Truncate {
        size: u64,
    },
    Fallocate {
        mode: FallocateMode,
        at: u64,
        len: u64,
    },
    Read {
        at: u64,
        len: usize,
    },
    Sync {
        datasync: bool,
    },
    Reopen,
}

fn op() -> impl Strategy<Value = (usize, Op)> {
    let len = prop_oneof![4 => 1usize..6000, 2 => 6000usize..90_000, 1 => Just(4096usize), 1 => Just(1024usize)];
    let at = prop_oneof![3 => 0..MOST, 1 => (0..MOST / 4096).prop_map(|b| b * 4096), 1 => (0..MOST / 1024).prop_map(|b| b * 1024)];
    let keep = any::<bool>();
    let mode = prop_oneof![
        keep.prop_map(|keep_size| FallocateMode::Allocate { keep_size }),
        Just(FallocateMode::PunchHole),
        keep.prop_map(|keep_size| FallocateMode::ZeroRange { keep_size }),
    ];
    let op = prop_oneof![
        10 => (at.clone(), len.clone()).prop_map(|(at, len)| Op::Write { at, len }),
        1 => at.clone().prop_map(|at| Op::Write { at, len: LONG }),
        3 => len.clone().prop_map(|len| Op::Append { len }),
        3 => at.clone().prop_map(|size| Op::Truncate { size }),
        6 => (mode, at.clone(), len.clone()).prop_map(|(mode, at, len)| Op::Fallocate { mode, at, len: len as u64 }),
        3 => (at, len).prop_map(|(at, len)| Op::Read { at, len }),
        1 => any::<bool>().prop_map(|datasync| Op::Sync { datasync }),
        1 => Just(Op::Reopen),
    ];
    (0..FILES, op)
}

/// Bytes that differ from place to place and from write to write, and are never zero.
fn bytes(at: u64, len: usize, salt: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|i| ((at + i).wrapping_mul(31).wrapping_add(salt as u64 * 7) % 251 + 1) as u8)
        .collect()
}

fn put(model: &mut Vec<u8>, at: u64, data: &[u8]) {
    let end = at as usize + data.len();
    if model.len() < end && !data.is_empty() {
        model.resize(end, 0);
    }
    model[at as usize..end].copy_from_slice(data);
}

struct Pair {
    extents: bool,
    vol: Volume,
    files: Vec<OpenRef>,
    models: Vec<Vec<u8>>,
}

fn name(i: usize) -> String {
    format!("file{i}")
}

impl Pair {
    fn new(shape: Shape, data: DataMode) -> Pair {
        let vol = Volume::new(shape, data);
        let files = (0..FILES).map(|i| vol.create(&name(i))).collect();
        Pair {
            extents: shape.extents,
            vol,
            files,
            models: vec![Vec::new(); FILES],
        }
    }

    /// Applies an operation to both. Lack of space may cut it short in ways that the caller can
    /// see.
    fn apply(&mut self, i: usize, op: &Op, salt: usize) {
        let (fs, f) = (self.vol.fs().clone(), self.files[i].clone());
        let model = &mut self.models[i];
        let full = |e: &FsError| assert_eq!(e.errno(), libc::ENOSPC, "{e}");
        match *op {
            Op::Write { at, len } => {
                match fs.write(&Ctx::ROOT, &f, at, &bytes(at, len, salt), false) {
                    Ok(n) => {
                        assert!(n > 0);
                        put(model, at, &bytes(at, len, salt)[..n]);
                    }
                    Err(e) => full(&e),
                }
            }
            Op::Append { len } => {
                let at = model.len() as u64;
                if let Ok(n) = fs
                    .write(&Ctx::ROOT, &f, at, &bytes(at, len, salt), false)
                    .inspect_err(full)
                {
                    put(model, at, &bytes(at, len, salt)[..n]);
                }
            }
            Op::Truncate { size } => {
                self.vol.truncate(&f, size).unwrap();
                model.resize(size as usize, 0);
            }
            Op::Fallocate { mode, at, len } => match fs.fallocate(&Ctx::ROOT, &f, mode, at, len) {
                Err(e) if !self.extents && mode != FallocateMode::PunchHole => {
                    assert_eq!(e.errno(), libc::EOPNOTSUPP);
                }
                Ok(()) => {
                    let end = (at + len) as usize;
                    let keep = match mode {
                        FallocateMode::Allocate { keep_size }
                        | FallocateMode::ZeroRange { keep_size } => keep_size,
                        FallocateMode::PunchHole => true,
                    };
                    if !keep && model.len() < end {
                        model.resize(end, 0);
                    }
                    if !matches!(mode, FallocateMode::Allocate { .. }) {
                        let upto = end.min(model.len());
                        if let Some(zeroed) = model.get_mut(at as usize..upto) {
                            zeroed.fill(0);
                        }
                    }
                }
                Err(e) => full(&e),
            },
            Op::Read { at, len } => {
                let mut buf = vec![0xEE; len];
                let n = fs.read(&f, at, &mut buf).unwrap();
                let want = model.get(at as usize..).unwrap_or_default();
                let want = &want[..want.len().min(len)];
                assert!(
                    buf[..n] == *want,
                    "read of {len} at {at}: {n} bytes, {}",
                    first_difference(&buf[..n], want)
                );
            }
            Op::Sync { datasync } => self.vol.fsync(&f, datasync).unwrap(),
            Op::Reopen => {
                drop(f);
                drop(fs);
                self.reopen();
            }
        }
    }

    fn reopen(&mut self) {
        self.files.clear();
        self.vol.reopen();
        self.files = (0..FILES).map(|i| self.vol.open(&name(i))).collect();
        self.compare();
    }

    fn compare(&self) {
        for (f, model) in self.files.iter().zip(&self.models) {
            let have = self.vol.content(f);
            assert_eq!(have.len(), model.len(), "size");
            assert!(have == *model, "{}", first_difference(&have, model));
            self.seek_agrees(f, model);
        }
    }

    /// Checks that data and holes alternate up to the end, and that holes hold only zeroes.
    fn seek_agrees(&self, f: &OpenRef, model: &[u8]) {
        let fs = self.vol.fs();
        let mut at = 0;
        while at < model.len() as u64 {
            let data = fs.seek(f, at, SeekWhat::Data).unwrap_or_else(|e| {
                assert_eq!(e.errno(), libc::ENXIO);
                model.len() as u64
            });
            assert!(
                model[at as usize..data as usize].iter().all(|b| *b == 0),
                "data in a hole at {at}..{data}"
            );
            if data == model.len() as u64 {
                break;
            }
            at = fs.seek(f, data, SeekWhat::Hole).unwrap();
            assert!(at > data);
        }
        assert_eq!(
            fs.seek(f, model.len() as u64, SeekWhat::Hole)
                .unwrap_err()
                .errno(),
            libc::ENXIO
        );
    }
}

fn first_difference(a: &[u8], b: &[u8]) -> String {
    match a.iter().zip(b).position(|(x, y)| x != y) {
        Some(i) => format!("they differ at byte {i}: {} instead of {}", a[i], b[i]),
        None => format!("{} bytes instead of {}", a.len(), b.len()),
    }
}

/// Runs the operations; with `room`, on a volume with only that many bytes free.
fn run(shape: Shape, data: DataMode, room: Option<u64>, ops: &[(usize, Op)]) {
    let mut pair = Pair::new(shape, data);
    if let Some(room) = room {
        let filler = pair.vol.create("filler");
        let fs = pair.vol.fs().clone();
        let mut at = 0;
        loop {
            let len = (fs.statfs().bfree * u64::from(shape.block_size)).saturating_sub(room);
            if len == 0 {
                break;
            }
            if shape.extents {
                let mode = FallocateMode::Allocate { keep_size: false };
                fs.fallocate(&Ctx::ROOT, &filler, mode, at, len).unwrap();
                break;
            }
            let most = vec![7; len.min(1 << 20) as usize];
            at += fs.write(&Ctx::ROOT, &filler, at, &most, false).unwrap() as u64;
        }
    }
    for (salt, (i, op)) in ops.iter().enumerate() {
        pair.apply(*i, op, salt);
        if salt % 8 == 7 {
            pair.compare();
        }
    }
    pair.reopen();
    // All space can be freed again.
    for i in 0..FILES {
        pair.files.clear();
        pair.vol
            .fs()
            .unlink(&Ctx::ROOT, ROOT_INO, name(i).as_bytes())
            .unwrap();
    }
    pair.vol.finish();
}

fn shape(small_blocks: bool, mib: u64) -> Shape {
    Shape {
        block_size: if small_blocks { 1024 } else { 4096 },
        mib,
        extents: true,
        cluster: 1,
    }
}

fn ops() -> impl Strategy<Value = Vec<(usize, Op)>> {
    prop::collection::vec(op(), 1..60)
}

/// 25 cases, or the number in `PROPTEST_CASES`.
fn config() -> ProptestConfig {
    let long = std::env::var_os("PROPTEST_CASES").is_some();
    let default = ProptestConfig::default();
    let cases = if long { default.cases } else { 25 };
    ProptestConfig {
        cases,
        failure_persistence: None,
        max_shrink_iters: 200,
        ..default
    }
}

/// The data modes to try with several shapes.
const DATA: [DataMode; 3] = [DataMode::Ordered, DataMode::Journal, DataMode::Overwrites];

proptest! {
    #![proptest_config(config())]

    #[test]
    fn ordered(ops in ops(), small: bool) {
        run(shape(small, 24), DataMode::Ordered, None, &ops);
    }

    #[test]
    fn journaled(ops in ops(), small: bool) {
        run(shape(small, 24), DataMode::Journal, None, &ops);
    }

    #[test]
    fn overwrites(ops in ops(), small: bool) {
        run(shape(small, 24), DataMode::Overwrites, None, &ops);
    }

    #[test]
    fn writeback(ops in ops(), small: bool) {
        run(shape(small, 24), DataMode::Writeback, None, &ops);
    }

    #[test]
    fn block_mapped(ops in ops(), small: bool, data in 0usize..3, full: bool) {
        let data = DATA[data];
        let shape = Shape { extents: false, ..shape(small, 24) };
        run(shape, data, full.then_some(700 << 10), &ops);
    }

    #[test]
    fn in_clusters(ops in ops(), small: bool, data in 0usize..3, full: bool, cluster in 1u32..5) {
        let data = DATA[data];
        let shape = Shape { cluster: 1 << cluster, ..shape(small, 24) };
        run(shape, data, full.then_some(700 << 10), &ops);
    }

    #[test]
    fn nearly_full(ops in ops(), small: bool, data in 0usize..3) {
        let data = DATA[data];
        run(shape(small, 24), data, Some(700 << 10), &ops);
    }
}
