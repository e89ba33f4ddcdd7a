//! Threads that change names together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use stetfs_ext4::{Ctx, Ino, ROOT_INO, RenameFlags};
use stetfs_testkit::Mkfs;

use crate::names::support::{Random, Vol, small};

/// Errors that a thread's own earlier work explains.
fn own(e: i32) -> bool {
    matches!(
        e,
        libc::ENOENT | libc::EEXIST | libc::ENOTEMPTY | libc::EISDIR | libc::ENOTDIR | libc::EINVAL
    )
}

/// Errors that the work of other threads explains.
fn expected(e: i32) -> bool {
    own(e) || e == libc::ESTALE
}

type Expected = fn(i32) -> bool;

fn work(vol: &Vol, dirs: &[Ino], seed: u64, done: &AtomicU32, expected: Expected) {
    const STEPS: usize = 1500;
    let mut random = Random::new(seed);
    for _ in 0..STEPS {
        let (a, b) = (
            dirs[random.below(dirs.len())],
            dirs[random.below(dirs.len())],
        );
        let (n, m) = (
            format!("n{}", random.below(60)),
            format!("n{}", random.below(60)),
        );
        let flags = RenameFlags {
            exchange: random.below(4) == 0,
            ..RenameFlags::default()
        };
        let result = match random.below(8) {
            0 | 1 => vol.file(a, n.as_bytes()).map(drop),
            2 => vol.mkdir(a, n.as_bytes()).map(drop),
            3 => vol.unlink(a, n.as_bytes()),
            4 => vol.rmdir(a, n.as_bytes()),
            5 => vol.lookup(a, n.as_bytes()).map(drop),
            6 => {
                vol.list_by(a, 10);
                Ok(())
            }
            _ => vol.rename((a, n.as_bytes()), (b, m.as_bytes()), flags),
        };
        match result {
            Ok(()) => drop(done.fetch_add(1, Ordering::Relaxed)),
            Err(e) => assert!(expected(e), "seed {seed}: errno {e}"),
        }
    }
}

/// Counts down the threads that still work, also when one panics.
struct Last<'a>(&'a AtomicU32);

impl Drop for Last<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn together(mkfs: &Mkfs, shared: bool) {
    let vol = Arc::new(Vol::new(32, mkfs));
    // Directories below each other, so that renames meet ancestors.
    let mut dirs = vec![ROOT_INO];
    for i in 0..8 {
        let above = dirs[i / 2];
        dirs.push(vol.mkdir(above, format!("d{i}").as_bytes()).unwrap());
    }
    let done = AtomicU32::new(0);
    let working = AtomicU32::new(4);
    std::thread::scope(|scope| {
        // Commits happen in between.
        scope.spawn(|| {
            while working.load(Ordering::Relaxed) > 0 {
                vol.sync();
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        });
        for t in 0..4usize {
            let (vol, done, working) = (&vol, &done, &working);
            let mine: Vec<Ino> = if shared {
                dirs[1..].to_vec()
            } else {
                vec![dirs[t + 1], dirs[t + 5]]
            };
            scope.spawn(move || {
                let _last = Last(working);
                let expected = if shared { expected } else { own };
                work(vol, &mine, t as u64 + 1, done, expected);
            });
        }
    });
    assert!(done.into_inner() > 2000);
    let Ok(vol) = Arc::try_unwrap(vol) else {
        panic!("somebody still has the volume")
    };
    vol.close();
}

#[test]
fn in_shared_directories() {
    together(&small(), true);
}

#[test]
fn in_directories_of_their_own() {
    together(&Mkfs::blocks(4096).journal_mib(8), false);
}

/// Directories are moved below each other by several threads: there must be no loop and no
/// deadlock.
#[test]
fn directories_move_below_each_other() {
    let vol = Vol::new(16, &small());
    let dirs: Vec<Ino> = (0..4)
        .map(|i| vol.mkdir(ROOT_INO, format!("d{i}").as_bytes()).unwrap())
        .collect();
    let names: Vec<String> = (0..4).map(|i| format!("d{i}")).collect();
    std::thread::scope(|scope| {
        for t in 0..4usize {
            let (vol, dirs, names) = (&vol, &dirs, &names);
            scope.spawn(move || {
                let mut random = Random::new(t as u64 + 7);
                let mut all = dirs.clone();
                all.push(ROOT_INO);
                for _ in 0..2000 {
                    let name = names[random.below(4)].as_bytes();
                    let (from, to) = (all[random.below(5)], all[random.below(5)]);
                    if let Err(e) = vol.rename((from, name), (to, name), RenameFlags::default()) {
                        assert!(expected(e), "errno {e}");
                    }
                }
            });
        }
    });
    // All four are still in the tree.
    let mut found = 0;
    let mut at = vec![ROOT_INO];
    while let Some(dir) = at.pop() {
        for (name, ino) in vol.names(dir) {
            if dirs.contains(&ino) {
                assert!(names.iter().any(|n| n.as_bytes() == name));
                found += 1;
                at.push(ino);
            }
        }
    }
    assert_eq!(found, 4);
    vol.close();
}

/// Files are deleted while others are made, and commits make their numbers free in between. Each
/// new file, with any number, must have the content that was written to it.
#[test]
fn numbers_are_used_again() {
    let vol = Vol::new(32, &small());
    let working = AtomicU32::new(4);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while working.load(Ordering::Relaxed) > 0 {
                vol.sync();
            }
        });
        for t in 0..4u8 {
            let (vol, working) = (&vol, &working);
            scope.spawn(move || {
                let _last = Last(working);
                let dir = vol.mkdir(ROOT_INO, &[b'd', b'0' + t]).unwrap();
                for i in 0..2000u32 {
                    let ino = vol.file(dir, b"file").unwrap();
                    // Every second file stays empty: such files are deleted in one transaction.
                    let content = [t + 1; 700];
                    if i % 2 == 0 {
                        let file = vol.fs.open_inode(&Ctx::ROOT, ino, libc::O_RDWR).unwrap();
                        vol.fs.write(&Ctx::ROOT, &file, 0, &content, false).unwrap();
                    }
                    let found = vol.lookup(dir, b"file").unwrap();
                    assert_eq!(found.ino, ino);
                    if i % 2 == 0 {
                        assert_eq!(found.size, 700, "thread {t}, file {i}");
                        let file = vol.fs.open_inode(&Ctx::ROOT, ino, libc::O_RDONLY).unwrap();
                        let mut bytes = [0; 700];
                        vol.fs.read(&file, 0, &mut bytes).unwrap();
                        assert_eq!(bytes, content, "thread {t}, file {i}");
                    }
                    vol.unlink(dir, b"file").unwrap();
                }
            });
        }
    });
    vol.close();
}
