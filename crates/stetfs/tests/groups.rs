//! Tests of atomic groups that are aborted through the volume.
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;

use stetfs::{MountOptions, Volume};
use stetfs_testkit::{Image, Mkfs};

/// An open group excludes all others from its files, until it is aborted through the volume. Then
/// every operation of the group fails, the commit too.
#[test]
fn the_opener_of_a_volume_ends_a_group_that_another_holds() {
    let image = Image::make(32 << 20, &Mkfs::blocks(4096)).unwrap();
    let volume = Volume::open(image.path(), MountOptions::new().journal("data")).unwrap();
    let none = volume.abort_atomic_group("/none").unwrap_err();
    assert_eq!(none.kind(), ErrorKind::NotFound);
    for name in ["/a", "/b", "/other"] {
        volume.write(name, "old").unwrap();
    }
    let none = volume.abort_atomic_group("/a").unwrap_err();
    assert_eq!(none.kind(), ErrorKind::InvalidInput);
    let held = volume.atomic_group(["/a", "/b"]).unwrap();
    let other = volume.atomic_group(["/other"]).unwrap();
    held.file("/a").unwrap().write_all_at(b"new", 0).unwrap();
    assert_eq!(
        volume.write("/b", "x").unwrap_err().kind(),
        ErrorKind::ResourceBusy
    );
    volume.abort_atomic_group("/b").unwrap();
    volume.write("/b", "another").unwrap();
    let a = held.file("/a").unwrap();
    for failed in [
        a.write_at(b"new", 0).map(drop),
        a.read_at(&mut [0; 3], 0).map(drop),
        a.set_len(0).map_err(Into::into),
    ] {
        let failed = failed.unwrap_err();
        assert!(failed.to_string().contains("was aborted by"), "{failed}");
    }
    assert_eq!(held.limit(), 0);
    // The files may be in another group by then.
    let again = volume.atomic_group(["/a"]).unwrap();
    again.file("/a").unwrap().write_all_at(b"two", 0).unwrap();
    assert_eq!(held.commit().unwrap_err().kind(), ErrorKind::InvalidInput);
    again.commit().unwrap();
    other
        .file("/other")
        .unwrap()
        .write_all_at(b"new", 0)
        .unwrap();
    other.commit().unwrap();
    let read = |name| volume.read(name).unwrap();
    assert_eq!(
        (read("/a"), read("/b"), read("/other")),
        (b"two".into(), b"another".into(), b"new".into())
    );
    volume.close().unwrap();
    image.e2fsck_fn().unwrap();
}
