//! Tests of opening a volume again with other options: refusals are reported before anything
//! changes, and an error that was not predicted leaves the volume as it was.
use stetfs::low::{Ctx, FsOptions, ROOT_INO, Volume, VolumeOptions};
use stetfs_testkit::{Image, Mkfs};

fn with(journal: &str) -> FsOptions {
    FsOptions {
        journal: journal.parse().unwrap(),
        ..FsOptions::default()
    }
}

/// Creates a name; returns the number of names.
fn names(volume: &Volume, new: &str) -> usize {
    let made = volume
        .fs()
        .mkdir(&Ctx::ROOT, ROOT_INO, new.as_bytes(), 0o755, 0);
    made.unwrap();
    let found = ["a", "b", "c", "d", "e"].map(|name| volume.fs().lookup(ROOT_INO, name.as_bytes()));
    found.iter().filter(|found| found.is_ok()).count()
}

#[test]
fn what_is_refused_leaves_the_volume_as_it_was() {
    for features in ["^mmp", "mmp", "bigalloc", "quota"] {
        let mkfs = Mkfs::blocks(1024).journal_mib(1).feature(features);
        let image = Image::make(64 << 20, &mkfs).unwrap();
        let options = VolumeOptions {
            fs: FsOptions {
                mmp_second: std::time::Duration::from_millis(1),
                ..with("ordered")
            },
            ..VolumeOptions::default()
        };
        let volume = Volume::open(image.path(), &options).unwrap();
        let wanted = |journal| FsOptions {
            mmp_second: options.fs.mmp_second,
            ..with(journal)
        };
        let too_large = wanted("zjournal,lanes=64");
        assert_eq!(names(&volume, "a"), 1);
        volume.rehearse(&too_large).unwrap_err();
        assert_eq!(names(&volume, "b"), 2, "{features}");
        volume.rehearse(&wanted("data")).unwrap();
        assert_eq!(names(&volume, "c"), 3, "{features}");
        // Without a rehearsal.
        let (volume, refused) = volume.reopen(&too_large).unwrap();
        assert!(refused.is_some());
        assert_eq!(
            volume.journal().to_string(),
            with("ordered").journal.to_string()
        );
        assert_eq!(names(&volume, "d"), 4, "{features}");
        let (volume, refused) = volume.reopen(&wanted("data")).unwrap();
        assert!(refused.is_none());
        assert_eq!(names(&volume, "e"), 5, "{features}");
        volume.close().unwrap();
        image.e2fsck_fn().unwrap();
    }
}

/// The region of a volume is not touched by a rehearsal.
#[test]
fn a_region_is_looked_at_alone() {
    let image = Image::make(64 << 20, &Mkfs::blocks(4096)).unwrap();
    let region = image.dir().join("region");
    std::fs::File::create(&region)
        .unwrap()
        .set_len(8 << 20)
        .unwrap();
    let options = VolumeOptions {
        fs: with("ijournal"),
        nvm: Some(region.clone().into()),
        ..VolumeOptions::default()
    };
    let mut volume = Volume::open(image.path(), &options).unwrap();
    assert_eq!(names(&volume, "a"), 1);
    for journal in ["stet", "nvm", "ijournal", "ordered"] {
        volume.rehearse(&with(journal)).unwrap();
    }
    assert_eq!(names(&volume, "b"), 2);
    let (next, refused) = volume.reopen(&with("nvm")).unwrap();
    assert!(refused.is_none());
    volume = next;
    assert_eq!(names(&volume, "c"), 3);
    volume.rehearse(&with("ijournal")).unwrap();
    assert_eq!(names(&volume, "d"), 4);
    volume.close().unwrap();
    image.e2fsck_fn().unwrap();
}
