//! Tests of set-user-id and set-group-id under changes by other users, compared with the kernel's
//! ext4.
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;
use std::thread;

use crate::common::{kernel, stetfs, stetfs_with};
use stetfs_testkit::{Image, Mkfs, Mounter};

/// The user that makes the changes, and the group of the files.
const USER: u32 = 4321;
const GROUP: u32 = 5432;

/// Modes writable by everybody, with and without execution by the group.
const MODES: [u32; 8] = [
    0o2766, 0o2767, 0o6766, 0o4766, 0o2776, 0o6777, 0o2666, 0o0666,
];

type Change = (&'static str, fn(&Path));

fn open(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

const CHANGES: [Change; 9] = [
    ("nothing", |_| {}),
    ("write", |path| open(path).write_all_at(b"x", 0).unwrap()),
    ("append", |path| {
        let file = OpenOptions::new().append(true).open(path).unwrap();
        std::io::Write::write_all(&mut &file, b"x").unwrap();
    }),
    ("O_DIRECT", |path| {
        let mut options = OpenOptions::new();
        let file = options.write(true).custom_flags(libc::O_DIRECT).open(path);
        let mut room = vec![7; 8192];
        let skip = room.as_ptr().align_offset(4096);
        let aligned = &mut room[skip..][..4096];
        file.unwrap().write_all_at(aligned, 0).unwrap();
    }),
    ("truncate", |path| open(path).set_len(3).unwrap()),
    ("O_TRUNC", |path| drop(File::create(path).unwrap())),
    ("copy_file_range", |path| {
        let from = File::open(path.with_file_name("from")).unwrap();
        let to = open(path);
        let n = rustix::fs::copy_file_range(&from, Some(&mut 0), &to, Some(&mut 0), 10).unwrap();
        assert_eq!(n, 10);
    }),
    ("fallocate", |path| {
        let flags = rustix::fs::FallocateFlags::empty();
        rustix::fs::fallocate(open(path), flags, 0, 100_000).unwrap();
    }),
    ("chown", |path| chown(path, None, Some(USER)).unwrap()),
];

/// Runs `work` as the user, with these supplementary groups.
fn as_user(groups: &[u32], work: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let done = scope.spawn(|| {
            // SAFETY: system calls with numbers and a list that outlives them; unlike the functions
            // of libc they change this thread alone.
            unsafe {
                let n = groups.len();
                assert_eq!(libc::syscall(libc::SYS_setgroups, n, groups.as_ptr()), 0);
                assert_eq!(libc::syscall(libc::SYS_setresgid, USER, USER, USER), 0);
                assert_eq!(libc::syscall(libc::SYS_setresuid, USER, USER, USER), 0);
            }
            work();
        });
        done.join().unwrap();
    });
}

/// The mode of each file after each change, by the user and by a member of the group.
fn modes(mounter: &Mounter) -> Vec<String> {
    let image = Image::make(64 << 20, &Mkfs::new()).unwrap();
    let mounted = mounter.mount(image.path()).unwrap();
    let root = mounted.path();
    fs::set_permissions(root, fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(root.join("from"), [1; 10_000]).unwrap();
    let mut seen = Vec::new();
    for (who, groups) in [("another", &[][..]), ("a member", &[GROUP])] {
        for (what, change) in CHANGES {
            for mode in MODES {
                let path = root.join("file");
                fs::write(&path, [2; 10_000]).unwrap();
                chown(&path, Some(USER), Some(GROUP)).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
                as_user(groups, || change(&path));
                let left = fs::metadata(&path).unwrap().mode() & 0o7777;
                seen.push(format!("{who}: {what}: {mode:04o} {left:04o}"));
                fs::remove_file(&path).unwrap();
            }
        }
    }
    // Root can give files away without clearing the group bit where the group cannot execute the
    // file.
    let path = root.join("root");
    for mode in MODES {
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        chown(&path, Some(USER), Some(GROUP)).unwrap();
        let left = fs::metadata(&path).unwrap().mode() & 0o7777;
        seen.push(format!("root: chown: {mode:04o} {left:04o}"));
        fs::remove_file(&path).unwrap();
    }
    mounted.umount().unwrap();
    seen
}

#[test]
fn a_change_takes_the_bits_that_the_kernel_takes() {
    let theirs = modes(&kernel());
    // Otherwise the comparison would show nothing.
    assert!(theirs.contains(&"another: write: 2766 0766".to_owned()));
    assert!(theirs.contains(&"a member: write: 2766 2766".to_owned()));
    for mounter in [
        stetfs(),
        stetfs_with("opens=handles"),
        stetfs_with("direct_io"),
    ] {
        let ours = modes(&mounter);
        let wrong: Vec<_> = theirs.iter().zip(&ours).filter(|(t, o)| t != o).collect();
        assert!(wrong.is_empty(), "theirs and ours: {wrong:#?}");
    }
}
