//! Tests of volumes by path: compared with the kernel, after crashes, and with many threads.
//!
//! Needs root, loop devices and e2fsprogs.
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use stetfs::{
    DirEntry, Error, File, Metadata, MountOptions, Node, OpenOptions, Preset, ReadDir, SetMetadata,
    Volume, Walk,
};
use stetfs_testkit::{Image, Mkfs, Mounted, Mounter};

fn image() -> Image {
    Image::make(64 << 20, &Mkfs::blocks(4096).journal_mib(4)).unwrap()
}

fn open(image: &Image) -> Volume {
    Volume::open(image.path(), &MountOptions::new()).unwrap()
}

fn close(volume: Volume, image: &Image) {
    volume.close().unwrap();
    image.e2fsck_fn().unwrap();
}

/// The image, mounted by the kernel.
fn kernel(image: &Image) -> Mounted {
    Mounter::ext4("noatime").mount(image.path()).unwrap()
}

fn names(volume: &Volume, dir: &str) -> BTreeSet<String> {
    let entries = volume.read_dir(dir).unwrap();
    let name = |e: Result<DirEntry, Error>| e.unwrap().file_name().to_str().unwrap().to_owned();
    entries.map(name).collect()
}

const fn is_shared<T: Send + Sync>() {}
const _: () = {
    is_shared::<Volume>();
    is_shared::<File>();
    is_shared::<ReadDir>();
    is_shared::<DirEntry>();
    is_shared::<Walk>();
    is_shared::<Metadata>();
    is_shared::<Error>();
    is_shared::<OpenOptions>();
    is_shared::<MountOptions>();
};

#[test]
fn what_is_made_here_the_kernel_finds() {
    let image = image();
    let volume = open(&image);
    volume.create_dir_all("/a/b/c/").unwrap();
    volume.create_dir_all("a/b/c").unwrap();
    volume.write("/a/file", "text").unwrap();
    volume.symlink("b/c", "/a/link").unwrap();
    volume.write("/a/link/deep", "deeper").unwrap();
    volume.hard_link("/a/file", "/a/b/same").unwrap();
    volume.rename("/a/b", "/a/moved").unwrap();
    volume.create_node("/null", Node::CharDevice(1, 3)).unwrap();
    volume.create_node("/pipe", Node::Fifo).unwrap();
    let times = UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    let before = UNIX_EPOCH - Duration::new(5, 5);
    let mut set = SetMetadata::new();
    set.mode(0o4750)
        .owner(1000)
        .group(70_000)
        .modified(times)
        .accessed(before);
    volume.set_metadata("/a/file", &set).unwrap();
    volume
        .set_symlink_metadata("/a/link", SetMetadata::new().owner(7))
        .unwrap();
    volume.set_xattr("/a/file", "user.note", "value").unwrap();
    assert_eq!(
        volume.xattr("/a/file", "user.note").unwrap().unwrap(),
        b"value"
    );
    assert_eq!(volume.xattrs("/a/file").unwrap(), ["user.note"]);
    let sparse = volume.create_file("/sparse").unwrap();
    sparse.write_at(b"end", 1 << 30).unwrap();
    drop(sparse);
    let known = volume.metadata("/a/file").unwrap();
    assert_eq!((known.modified(), known.accessed()), (times, before));
    assert_eq!(volume.read_link("/a/link").unwrap(), Path::new("b/c"));
    close(volume, &image);

    let mounted = kernel(&image);
    let root = mounted.path();
    assert_eq!(
        fs::read_to_string(root.join("a/moved/same")).unwrap(),
        "text"
    );
    assert_eq!(
        fs::read_to_string(root.join("a/moved/c/deep")).unwrap(),
        "deeper"
    );
    let file = root.join("a/file").metadata().unwrap();
    assert_eq!(
        (file.mode(), file.uid(), file.gid(), file.nlink()),
        (0o10_4750, 1000, 70_000, 2)
    );
    assert_eq!(
        (file.mtime(), file.mtime_nsec()),
        (1_000_000_000, 123_456_789)
    );
    assert_eq!((file.atime(), file.atime_nsec()), (-6, 999_999_995));
    assert_eq!(root.join("a/link").symlink_metadata().unwrap().uid(), 7);
    assert_eq!(root.join("a/moved").metadata().unwrap().mode(), 0o4_0755);
    let null = root.join("null").metadata().unwrap();
    assert_eq!((null.mode(), null.rdev()), (0o2_0644, rustix_makedev(1, 3)));
    let sparse = root.join("sparse").metadata().unwrap();
    assert_eq!(sparse.len(), (1 << 30) + 3);
    assert!(sparse.blocks() <= 16);
    mounted.umount().unwrap();
}

fn rustix_makedev(major: u32, minor: u32) -> u64 {
    rustix::fs::makedev(major, minor)
}

/// An operation by path, in the library and in the kernel.
type Case = (
    &'static str,
    fn(&Volume) -> Result<(), Error>,
    fn(&Path) -> io::Result<()>,
);

const REFUSED: [Case; 27] = [
    (
        "open nothing",
        |v| v.open_file("/no").map(drop),
        |p| fs::File::open(p.join("no")).map(drop),
    ),
    (
        "open below a file",
        |v| v.open_file("/file/x").map(drop),
        |p| fs::File::open(p.join("file/x")).map(drop),
    ),
    (
        "open a file with a slash",
        |v| v.open_file("/file/").map(drop),
        |p| fs::File::open(p.join("file/")).map(drop),
    ),
    (
        "open a file with a dot",
        |v| v.open_file("/file/.").map(drop),
        |p| fs::File::open(p.join("file/.")).map(drop),
    ),
    (
        "make with a slash",
        |v| v.create_file("/new/").map(drop),
        |p| fs::File::create(p.join("new/")).map(drop),
    ),
    (
        "write a directory",
        |v| v.create_file("/dir").map(drop),
        |p| fs::File::create(p.join("dir")).map(drop),
    ),
    (
        "make what is there",
        |v| {
            File::options()
                .write(true)
                .create_new(true)
                .open(v, "/file")
                .map(drop)
        },
        |p| fs::File::create_new(p.join("file")).map(drop),
    ),
    (
        "make a dangling link anew",
        |v| {
            File::options()
                .write(true)
                .create_new(true)
                .open(v, "/dangling")
                .map(drop)
        },
        |p| fs::File::create_new(p.join("dangling")).map(drop),
    ),
    (
        "open a loop",
        |v| v.open_file("/loop").map(drop),
        |p| fs::File::open(p.join("loop")).map(drop),
    ),
    (
        "a long name",
        |v| v.open_file("n".repeat(256)).map(drop),
        |p| fs::File::open(p.join("n".repeat(256))).map(drop),
    ),
    (
        "an empty path",
        |v| v.open_file("").map(drop),
        |_| fs::File::open("").map(drop),
    ),
    (
        "read a directory",
        |v| v.read("/dir").map(drop),
        |p| fs::read(p.join("dir")).map(drop),
    ),
    (
        "mkdir on a file",
        |v| v.create_dir("/file"),
        |p| fs::create_dir(p.join("file")),
    ),
    (
        "mkdir below nothing",
        |v| v.create_dir("/no/x"),
        |p| fs::create_dir(p.join("no/x")),
    ),
    (
        "mkdirs through a file",
        |v| v.create_dir_all("/file/x"),
        |p| fs::create_dir_all(p.join("file/x")),
    ),
    (
        "rmdir of a file",
        |v| v.remove_dir("/file"),
        |p| fs::remove_dir(p.join("file")),
    ),
    (
        "rmdir of what is full",
        |v| v.remove_dir("/dir"),
        |p| fs::remove_dir(p.join("dir")),
    ),
    (
        "rmdir of a dot",
        |v| v.remove_dir("/dir/."),
        |p| fs::remove_dir(p.join("dir/.")),
    ),
    (
        "remove a directory as a file",
        |v| v.remove_file("/dir"),
        |p| fs::remove_file(p.join("dir")),
    ),
    (
        "remove nothing",
        |v| v.remove_file("/no"),
        |p| fs::remove_file(p.join("no")),
    ),
    (
        "remove a file as a directory",
        |v| v.remove_file("/file/"),
        |p| fs::remove_file(p.join("file/")),
    ),
    (
        "rename into itself",
        |v| v.rename("/dir", "/dir/x/y"),
        |p| fs::rename(p.join("dir"), p.join("dir/x/y")),
    ),
    (
        "rename over what is full",
        |v| v.rename("/empty", "/dir"),
        |p| fs::rename(p.join("empty"), p.join("dir")),
    ),
    (
        "rename a file over a directory",
        |v| v.rename("/file", "/empty"),
        |p| fs::rename(p.join("file"), p.join("empty")),
    ),
    (
        "rename a file to a slash",
        |v| v.rename("/file", "/new/"),
        |p| fs::rename(p.join("file"), p.join("new/")),
    ),
    (
        "link a directory",
        |v| v.hard_link("/dir", "/new"),
        |p| fs::hard_link(p.join("dir"), p.join("new")),
    ),
    (
        "read a link that is none",
        |v| v.read_link("/file").map(drop),
        |p| fs::read_link(p.join("file")).map(drop),
    ),
];

#[test]
fn what_the_kernel_refuses_is_refused_with_the_same_number() {
    let image = image();
    let mounted = kernel(&image);
    let root = mounted.path();
    fs::create_dir_all(root.join("dir/x")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    fs::write(root.join("file"), "text").unwrap();
    symlink("loop", root.join("loop")).unwrap();
    symlink("nowhere", root.join("dangling")).unwrap();
    let said = |(what, _, by_kernel): &Case| {
        let error = by_kernel(root).expect_err(what);
        (error.raw_os_error(), error.kind())
    };
    let expected: Vec<_> = REFUSED.iter().map(said).collect();
    mounted.umount().unwrap();

    let volume = open(&image);
    for ((what, ours, _), (number, kind)) in REFUSED.iter().zip(expected) {
        let error = ours(&volume).expect_err(what);
        assert_eq!(
            (error.raw_os_error(), error.kind()),
            (number, kind),
            "{what}: {error}"
        );
        assert!(error.to_string().starts_with("cannot "), "{error}");
        let error = io::Error::from(error);
        assert_eq!(error.kind(), kind, "{what}");
        let inner = error.get_ref().unwrap().downcast_ref::<Error>().unwrap();
        assert_eq!(inner.raw_os_error(), number, "{what}");
    }
    close(volume, &image);
}

#[test]
fn links_are_followed_inside_the_volume() {
    let image = image();
    let volume = open(&image);
    volume.create_dir("/dir").unwrap();
    volume.write("/dir/file", "here").unwrap();
    volume.symlink("/dir", "/absolute").unwrap();
    volume.symlink("../../../../dir", "/dir/up").unwrap();
    for path in [
        "/absolute/file",
        "/dir/up/file",
        "/../../dir/file",
        "dir/../dir/./file",
        "/absolute/../dir/file",
    ] {
        assert_eq!(volume.read_to_string(path).unwrap(), "here", "{path}");
    }
    // Creating through a dangling link creates its target.
    volume.symlink("made", "/dir/dangling").unwrap();
    volume.write("/absolute/dangling", "new").unwrap();
    assert_eq!(volume.read_to_string("/dir/made").unwrap(), "new");

    volume.write("/l0", "end").unwrap();
    for n in 1..=41 {
        volume
            .symlink(format!("l{}", n - 1), format!("/l{n}"))
            .unwrap();
    }
    assert_eq!(volume.read_to_string("/l40").unwrap(), "end");
    let many = volume.read("/l41").unwrap_err();
    assert_eq!(
        many.raw_os_error(),
        Some(rustix::io::Errno::LOOP.raw_os_error())
    );
    // The link itself exists.
    assert!(volume.symlink_metadata("/l41").unwrap().is_symlink());
    assert!(volume.metadata("/absolute").unwrap().is_dir());
    assert!(!volume.exists("/nowhere").unwrap());
    close(volume, &image);
}

#[test]
fn files_read_write_and_seek_as_those_of_std() {
    let image = image();
    let volume = open(&image);
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .open(&volume, "/f")
        .unwrap();
    let mut shared = &file;
    shared.write_all(b"0123456789").unwrap();
    assert_eq!(shared.seek(SeekFrom::End(-4)).unwrap(), 6);
    let mut rest = String::new();
    shared.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "6789");
    assert_eq!(shared.seek(SeekFrom::Start(2)).unwrap(), 2);
    assert_eq!(shared.seek(SeekFrom::Current(1)).unwrap(), 3);
    let error = shared.seek(SeekFrom::Current(-4)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let mut two = [0; 2];
    file.read_exact_at(&mut two, 4).unwrap();
    assert_eq!(&two, b"45");
    shared.write_all(b"x").unwrap();
    assert_eq!(volume.read("/f").unwrap(), b"012x456789");

    file.set_len(4).unwrap();
    file.set_len(1 << 20).unwrap();
    assert_eq!(file.next_data(0).unwrap(), Some(0..4096));
    file.write_all_at(b"far", 512 << 10).unwrap();
    assert_eq!(
        file.next_data(4096).unwrap(),
        Some(512 << 10..(512 << 10) + 4096)
    );
    file.punch_hole(0..4096).unwrap();
    assert_eq!(file.next_data(0).unwrap().unwrap().start, 512 << 10);
    file.allocate(2 << 20..3 << 20).unwrap();
    assert!(file.metadata().unwrap().blocks() >= 2048);
    assert_eq!(file.next_data(1 << 20).unwrap(), None);
    file.set_permissions(fs::Permissions::from_mode(0o600))
        .unwrap();
    assert_eq!(file.metadata().unwrap().mode(), 0o10_0600);

    let reader = volume.open_file("/f").unwrap();
    assert_eq!(
        (&reader).write(b"no").unwrap_err().to_string(),
        "cannot write /f: Bad file descriptor (os error 9)"
    );
    assert!(reader.set_len(0).is_err());
    let mut log = File::options().append(true).open(&volume, "/f").unwrap();
    log.seek(SeekFrom::Start(0)).unwrap();
    log.write_all(b"end").unwrap();
    assert_eq!(log.metadata().unwrap().len(), (1 << 20) + 3);
    assert!(log.read_at(&mut two, 0).is_err());
    for (what, options) in [
        ("nothing", File::options()),
        (
            "made for reading",
            File::options().read(true).create(true).clone(),
        ),
        (
            "emptied for appending",
            File::options().append(true).truncate(true).clone(),
        ),
    ] {
        let error = options.open(&volume, "/f").expect_err(what);
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{what}");
    }
    drop((file, reader, log));
    close(volume, &image);
}

#[test]
fn what_is_open_lives_without_a_name_and_goes_with_its_last_user() {
    let image = image();
    let volume = open(&image);
    volume.sync_all().unwrap();
    let free = volume.space();
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .open(&volume, "/f")
        .unwrap();
    file.write_all(&[7; 1 << 20]).unwrap();
    volume.remove_file("/f").unwrap();
    assert!(!volume.exists("/f").unwrap());
    file.rewind().unwrap();
    let mut all = Vec::new();
    file.read_to_end(&mut all).unwrap();
    assert_eq!(all, [7; 1 << 20]);
    assert!(volume.space().free < free.free);

    // It keeps the volume open; the volume is closed when it is dropped.
    let error = volume.close().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceBusy);
    let other = Volume::open(image.path(), &MountOptions::new()).unwrap_err();
    assert_eq!(other.kind(), ErrorKind::ResourceBusy);
    drop(file);
    image.e2fsck_fn().unwrap();
    let volume = open(&image);
    assert_eq!(volume.space(), free);
    close(volume, &image);
}

#[test]
fn a_volume_that_is_dropped_is_clean_and_one_that_crashed_has_what_was_synced() {
    let image = image();
    let volume = open(&image);
    volume.write("/dropped", "kept").unwrap();
    drop(volume);
    image.e2fsck_fn().unwrap();
    assert_eq!(image.debugfs("cat /dropped").unwrap(), "kept");

    let options = MountOptions::new()
        .commit_interval(Duration::from_secs(300))
        .clone();
    let volume = Volume::open(image.path(), &options).unwrap();
    let mut file = volume.create_file("/synced").unwrap();
    file.write_all(b"stands").unwrap();
    file.sync_all().unwrap();
    // The image as the host has it now, without closing anything.
    let crashed = image.copy().unwrap();
    drop(file);
    close(volume, &image);
    let volume = open(&crashed);
    assert_eq!(volume.read_to_string("/synced").unwrap(), "stands");
    close(volume, &crashed);
}

/// The variable that names the image for the child process.
const OPEN: &str = "STETFS_TEST_OPEN";

#[test]
fn nobody_else_opens_a_volume_that_is_open() {
    if let Some(path) = std::env::var_os(OPEN) {
        let error = Volume::open(path, &MountOptions::new()).unwrap_err();
        println!("{:?}: {error}", error.kind());
        return;
    }
    let image = image();
    let volume = open(&image);
    let error = Volume::open(image.path(), &MountOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceBusy);
    assert!(error.to_string().contains("this process"), "{error}");
    assert_eq!(error.path(), image.path());
    let reader = Volume::open(image.path(), MountOptions::new().read_only(true)).unwrap_err();
    assert_eq!(reader.kind(), ErrorKind::ResourceBusy);

    let child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "paths::nobody_else_opens_a_volume_that_is_open",
            "--nocapture",
        ])
        .env(OPEN, image.path())
        .output()
        .unwrap();
    assert!(child.status.success(), "{child:?}");
    let said = String::from_utf8(child.stdout).unwrap();
    let holder = format!("process {}", std::process::id());
    assert!(
        said.contains("ResourceBusy: ") && said.contains(&holder),
        "{said}"
    );
    close(volume, &image);

    // Many times without a pause: the lock is released with the volume.
    for _ in 0..10 {
        let volume = open(&image);
        volume.write("/again", "x").unwrap();
        volume.sync_all().unwrap();
        volume.close().unwrap();
    }
}

#[test]
fn many_threads_use_one_volume() {
    const THREADS: usize = 6;
    const ROUNDS: usize = 60;
    let image = image();
    let volume = open(&image);
    volume.create_dir("/shared").unwrap();
    thread::scope(|scope| {
        for t in 0..THREADS {
            let volume = &volume;
            scope.spawn(move || {
                let mut log = File::options()
                    .append(true)
                    .create(true)
                    .open(volume, "/log")
                    .unwrap();
                volume.create_dir_all(format!("/own/{t}")).unwrap();
                for n in 0..ROUNDS {
                    let line = format!("{t} {n} {}\n", "x".repeat(t * 7));
                    log.write_all(line.as_bytes()).unwrap();
                    let new = format!("/own/{t}/new");
                    volume.write(&new, &line).unwrap();
                    volume.rename(&new, format!("/shared/{t}-{n}")).unwrap();
                    if n % 3 == 0 {
                        volume.remove_file(format!("/shared/{t}-{n}")).unwrap();
                    }
                    if n % 20 == 0 {
                        log.sync_data().unwrap();
                        // Other threads remove files meanwhile; every file seen is complete.
                        for entry in volume.walk("/shared").unwrap() {
                            assert!(entry.unwrap().file_type().is_file());
                        }
                    }
                }
            });
        }
    });
    let text = volume.read_to_string("/log").unwrap();
    let lines: BTreeSet<(usize, usize)> = text
        .lines()
        .map(|line| {
            let mut parts = line.split(' ');
            let mut number = || parts.next().unwrap().parse().unwrap();
            (number(), number())
        })
        .collect();
    let all = (0..THREADS).flat_map(|t| (0..ROUNDS).map(move |n| (t, n)));
    assert_eq!(lines, all.collect());
    assert_eq!(names(&volume, "/shared").len(), THREADS * ROUNDS * 2 / 3);
    close(volume, &image);
}

#[test]
fn trees_are_walked_in_order_and_removed_whole() {
    let image = image();
    let volume = open(&image);
    for dir in 0..20 {
        volume
            .create_dir_all(format!("/t/{dir:02}/deep/er"))
            .unwrap();
        for file in 0..150 {
            volume
                .write(format!("/t/{dir:02}/{file:03}"), [0; 10])
                .unwrap();
        }
    }
    volume.symlink("/", "/t/00/root").unwrap();
    volume.symlink("t", "/link").unwrap();
    let walked: Vec<String> = volume
        .walk("/t")
        .unwrap()
        .map(|e| e.unwrap().path().to_str().unwrap().to_owned())
        .collect();
    assert_eq!(walked.len(), 20 * (150 + 3) + 1);
    assert!(walked.is_sorted_by(|a, b| Path::new(a) < Path::new(b)));
    let mut walk = volume.walk("/t").unwrap();
    assert_eq!(walk.next().unwrap().unwrap().path(), Path::new("/t/00"));
    walk.skip_dir();
    assert_eq!(walk.next().unwrap().unwrap().path(), Path::new("/t/01"));
    drop(walk);
    // A link is removed, not followed.
    volume.remove_dir_all("/link").unwrap();
    assert!(volume.exists("/t/05/100").unwrap());
    volume.remove_dir_all("/t").unwrap();
    assert_eq!(
        names(&volume, "/"),
        BTreeSet::from(["lost+found".to_owned()])
    );
    let error = volume.remove_dir_all("/t").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    close(volume, &image);
}

#[test]
fn each_preset_is_opened_by_its_name_and_others_are_refused_with_the_nearest() {
    let image = image();
    for preset in Preset::on_a_device() {
        let volume =
            Volume::open(image.path(), MountOptions::new().journal(preset.name())).unwrap();
        assert_eq!(volume.low().journal(), &preset.composition());
        let mut file = volume.create_file(format!("/{preset}")).unwrap();
        file.write_all(preset.name().as_bytes()).unwrap();
        file.sync_all().unwrap();
        drop(file);
        close(volume, &image);
    }
    let error = Volume::open(image.path(), MountOptions::new().journal("orderd")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("ordered"), "{error}");
    let missing = Volume::open("/no/such/image", &MountOptions::new()).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    let none = Image::sparse(1 << 20).unwrap();
    let error = Volume::open(none.path(), &MountOptions::new()).unwrap_err();
    assert!(error.to_string().contains("not an ext4 volume"), "{error}");
    // The journal mode that the volume stores is used if no option is given.
    let tune = ["-o", "journal_data"];
    stetfs_testkit::cmd::run(Command::new("tune2fs").args(tune).arg(image.path())).unwrap();
    let volume = open(&image);
    assert_eq!(
        volume.low().journal().data(),
        stetfs::low::DataMode::Journal
    );
    close(volume, &image);
}

/// No operation leaves the base, by a symbolic link or by `..`.
#[test]
fn nothing_leads_out_of_a_base() {
    let image = image();
    let volume = open(&image);
    volume.create_dir_all("/outside/dir").unwrap();
    volume.create_dir_all("/out/sub").unwrap();
    volume.write("/outside/file", "whole").unwrap();
    volume.write("/out/mine", "mine").unwrap();
    for (target, link) in [
        ("/outside", "/out/up"),
        ("../outside", "/out/over"),
        ("/outside/file", "/out/last"),
        ("sub", "/out/here"),
        ("/out", "/named"),
    ] {
        volume.symlink(target, link).unwrap();
    }
    let out = volume.beneath("/named").unwrap();
    let errno = |e: Error| e.raw_os_error();
    for (way, expected) in [
        ("/named/up", libc::ELOOP),
        ("/named/over", libc::ELOOP),
        ("/named/here", libc::ELOOP),
        ("/named/../outside", libc::EXDEV),
        ("/named/sub/../../outside", libc::EXDEV),
        ("/outside", libc::EXDEV),
    ] {
        let (file, new) = (format!("{way}/file"), format!("{way}/new"));
        let tries = [
            ("read", out.read(&file).map(drop)),
            ("write", out.write(&file, "changed")),
            ("make", out.write(&new, "new")),
            ("mkdir", out.create_dir(&new)),
            ("mkdirs", out.create_dir_all(format!("{new}/a"))),
            ("mknod", out.create_node(&new, Node::Fifo)),
            ("symlink", out.symlink("x", &new)),
            ("link to", out.hard_link("/named/mine", &new)),
            ("link of", out.hard_link(&file, "/named/got")),
            ("rename to", out.rename("/named/mine", &new)),
            ("rename of", out.rename(&file, "/named/got")),
            ("unlink", out.remove_file(&file)),
            ("rmdir", out.remove_dir(format!("{way}/dir"))),
            ("rm -r", out.remove_dir_all(format!("{way}/dir"))),
            ("list", out.read_dir(format!("{way}/dir")).map(drop)),
            ("walk", out.walk(format!("{way}/dir")).map(drop)),
            ("stat", out.symlink_metadata(&file).map(drop)),
            ("chmod", out.set_metadata(&file, SetMetadata::new().mode(0))),
            ("xattr", out.set_xattr(&file, "user.x", "x")),
            ("xattrs", out.xattrs(&file).map(drop)),
            ("beneath", out.beneath(way).map(drop)),
        ];
        for (what, done) in tries {
            assert_eq!(done.map_err(errno), Err(Some(expected)), "{what} {way}");
        }
    }
    // A link at the end is used itself, or refused.
    assert_eq!(
        out.read("/named/last").map_err(errno),
        Err(Some(libc::ELOOP))
    );
    let written = out.write("/named/last", "changed");
    assert_eq!(written.map_err(errno), Err(Some(libc::ELOOP)));
    let link = out.read_link("/named/last").unwrap();
    assert_eq!(link, Path::new("/outside/file"));
    // The base is the directory itself, not its name.
    volume.rename("/out", "/moved").unwrap();
    volume.symlink("/outside", "/out").unwrap();
    out.write("/named/sub/new", "new").unwrap();
    let listed = out.read_dir("/named/sub").unwrap().next().unwrap().unwrap();
    assert_eq!(listed.path(), Path::new("/named/sub/new"));
    assert_eq!(listed.metadata().unwrap().len(), 3);
    drop((out, listed));
    assert_eq!(volume.read("/moved/sub/new").unwrap(), b"new");
    assert_eq!(
        names(&volume, "/outside"),
        ["dir", "file"].map(String::from).into()
    );
    assert_eq!(volume.read("/outside/file").unwrap(), b"whole");
    close(volume, &image);
}
