//! The memory that a mount may use by default.

use std::path::{Path, PathBuf};

const LEAST: u64 = 64 << 20;
const MOST: u64 = 1 << 30;

/// Default cache size of a mount, bytes: an eighth of the memory that this process may use, at
/// least 64 MiB and at most 1 GiB.
pub fn default_cache_bytes() -> u64 {
    (usable_memory() / 8).clamp(LEAST, MOST)
}

/// Memory that this process may use now, bytes: the machine's, or the limit of its control groups.
/// Above `memory.high` the kernel slows a process down, above `memory.max` it kills it.
pub fn usable_memory() -> u64 {
    let info = rustix::system::sysinfo();
    // The types of the fields differ between architectures.
    #[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
    let machine = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit));
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = limit_files(&own, Path::new("/sys/fs/cgroup"))
        .into_iter()
        .filter_map(|path| std::fs::read_to_string(path).ok()?.trim().parse().ok());
    limits.fold(machine, u64::min)
}

/// The files with the limits of the control groups in `/proc/self/cgroup`, versions 1 and 2. In a
/// container the path may be the host's, while the group itself is mounted at the root.
fn limit_files(own: &str, root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in own.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let (mount, names) = match controllers {
            "" => (root.to_owned(), &["memory.max", "memory.high"][..]),
            c if c.split(',').any(|c| c == "memory") => {
                (root.join("memory"), &["memory.limit_in_bytes"][..])
            }
            _ => continue,
        };
        // A group is also bounded by those above it.
        let path = mount.join(path.trim_start_matches('/'));
        let up = path.ancestors().take_while(|dir| dir.starts_with(&mount));
        files.extend(up.flat_map(|dir| names.iter().map(move |name| dir.join(name))));
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_within_bounds() {
        assert!((LEAST..=MOST).contains(&default_cache_bytes()));
    }

    #[test]
    fn limits_are_looked_for_in_both_versions_and_upwards() {
        let own = "4:memory:/a/b\n3:cpu:/a\n0::/c\n";
        let files = limit_files(own, Path::new("/cg"));
        let expected = [
            "/cg/memory/a/b/memory.limit_in_bytes",
            "/cg/memory/a/memory.limit_in_bytes",
            "/cg/memory/memory.limit_in_bytes",
            "/cg/c/memory.max",
            "/cg/c/memory.high",
            "/cg/memory.max",
            "/cg/memory.high",
        ];
        assert_eq!(files, expected.map(PathBuf::from));
        assert!(limit_files("nonsense", Path::new("/cg")).is_empty());
    }
}
