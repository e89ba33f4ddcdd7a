//! The conformance suite for every region, and the properties of files.
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use stetfs_block::{BlockError, FileDevice, OpenOptions, Span};
use stetfs_nvm::{Durability, FileRegion, FlushBy, LINE, MemRegion, Region, RegionRecorder, suite};
use tempfile::TempDir;

const SIZE: u64 = 192 << 10;
const ALL: Span = Span {
    start: 0,
    len: SIZE,
};

/// A directory on a disk: /tmp may be a tmpfs, the target directory hardly.
fn disk() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A directory on a tmpfs.
fn shm() -> TempDir {
    TempDir::new_in("/dev/shm").unwrap()
}

/// A sparse file.
fn file(dir: &TempDir, size: u64) -> PathBuf {
    let path = dir.path().join("region");
    File::create(&path).unwrap().set_len(size).unwrap();
    path
}

fn open(dir: &TempDir) -> FileRegion {
    FileRegion::open(&file(dir, SIZE), ALL).unwrap()
}

/// A region that neither begins nor ends at a page, in a file that goes on behind it.
fn part(dir: &TempDir) -> FileRegion {
    let part = Span {
        start: 4096 + 3 * LINE,
        len: SIZE - 5 * LINE,
    };
    FileRegion::open(&file(dir, 2 * SIZE), part).unwrap()
}

/// One test per region: its name, and an expression for it in a directory on a disk and one in
/// memory.
macro_rules! stamp {
    ($($name:ident: |$disk:ident, $shm:ident| $make:expr;)*) => {$(
        #[test]
        fn $name() {
            let ($disk, $shm) = (disk(), shm());
            let region = $make;
            for seed in 1..3 {
                suite::check_all(&region, seed);
            }
        }
    )*};
}

stamp! {
    memory: |_d, _m| MemRegion::new(SIZE);
    memory_of_whole_lines: |_d, _m| MemRegion::new(SIZE - 1);
    memory_fork: |_d, _m| MemRegion::from_bytes(&[3; 70_000]).fork();
    recorder: |_d, _m| RegionRecorder::new(MemRegion::new(SIZE));
    shared_and_boxed: |_d, _m| Arc::new(Box::new(MemRegion::new(SIZE)) as Box<dyn Region>);
    file_in_memory: |_d, m| open(&m);
    file_in_memory_part: |_d, m| part(&m);
    file_on_a_disk: |d, _m| open(&d);
    file_on_a_disk_part: |d, _m| part(&d);
    recorder_on_a_file: |_d, m| RegionRecorder::new(open(&m));
}

#[test]
fn a_region_says_what_it_survives() {
    let (disk, shm) = (disk(), shm());
    let in_memory = open(&shm);
    assert_eq!(in_memory.write_back_by(), FlushBy::Stores);
    assert_eq!(in_memory.durability(), Durability::Process);
    let on_disk = open(&disk);
    assert_ne!(on_disk.write_back_by(), FlushBy::Stores);
    assert_eq!(on_disk.durability(), Durability::Power);
    assert_eq!(MemRegion::new(SIZE).durability(), Durability::Nothing);
    assert!(Durability::Nothing < Durability::Process && Durability::Process < Durability::Power);
}

/// Stored content is in the file at the part's offset, and the bytes beside the part stay.
#[test]
fn a_part_is_the_files_bytes() {
    for dir in [disk(), shm()] {
        let path = file(&dir, 4 * LINE);
        std::fs::write(&path, [7; 4 * LINE as usize]).unwrap();
        let part = Span {
            start: LINE,
            len: 2 * LINE,
        };
        let region = FileRegion::open(&path, part).unwrap();
        let mut old = [0; 128];
        region.read(0, &mut old).unwrap();
        assert_eq!(old, [7; 128]);
        region.store(0, &[1; 128]).unwrap();
        region.persist(0..128).unwrap();
        drop(region);
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes, [[7; 64], [1; 64], [1; 64], [7; 64]].concat());
    }
}

/// No store meets a full disk: opening allocates the holes of a sparse file.
#[test]
fn space_is_allocated() {
    for dir in [disk(), shm()] {
        let path = file(&dir, SIZE);
        assert_eq!(path.metadata().unwrap().blocks(), 0);
        let _region = FileRegion::open(&path, ALL).unwrap();
        assert!(path.metadata().unwrap().blocks() * 512 >= SIZE);
        assert_eq!(path.metadata().unwrap().len(), SIZE);
    }
}

#[track_caller]
fn refused(path: &Path, part: Span) {
    let error = FileRegion::open(path, part).unwrap_err();
    assert!(matches!(error, BlockError::Locked { .. }), "{error}");
}

#[test]
fn two_openers_of_a_line_are_refused_and_neighbours_are_not() {
    let span = |start, len| Span { start, len };
    for dir in [disk(), shm()] {
        let path = file(&dir, SIZE);
        let first = FileRegion::open(&path, span(4096, 8192)).unwrap();
        refused(&path, span(4096, 8192));
        refused(&path, span(0, 4096 + LINE));
        refused(&path, span(4096 + 8192 - LINE, LINE));
        let beside = FileRegion::open(&path, span(0, 4096)).unwrap();
        let behind = FileRegion::open(&path, span(4096 + 8192, 4096)).unwrap();
        // Nor can the file be opened as a volume.
        FileDevice::open(&path, OpenOptions::default()).unwrap_err();
        drop(first);
        let again = FileRegion::open(&path, span(4096, 8192)).unwrap();
        drop((again, beside, behind));
        let volume = FileDevice::open(&path, OpenOptions::default()).unwrap();
        refused(&path, ALL);
        drop(volume);
        FileRegion::open(&path, ALL).unwrap();
    }
}

#[test]
fn what_cannot_be_a_region_is_refused() {
    let dir = disk();
    let path = file(&dir, SIZE);
    let unsuitable = |path: &Path, start, len| {
        let error = FileRegion::open(path, Span { start, len }).unwrap_err();
        assert!(matches!(error, BlockError::Unsuitable { .. }), "{error}");
    };
    unsuitable(&path, 0, SIZE + LINE);
    unsuitable(&path, SIZE, LINE);
    unsuitable(&path, 8, LINE);
    unsuitable(&path, 0, LINE + 8);
    unsuitable(&path, 0, 0);
    unsuitable(&path, u64::MAX - LINE + 1, 2 * LINE);
    unsuitable(dir.path(), 0, LINE);
    unsuitable(Path::new("/dev/null"), 0, LINE);
    let missing = FileRegion::open(&dir.path().join("none"), ALL).unwrap_err();
    assert!(matches!(missing, BlockError::Open { .. }), "{missing}");
    assert_eq!(path.metadata().unwrap().len(), SIZE);
}

/// A truncated file is an error at the next fence, and remains one when the file grows again: its
/// bytes are gone.
#[test]
fn a_shortened_file_is_an_error_for_ever() {
    for dir in [disk(), shm()] {
        let path = file(&dir, SIZE);
        let region = FileRegion::open(&path, ALL).unwrap();
        region.store(0, &[1; 64]).unwrap();
        region.persist(0..64).unwrap();
        let other = File::options().write(true).open(&path).unwrap();
        other.set_len(SIZE - LINE).unwrap();
        let shrunk = |e| assert!(matches!(e, BlockError::Shrunk { .. }), "{e}");
        shrunk(region.fence().unwrap_err());
        other.set_len(SIZE).unwrap();
        shrunk(region.fence().unwrap_err());
        shrunk(region.persist(0..64).unwrap_err());
    }
}

/// Writes of others to the file are visible, as between processes.
#[test]
fn the_mapping_is_shared() {
    let dir = shm();
    let path = file(&dir, SIZE);
    let region = FileRegion::open(&path, ALL).unwrap();
    let other = File::options().write(true).open(&path).unwrap();
    other.write_all_at(&[5; 8], 4096).unwrap();
    assert_eq!(region.load_u64(4096).unwrap(), u64::from_le_bytes([5; 8]));
}

/// Concurrent threads store, flush and fence lines of their own; the fence is right for each.
#[test]
fn fences_of_several_threads() {
    for dir in [disk(), shm()] {
        let region = open(&dir);
        std::thread::scope(|s| {
            for thread in 0..4u64 {
                let region = &region;
                s.spawn(move || {
                    for n in 0..20 {
                        let at = (n * 4 + thread) * 2 * LINE;
                        region.store(at, &[thread as u8 + 1; 100]).unwrap();
                        region.persist(at..at + 100).unwrap();
                    }
                });
            }
        });
        for at in 0..80u64 {
            let mut bytes = [0; 100];
            region.read(at * 2 * LINE, &mut bytes).unwrap();
            assert_eq!(bytes, [(at % 4) as u8 + 1; 100]);
        }
    }
}

/// Whether `filefrag` reports extents that are allocated but unwritten.
fn has_unwritten(path: &Path) -> bool {
    let out = Command::new("filefrag").arg("-v").arg(path).output();
    String::from_utf8_lossy(&out.unwrap().stdout).contains("unwritten")
}

/// On a disk a fence has the kernel write: unwritten extents become written ones.
#[test]
fn a_fence_reaches_the_disk() {
    let dir = disk();
    let path = file(&dir, SIZE);
    let region = FileRegion::open(&path, ALL).unwrap();
    if region.write_back_by() != FlushBy::Pages || !has_unwritten(&path) {
        eprintln!("no file system here that shows what was written");
        return;
    }
    region.store(0, &[1; SIZE as usize]).unwrap();
    region.flush(0..LINE).unwrap();
    region.flush(SIZE - LINE..SIZE).unwrap();
    region.fence().unwrap();
    assert!(!has_unwritten(&path));
}
