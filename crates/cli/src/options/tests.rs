#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::Duration;

use stetfs::low::{Atime, DataMode, FsOptions, OnDataError, preset};
use stetfs_fuse::{IoUring, LowLatency};

use super::names::is_comment;
use super::read::apply;
use super::*;
use crate::sandbox::Wanted;

fn read(text: &str) -> std::result::Result<Options, String> {
    let mut all = Options::default();
    parse(text, false, &mut all)
        .map(|()| all)
        .map_err(|f| f.message)
}

#[test]
fn an_fstab_line_as_people_write_it() {
    let o =
        read("defaults,nofail,x-systemd.automount,_netdev,noatime,journal=data,cache=1G,commit=30")
            .unwrap();
    assert_eq!(o.request.preset, Some(preset::DATA));
    assert_eq!(o.request.cache, Some(1 << 30));
    let v = o.volume().unwrap();
    assert_eq!((v.fs.commit_secs, v.fs.atime), (30, Atime::Noatime));
    assert!(o.mount(Path::new("x")).noatime);
}

#[test]
fn the_last_of_ro_and_rw_counts_and_commit_0_is_the_default() {
    let o = read("ro,rw,commit=0,data=journal").unwrap();
    let v = o.volume().unwrap();
    assert!(!v.fs.read_only);
    assert_eq!(v.fs.commit_secs, FsOptions::default().commit_secs);
    assert_eq!(v.fs.journal.data(), DataMode::Journal);
    assert!(v.fs.journal.is_jbd2());
}

#[test]
fn how_old_data_may_be_and_what_failures_of_it_do() {
    let fs = |text: &str| read(text).map(|o| o.volume().unwrap().fs);
    let defaults = fs("").unwrap();
    assert_eq!(defaults.dirty_expire, Duration::from_secs(30));
    assert_eq!(defaults.data_err, OnDataError::Ignore);
    let set = fs("dirty_expire=0.25,data_err=abort").unwrap();
    assert_eq!(set.dirty_expire, Duration::from_millis(250));
    assert_eq!(set.data_err, OnDataError::Abort);
    for wrong in ["", "=", "=-1", "=soon", "=NaN", "=1e99"] {
        let said = fs(&format!("dirty_expire{wrong}")).unwrap_err();
        assert!(
            said.contains("seconds") || said.contains("value"),
            "{wrong}: {said}"
        );
    }
    assert!(
        fs("data_err=panic")
            .unwrap_err()
            .contains("ignore or abort")
    );
}

#[test]
fn how_files_are_synced() {
    let has_records = |text| {
        let o = read(text).unwrap().volume().unwrap();
        o.fs.journal.has_records()
    };
    assert!(has_records("journal=ijournal,records=3"));
    assert!(!has_records("journal=ijournal,sync=compound"));
    assert!(!has_records("journal=ldj"));
    assert!(has_records("journal=ldj,sync=file"));
    assert!(has_records("journal=data,sync=file"));
    assert!(read("sync").unwrap().request.fs.sync);
    assert!(read("sync=all").unwrap_err().contains("compound or file"));
    assert!(read("records=0").unwrap_err().contains("1 to 64"));
    let wrong = read("codec=jbd2,sync=file").unwrap().volume();
    assert!(wrong.is_err_and(|e| e.message.contains("sync=file needs codec=frames")));
}

#[test]
fn what_the_volume_says_of_data_counts_where_nothing_else_is_said() {
    let data = |text: &str| {
        let mut all = Options::default();
        all.request.set_own(&["data=journal"]).unwrap();
        parse(text, false, &mut all).unwrap();
        all.volume().unwrap().fs.journal.data()
    };
    assert_eq!(data(""), DataMode::Journal);
    assert_eq!(data("data=ordered"), DataMode::Ordered);
    assert_eq!(data("journal=ijournal"), DataMode::Ordered);
    assert_eq!(data("compress=lz4"), DataMode::Journal);
}

#[test]
fn mistakes_are_named() {
    assert!(
        read("journal=fast")
            .unwrap_err()
            .contains("ordered, data, writeback, ldj, ijournal")
    );
    assert!(read("frobnicate").unwrap_err().contains("frobnicate"));
    assert!(read("cache=much").unwrap_err().contains("256M"));
    assert!(read("cache_policy=best").unwrap_err().contains("ts-clock"));
    assert!(read("ro=1").unwrap_err().contains("takes no value"));
    assert!(read("commit").unwrap_err().contains("needs a value"));
    assert!(read("threads=0").is_err());
    let sentence = |text: &str| read(text).unwrap_err();
    assert_eq!(
        sentence("commit=abc"),
        "option commit=abc: commit must be a number of seconds, such as 5"
    );
    assert_eq!(
        sentence("home=remap"),
        "option home=remap: home must be copy or share"
    );
    assert!(sentence("journal").ends_with("journal needs a value"));
    assert!(sentence("codec").ends_with("codec needs a value"));
    assert!(
        read("opens=none")
            .unwrap_err()
            .contains("stateless or handles")
    );
    assert!(
        read("norecovery")
            .unwrap()
            .volume()
            .unwrap_err()
            .message
            .contains("norecovery needs ro")
    );
    let mut all = Options::default();
    assert!(parse("frobnicate,ro", true, &mut all).is_ok() && all.request.fs.read_only);
}

#[test]
fn atomic_writes_say_what_is_in_their_way() {
    let why = |text: &str| read(text).unwrap().volume().map(drop).unwrap_err().message;
    for journal in ["data", "ldj", "stet", "afs", "ordered,data=journal"] {
        let o = read(&format!("journal={journal},atomic")).unwrap();
        o.volume().unwrap();
        assert!(o.serve(Path::new("x")).volume.atomic);
    }
    assert!(why("atomic").contains("journal=data, ldj, stet or afs"));
    assert!(why("journal=ijournal,atomic").contains("needs a journal that data goes through"));
    assert!(why("journal=data,atomic,writeback_cache").contains("writeback_cache"));
    assert!(read("atomic=1").unwrap_err().contains("takes no value"));
    let limit = |text: &str| {
        read(text)
            .unwrap()
            .serve(Path::new("x"))
            .volume
            .atomic_timeout
    };
    assert_eq!(limit("journal=data,atomic"), Some(Duration::from_secs(60)));
    assert_eq!(limit("atomic_timeout=5"), Some(Duration::from_secs(5)));
    assert_eq!(limit("atomic_timeout=0"), None);
    assert!(read("atomic_timeout=long").is_err() && read("atomic_timeout").is_err());
}

#[test]
fn what_the_connection_is_asked_for() {
    let o = read("low_latency=off,io_uring,noxattr,sandbox").unwrap();
    assert_eq!(o.sandbox, Wanted::On);
    let serve = o.serve(Path::new("x"));
    assert_eq!(serve.low_latency, LowLatency::Off);
    assert_eq!(serve.io_uring, IoUring::On);
    assert!(serve.volume.noxattr);
    assert_eq!(read("").unwrap().sandbox, Wanted::Auto);
    assert_eq!(read("sandbox=off").unwrap().sandbox, Wanted::Off);
    assert!(read("sandbox=no").unwrap_err().contains("auto, on or off"));
    let plain = read("").unwrap().serve(Path::new("x"));
    assert_eq!(plain.low_latency, LowLatency::Auto);
    assert!(!plain.volume.noxattr);
    assert!(
        read("low_latency=1")
            .unwrap_err()
            .contains("auto, on or off")
    );
    assert!(read("noxattr=1").unwrap_err().contains("takes no value"));
}

#[test]
fn every_name_is_taken_and_slips_are_understood() {
    for name in names() {
        let taken = [None, Some("1")]
            .iter()
            .any(|value| apply(name, *value, &mut Options::default()).is_some());
        assert!(taken || is_comment(name), "{name}");
    }
    for (wrong, meant) in [
        ("jounal=ldj", "journal"),
        ("comit=5", "commit"),
        ("no_barrier", "nobarrier"),
        ("journal=ijurnal", "ijournal"),
        ("cache_policy=tsclock", "ts-clock"),
        ("codec=frame", "frames"),
    ] {
        let said = read(wrong).unwrap_err();
        assert!(said.ends_with(&format!("did you mean {meant}?")), "{said}");
    }
    assert!(!read("frobnicate").unwrap_err().contains("mean"));
}

#[test]
fn what_makes_no_sense_is_refused_or_warned_of() {
    let refused = |text: &str| read(text).unwrap_err();
    assert!(refused("cache=4K").contains("at least 1M"));
    assert!(refused("cache=900000G").contains("of memory"));
    assert!(refused("erase_block=5000").contains("multiple of 4K"));
    assert!(refused("erase_block=0").contains("multiple of 4K"));
    let warned = |text: &str| read(text).unwrap().warnings().unwrap().join("\n");
    assert_eq!(
        warned("nobarrier,barrier=1"),
        "barrier=1 takes the place of nobarrier, which was said before"
    );
    assert_eq!(
        warned("journal=ijournal,data=journal"),
        "data=journal takes the place of data=ordered, which journal=ijournal stands for"
    );
    assert_eq!(
        warned("journal=ldj,codec=jbd2"),
        "codec=jbd2 takes the place of codec=frames, which journal=ldj stands for"
    );
    assert!(warned("erase_block=24M").contains("does nothing with cache_policy=clock"));
    for sound in [
        "defaults,rw,ro,noatime",
        "journal=ldj,compress=zstd",
        "data=journal",
        "cache=1M,commit=5,commit=5",
        "sync,journal=data,sync=file",
        "cache_policy=ts-clock,erase_block=24M",
    ] {
        assert_eq!(warned(sound), "", "{sound}");
    }
}

/// Options of a part of another order are accepted by a preset of that order, too.
#[test]
fn lanes_go_with_the_order_of_the_preset() {
    let journal = |text: &str| {
        let options = read(text)?.volume().map_err(|e| e.to_string())?;
        Ok(options.fs.journal.to_string())
    };
    let all = "journal=zjournal,lanes=2,groups=core,copies=proactive";
    let said = "zjournal,copies=proactive,groups=core,lanes=2";
    assert_eq!(journal(all), Ok(said.to_owned()));
    // Without a preset, `lanes` implies the order that has lanes, as long as there is only one.
    let alone: std::result::Result<String, String> = journal("lanes=2");
    // Other crates of the workspace may have linked the test journal.
    match journal("journal=lanes").is_ok() {
        true => {
            let why = "lanes needs order=cores or order=threads";
            assert!(alone.is_err_and(|said| said.contains(why)));
        }
        false => assert_eq!(alone, Ok("ordered,lanes=2".to_owned())),
    }
    assert!(journal("journal=zjournal,copies=wait").is_err());
}

#[test]
fn barrier_both_ways() {
    assert!(!read("nobarrier").unwrap().volume().unwrap().fs.barrier);
    assert!(!read("barrier=0").unwrap().volume().unwrap().fs.barrier);
    assert!(
        read("nobarrier,barrier=1")
            .unwrap()
            .volume()
            .unwrap()
            .fs
            .barrier
    );
}
