//! Damaged block maps: they lead to errors that name them, and never harm other files.

use std::sync::Arc;

use stetfs_block::{BlockDevice, MemDevice};
use stetfs_ext4::*;
use stetfs_testkit::Image;

use crate::data::volume::{Shape, Volume, fresh};
use stetfs_ext4::Ctx;

const SHAPE: Shape = Shape {
    block_size: 1024,
    mib: 24,
    extents: false,
    cluster: 1,
};
/// Enough blocks to reach the double indirect branch.
const BLOCKS: u64 = 600;

/// A volume with the file `f`, and the numbers of its indirect blocks: (level, block).
fn volume() -> (MemDevice, Vec<(u32, u64)>) {
    let mem = Arc::new(fresh(SHAPE));
    let fs = Fs::open(mem.clone(), FsOptions::default()).unwrap();
    for name in [&b"f"[..], b"other"] {
        let (_, f) = fs
            .create(&Ctx::ROOT, ROOT_INO, name, 0o600, 0, libc::O_RDWR)
            .unwrap();
        // Alternating writes make each block a run of its own.
        for i in 0..BLOCKS {
            fs.write(&Ctx::ROOT, &f, i * 1024, &[i as u8; 1024], false)
                .unwrap();
        }
    }
    fs.unmount().unwrap();
    drop(fs);
    let image = Image::sparse(0).unwrap();
    mem.save(image.path()).unwrap();
    let shown = image.debugfs("stat f").unwrap();
    let mut nodes = Vec::new();
    for (i, _) in shown.match_indices("IND):") {
        let level = match shown.as_bytes()[i - 1] {
            b'D' => 2,
            b'T' => 3,
            _ => 1,
        };
        let digits: String = shown[i + 5..]
            .chars()
            .take_while(char::is_ascii_digit)
            .collect();
        nodes.push((level, digits.parse().unwrap()));
    }
    assert!(nodes.len() >= 3, "{shown}");
    (mem.fork(), nodes)
}

/// Checks the operations on `f` after the damage `what`.
fn told(mem: &MemDevice, what: &str) {
    for act in ["read", "write", "truncate", "punch", "seek", "unlink"] {
        let vol = {
            let mem = Arc::new(mem.fork());
            let opts = FsOptions {
                on_error: Some(OnError::Continue),
                ..FsOptions::default()
            };
            Volume::on(mem.clone(), mem, opts)
        };
        let fs = vol.fs();
        let f = vol.open("f");
        let size = BLOCKS * 1024;
        let mut buf = vec![0; size as usize];
        let result = match act {
            "read" => fs.read(&f, 0, &mut buf).map(drop),
            "write" => fs.write(&Ctx::ROOT, &f, 0, &buf, false).map(drop),
            "truncate" => vol.truncate(&f, 0),
            "punch" => fs.fallocate(&Ctx::ROOT, &f, FallocateMode::PunchHole, 0, size),
            "seek" => fs.seek(&f, 0, SeekWhat::Hole).map(drop),
            _ => {
                fs.unlink(&Ctx::ROOT, ROOT_INO, b"f").unwrap();
                let ino = f.ino();
                drop(f);
                fs.forget(ino, 1);
                Ok(())
            }
        };
        if act != "unlink" {
            let e = result.expect_err(&format!("{what}: {act} went well"));
            assert_eq!(e.errno(), libc::EUCLEAN, "{what}: {act}: {e}");
        }
        let other = vol.content(&vol.open("other"));
        let whole =
            (0..BLOCKS as usize).all(|i| other[i * 1024..][..1024].iter().all(|b| *b == i as u8));
        assert!(other.len() == size as usize && whole, "{what}: {act}");
        // The device as the kernel would find it after a crash: at most one file is damaged.
        vol.fs().unmount().unwrap();
    }
}

fn with(mem: &MemDevice, at: u64, pointer: u32) -> MemDevice {
    let mem = mem.fork();
    mem.write(at, &pointer.to_le_bytes()).unwrap();
    mem
}

#[test]
fn loops_and_wild_pointers_are_errors() {
    let (mem, nodes) = volume();
    for (level, nr) in &nodes {
        for index in [0, 1] {
            let at = nr * 1024 + index * 4;
            told(
                &with(&mem, at, *nr as u32),
                &format!("level {level} leads to itself"),
            );
            told(
                &with(&mem, at, u32::MAX),
                &format!("level {level} leads off the volume"),
            );
            told(
                &with(&mem, at, 1),
                &format!("level {level} leads to the superblock"),
            );
        }
    }
}
