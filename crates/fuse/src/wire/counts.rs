//! Counts of requests by kind, over all connections of this process (a server has one).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::wire::abi::op;

/// Number of shards: threads use different counters to avoid sharing cache lines.
const SHARDS: usize = 16;
/// Upper bound of request numbers.
const KINDS: usize = 64;

/// The counters of some threads, on cache lines of their own.
#[repr(align(128))]
struct Shard([AtomicU64; KINDS]);

static COUNTS: [Shard; SHARDS] = [const { Shard([const { AtomicU64::new(0) }; KINDS]) }; SHARDS];
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SHARD: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Kinds with a name; all others are counted together.
const NAMES: [(u32, &str); 39] = [
    (op::LOOKUP, "lookup"),
    (op::FORGET, "forget"),
    (op::GETATTR, "getattr"),
    (op::SETATTR, "setattr"),
    (op::READLINK, "readlink"),
    (op::SYMLINK, "symlink"),
    (op::MKNOD, "mknod"),
    (op::MKDIR, "mkdir"),
    (op::UNLINK, "unlink"),
    (op::RMDIR, "rmdir"),
    (op::RENAME, "rename"),
    (op::LINK, "link"),
    (op::OPEN, "open"),
    (op::READ, "read"),
    (op::WRITE, "write"),
    (op::STATFS, "statfs"),
    (op::RELEASE, "release"),
    (op::FSYNC, "fsync"),
    (op::FLUSH, "flush"),
    (op::SETXATTR, "setxattr"),
    (op::GETXATTR, "getxattr"),
    (op::LISTXATTR, "listxattr"),
    (op::REMOVEXATTR, "removexattr"),
    (op::OPENDIR, "opendir"),
    (op::READDIR, "readdir"),
    (op::RELEASEDIR, "releasedir"),
    (op::FSYNCDIR, "fsyncdir"),
    (op::CREATE, "create"),
    (op::BMAP, "bmap"),
    (op::IOCTL, "ioctl"),
    (op::BATCH_FORGET, "batch_forget"),
    (op::FALLOCATE, "fallocate"),
    (op::READDIRPLUS, "readdirplus"),
    (op::RENAME2, "rename2"),
    (op::LSEEK, "lseek"),
    (op::COPY_FILE_RANGE, "copy_file_range"),
    (op::SYNCFS, "syncfs"),
    (op::TMPFILE, "tmpfile"),
    (op::STATX, "statx"),
];

/// Counts a request to this thread.
pub(crate) fn count(opcode: u32) {
    let shard = SHARD.get().unwrap_or_else(|| {
        let shard = THREADS.fetch_add(1, Ordering::Relaxed) % SHARDS;
        SHARD.set(Some(shard));
        shard
    });
    let kind = opcode as usize;
    // 0 is no request's number.
    let kind = if kind < KINDS { kind } else { 0 };
    if let Some(count) = COUNTS.get(shard).and_then(|Shard(kinds)| kinds.get(kind)) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// The requests since the process began, by kind; kinds without any are left out.
pub fn requests() -> BTreeMap<&'static str, u64> {
    let mut all = BTreeMap::new();
    for kind in 0..KINDS {
        let of = |Shard(kinds): &Shard| kinds.get(kind).map_or(0, |n| n.load(Ordering::Relaxed));
        let count: u64 = COUNTS.iter().map(of).sum();
        let name = NAMES.iter().find(|(op, _)| *op as usize == kind);
        if count > 0 {
            *all.entry(name.map_or("others", |(_, name)| name))
                .or_default() += count;
        }
    }
    all
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_all_threads_are_counted_and_unknown_ones_together() {
        let threads: Vec<_> = (0..2 * SHARDS)
            .map(|_| {
                std::thread::spawn(|| {
                    for opcode in [op::BMAP, op::BMAP, 60, 4711] {
                        count(opcode);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        let counted = requests();
        assert_eq!(counted["bmap"], 4 * SHARDS as u64);
        assert_eq!(counted["others"], 4 * SHARDS as u64);
        assert!(!counted.contains_key("statx"));
    }
}
