//! The crates import downwards only (docs and design: "The layers, bottom to top"), and so do the
//! modules inside of each.
mod modules;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Who may import whom. `stetfs-` is left out.
const MAY_IMPORT: [(&str, &[&str]); 20] = [
    ("ondisk", &[]),
    ("sync", &[]),
    ("block", &["sync"]),
    ("nvm", &["block"]),
    ("nbd", &["block"]),
    ("flash", &["block"]),
    ("cache", &["block", "sync"]),
    ("flashlab", &["block", "flash", "cache"]),
    ("journal", &["ondisk", "sync", "block", "nvm", "cache"]),
    ("ext4", &["ondisk", "sync", "block", "cache", "journal"]),
    ("lanes", &["journal", "sync"]),
    ("zjournal", &["journal", "sync"]),
    ("afs", &["journal"]),
    (
        "stetfs",
        &[
            "ondisk", "sync", "block", "nvm", "nbd", "cache", "journal", "lanes", "zjournal",
            "afs", "ext4",
        ],
    ),
    ("capi", &["stetfs"]),
    ("fuse", &["stetfs"]),
    (
        "cli",
        &["stetfs", "fuse", "bench", "crash", "flash", "flashlab"],
    ),
    (
        "crash",
        &[
            "stetfs", "fuse", "ondisk", "block", "nbd", "nvm", "flash", "testkit",
        ],
    ),
    (
        "fuzzing",
        &[
            "stetfs", "fuse", "ondisk", "block", "journal", "crash", "testkit",
        ],
    ),
    ("testkit", &[]),
];

/// May import everything: the benchmarks.
const TOP: &str = "bench";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
}

fn short(name: &str) -> Option<&str> {
    if name == "stetfs" {
        Some(name)
    } else {
        name.strip_prefix("stetfs-")
    }
}

#[test]
fn crates_import_downwards_only() {
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let metadata: Value = serde_json::from_slice(&out.stdout).unwrap();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for package in metadata["packages"].as_array().unwrap() {
        let name = short(package["name"].as_str().unwrap()).unwrap();
        seen += 1;
        if name == TOP {
            continue;
        }
        let Some((_, allowed)) = MAY_IMPORT.iter().find(|(n, _)| *n == name) else {
            wrong.push(format!(
                "{name} is in no layer: add it to the architecture and to this table"
            ));
            continue;
        };
        for dependency in package["dependencies"].as_array().unwrap() {
            // Tests may use what they like.
            if dependency["kind"] == "dev" {
                continue;
            }
            let Some(used) = short(dependency["name"].as_str().unwrap()) else {
                continue;
            };
            if !allowed.contains(&used) {
                wrong.push(format!("{name} imports {used}"));
            }
        }
    }
    assert!(
        seen >= 10,
        "cargo metadata shows the workspace's crates, not {seen}"
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// `ext4` uses the journal's façade: it never names a scheme or what the schemes are made of.
#[test]
fn the_file_system_names_no_journal_scheme() {
    let mut wrong = Vec::new();
    let mut files = 0;
    let mut dirs = vec![root().join("crates/ext4/src")];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
                continue;
            }
            files += 1;
            let text = std::fs::read_to_string(&path).unwrap();
            for (n, line) in text.lines().enumerate() {
                let code = line.split("//").next().unwrap_or_default();
                if ["Jbd2", "jbd2::", "journal::policy", "journal::engine"]
                    .iter()
                    .any(|w| code.contains(w))
                {
                    wrong.push(format!("{}:{}: {}", path.display(), n + 1, line.trim()));
                }
            }
        }
    }
    assert!(files > 5, "the sources were found");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Modules that may import each other, and why.
struct Circle {
    krate: &'static str,
    modules: &'static [&'static str],
    because: &'static str,
}

const CIRCLES: [Circle; 2] = [
    Circle {
        krate: "journal",
        modules: &[
            "compose",
            "compose::part",
            "compose::preset",
            "jbd2::log",
            "jbd2::parts",
            "log",
        ],
        because: "a composition hands out the formats of logs, and a log is made as a composition \
                  says; jbd2's parts are the ones that stand where nobody names others",
    },
    Circle {
        krate: "journal",
        modules: &[
            "edges",
            "engine",
            "engine::checkpoint_list",
            "engine::files",
            "engine::flush",
            "engine::journal",
            "engine::queue",
            "engine::spread",
            "handle",
        ],
        because: "the engine's state has a part in the file of each of its operations, which are \
                  methods of the whole",
    },
];

/// Inside a crate no modules import each other in a circle, but for those above.
#[test]
fn modules_import_downwards() {
    let mut wrong = Vec::new();
    let mut allowed: Vec<&Circle> = CIRCLES.iter().collect();
    let mut seen = 0;
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        let folder = entry.unwrap().path();
        let krate = folder.file_name().unwrap().to_str().unwrap();
        let modules = modules::Modules::read(&folder.join("src"));
        let edges = modules.edges();
        seen += edges.len();
        for circle in modules.circles() {
            let is_it =
                |c: &&Circle| c.krate == krate && circle.iter().eq(c.modules.iter().copied());
            if let Some(at) = allowed.iter().position(is_it) {
                allowed.remove(at);
                continue;
            }
            for module in &circle {
                let inside: BTreeSet<_> = edges[module].intersection(&circle).collect();
                wrong.push(format!("{krate}: in a circle {module} imports {inside:?}"));
            }
        }
    }
    assert!(seen > 400, "the modules were found, not {seen}");
    for Circle {
        krate,
        modules,
        because,
    } in allowed
    {
        wrong.push(format!(
            "{krate}: {modules:?} are no circle any more: strike them from the list ({because})"
        ));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
