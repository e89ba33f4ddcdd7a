//! Tests of the replacement policies in the cache of a mounted volume.
use std::os::unix::fs::FileExt;

use crate::common::daemon::{Daemon, json, ok};

/// Every policy keeps written data, with a cache much smaller than the data: new files, overwrites,
/// and reading everything back.
#[test]
fn every_policy_serves_a_volume() {
    for policy in stetfs::low::PolicyKind::ALL {
        let d = Daemon::new(&format!(
            "cache_policy={policy},erase_block=256K,cache=1M,direct_io,dirty_expire=0.2"
        ));
        let content = |file: u64, page: u64, version: u64| {
            let word = (file << 40 | page << 20 | version).to_le_bytes();
            word.repeat(4096 / 8)
        };
        let mut random = fastrand::Rng::with_seed(3);
        let mut versions = vec![[0; 256]; 6];
        for file in 0..6 {
            let path = d.file(&format!("f{file}"));
            let whole: Vec<u8> = (0..256).flat_map(|page| content(file, page, 0)).collect();
            std::fs::write(path, whole).unwrap();
        }
        for version in 1..400 {
            let (file, page) = (random.u64(..6), random.u64(..256));
            let open = std::fs::OpenOptions::new()
                .write(true)
                .open(d.file(&format!("f{file}")));
            open.unwrap()
                .write_all_at(&content(file, page, version), page * 4096)
                .unwrap();
            versions[file as usize][page as usize] = version;
        }
        for (file, versions) in (0..).zip(&versions) {
            let read = std::fs::read(d.file(&format!("f{file}"))).unwrap();
            let whole = (0..)
                .zip(versions)
                .flat_map(|(page, v)| content(file, page, *v));
            assert!(whole.eq(read), "{policy}: file {file}");
        }
        let cache = &json(&["stat", d.dir()])["cache"];
        let count = |name: &str| cache[name].as_u64().unwrap();
        assert!(count("evictions") > 500, "{policy}: {cache}");
        assert!(
            count("hits") > 0 && count("misses") > 0,
            "{policy}: {cache}"
        );
        let (written, runs) = (count("written"), count("write_runs"));
        assert!(
            written >= 6 * 256 && (1..written).contains(&runs),
            "{policy}: {cache}"
        );
        ok(&["umount", d.dir()]);
    }
}
