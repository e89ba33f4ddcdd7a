//! A block device as a file system of one file.

use std::sync::{Arc, Mutex};

use stetfs::low::{FsError, MemDevice};
use stetfs_fuse::{Control, DeviceFs, Gate, Report};

use crate::bytes::{body, op};
use crate::directories::list;
use crate::kernel::{Kernel, ROOT, Set};

const SIZE: u64 = 1 << 20;

/// A switch that keeps the last order; `close` and `open` go to its gate.
#[derive(Default)]
struct Switch {
    last: Mutex<String>,
    gate: Gate,
}

impl Control for Switch {
    fn show(&self) -> String {
        self.last.lock().unwrap().clone()
    }

    fn order(&self, text: &str) -> Result<(), FsError> {
        match text {
            "close" => self.gate.close(),
            "open" => self.gate.open(),
            "nonsense" => return Err(FsError::Errno(libc::EINVAL)),
            _ => {}
        }
        text.clone_into(&mut self.last.lock().unwrap());
        Ok(())
    }

    fn gate(&self) -> &Gate {
        &self.gate
    }
}

struct Picture;

impl Report for Picture {
    fn counters(&self) -> Vec<(&'static str, String)> {
        vec![("erases", "7".into())]
    }

    fn picture(&self) -> String {
        "<svg/>".into()
    }
}

fn text<F: stetfs_fuse::FileSystem>(kernel: &Kernel<F>, node: u64) -> String {
    String::from_utf8(kernel.read(node, 0, 0, 4096).unwrap()).unwrap()
}

#[test]
fn the_device_is_read_and_written_past_the_pages() {
    let device = Arc::new(MemDevice::new(SIZE));
    let kernel = Kernel::of(Arc::new(DeviceFs::new(device)));
    let names = list(&kernel, (ROOT, 0), 4096, true);
    let names: Vec<&str> = names.keys().map(|name| &name[..]).collect();
    assert_eq!(names, ["disk", "stats"]);
    let disk = kernel.lookup(ROOT, "disk").unwrap();
    assert_eq!(
        (disk.attr.size, disk.attr.mode),
        (SIZE, libc::S_IFREG | 0o600)
    );
    assert_eq!(kernel.lookup(ROOT, "control").unwrap().node, 0);
    let node = disk.node;
    let (fh, flags) = kernel.open(node, libc::O_RDWR).unwrap();
    assert_eq!(flags & 1, 1, "FOPEN_DIRECT_IO");
    kernel.write(node, fh, 4096, &[7; 4096]).unwrap();
    let durable = kernel.write_as((node, fh), 0, &[8; 512], (0, libc::O_DSYNC));
    assert_eq!(durable, Ok(512));
    let read = kernel.read(node, fh, 3584, 1024).unwrap();
    assert_eq!(read, [[0; 512], [7; 512]].concat());
    assert_eq!(kernel.read(node, fh, SIZE - 512, 4096).unwrap().len(), 512);
    assert_eq!(kernel.read(node, fh, SIZE, 4096).unwrap(), []);
    assert_eq!(kernel.write(node, fh, SIZE, &[1; 512]), Err(libc::EIO));
    kernel.fsync(node, fh, false).unwrap();
    let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    kernel.fallocate((node, fh), punch, 4096, 4096).unwrap();
    kernel.fallocate((node, fh), 0, 0, 4096).unwrap();
    assert_eq!(kernel.read(node, fh, 4096, 512).unwrap(), [0; 512]);
    assert_eq!(kernel.lseek((node, fh), 5, libc::SEEK_DATA), Ok(5));
    assert_eq!(kernel.lseek((node, fh), 5, libc::SEEK_HOLE), Ok(SIZE));
    assert_eq!(
        kernel.lseek((node, fh), SIZE, libc::SEEK_DATA),
        Err(libc::ENXIO)
    );
    kernel.release(node, fh);
    let stats = kernel.lookup(ROOT, "stats").unwrap();
    let shown = text(&kernel, stats.node);
    assert!(
        shown.contains("writes 2\n") && shown.contains("flushes 1\n"),
        "{shown}"
    );
    assert_eq!(stats.attr.mode, libc::S_IFREG | 0o400);
    kernel.fsync(stats.node, 0, false).unwrap();
    assert_eq!(kernel.free().0, 0);
    kernel.ask_empty(op::SYNCFS, ROOT, body().u64(0)).unwrap();
    kernel.forget(node, 1);
    kernel.ask_empty(op::DESTROY, 0, body()).unwrap();
}

#[test]
fn nothing_else_can_be_made_or_changed() {
    let kernel = Kernel::of(Arc::new(DeviceFs::new(Arc::new(MemDevice::new(SIZE)))));
    let [disk, stats] = ["disk", "stats"].map(|name| kernel.lookup(ROOT, name).unwrap().node);
    let size = |node, size| {
        let set = Set {
            size: Some(size),
            ..Set::default()
        };
        kernel.setattr(node, set).map(|attr| attr.size)
    };
    assert_eq!(
        (size(disk, SIZE), size(disk, 0)),
        (Ok(SIZE), Err(libc::EPERM))
    );
    assert_eq!(size(stats, 0), Err(libc::EPERM));
    let refused = Err(libc::EPERM);
    assert_eq!(kernel.mkdir(ROOT, "x", 0o755, 0).map(drop), refused);
    assert_eq!(kernel.mknod(ROOT, "x", libc::S_IFREG, 0).map(drop), refused);
    assert_eq!(kernel.symlink(ROOT, "x", "y").map(drop), refused);
    assert_eq!(kernel.link(disk, ROOT, "x").map(drop), refused);
    assert_eq!(kernel.create(ROOT, "x", libc::O_RDWR).map(drop), refused);
    let tmpfile = body().u64(0).u64(0);
    assert_eq!(kernel.ask(op::TMPFILE, ROOT, tmpfile).map(drop), refused);
    assert_eq!(kernel.unlink(ROOT, "disk"), refused);
    assert_eq!(kernel.rmdir(ROOT, "disk"), refused);
    assert_eq!(kernel.rename((ROOT, "disk"), (ROOT, "x"), 0), refused);
    assert_eq!(kernel.ask(op::READLINK, disk, body()).map(drop), refused);
    assert_eq!(kernel.setxattr(disk, "user.x", b"x", 0), refused);
    let remove = body().name("user.x");
    assert_eq!(kernel.ask_empty(op::REMOVEXATTR, disk, remove), refused);
    assert_eq!(kernel.getxattr(disk, "user.x", 0), Err(libc::ENODATA));
    assert_eq!(kernel.listxattr(disk, 9).unwrap(), []);
    assert_eq!(kernel.write(stats, 0, 0, b"x").map(drop), refused);
    assert_eq!(kernel.fallocate((stats, 0), 0, 0, 9), refused);
    let bmap = kernel.ask(op::BMAP, disk, body().u64(0).u64(4096));
    assert_eq!(bmap.map(drop), refused);
    let copy = kernel.copy((disk, 0, 0), (disk, 0, 4096), 9);
    assert_eq!(copy, Err(libc::EOPNOTSUPP));
    let flush = body().u64(0).u64(0).u64(0);
    assert_eq!(kernel.ask(op::FLUSH, disk, flush), Err(libc::ENOSYS));
    assert_eq!(kernel.ioctl((disk, 0), 0x5401, &[], 0), Err(libc::ENOTTY));
    assert_eq!(
        kernel.ioctl((stats, 0), 0x8018_ef02, &[], 24),
        Err(libc::ENOTTY)
    );
    let limits = kernel.ioctl((disk, 0), 0x8018_ef02, &[], 24);
    assert_eq!(limits, Err(libc::ENOTTY), "this device cannot share");
}

#[test]
fn a_switch_is_written_and_its_gate_holds_requests() {
    let switch = Arc::new(Switch::default());
    let device = DeviceFs::new(Arc::new(MemDevice::new(SIZE)))
        .with_control(switch.clone())
        .with_report(Arc::new(Picture));
    let kernel = Kernel::of(Arc::new(device));
    let [disk, control, picture, stats] = ["disk", "control", "blocks.svg", "stats"]
        .map(|name| kernel.lookup(ROOT, name).unwrap().node);
    assert_eq!(text(&kernel, picture), "<svg/>");
    assert!(text(&kernel, stats).ends_with("erases 7\n"));
    let order = |text: &str| kernel.write(control, 0, 0, text.as_bytes());
    assert_eq!(order("nonsense"), Err(libc::EINVAL));
    assert_eq!(order("something longer"), Ok(16));
    let set = Set {
        size: Some(0),
        ..Set::default()
    };
    kernel.setattr(control, set).unwrap();
    assert_eq!(text(&kernel, control), "something longer");
    assert_eq!(kernel.read(control, 0, 10, 100).unwrap(), b"longer");
    kernel.write(disk, 0, 0, &[5; 512]).unwrap();
    order("close").unwrap();
    assert!(switch.gate().is_closed());
    let write = body().u64(0).u64(0).u32(512).u32(0).u64(0).u64(0);
    let read = body().u64(0).u64(0).u32(512).u32(0).u64(0).u64(0);
    let sync = body().u64(0).u64(0);
    let waiting = [
        kernel.send(op::WRITE, disk, &write.bytes(&[6; 512])),
        kernel.send(op::READ, disk, &read),
        kernel.send(op::FSYNC, disk, &sync),
    ];
    assert_eq!(text(&kernel, control), "close");
    assert!(waiting.iter().all(|unique| !kernel.has_answer(*unique)));
    order("open").unwrap();
    for unique in waiting {
        kernel.answer(unique).unwrap();
    }
    assert_eq!(kernel.read(disk, 0, 0, 512).unwrap(), [6; 512]);
}
