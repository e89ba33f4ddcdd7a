//! Test volumes in memory, made by mke2fs and checked by e2fsck.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, mpsc};

use stetfs_block::{BlockDevice, MemDevice};
use stetfs_ext4::*;
use stetfs_testkit::image::e2fsck;
use stetfs_testkit::{Image, Mkfs, Scratch};

/// The shape of a test volume.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    pub block_size: u32,
    pub mib: u64,
    /// Files are mapped by extents; otherwise by indirect blocks.
    pub extents: bool,
    /// Blocks in a cluster; 1 without `bigalloc`.
    pub cluster: u32,
}

/// A device with an empty file system.
pub fn fresh(shape: Shape) -> MemDevice {
    static MADE: OnceLock<Mutex<HashMap<Shape, MemDevice>>> = OnceLock::new();
    let mut made = MADE
        .get_or_init(Mutex::default)
        .lock()
        .unwrap_or_else(|e| e.into_inner());
    let dev = made.entry(shape).or_insert_with(|| {
        let mut mkfs = Mkfs::blocks(shape.block_size).journal_mib(4);
        if !shape.extents {
            mkfs = mkfs.feature("^extents").feature("^64bit");
        }
        if shape.cluster > 1 {
            mkfs = mkfs.feature("bigalloc,^resize_inode");
            let bytes = shape.block_size * shape.cluster;
            mkfs.args.extend(["-C".into(), bytes.to_string()]);
        }
        let image = Image::make(shape.mib << 20, &mkfs).unwrap();
        MemDevice::load(image.path()).unwrap()
    });
    dev.fork()
}

pub struct Volume {
    mem: Arc<MemDevice>,
    /// The device that the file system opens.
    device: Arc<dyn BlockDevice>,
    opts: FsOptions,
    fs: Option<Arc<Fs>>,
}

impl Volume {
    pub fn new(shape: Shape, data: DataMode) -> Volume {
        Volume::with(
            shape,
            FsOptions {
                journal: data.into(),
                cache_bytes: 4 << 20,
                ..FsOptions::default()
            },
            |d| d,
        )
    }

    pub fn with(
        shape: Shape,
        opts: FsOptions,
        wrap: impl FnOnce(Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice>,
    ) -> Volume {
        let mem = Arc::new(fresh(shape));
        let device = wrap(mem.clone());
        Volume::on(mem, device, opts)
    }

    /// Opens `device`, which leads to `mem`.
    pub fn on(mem: Arc<MemDevice>, device: Arc<dyn BlockDevice>, opts: FsOptions) -> Volume {
        let fs = Fs::open(device.clone(), opts.clone()).unwrap();
        Volume {
            mem,
            device,
            opts,
            fs: Some(fs),
        }
    }

    /// The lowest device, in memory.
    pub fn mem(&self) -> &MemDevice {
        &self.mem
    }

    pub fn fs(&self) -> &Arc<Fs> {
        self.fs.as_ref().unwrap()
    }

    /// Unmounts, checks, and opens again. No file may be open.
    pub fn reopen(&mut self) {
        self.close();
        self.fs = Some(Fs::open(self.device.clone(), self.opts.clone()).unwrap());
    }

    /// Drops the volume without an unmount and opens it again, as after a crash in which every
    /// write to the device survives.
    pub fn crash(&mut self) {
        self.fs = None;
        self.fs = Some(Fs::open(self.device.clone(), self.opts.clone()).unwrap());
    }

    fn close(&mut self) {
        if let Some(fs) = self.fs.take() {
            fs.unmount().unwrap();
            drop(fs);
            self.check();
        }
    }

    /// Asserts that e2fsck finds nothing.
    pub fn check(&self) {
        let dir = Scratch::new("vol").unwrap();
        let path = dir.path().join("image");
        self.mem.save(&path).unwrap();
        e2fsck(&path, &["-fn"], 0).unwrap();
    }

    /// Unmounts and checks.
    pub fn finish(mut self) {
        self.close();
    }

    pub fn create(&self, name: &str) -> OpenRef {
        let fs = self.fs();
        fs.create(
            &Ctx::ROOT,
            ROOT_INO,
            name.as_bytes(),
            0o644,
            0,
            libc::O_RDWR,
        )
        .unwrap()
        .1
    }

    pub fn open(&self, name: &str) -> OpenRef {
        let fs = self.fs();
        let ino = fs.lookup(ROOT_INO, name.as_bytes()).unwrap().ino;
        let open = fs.open_inode(&Ctx::ROOT, ino, libc::O_RDWR).unwrap();
        fs.forget(ino, 1);
        open
    }

    pub fn size(&self, f: &OpenRef) -> u64 {
        self.fs().getattr(f.ino()).unwrap().size
    }

    pub fn content(&self, f: &OpenRef) -> Vec<u8> {
        let mut all = vec![0xEE; self.size(f) as usize + 10];
        let n = self.fs().read(f, 0, &mut all).unwrap();
        all.truncate(n);
        all
    }

    pub fn truncate(&self, f: &OpenRef, size: u64) -> Result<()> {
        let set = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        self.fs().setattr(&Ctx::ROOT, f.ino(), &set).map(drop)
    }

    pub fn fsync(&self, f: &OpenRef, datasync: bool) -> Result<()> {
        let (tx, rx) = mpsc::channel();
        self.fs().fsync(
            f,
            datasync,
            Wait::Deferred,
            Box::new(move |r| tx.send(r).unwrap()),
        );
        rx.recv().unwrap()
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // After a failed test, end the threads.
        if let Some(fs) = self.fs.take() {
            let _ = fs.unmount();
        }
    }
}
