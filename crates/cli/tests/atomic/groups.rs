//! Tests of groups: several files that change all at once.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};

use stetfs_testkit::{Image, Mkfs, Scratch, cmd, sys};

use super::{ABORT, COMMIT, START, compiled, copy, ioctl, mount, open, refusal};
use crate::common::stetfs_with;

const GET_GROUP: u32 = 0x8008_f540;
const JOIN: u32 = 0x4008_f541;

#[test]
fn a_c_program_changes_two_files_at_once() {
    let scratch = Scratch::new("atomic-group").unwrap();
    let program = compiled(&scratch, "atomic_group.c");
    let (image, mounted) = mount("journal=ldj,atomic");
    let accounts = ["from", "to"].map(|name| mounted.path().join(name));
    std::fs::write(&accounts[0], "     100").unwrap();
    std::fs::write(&accounts[1], "      10").unwrap();
    let moves = |arguments: &[&str]| {
        let mut run = Command::new(&program);
        cmd::run(run.args(&accounts).args(arguments)).unwrap()
    };
    assert_eq!(moves(&["30"]).trim(), "70 40");
    assert_eq!(moves(&["30", "abort"]).trim(), "70 40");
    assert_eq!(moves(&["-5"]).trim(), "75 35");
    let after = copy(image.path());
    mounted.umount().unwrap();
    let mounted = stetfs_with("").mount(&after.1).unwrap();
    let read = |name| std::fs::read(mounted.path().join(name)).unwrap();
    assert_eq!(
        (&*read("from"), &*read("to")),
        (&b"      75"[..], &b"      35"[..])
    );
    mounted.umount().unwrap();
}

/// Begins an atomic write of all these files as one group.
pub(super) fn start_all(files: &[File]) -> io::Result<()> {
    ioctl(&files[0], START)?;
    files[1..].iter().try_for_each(|file| join(file, &files[0]))
}

fn join(file: &File, begun: &File) -> io::Result<()> {
    let mut token = [0; 8];
    sys::file_ioctl(begun.as_fd(), GET_GROUP, &mut token)?;
    sys::file_ioctl(file.as_fd(), JOIN, &mut token)
}

/// Creates files with `content`; returns them open.
fn made(dir: &Path, names: &[&str], content: &[u8]) -> Vec<File> {
    let made = names.iter().map(|name| {
        std::fs::write(dir.join(name), content).unwrap();
        open(&dir.join(name))
    });
    made.collect()
}

/// The contents of these files after a crash at this moment.
fn crashed(image: &Path, names: &[&str]) -> Vec<Vec<u8>> {
    let copy = copy(image);
    let mounted = stetfs_with("").mount(&copy.1).unwrap();
    let read = |name: &&str| std::fs::read(mounted.path().join(name)).unwrap();
    let all = names.iter().map(read).collect();
    mounted.umount().unwrap();
    all
}

const NAMES: [&str; 3] = ["b", "a", "c"];

/// After any crash all files of a group have changed or none. If each file is committed by itself,
/// the same check finds them different.
#[test]
fn files_of_a_group_change_in_one_commit() {
    for journal in ["data", "ldj", "stet", "afs"] {
        let (image, mounted) = mount(&format!("journal={journal},atomic"));
        let old = vec![1; 9000];
        let files = made(mounted.path(), &NAMES, &old);
        rustix::fs::syncfs(&files[0]).unwrap();
        for is_group in [false, true] {
            match is_group {
                true => start_all(&files).unwrap(),
                false => {
                    for file in &files {
                        ioctl(file, START).unwrap();
                    }
                }
            }
            let new = if is_group { [3; 5000] } else { [2; 5000] };
            let before = crashed(image.path(), &NAMES);
            for file in &files {
                file.write_all_at(&new, 4000).unwrap();
            }
            assert!(crashed(image.path(), &NAMES) == before);
            // Any file of the group can commit it.
            ioctl(&files[1], COMMIT).unwrap();
            let after = crashed(image.path(), &NAMES);
            let are_one = after.iter().all(|content| *content == after[0]);
            assert_eq!(are_one, is_group, "{journal}");
            assert_eq!(after[1][4000..], new);
            for file in [&files[0], &files[2]] {
                assert_eq!(ioctl(file, COMMIT).is_err(), is_group);
            }
        }
        drop(files);
        mounted.umount().unwrap();
        image.e2fsck_fn().unwrap();
    }
}

/// The server is killed at a random moment while a program commits one generation after the other:
/// all files are of one generation, which is not older than the acknowledged one.
#[test]
fn groups_are_whole_when_the_server_is_killed() {
    for journal in ["data", "ldj", "stet", "afs"] {
        let image = Image::make(64 << 20, &Mkfs::blocks(4096)).unwrap();
        let options = format!("journal={journal},atomic");
        let mut stands = 0;
        for kill in 0..5 {
            let mounted = stetfs_with(&options).mount(image.path()).unwrap();
            let paths = NAMES.map(|name| mounted.path().join(name));
            if kill == 0 {
                made(mounted.path(), &NAMES, &content(0));
                rustix::fs::syncfs(File::open(mounted.path()).unwrap()).unwrap();
            }
            let files = paths.map(|path| open(&path));
            let (tells, told) = channel();
            let acknowledged = std::thread::scope(|scope| {
                let commits = scope.spawn(move || commit_until_killed(&files, stands, tells));
                for _ in 0..=kill {
                    told.recv().unwrap();
                }
                mounted.crash().unwrap();
                commits.join().unwrap()
            });
            let all = crashed(image.path(), &NAMES);
            let found = u32::from_le_bytes(*all[0].first_chunk().unwrap());
            assert!(all.iter().all(|file| *file == content(found)));
            let next = acknowledged + 1;
            assert!(
                found == acknowledged || found == next,
                "{journal}: {found} for {acknowledged}"
            );
            stands = found;
        }
        let mounted = stetfs_with("").mount(image.path()).unwrap();
        mounted.umount().unwrap();
        image.e2fsck_fn().unwrap();
    }
}

/// The content of a file of a generation.
fn content(generation: u32) -> Vec<u8> {
    generation.to_le_bytes().repeat(2500)
}

/// Commits one generation after the other until it fails; returns the last acknowledged one.
fn commit_until_killed(files: &[File], from: u32, acknowledged: Sender<u32>) -> u32 {
    let commit = |generation: u32| {
        start_all(files)?;
        for file in files {
            file.write_all_at(&content(generation), 0)?;
        }
        ioctl(&files[1], COMMIT)
    };
    let generations = from + 1..;
    let done = generations.take_while(|generation| {
        let done = commit(*generation).is_ok();
        if done {
            // The receiver is gone after the first.
            let _ = acknowledged.send(*generation);
        }
        done
    });
    done.last().unwrap_or(from)
}

/// An event that ends the atomic write of one file ends it for the whole group.
#[test]
fn a_group_ends_for_all_its_files() {
    for options in ["journal=data,atomic", "journal=data,atomic,direct_io"] {
        let (image, mounted) = mount(options);
        let files = made(mounted.path(), &NAMES, b"old");
        let read = |name: &&str| std::fs::read(mounted.path().join(name)).unwrap();
        let hold = |content: &[u8]| NAMES.iter().all(|name| read(name) == content);
        let write = || {
            for file in &files {
                file.write_all_at(b"new!", 0).unwrap();
            }
            assert!(hold(b"new!"));
        };
        start_all(&files).unwrap();
        write();
        ioctl(&files[2], ABORT).unwrap();
        assert!(hold(b"old"), "{options}");
        assert_eq!(refusal(ioctl(&files[0], COMMIT)), libc::EINVAL);

        // A close: each remaining descriptor gets the error.
        start_all(&files).unwrap();
        write();
        drop(files[1].try_clone().unwrap());
        assert!(hold(b"old"), "{options}");
        for file in &files {
            assert_eq!(refusal(file.write_all_at(b"w", 0)), libc::EIO);
            assert_eq!(refusal(file.set_len(0)), libc::EIO);
            assert_eq!(refusal(ioctl(file, COMMIT)), libc::EINVAL);
        }
        start_all(&files).unwrap();
        write();
        ioctl(&files[1], COMMIT).unwrap();
        assert!(hold(b"new!"));
        drop(files);
        mounted.umount().unwrap();
        image.e2fsck_fn().unwrap();
    }
}

#[test]
fn who_may_not_join_is_refused() {
    let (image, mounted) = mount("journal=data,atomic");
    let files = made(mounted.path(), &NAMES, b"old");
    let [first, second, third] = &files[..] else {
        panic!("three files");
    };
    assert_eq!(refusal(join(second, first)), libc::EINVAL);
    ioctl(first, START).unwrap();
    join(first, first).unwrap();
    join(second, first).unwrap();
    join(second, first).unwrap();
    // Another open of a file, a file that began alone, and another program cannot join.
    let again = open(&mounted.path().join(NAMES[1]));
    assert_eq!(refusal(join(&again, first)), libc::EBUSY);
    ioctl(third, START).unwrap();
    assert_eq!(refusal(join(third, first)), libc::EINVAL);
    ioctl(third, ABORT).unwrap();
    let readable = File::open(mounted.path().join(NAMES[2])).unwrap();
    assert_eq!(refusal(join(&readable, first)), libc::EBADF);
    let mut token = [0; 8];
    sys::file_ioctl(first.as_fd(), GET_GROUP, &mut token).unwrap();
    let script = "
import errno, fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
try:
    fcntl.ioctl(fd, 0x4008f541, bytes.fromhex(sys.argv[2]))
except OSError as e:
    print(errno.errorcode[e.errno])
";
    let hex: String = token.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut joins = Command::new("python3");
    joins
        .args(["-c", script])
        .arg(mounted.path().join(NAMES[2]));
    assert_eq!(cmd::run(joins.arg(hex)).unwrap().trim(), "EPERM");
    // The group is still usable.
    join(third, second).unwrap();
    third.write_all_at(b"new", 0).unwrap();
    ioctl(first, COMMIT).unwrap();
    assert_eq!(
        std::fs::read(mounted.path().join(NAMES[2])).unwrap(),
        b"new"
    );
    assert_eq!(refusal(join(second, first)), libc::EINVAL);
    drop((again, readable, files));
    mounted.umount().unwrap();
    image.e2fsck_fn().unwrap();
}

/// A group larger than a transaction and the cache is written early, and is still whole.
#[test]
fn more_than_the_journal_holds_is_committed_whole() {
    let image = Image::make(160 << 20, &Mkfs::blocks(4096).journal_mib(4)).unwrap();
    let mounted = stetfs_with("journal=ldj,atomic,cache=8M")
        .mount(image.path())
        .unwrap();
    let path = mounted.path().join("large");
    let old = vec![1; 3 << 20];
    std::fs::write(&path, &old).unwrap();
    let file = open(&path);
    file.sync_all().unwrap();
    let new: Vec<u8> = (0..40 << 20).map(|at: u32| (at >> 10) as u8).collect();
    let begin = || {
        ioctl(&file, START).unwrap();
        file.write_all_at(&new, 5000).unwrap();
    };
    begin();
    assert!(crashed(image.path(), &["large"])[0] == old);
    ioctl(&file, ABORT).unwrap();
    assert!(std::fs::read(&path).unwrap() == old);
    begin();
    ioctl(&file, COMMIT).unwrap();
    let mut expected = old[..5000].to_vec();
    expected.extend(&new);
    assert!(std::fs::read(&path).unwrap() == expected);
    assert!(crashed(image.path(), &["large"])[0] == expected);
    drop(file);
    mounted.umount().unwrap();
    image.e2fsck_fn().unwrap();
}
