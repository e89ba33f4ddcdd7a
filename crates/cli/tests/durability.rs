//! Tests of each call that promises durability: the server is killed right after the call returned.
//!
//! Each case is one that a user-space ext4 got wrong: fsync of a directory or of a read-only
//! descriptor, syncfs, unsynced data that is never written back.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use crate::common::{kernel, stetfs};
use rustix::fs::XattrFlags;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};
use stetfs_testkit::sys::Shutdown;
use stetfs_testkit::{Image, Mkfs, Mounter};

/// Runs `work` on a fresh volume, crashes while the value it returns is alive, recovers, and runs
/// `check`.
fn crash_after<K>(mounter: &Mounter, work: impl FnOnce(&Path) -> K, check: impl FnOnce(&Path)) {
    let image = Image::make(256 << 20, &Mkfs::new()).unwrap();
    let mounted = mounter.mount(image.path()).unwrap();
    // A directory that is durable from the start.
    fs::create_dir(mounted.path().join("dir")).unwrap();
    fs::write(mounted.path().join("old"), [b'o'; 9_000]).unwrap();
    mounted.umount().unwrap();
    let mounted = mounter.mount(image.path()).unwrap();
    let alive = work(mounted.path());
    mounted
        .crash_with(Shutdown::NoLogFlush, || drop(alive))
        .unwrap();
    let mounted = mounter.mount(image.path()).unwrap();
    check(mounted.path());
    mounted.umount().unwrap();
    image.e2fsck_fn().unwrap();
}

fn sync_dir(dir: &Path) {
    File::open(dir).unwrap().sync_all().unwrap();
}

fn fsync_of_a_new_file(m: &Mounter) {
    crash_after(
        m,
        |root| {
            let mut file = File::create(root.join("dir/new")).unwrap();
            file.write_all(&[7; 100_000]).unwrap();
            file.set_permissions(fs::Permissions::from_mode(0o640))
                .unwrap();
            rustix::fs::fsetxattr(&file, "user.name", b"value", XattrFlags::empty()).unwrap();
            file.sync_all().unwrap();
            file
        },
        |root| {
            let path = root.join("dir/new");
            assert_eq!(fs::read(&path).unwrap(), [7; 100_000]);
            assert_eq!(
                fs::metadata(&path).unwrap().permissions().mode() & 0o777,
                0o640
            );
            let mut value = [0; 16];
            let n = rustix::fs::getxattr(&path, "user.name", &mut value[..]).unwrap();
            assert_eq!(&value[..n], b"value");
        },
    );
}

fn fdatasync_of_an_overwrite_and_an_append(m: &Mounter) {
    crash_after(
        m,
        |root| {
            let file = OpenOptions::new()
                .write(true)
                .open(root.join("old"))
                .unwrap();
            file.write_all_at(b"new", 5_000).unwrap();
            file.sync_data().unwrap();
            // Reading the data back needs the size, so fdatasync covers it.
            file.write_all_at(&[b'a'; 20_000], 9_000).unwrap();
            file.sync_data().unwrap();
            file
        },
        |root| {
            let data = fs::read(root.join("old")).unwrap();
            assert_eq!(data.len(), 29_000);
            assert_eq!(&data[4_999..5_004], b"onewo");
            assert!(data[9_000..].iter().all(|&b| b == b'a'));
        },
    );
}

fn fsync_of_a_directory(m: &Mounter) {
    crash_after(
        m,
        |root| {
            let dir = root.join("dir");
            for i in 0..50 {
                File::create(dir.join(format!("entry-{i}"))).unwrap();
            }
            fs::create_dir(dir.join("sub")).unwrap();
            std::os::unix::fs::symlink("target", dir.join("link")).unwrap();
            fs::hard_link(root.join("old"), dir.join("hard")).unwrap();
            sync_dir(&dir);
        },
        |root| {
            assert_eq!(fs::read_dir(root.join("dir")).unwrap().count(), 53);
            assert_eq!(
                fs::read_link(root.join("dir/link")).unwrap(),
                Path::new("target")
            );
            assert_eq!(fs::read(root.join("dir/hard")).unwrap(), [b'o'; 9_000]);
        },
    );
}

/// SQLite calls it after it removed its rollback journal.
fn fdatasync_of_a_directory(m: &Mounter) {
    crash_after(
        m,
        |root| {
            fs::write(root.join("dir/removed"), "x").unwrap();
            sync_dir(&root.join("dir"));
            fs::remove_file(root.join("dir/removed")).unwrap();
            fs::write(root.join("dir/added"), "").unwrap();
            File::open(root.join("dir")).unwrap().sync_data().unwrap();
        },
        |root| {
            let names: Vec<_> = fs::read_dir(root.join("dir"))
                .unwrap()
                .map(|e| e.unwrap().file_name())
                .collect();
            assert_eq!(names, ["added"]);
        },
    );
}

fn fsync_of_a_directory_after_rename_and_unlink(m: &Mounter) {
    crash_after(
        m,
        |root| {
            fs::write(root.join("dir/a"), "a").unwrap();
            fs::write(root.join("dir/b"), "b").unwrap();
            sync_dir(&root.join("dir"));
            fs::rename(root.join("dir/a"), root.join("dir/renamed")).unwrap();
            fs::remove_file(root.join("dir/b")).unwrap();
            sync_dir(&root.join("dir"));
        },
        |root| {
            let names: Vec<_> = fs::read_dir(root.join("dir"))
                .unwrap()
                .map(|e| e.unwrap().file_name())
                .collect();
            assert_eq!(names, ["renamed"]);
        },
    );
}

fn fsync_of_a_read_only_descriptor(m: &Mounter) {
    crash_after(
        m,
        |root| {
            fs::write(root.join("dir/file"), [3; 50_000]).unwrap();
            File::open(root.join("dir/file"))
                .unwrap()
                .sync_all()
                .unwrap();
        },
        |root| assert_eq!(fs::read(root.join("dir/file")).unwrap(), [3; 50_000]),
    );
}

fn syncfs_of_everything(m: &Mounter) {
    crash_after(
        m,
        |root| {
            for i in 0..200u8 {
                fs::write(root.join(format!("dir/file-{i}")), vec![i; 5_000]).unwrap();
            }
            rustix::fs::syncfs(File::open(root).unwrap()).unwrap();
        },
        |root| {
            for i in 0..200u8 {
                assert_eq!(
                    fs::read(root.join(format!("dir/file-{i}"))).unwrap(),
                    vec![i; 5_000],
                    "file {i}"
                );
            }
        },
    );
}

fn synchronous_writes(m: &Mounter) {
    crash_after(
        m,
        |root| {
            // The files are durable: the test is of the write, not of the name.
            for name in ["o-sync", "o-dsync", "direct"] {
                File::create(root.join(name)).unwrap().sync_all().unwrap();
            }
            let open = |name: &str, flags| {
                OpenOptions::new()
                    .write(true)
                    .custom_flags(flags)
                    .open(root.join(name))
                    .unwrap()
            };
            open("o-sync", libc::O_SYNC)
                .write_all(&[1; 10_000])
                .unwrap();
            open("o-dsync", libc::O_DSYNC)
                .write_all(&[2; 10_000])
                .unwrap();
            // rustix gives page-aligned memory by mmap; O_DIRECT needs it.
            with_page(|page| {
                page.fill(3);
                open("direct", libc::O_DIRECT | libc::O_DSYNC)
                    .write_all_at(page, 8_192)
                    .unwrap();
            });
        },
        |root| {
            assert_eq!(fs::read(root.join("o-sync")).unwrap(), [1; 10_000]);
            assert_eq!(fs::read(root.join("o-dsync")).unwrap(), [2; 10_000]);
            let direct = fs::read(root.join("direct")).unwrap();
            assert_eq!(direct.len(), 8_192 + 4_096);
            assert!(
                direct[..8_192].iter().all(|&b| b == 0) && direct[8_192..].iter().all(|&b| b == 3)
            );
        },
    );
}

/// Passes one page of page-aligned memory to `f`.
fn with_page(f: impl FnOnce(&mut [u8])) {
    let mut memory = vec![0u8; 8_192];
    let start = memory.as_ptr().align_offset(4_096);
    f(&mut memory[start..start + 4_096]);
}

fn msync_of_a_mapping(m: &Mounter) {
    crash_after(
        m,
        |root| {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .open(root.join("old"))
                .unwrap();
            // SAFETY: a new mapping at an address that the kernel chooses; the file is not
            // truncated while it exists.
            unsafe {
                let at = rustix::mm::mmap(
                    std::ptr::null_mut(),
                    9_000,
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::SHARED,
                    &file,
                    0,
                )
                .unwrap();
                at.cast::<u8>().add(4_500).write_bytes(b'm', 1_000);
                rustix::mm::msync(at, 9_000, MsyncFlags::SYNC).unwrap();
                rustix::mm::munmap(at, 9_000).unwrap();
            }
        },
        |root| {
            let data = fs::read(root.join("old")).unwrap();
            assert_eq!(data.len(), 9_000);
            assert!(data[4_500..5_500].iter().all(|&b| b == b'm'));
            assert!(
                data[..4_500]
                    .iter()
                    .chain(&data[5_500..])
                    .all(|&b| b == b'o')
            );
        },
    );
}

/// Unsynced data after several commit intervals. (The kernel writes data back up to half a minute
/// later, unless it is journalled; StetFS allocates at write time, so every commit includes the
/// data.)
fn what_nobody_synced(m: &Mounter) {
    let mut with_commit = m.clone();
    match &mut with_commit {
        Mounter::Kernel { options, .. } => *options = "commit=1,data=journal".into(),
        Mounter::Stetfs { options, .. } if options.is_empty() => *options = "commit=1".into(),
        Mounter::Stetfs { options, .. } => options.push_str(",commit=1"),
    }
    // Data is written back at its own time; until then files may hold zeroes or nothing.
    let data_follows =
        matches!(m, Mounter::Stetfs { options, .. } if options.contains("writeback"));
    crash_after(
        &with_commit,
        |root| {
            for i in 0..20u8 {
                fs::write(root.join(format!("dir/file-{i}")), vec![i; 6_000]).unwrap();
            }
            std::thread::sleep(Duration::from_secs(4));
        },
        |root| {
            for i in 0..20u8 {
                let path = root.join(format!("dir/file-{i}"));
                let data = fs::read(&path).unwrap();
                assert!(
                    data_follows || data == vec![i; 6_000],
                    "file {i}: {} bytes",
                    data.len()
                );
            }
        },
    );
}

/// A file that replaces another by rename, as editors and package managers do: old or new, never
/// empty.
fn replaced_by_rename(m: &Mounter) {
    crash_after(
        m,
        |root| {
            for i in 0..30u8 {
                let mut file = File::create(root.join("dir/temp")).unwrap();
                file.write_all(&vec![i; 10_000]).unwrap();
                file.sync_all().unwrap();
                drop(file);
                fs::rename(root.join("dir/temp"), root.join("dir/config")).unwrap();
                if i == 20 {
                    sync_dir(&root.join("dir"));
                }
            }
        },
        |root| {
            let data = fs::read(root.join("dir/config")).unwrap();
            assert_eq!(data.len(), 10_000);
            assert!((20..30).contains(&data[0]), "version {}", data[0]);
            assert!(data.iter().all(|b| *b == data[0]));
        },
    );
}

macro_rules! cases {
    ($($test:ident;)*) => {
        mod on_stetfs {
            $( #[test] fn $test() { super::$test(&super::stetfs()); } )*
        }
        /// The tests themselves, on the kernel's ext4.
        mod harness {
            $( #[test] fn $test() { super::$test(&super::kernel()); } )*
        }
    };
}

cases! {
    fsync_of_a_new_file;
    fdatasync_of_an_overwrite_and_an_append;
    fsync_of_a_directory;
    fdatasync_of_a_directory;
    fsync_of_a_directory_after_rename_and_unlink;
    fsync_of_a_read_only_descriptor;
    syncfs_of_everything;
    synchronous_writes;
    msync_of_a_mapping;
    what_nobody_synced;
    replaced_by_rename;
}
