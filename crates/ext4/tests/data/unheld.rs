//! Files that are open only in the kernel, which names them by their number.

use stetfs_ext4::{Attr, Caller, Ctx, DataMode, Fs, Ino, OpenRef, ROOT_INO};

use crate::data::volume::{Shape, Volume};

const BLOCK: u64 = 4096;

fn volume(mib: u64) -> Volume {
    let shape = Shape {
        block_size: BLOCK as u32,
        mib,
        extents: true,
        cluster: 1,
    };
    Volume::new(shape, DataMode::Ordered)
}

fn unheld(fs: &Fs, ino: Ino) -> OpenRef {
    let caller = Caller {
        pid: 1,
        descriptor: |pid| Some((pid, None)),
    };
    fs.unheld(ino, libc::O_RDWR, caller).unwrap()
}

/// Makes a file and closes it. The kernel knows it.
fn make(fs: &Fs, name: &str) -> Attr {
    let made = fs.create(
        &Ctx::ROOT,
        ROOT_INO,
        name.as_bytes(),
        0o600,
        0,
        libc::O_RDWR,
    );
    made.unwrap().0
}

fn append(fs: &Fs, ino: Ino, bytes: usize) {
    let size = fs.getattr(ino).unwrap().size;
    let file = unheld(fs, ino);
    assert_eq!(
        fs.write(&Ctx::ROOT, &file, size, &vec![7; bytes], false)
            .unwrap(),
        bytes
    );
}

/// The place of each block of a file, in blocks.
fn places(fs: &Fs, ino: Ino) -> Vec<u64> {
    let blocks = fs.getattr(ino).unwrap().size.div_ceil(BLOCK);
    (0..blocks)
        .map(|i| fs.bmap(ino, i, BLOCK as u32).unwrap())
        .collect()
}

fn pieces(places: &[u64]) -> usize {
    1 + places.windows(2).filter(|w| w[1] != w[0] + 1).count()
}

#[test]
fn small_files_lie_side_by_side_although_nobody_tells_of_their_end() {
    let volume = volume(64);
    let fs = volume.fs();
    let files: Vec<Ino> = (0..200)
        .map(|i| {
            let ino = make(fs, &format!("f{i}")).ino;
            append(fs, ino, 3 * BLOCK as usize);
            ino
        })
        .collect();
    let all: Vec<u64> = files.iter().flat_map(|ino| places(fs, *ino)).collect();
    assert!(pieces(&all) <= 10, "{} pieces of 200 files", pieces(&all));
    volume.finish();
}

#[test]
fn files_that_grow_side_by_side_stay_in_few_pieces_and_many_give_their_room_back() {
    let volume = volume(256);
    let fs = volume.fs();
    let grow: Vec<Ino> = (0..4).map(|i| make(fs, &format!("grows{i}")).ino).collect();
    for _ in 0..512 {
        for ino in &grow {
            append(fs, *ino, BLOCK as usize);
        }
    }
    for ino in &grow {
        let found = pieces(&places(fs, *ino));
        assert!(found <= 8, "2 MiB in {found} pieces");
    }
    // Each file is complete after its second write. The windows of the first files are released for
    // others.
    let files: Vec<Ino> = (0..300)
        .map(|i| {
            let ino = make(fs, &format!("f{i}")).ino;
            append(fs, ino, BLOCK as usize);
            append(fs, ino, BLOCK as usize);
            ino
        })
        .collect();
    let all: Vec<u64> = files.iter().flat_map(|ino| places(fs, *ino)).collect();
    let (first, last) = (all.iter().min().unwrap(), all.iter().max().unwrap());
    // 600 blocks, and 32 windows of 256 KiB.
    let most = 600 + 33 * 64 + 600;
    assert!(
        last - first < most,
        "300 files lie in {} blocks",
        last - first
    );
    volume.finish();
}

#[test]
fn a_file_without_a_name_stays_until_the_kernel_forgets_it() {
    let volume = volume(64);
    let fs = volume.fs();
    let ino = make(fs, "f").ino;
    append(fs, ino, 50_000);
    fs.unlink(&Ctx::ROOT, ROOT_INO, b"f").unwrap();
    assert!(fs.has_nameless());
    for i in 0..50 {
        assert_ne!(
            make(fs, &format!("other{i}")).ino,
            ino,
            "a number that is in use"
        );
    }
    append(fs, ino, 50_000);
    let mut content = vec![0; 100_001];
    assert_eq!(fs.read(&unheld(fs, ino), 0, &mut content).unwrap(), 100_000);
    assert!(content[..100_000].iter().all(|b| *b == 7));
    let held = unheld(fs, ino);
    fs.forget(ino, 1);
    assert!(!fs.has_nameless());
    // A request that the kernel never sends: it has no effect.
    let late = fs
        .write(&Ctx::ROOT, &held, 0, &[1; 10_000], false)
        .unwrap_err();
    assert_eq!(late.errno(), libc::ESTALE);
    let gone = fs.unheld(
        ino,
        0,
        Caller {
            pid: 0,
            descriptor: |_| None,
        },
    );
    assert_eq!(gone.err().unwrap().errno(), libc::ESTALE);
    drop(held);
    volume.finish();
}
