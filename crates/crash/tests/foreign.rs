//! Crashes of the kernel's ext4 with fast commits, recovered by all readers, and cuts inside
//! recoveries. Needs root. `STETFS_LONG=1` tries ten times as many, on more kinds of volumes.

use stetfs_crash::peers::Limits;
use stetfs_crash::peers::foreign::{Reader, Volume, foreign};

#[test]
fn fast_commits_bring_back_what_was_synced() {
    let long = std::env::var("STETFS_LONG").is_ok_and(|v| v == "1");
    let kinds = [
        ("fast_commit", 4096, ""),
        ("fast_commit,bigalloc", 4096, ""),
        ("fast_commit,inline_data", 4096, "data=writeback"),
        ("fast_commit,^metadata_csum,uninit_bg", 1024, ""),
    ];
    let limits = Limits {
        states: if long { 300 } else { 72 },
        seconds: if long { 600.0 } else { 60.0 },
        seed: 1,
    };
    for (features, block, options) in kinds.into_iter().take(if long { 4 } else { 1 }) {
        let volume = Volume {
            features: features.into(),
            block,
            options: options.into(),
            keep: None,
        };
        let row = foreign(&volume, "files", limits).unwrap();
        let told = row.examples.join("\n");
        println!(
            "{}: {} images, {} with fast commits",
            row.volume, row.distinct, row.fast
        );
        assert!(row.fast > 5 && row.cut.0 > 5, "{}: {row:?}", row.volume);
        assert_eq!(row.worse, 0, "{}:\n{told}", row.volume);
        // No reader can use a torn superblock.
        let refused = |reader| row.readers[&reader].refused;
        assert!(
            refused(Reader::Stetfs) <= refused(Reader::Kernel),
            "{}:\n{told}",
            row.volume
        );
    }
}
