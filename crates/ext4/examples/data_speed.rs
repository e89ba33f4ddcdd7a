//! How fast file data moves through the file system on a device in memory: `cargo run --release
//! --example data_speed [journal] [MiB of cache]`.
#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::{Arc, mpsc};
use std::time::Instant;

use stetfs_block::MemDevice;
use stetfs_ext4::*;
use stetfs_testkit::{Image, Mkfs};

const MIB: usize = 1 << 20;

/// Processor time of this thread, seconds: what a busy machine does not blur.
fn cpu() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

fn timed(what: &str, bytes: usize, count: usize, f: impl FnOnce()) {
    let (start, before) = (Instant::now(), cpu());
    f();
    let (took, used) = (start.elapsed().as_secs_f64(), cpu() - before);
    let rate = |secs: f64| bytes as f64 / secs / MIB as f64;
    println!(
        "{what:26} {:7.0} MiB/s {:9.2} µs each; of processor time {:7.0} MiB/s {:9.2} µs each",
        rate(took),
        took * 1e6 / count as f64,
        rate(used),
        used * 1e6 / count as f64
    );
}

fn main() {
    let journal = std::env::args().any(|a| a == "journal");
    let data = if journal {
        DataMode::Journal
    } else {
        DataMode::Ordered
    };
    let number = |a: String| a.parse::<u64>().ok();
    let cache = std::env::args().find_map(number).unwrap_or(512);
    let image = Image::make(1 << 30, &Mkfs::new().journal_mib(128)).unwrap();
    let device = Arc::new(MemDevice::load(image.path()).unwrap());
    let fs = Fs::open(
        device,
        FsOptions {
            data,
            cache_bytes: cache << 20,
            ..FsOptions::default()
        },
    )
    .unwrap();
    let ctx = Ctx::default();
    let create = |name: &str| {
        fs.create(&ctx, ROOT_INO, name.as_bytes(), 0o644, 0, libc::O_RDWR)
            .unwrap()
            .1
    };
    let sync = |f: &OpenRef, datasync| {
        let (tx, rx) = mpsc::channel();
        fs.fsync(f, datasync, Box::new(move |r| tx.send(r).unwrap()));
        rx.recv().unwrap().unwrap();
    };
    let buf = vec![7u8; MIB];
    let mut copy = vec![0u8; MIB];
    timed("memcpy 1 MiB", 200 * MIB, 200, || {
        for _ in 0..200 {
            copy.copy_from_slice(std::hint::black_box(&buf));
            std::hint::black_box(&copy);
        }
    });
    let f = create("f");
    timed("write 1 MiB, new", 200 * MIB, 200, || {
        for i in 0..200u64 {
            assert_eq!(fs.write(&ctx, &f, i << 20, &buf, false).unwrap(), MIB);
        }
    });
    timed("sync", 200 * MIB, 1, || sync(&f, false));
    timed("write 1 MiB, over", 200 * MIB, 200, || {
        for i in 0..200u64 {
            fs.write(&ctx, &f, i << 20, &buf, false).unwrap();
        }
    });
    timed("sync", 200 * MIB, 1, || sync(&f, false));
    timed("read 1 MiB, cached", 200 * MIB, 200, || {
        for i in 0..200u64 {
            fs.read(&f, i << 20, &mut copy).unwrap();
        }
    });
    timed("write 4 KiB, over", 50_000 * 4096, 50_000, || {
        for i in 0..50_000u64 {
            fs.write(&ctx, &f, i << 12, &buf[..4096], false).unwrap();
        }
    });
    timed("read 4 KiB, cached", 50_000 * 4096, 50_000, || {
        for i in 0..50_000u64 {
            fs.read(&f, i << 12, &mut copy[..4096]).unwrap();
        }
    });
    timed("write 4 KiB + fdatasync", 2000 * 4096, 2000, || {
        for i in 0..2000u64 {
            fs.write(&ctx, &f, i << 12, &buf[..4096], false).unwrap();
            sync(&f, true);
        }
    });
    let g = create("g");
    timed("append 4 KiB", 20_000 * 4096, 20_000, || {
        for i in 0..20_000u64 {
            fs.write(&ctx, &g, i << 12, &buf[..4096], false).unwrap();
        }
    });
    drop((f, g));
    fs.unmount().unwrap();
}
