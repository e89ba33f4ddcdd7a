//! Names: looking up, making, linking, renaming, removing, forgetting.

use stetfs_fuse::VolumeFsOptions;

use crate::bytes::{Bytes, Entry, Who, body, op};
use crate::kernel::{Kernel, ROOT, ROOT_USER, USER, handles, image};

#[test]
fn a_missing_name_is_an_answer_and_other_failures_are_errors() {
    let image = image();
    let kernel = Kernel::on(&image, VolumeFsOptions::default());
    let missing = kernel.lookup(ROOT, "missing").unwrap();
    assert_eq!((missing.node, missing.attr_valid), (0, 0));
    assert!(missing.entry_valid > 3600, "the kernel remembers it");
    let file = kernel.file(ROOT, "file");
    assert_eq!(kernel.lookup(file, "x"), Err(libc::ENOTDIR));
    let long = "n".repeat(256);
    assert_eq!(kernel.lookup(ROOT, &long), Err(libc::ENAMETOOLONG));
    // 0 and 2 are no nodes, and an inode number has 32 bits.
    for node in [0, 2, 1 << 40] {
        assert_eq!(kernel.lookup(node, "x"), Err(libc::ESTALE), "node {node}");
    }
    let found = kernel.lookup(ROOT, "file").unwrap();
    assert_eq!((found.node, found.attr.ino), (file, file));
    assert!(found.attr_valid > 3600 && found.generation != 0);
    kernel.end(&image);
}

#[test]
fn made_nodes_have_the_type_mode_and_owner_of_the_request() {
    let image = image();
    let mut kernel = Kernel::on(&image, VolumeFsOptions::default());
    let before = kernel.getattr(ROOT).unwrap();
    kernel.who = USER;
    let dir = kernel.mkdir(ROOT, "dir", 0o777, 0o027).unwrap();
    assert_eq!(dir.attr.mode, libc::S_IFDIR | 0o750);
    assert_eq!(
        (dir.attr.nlink, dir.attr.uid, dir.attr.gid),
        (2, 1000, 1000)
    );
    let root = kernel.getattr(ROOT).unwrap();
    assert_eq!((root.ino, root.nlink), (2, before.nlink + 1));
    assert!(root.mtime > before.mtime && root.ctime == root.mtime);
    for (name, kind) in [
        ("file", libc::S_IFREG),
        ("fifo", libc::S_IFIFO),
        ("socket", libc::S_IFSOCK),
        ("char", libc::S_IFCHR),
        ("block", libc::S_IFBLK),
    ] {
        let is_device = [libc::S_IFCHR, libc::S_IFBLK].contains(&kind);
        let rdev = if is_device { 0x0103 } else { 0 };
        let made = kernel.mknod(dir.node, name, kind | 0o666, rdev).unwrap();
        assert_eq!(made.attr.mode, kind | 0o644, "{name}");
        assert_eq!((made.attr.nlink, made.attr.rdev), (1, rdev), "{name}");
        assert_eq!(kernel.lookup(dir.node, name).unwrap().node, made.node);
        let again = kernel.mknod(dir.node, name, kind | 0o666, rdev);
        assert_eq!(again, Err(libc::EEXIST));
    }
    assert_eq!(kernel.mkdir(ROOT, "dir", 0o777, 0), Err(libc::EEXIST));
    kernel.end(&image);
}

#[test]
fn links_and_symbolic_links() {
    let image = image();
    let kernel = Kernel::on(&image, VolumeFsOptions::default());
    let short = "a/b";
    let long = "t".repeat(1000);
    for (name, target) in [("short", short), ("long", &long)] {
        let made = kernel.symlink(ROOT, name, target).unwrap();
        assert_eq!(made.attr.mode, libc::S_IFLNK | 0o777);
        assert_eq!(made.attr.size as usize, target.len());
        let read = kernel.ask(op::READLINK, made.node, body()).unwrap();
        assert_eq!(read, target.as_bytes());
    }
    let file = kernel.file(ROOT, "file");
    let read = kernel.ask(op::READLINK, file, body());
    assert_eq!(read, Err(libc::EINVAL));
    let linked = kernel.link(file, ROOT, "other").unwrap();
    assert_eq!((linked.node, linked.attr.nlink), (file, 2));
    assert_eq!(kernel.link(file, ROOT, "other"), Err(libc::EEXIST));
    assert_eq!(kernel.link(2, ROOT, "x"), Err(libc::ESTALE));
    let dir = kernel.mkdir(ROOT, "dir", 0o755, 0).unwrap().node;
    assert_eq!(kernel.link(dir, ROOT, "x"), Err(libc::EPERM));
    kernel.unlink(ROOT, "file").unwrap();
    assert_eq!(kernel.getattr(file).unwrap().nlink, 1);
    assert_eq!(kernel.lookup(ROOT, "other").unwrap().node, file);
    kernel.end(&image);
}

#[test]
fn a_removed_file_lives_until_the_kernel_forgets_it() {
    let image = image();
    let kernel = Kernel::on(&image, VolumeFsOptions::default());
    let (inodes, blocks) = kernel.free();
    let file = kernel.file(ROOT, "file");
    let dir = kernel.mkdir(ROOT, "dir", 0o755, 0).unwrap().node;
    kernel.write(file, 0, 0, &[7; 40_000]).unwrap();
    assert_eq!(kernel.rmdir(ROOT, "file"), Err(libc::ENOTDIR));
    assert_eq!(kernel.unlink(ROOT, "missing"), Err(libc::ENOENT));
    let inner = kernel.file(dir, "inner");
    assert_eq!(kernel.rmdir(ROOT, "dir"), Err(libc::ENOTEMPTY));
    kernel.unlink(dir, "inner").unwrap();
    kernel.rmdir(ROOT, "dir").unwrap();
    kernel.unlink(ROOT, "file").unwrap();
    assert_eq!(kernel.lookup(ROOT, "file").unwrap().node, 0);
    assert_eq!(kernel.getattr(file).unwrap().nlink, 0);
    assert_eq!(kernel.read(file, 0, 39_999, 10).unwrap(), [7]);
    assert_eq!(kernel.free().0, inodes - 3);
    // Counts are of lookups: the making of each was one.
    let both = body().u32(2).u32(0).u64(dir).u64(1).u64(inner).u64(1);
    kernel.send(op::BATCH_FORGET, 0, &both);
    kernel.forget(file, 1);
    assert_eq!(kernel.free(), (inodes, blocks));
    assert_eq!(kernel.getattr(file), Err(libc::ESTALE));
    // A count beyond the body's end, and nodes that are none, are passed over.
    let wrong = body().u32(9).u32(0).u64(2).u64(1);
    kernel.send(op::BATCH_FORGET, 0, &wrong);
    kernel.send(op::BATCH_FORGET, 0, &body());
    kernel.send(op::FORGET, 2, &body().u64(1));
    kernel.send(op::FORGET, ROOT, &body());
    assert_eq!(kernel.free(), (inodes, blocks));
    kernel.end(&image);
}

#[test]
fn a_rename_replaces_refuses_exchanges_or_leaves_a_whiteout() {
    let image = image();
    let kernel = Kernel::on(&image, VolumeFsOptions::default());
    let dir = kernel.mkdir(ROOT, "dir", 0o755, 0).unwrap().node;
    let [one, two] = ["one", "two"].map(|name| kernel.file(ROOT, name));
    let node = |dir, name| kernel.lookup(dir, name).unwrap().node;
    kernel.rename((ROOT, "one"), (dir, "moved"), 0).unwrap();
    assert_eq!((node(ROOT, "one"), node(dir, "moved")), (0, one));
    let refused = kernel.rename((dir, "moved"), (ROOT, "two"), libc::RENAME_NOREPLACE);
    assert_eq!(refused, Err(libc::EEXIST));
    kernel
        .rename((dir, "moved"), (ROOT, "two"), libc::RENAME_EXCHANGE)
        .unwrap();
    assert_eq!((node(dir, "moved"), node(ROOT, "two")), (two, one));
    kernel.rename((dir, "moved"), (ROOT, "two"), 0).unwrap();
    assert_eq!((node(dir, "moved"), node(ROOT, "two")), (0, two));
    assert_eq!(kernel.getattr(one).unwrap().nlink, 0);
    kernel
        .rename((ROOT, "two"), (dir, "three"), libc::RENAME_WHITEOUT)
        .unwrap();
    let left = kernel.lookup(ROOT, "two").unwrap().attr;
    assert_eq!((left.mode & libc::S_IFMT, left.rdev), (libc::S_IFCHR, 0));
    let into_itself = kernel.rename((ROOT, "dir"), (dir, "x"), 0);
    assert_eq!(into_itself, Err(libc::EINVAL));
    assert_eq!(
        kernel.rename((ROOT, "dir"), (ROOT, "x"), 1 << 9),
        Err(libc::EINVAL)
    );
    assert_eq!(kernel.rename((ROOT, "dir"), (2, "x"), 0), Err(libc::ESTALE));
    assert_eq!(
        kernel.rename((ROOT, "no"), (ROOT, "x"), 0),
        Err(libc::ENOENT)
    );
    let onto = kernel.rename((dir, "three"), (ROOT, "dir"), 0);
    assert_eq!(onto, Err(libc::ENOTEMPTY));
    kernel.end(&image);
}

#[test]
fn a_file_without_a_name_can_get_one() {
    let image = image();
    let kernel = Kernel::on(&image, handles());
    let (inodes, _) = kernel.free();
    let request = |flags: i32| {
        let flags = (flags | libc::O_RDWR) as u32;
        let mode = libc::S_IFREG | 0o600;
        let body = body().u32(flags).u32(mode).u32(0).u32(0);
        let made = kernel.ask(op::TMPFILE, ROOT, body).unwrap();
        let fh = crate::bytes::long(&made, Entry::LEN);
        (Entry::read(&made), fh)
    };
    let (named, fh) = request(0);
    assert_eq!(
        (named.attr.nlink, named.attr.mode),
        (0, libc::S_IFREG | 0o600)
    );
    kernel.write(named.node, fh, 0, b"content").unwrap();
    let linked = kernel.link(named.node, ROOT, "named").unwrap();
    assert_eq!((linked.node, linked.attr.nlink), (named.node, 1));
    kernel.release(named.node, fh);
    let (gone, fh) = request(libc::O_EXCL);
    assert_eq!(kernel.link(gone.node, ROOT, "x"), Err(libc::ENOENT));
    kernel.release(gone.node, fh);
    kernel.forget(gone.node, 1);
    assert_eq!(kernel.free().0, inodes - 1);
    kernel.end(&image);
}

/// With `idmap` the kernel sends ids only for new inodes.
#[test]
fn unknown_ids_make_nothing_and_are_looked_up_for_the_rest() {
    let image = image();
    let options = VolumeFsOptions {
        idmap: true,
        ..VolumeFsOptions::default()
    };
    let mut kernel = Kernel::on(&image, options);
    let file = kernel.file(ROOT, "file");
    kernel.who = Who {
        uid: u32::MAX,
        gid: u32::MAX,
        pid: std::process::id(),
    };
    assert_eq!(kernel.mkdir(ROOT, "dir", 0o755, 0), Err(libc::EOVERFLOW));
    let made = kernel.symlink(ROOT, "link", "x");
    assert_eq!(made, Err(libc::EOVERFLOW));
    kernel.write(file, 0, 0, b"content").unwrap();
    kernel.unlink(ROOT, "file").unwrap();
    kernel.who = ROOT_USER;
    kernel.end(&image);
}

#[test]
fn with_fakeroot_the_user_of_the_mount_is_root() {
    let image = image();
    let options = VolumeFsOptions {
        fakeroot: true,
        ..VolumeFsOptions::default()
    };
    let mut kernel = Kernel::on(&image, options);
    let me = rustix::process::getuid().as_raw();
    kernel.who = USER;
    let made = kernel.mkdir(ROOT, "dir", 0o755, 0).unwrap();
    assert_eq!(made.attr.uid, me, "root's files are the user's");
    let set = crate::kernel::Set {
        uid: Some(4711),
        ..Default::default()
    };
    assert_eq!(kernel.setattr(made.node, set).unwrap().uid, 4711);
    kernel.end(&image);
}

#[test]
fn requests_without_all_of_their_parts_are_invalid() {
    let image = image();
    let kernel = Kernel::on(&image, handles());
    let no_nul = || body().bytes(b"name");
    let cases: Vec<(u32, Bytes)> = vec![
        (op::LOOKUP, no_nul()),
        (op::UNLINK, no_nul()),
        (op::RMDIR, body()),
        (op::SYMLINK, body().name("only one")),
        (op::MKDIR, body().u64(0).bytes(b"name")),
        (op::MKNOD, body().u64(0).u64(0)),
        (op::LINK, body().u64(ROOT)),
        (op::RENAME, body().u64(ROOT).name("only one")),
        (op::CREATE, body().u64(0).u64(0)),
        (op::REMOVEXATTR, no_nul()),
        (
            op::SETXATTR,
            body().u32(9).u32(0).u64(0).name("user.x").bytes(b"short"),
        ),
        (
            op::WRITE,
            body()
                .u64(0)
                .u64(0)
                .u32(9)
                .u32(0)
                .u64(0)
                .u64(0)
                .bytes(b"short"),
        ),
        (
            op::IOCTL,
            body().u64(0).u64(0).u64(0).u32(9).u32(0).bytes(b"short"),
        ),
    ];
    for (opcode, body) in cases {
        // Both ways of requests.
        for _ in 0..2 {
            let answer = kernel.ask(opcode, ROOT, body.clone());
            assert_eq!(answer, Err(libc::EINVAL), "request {opcode}");
        }
    }
    kernel.end(&image);
}
