//! A journal on a device of its own.

use std::sync::Arc;

use stetfs_block::{BlockDevice, MemDevice};
use stetfs_ext4::{Ctx, Fs, FsError, FsOptions, ROOT_INO, journal_device};
use stetfs_testkit::loopdev::{LoopDev, LoopOptions};
use stetfs_testkit::{Image, KernelMount, Mkfs, cmd};

/// A volume and its journal.
struct Both {
    volume: Image,
    journal: Image,
}

impl Both {
    fn make(block_size: u32) -> Both {
        let journal =
            Image::make(8 << 20, &Mkfs::blocks(block_size).feature("journal_dev")).unwrap();
        let on = LoopDev::attach(journal.path(), LoopOptions::default()).unwrap();
        let mkfs = Mkfs::blocks(block_size).journal_device(on.path());
        let volume = Image::make(32 << 20, &mkfs).unwrap();
        drop(on);
        Both { volume, journal }
    }

    fn of(volume: &MemDevice, journal: &MemDevice) -> Both {
        let save = |mem: &MemDevice| {
            let image = Image::sparse(0).unwrap();
            mem.save(image.path()).unwrap();
            image
        };
        Both {
            volume: save(volume),
            journal: save(journal),
        }
    }

    fn kernel(&self, work: impl FnOnce(&std::path::Path)) {
        let on = LoopDev::attach(self.journal.path(), LoopOptions::default()).unwrap();
        let device = LoopDev::attach(self.volume.path(), LoopOptions::default()).unwrap();
        let options = format!("journal_path={}", on.path().display());
        let mount = KernelMount::new(device, "ext4", &options).unwrap();
        work(mount.path());
        mount.umount().unwrap();
        drop(on);
    }

    fn fsck(&self) {
        let on = LoopDev::attach(self.journal.path(), LoopOptions::default()).unwrap();
        let mut c = std::process::Command::new("e2fsck");
        c.args(["-fn", "-j"]).arg(on.path()).arg(self.volume.path());
        cmd::run(&mut c).unwrap();
    }

    fn load(&self) -> (Arc<MemDevice>, Arc<MemDevice>) {
        let load = |i: &Image| Arc::new(MemDevice::load(i.path()).unwrap());
        (load(&self.volume), load(&self.journal))
    }
}

fn attempt(
    volume: &Arc<MemDevice>,
    journal: Option<Arc<dyn BlockDevice>>,
) -> Result<Arc<Fs>, FsError> {
    let opts = FsOptions::default();
    Fs::open_with(volume.clone(), journal, opts, &mut |_, _| {})
}

fn open(volume: &Arc<MemDevice>, journal: &Arc<MemDevice>) -> Arc<Fs> {
    attempt(volume, Some(journal.clone())).unwrap()
}

fn sync(fs: &Fs) {
    let (tx, rx) = std::sync::mpsc::channel();
    fs.sync_all(Box::new(move |r| tx.send(r).unwrap()));
    rx.recv().unwrap().unwrap();
}

fn write(fs: &Fs, name: &str, content: &[u8]) {
    let (attr, file) = fs
        .create(
            &Ctx::ROOT,
            ROOT_INO,
            name.as_bytes(),
            0o644,
            0,
            libc::O_RDWR,
        )
        .unwrap();
    fs.write(&Ctx::ROOT, &file, 0, content, false).unwrap();
    drop(file);
    fs.forget(attr.ino, 1);
}

fn read(fs: &Fs, name: &str) -> Vec<u8> {
    let attr = fs.lookup(ROOT_INO, name.as_bytes()).unwrap();
    let file = fs.open_inode(&Ctx::ROOT, attr.ino, libc::O_RDONLY).unwrap();
    let mut content = vec![0; attr.size as usize];
    fs.read(&file, 0, &mut content).unwrap();
    fs.forget(attr.ino, 1);
    content
}

#[test]
fn to_the_kernel_and_back_and_through_a_crash() {
    for block_size in [1024, 4096] {
        let both = Both::make(block_size);
        both.kernel(|dir| std::fs::write(dir.join("kernel"), [1; 9000]).unwrap());
        let (volume, journal) = both.load();
        assert!(journal_device(&*volume).unwrap().is_some());
        let fs = open(&volume, &journal);
        assert_eq!(read(&fs, "kernel"), [1; 9000]);
        for i in 0..50 {
            write(&fs, &format!("ours{i}"), &[i as u8; 5000]);
        }
        sync(&fs);
        let crashed = (Arc::new(volume.fork()), Arc::new(journal.fork()));
        fs.unmount().unwrap();
        drop(fs);
        // The log really is on the other device: without it some files are missing.
        let bare = Both::of(&crashed.0, &crashed.1);
        for both in [Both::of(&volume, &journal), bare] {
            // The kernel recovers the state that StetFS left.
            both.kernel(|dir| {
                for i in 0..50 {
                    let content = std::fs::read(dir.join(format!("ours{i}"))).unwrap();
                    assert_eq!(content, [i as u8; 5000], "{i}");
                }
                std::fs::remove_file(dir.join("ours7")).unwrap();
            });
            both.fsck();
        }
        // StetFS does, too.
        let fs = open(&crashed.0, &crashed.1);
        assert_eq!(read(&fs, "ours49"), [49; 5000]);
        fs.unmount().unwrap();
        Both::of(&crashed.0, &crashed.1).fsck();
    }
}

/// The blocks of such a log do not begin where StetFS's format requires it: that format must not be
/// written there.
#[test]
fn only_the_kernels_format_goes_on_another_device() {
    let (volume, journal) = Both::make(4096).load();
    let before = (volume.fork(), journal.fork());
    let opts = FsOptions {
        journal: "data,codec=frames".parse().unwrap(),
        ..FsOptions::default()
    };
    let opened = Fs::open_with(volume.clone(), Some(journal.clone()), opts, &mut |_, _| {});
    assert_eq!(opened.err().unwrap().errno(), libc::EOPNOTSUPP);
    assert!(volume.differences(&before.0).is_empty() && journal.differences(&before.1).is_empty());
    open(&volume, &journal).unmount().unwrap();
}

#[test]
fn another_journal_is_refused() {
    let (volume, journal) = Both::make(4096).load();
    let (_, foreign) = Both::make(4096).load();
    let (_, small) = Both::make(1024).load();
    let text = |journal: Option<Arc<dyn BlockDevice>>| {
        let before = volume.fork();
        let opened = attempt(&volume, journal);
        assert!(volume.differences(&before).is_empty());
        match opened {
            Err(e @ FsError::JournalDevice(_)) => e.to_string(),
            Err(e) => panic!("{e}"),
            Ok(_) => panic!("opened"),
        }
    };
    assert!(text(None).contains("journal_path"));
    assert!(text(Some(foreign)).contains("another volume"));
    assert!(text(Some(small)).contains("another volume"));
    assert!(text(Some(volume.clone())).contains("is not a journal"));
    // A shorter device.
    let mut half = vec![0; 4 << 20];
    journal.read(0, &mut half).unwrap();
    let short = Arc::new(MemDevice::new(4 << 20));
    short.write(0, &half).unwrap();
    let opened = attempt(&volume, Some(short));
    assert_eq!(opened.err().unwrap().errno(), libc::EUCLEAN);
}

/// A journal that several volumes share may have content of another volume: it is left alone, as in
/// the kernel.
#[test]
fn a_journal_of_several_volumes_is_refused() {
    let both = Both::make(1024);
    let on = LoopDev::attach(both.journal.path(), LoopOptions::default()).unwrap();
    let mkfs = Mkfs::blocks(1024).journal_device(on.path());
    let other = Image::make(32 << 20, &mkfs).unwrap();
    drop(on);
    for image in [&both.volume, &other] {
        let volume = Arc::new(MemDevice::load(image.path()).unwrap());
        let journal = Arc::new(MemDevice::load(both.journal.path()).unwrap());
        let before = journal.fork();
        let error = Fs::open_with(
            volume,
            Some(journal.clone()),
            FsOptions::default(),
            &mut |_, _| {},
        );
        let error = error.err().expect("it is refused").to_string();
        assert!(error.contains("several volumes"), "{error}");
        assert!(journal.differences(&before).is_empty());
    }
}
