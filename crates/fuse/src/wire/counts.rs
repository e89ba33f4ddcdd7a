//! How many requests of each kind came: of all connections of this process, of which a server has
//! one.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::abi::op;

/// Counters are apart for so many threads, lest they wait for each other's memory.
const SHARDS: usize = 16;
/// Numbers of requests are below.
const KINDS: usize = 64;

/// Of some threads. Each is some cache lines of its own.
#[repr(align(128))]
struct Shard([AtomicU64; KINDS]);

static COUNTS: [Shard; SHARDS] = [const { Shard([const { AtomicU64::new(0) }; KINDS]) }; SHARDS];
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SHARD: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Kinds that have a name; others are counted together.
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

/// A request came to this thread.
pub(super) fn count(opcode: u32) {
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

/// Requests that came since the process began, by kind; those of which there were none are left
/// out.
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
