//! Volumes that can be read only in part, or not be written.

use std::sync::Arc;

use stetfs_block::MemDevice;
use stetfs_ext4::{Ctx, Fs, FsError, FsOptions, ROOT_INO};
use stetfs_testkit::{Image, Mkfs};

fn open(image: &Image, read_only: bool) -> Result<Arc<Fs>, FsError> {
    let opts = FsOptions {
        read_only,
        ..FsOptions::default()
    };
    Fs::open(Arc::new(MemDevice::load(image.path()).unwrap()), opts)
}

/// A volume with a directory of `count` files, and one flag (`i_flags`) added to the directory.
fn with_directory(mkfs: &Mkfs, count: usize, flag: u32) -> Image {
    let scratch = stetfs_testkit::Scratch::new("sealed").unwrap();
    let source = scratch.path().join("source");
    std::fs::create_dir_all(source.join("dir")).unwrap();
    for i in 0..count {
        std::fs::write(source.join(format!("dir/File-{i}")), format!("{i}")).unwrap();
    }
    std::os::unix::fs::symlink("somewhere", source.join("dir/link")).unwrap();
    let mut mkfs = mkfs.clone();
    mkfs.args
        .extend(["-d".into(), source.to_str().unwrap().into()]);
    let image = Image::make(32 << 20, &mkfs).unwrap();
    let device = Arc::new(MemDevice::load(image.path()).unwrap());
    // StetFS makes an index when it adds files; the feature that makes the volume read-only comes
    // later.
    let fs = Fs::open(device.clone(), FsOptions::default()).unwrap();
    let dir = fs.lookup(ROOT_INO, b"dir").unwrap().ino;
    for i in count..2 * count {
        let name = format!("File-{i}");
        let made = fs.mknod(
            &Ctx::ROOT,
            dir,
            name.as_bytes(),
            libc::S_IFREG | 0o600,
            0,
            0,
        );
        fs.forget(made.unwrap().ino, 1);
    }
    let flags = fs.get_flags(dir).unwrap() | flag;
    fs.unmount().unwrap();
    device.save(image.path()).unwrap();
    image
        .debugfs_write(&format!("set_inode_field dir flags {flags:#x}"))
        .unwrap();
    image
}

fn sealed(image: &Image, feature: &str) {
    image.debugfs_write(&format!("feature {feature}")).unwrap();
    match open(image, false) {
        Err(e @ FsError::Unsupported(_)) => {
            let text = e.to_string();
            assert!(
                text.contains(feature) && text.contains("read-only"),
                "{text}"
            );
        }
        Err(e) => panic!("{e}"),
        Ok(_) => panic!("a volume with {feature} was opened for writing"),
    }
}

const CASEFOLD: u32 = 0x4000_0000;
const ENCRYPT: u32 = 0x800;

#[test]
fn case_folding_directories_are_read() {
    for count in [3, 400] {
        let image = with_directory(&Mkfs::blocks(1024), count, CASEFOLD);
        sealed(&image, "casefold");
        let fs = open(&image, true).unwrap();
        let dir = fs.lookup(ROOT_INO, b"dir").unwrap().ino;
        for i in 0..2 * count {
            let name = format!("File-{i}");
            fs.lookup(dir, name.as_bytes())
                .unwrap_or_else(|e| panic!("{name}: {e}"));
        }
        let open = fs.open_inode(&Ctx::ROOT, dir, libc::O_RDONLY).unwrap();
        let mut names = std::collections::BTreeSet::new();
        let mut cookie = 0;
        loop {
            let before = names.len();
            fs.readdir(&open, cookie, &mut |e| {
                cookie = e.next;
                assert!(names.insert(e.name), "told twice");
                true
            })
            .unwrap();
            if names.len() == before {
                break;
            }
        }
        assert_eq!(names.len(), 2 * count + 3);
        let e = fs.unlink(&Ctx::ROOT, dir, b"File-1").unwrap_err();
        assert_eq!(e.errno(), libc::EROFS);
    }
}

#[test]
fn encrypted_content_needs_a_key() {
    let image = with_directory(&Mkfs::blocks(1024), 3, ENCRYPT);
    for name in ["dir/File-1", "dir/link"] {
        image
            .debugfs_write(&format!("set_inode_field {name} flags 0x800"))
            .unwrap();
    }
    sealed(&image, "encrypt");
    let fs = open(&image, true).unwrap();
    let dir = fs.lookup(ROOT_INO, b"dir").unwrap().ino;
    assert_eq!(fs.getattr(dir).unwrap().ino, dir);
    assert_eq!(fs.lookup(dir, b"File-1").unwrap_err().errno(), libc::ENOKEY);
    let open = fs.open_inode(&Ctx::ROOT, dir, libc::O_RDONLY).unwrap();
    let e = fs.readdir(&open, 0, &mut |_| true).unwrap_err();
    assert_eq!(e.errno(), libc::ENOKEY);
    let number = |name: &str| -> u32 {
        let out = image.debugfs(&format!("stat dir/{name}")).unwrap();
        let digits = out.trim_start_matches("Inode: ");
        digits.split_whitespace().next().unwrap().parse().unwrap()
    };
    let file = fs.open_inode(&Ctx::ROOT, number("File-1"), libc::O_RDONLY);
    assert_eq!(file.err().unwrap().errno(), libc::ENOKEY);
    assert_eq!(
        fs.readlink(number("link")).unwrap_err().errno(),
        libc::ENOKEY
    );
    // The other files can be opened.
    assert!(
        fs.open_inode(&Ctx::ROOT, number("File-2"), libc::O_RDONLY)
            .is_ok()
    );
}

#[test]
fn verity_is_read() {
    let mkfs = Mkfs::blocks(4096).feature("verity");
    let image = Image::make(32 << 20, &mkfs).unwrap();
    match open(&image, false) {
        Err(e @ FsError::Unsupported(_)) => assert!(e.to_string().contains("verity"), "{e}"),
        Err(e) => panic!("{e}"),
        Ok(_) => panic!("a volume with verity was opened for writing"),
    }
    open(&image, true).unwrap().getattr(ROOT_INO).unwrap();
}

#[test]
fn blocks_of_64_kib_are_refused() {
    let image = Image::make(64 << 20, &Mkfs::blocks(65536)).unwrap();
    for read_only in [true, false] {
        let e = open(&image, read_only).err().unwrap();
        assert!(e.to_string().contains("64 KiB"), "{e}");
        assert_eq!(e.errno(), libc::EOPNOTSUPP);
    }
}
