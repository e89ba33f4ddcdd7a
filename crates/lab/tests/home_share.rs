//! Tests of `home=share`: mounts, kills and recoveries of an image on XFS, and of a served device
//! that shares.
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use crate::common::daemon::{Daemon, fails, json, ok};
use crate::served::Served;
use serde_json::Value;
use stetfs_testkit::image::e2fsck;
use stetfs_testkit::{Image, KernelMount, Scratch, cmd};

const BLOCK: u64 = 4096;
/// Blocks of the overwritten file.
const BLOCKS: u64 = 1024;
/// Blocks overwritten between two syncs.
const EACH: u64 = 100;
/// Rounds that lead to checkpoints on any machine.
const MANY: u64 = 200;

/// The storage below a volume, which can share blocks.
enum Below {
    Xfs { _disk: Image, mount: KernelMount },
    Served(Served),
}

impl Below {
    fn xfs() -> Below {
        let made = KernelMount::made("xfs", &["-q", "-m", "reflink=1"], 512 << 20);
        let (_disk, mount) = made.unwrap();
        Below::Xfs { _disk, mount }
    }

    fn served() -> Below {
        let flash = ["--ftl", "page", "--erase-block", "256K"];
        Below::Served(Served::new(&[&flash[..], &["--size", "64M"]].concat()))
    }

    /// An empty volume on it, with a journal of 4 MiB; not mounted.
    fn volume(&self) -> Daemon {
        let path = match self {
            Below::Xfs { mount, .. } => mount.path().join("image"),
            Below::Served(served) => served.disk(),
        };
        if let Below::Xfs { .. } = self {
            File::create(&path).unwrap().set_len(64 << 20).unwrap();
        }
        let mut mke2fs = Command::new("mke2fs");
        mke2fs.args(["-q", "-F", "-t", "ext4", "-b", "4096", "-J", "size=4"]);
        cmd::run(mke2fs.arg(&path)).unwrap();
        Daemon::unmounted(Image::at(path, Scratch::new("share").unwrap()))
    }

    /// The name of the sharing layer in `stetfs stat`.
    fn who(&self) -> &'static str {
        match self {
            Below::Xfs { .. } => "FICLONERANGE",
            Below::Served(_) => "by the program that serves the device",
        }
    }

    fn end(self) {
        match self {
            Below::Xfs { mount, .. } => mount.umount().unwrap(),
            Below::Served(served) => drop(served.end()),
        }
    }
}

/// A file of blocks that are overwritten at random, with the expected content of each.
struct Overwritten {
    model: Vec<u64>,
    round: u64,
}

fn content(at: u64, round: u64) -> [u8; BLOCK as usize] {
    let mut block = [0; BLOCK as usize];
    fastrand::Rng::with_seed(at << 32 | round).fill(&mut block);
    block
}

impl Overwritten {
    /// Makes the file, synced.
    fn new(d: &Daemon) -> Overwritten {
        let mut this = Overwritten {
            model: vec![0; BLOCKS as usize],
            round: 0,
        };
        File::create(d.file("file")).unwrap();
        this.write(d, 0..BLOCKS);
        this
    }

    /// Overwrites some blocks, and syncs them.
    fn round(&mut self, d: &Daemon) {
        self.round += 1;
        let mut rng = fastrand::Rng::with_seed(self.round);
        self.write(d, (0..EACH).map(|_| rng.u64(0..BLOCKS)));
    }

    fn write(&mut self, d: &Daemon, blocks: impl Iterator<Item = u64>) {
        let file = File::options().write(true).open(d.file("file")).unwrap();
        for at in blocks {
            let bytes = content(at, self.round);
            file.write_all_at(&bytes, at * BLOCK).unwrap();
            self.model[at as usize] = self.round;
        }
        file.sync_all().unwrap();
    }

    /// Runs rounds until checkpoints have shared; returns the output of `stetfs stat`.
    fn until_shared(&mut self, d: &Daemon) -> Value {
        let until = self.round + MANY;
        loop {
            self.round(d);
            let stat = json(&["stat", d.dir()]);
            if number(&stat["journal"], "checkpoints") >= 2 {
                return stat;
            }
            assert!(self.round < until, "no checkpoint: {stat}");
        }
    }

    #[track_caller]
    fn check(&self, d: &Daemon) {
        let bytes = std::fs::read(d.file("file")).unwrap();
        assert_eq!(bytes.len() as u64, BLOCKS * BLOCK);
        for (at, block) in bytes.chunks(BLOCK as usize).enumerate() {
            let round = self.model[at];
            assert!(block == content(at as u64, round), "block {at}");
        }
    }
}

fn number(value: &Value, name: &str) -> u64 {
    value[name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name}: {value}"))
}

/// A volume whose server was killed after sharing checkpoints and a sync; its log needs recovery.
fn killed(below: &Below, options: &str) -> (Daemon, Overwritten) {
    let d = below.volume();
    d.mount(options);
    let mut file = Overwritten::new(&d);
    let stat = file.until_shared(&d);
    let journal = &stat["journal"];
    assert!(number(journal, "shared") > 0, "{journal}");
    assert_eq!(journal["home"]["by"], "share", "{journal}");
    let why = journal["home"]["why"].as_str().unwrap();
    assert!(why.contains(below.who()), "{why}");
    assert!(number(&stat["device"], "shares") > 0, "{stat}");
    file.round(&d);
    file.check(&d);
    d.crash();
    (d, file)
}

fn clean(d: &Daemon) {
    ok(&["umount", d.dir()]);
    e2fsck(Path::new(d.image()), &["-fn"], 0).unwrap();
}

/// Mounts share, also the log of a killed server, whether they are writable or not; nothing is
/// lost.
fn mounts(below: Below) {
    for codec in ["jbd2", "frames"] {
        for how in ["rw", "ro"] {
            let options = format!("journal=afs,codec={codec},commit=900");
            let (d, mut file) = killed(&below, &options);
            d.mount(&format!("{how},{options}"));
            // Nothing was written since.
            let stat = json(&["stat", d.dir()]);
            let shares = number(&stat["device"], "shares");
            assert!(shares > 0, "the recovery shared nothing: {stat}");
            file.check(&d);
            if how == "rw" {
                let stat = file.until_shared(&d);
                assert!(number(&stat["journal"], "shared") > 0, "{stat}");
            }
            clean(&d);
            d.mount("ro");
            file.check(&d);
            clean(&d);
        }
    }
    below.end();
}

#[test]
fn mounts_of_an_image_on_xfs() {
    mounts(Below::xfs());
}

#[test]
fn mounts_of_a_served_device() {
    mounts(Below::served());
}

/// `stetfs recover` shares on request, and reports counts and reasons; otherwise it copies.
fn recovers(below: Below) {
    for (codec, home) in [("jbd2", "share"), ("frames", "share"), ("jbd2", "copy")] {
        let (d, file) = killed(&below, &format!("journal=afs,codec={codec},commit=900"));
        let before = below.shared();
        let done = json(&["recover", "-o", &format!("home={home}"), d.image()]);
        let of = |name| number(&done["recovery"], name);
        let (blocks, shared, copied) = (of("blocks"), of("shared"), of("copied"));
        assert_eq!(shared + copied, blocks, "{done}");
        assert_eq!(done["home"]["by"], home, "{done}");
        if home == "share" {
            // All blocks, except those that jbd2 escapes, of which there are none here.
            assert!(shared >= EACH / 2 && copied == 0, "{done}");
            let why = done["home"]["why"].as_str().unwrap();
            assert!(why.contains(below.who()), "{done}");
        } else {
            assert!(shared == 0 && copied >= EACH / 2, "{done}");
        }
        if let (Some(before), Some(after)) = (before, below.shared()) {
            assert_eq!(after - before, shared, "{done}");
        }
        e2fsck(Path::new(d.image()), &["-fn"], 0).unwrap();
        d.mount("ro");
        file.check(&d);
        clean(&d);
    }
    let (d, file) = killed(&below, "journal=afs,commit=900");
    let said = ok(&["recover", "-o", "home=share", d.image()]);
    for words in [" shared, 0 copied)", "home by share: ", below.who()] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    d.mount("ro");
    file.check(&d);
    clean(&d);
    let wrong = |args: &[&str], words| fails(&[args, &[d.image()]].concat(), 1, &[words]);
    wrong(
        &["recover", "-o", "home=remap"],
        "home must be copy or share",
    );
    wrong(&["recover", "-o", "hoem=share"], "did you mean home?");
    wrong(&["recover", "-o", "data=journal"], "unknown option");
    wrong(&["info", "-o", "home=share"], "unknown option");
    below.end();
}

impl Below {
    /// Pages that the device shared, if it counts them.
    fn shared(&self) -> Option<u64> {
        match self {
            Below::Xfs { .. } => None,
            Below::Served(served) => Some(served.counter("pages_shared")),
        }
    }
}

#[test]
fn recoveries_of_an_image_on_xfs() {
    recovers(Below::xfs());
}

#[test]
fn recoveries_of_a_served_device() {
    recovers(Below::served());
}
