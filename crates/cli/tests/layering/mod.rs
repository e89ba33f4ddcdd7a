//! Tests of the layering: crates import only crates below them (docs/architecture.md, "Crates,
//! bottom to top"), and so do the modules inside each crate.
mod methods;
mod modules;

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use crate::sources::{Source, root, sources};

/// The crates that each crate may import. `stetfs-` is left out.
const MAY_IMPORT: [(&str, &[&str]); 22] = [
    ("ondisk", &[]),
    ("sync", &[]),
    ("block", &["sync"]),
    ("format", &["ondisk", "block"]),
    ("nvm", &["block"]),
    ("nbd", &["block"]),
    ("flash", &["block", "sync"]),
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
            "ondisk", "sync", "block", "format", "nvm", "nbd", "cache", "journal", "lanes",
            "zjournal", "afs", "ext4",
        ],
    ),
    ("capi", &["stetfs"]),
    ("fuse", &["stetfs"]),
    ("cli", &["stetfs", "fuse"]),
    (
        "lab",
        &[
            "stetfs", "fuse", "cli", "bench", "crash", "flash", "flashlab",
        ],
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

/// The crate that may import everything: the benchmarks.
const TOP: &str = "bench";

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
            // Tests may use anything.
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

/// `ext4` uses the journal's façade: it names neither a scheme nor the parts of schemes.
#[test]
fn the_file_system_names_no_journal_scheme() {
    let mut wrong = Vec::new();
    let sources = sources(&["crates/ext4/src"], ".rs");
    for Source { path, lines } in &sources {
        for (n, line) in lines.iter().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if ["Jbd2", "jbd2::", "journal::policy", "journal::engine"]
                .iter()
                .any(|w| code.contains(w))
            {
                wrong.push(format!("{path}:{}: {}", n + 1, line.trim()));
            }
        }
    }
    assert!(sources.len() > 5, "the sources were found");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Modules that may import each other, with the reason.
struct Circle {
    krate: &'static str,
    modules: &'static [&'static str],
    because: &'static str,
}

const CIRCLES: [Circle; 1] = [Circle {
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
}];

/// Inside a crate no modules import each other in a circle, except those listed above.
#[test]
fn modules_import_downwards() {
    let mut wrong = Vec::new();
    let mut allowed: Vec<&Circle> = CIRCLES.iter().collect();
    let mut seen = 0;
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        let folder = entry.unwrap().path();
        let krate = folder.file_name().unwrap().to_str().unwrap();
        let modules = modules::Modules::read(&folder.join("src"));
        let edges = modules.imports();
        seen += edges.len();
        for circle in modules::circles(&edges) {
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

/// The floors of a crate, from the bottom. The longest name that is a prefix of a module's path
/// decides its floor, so `engine` stands for its submodules that are not listed. Modules without
/// such a prefix are on no floor.
struct Floors {
    krate: &'static str,
    floors: &'static [&'static [&'static str]],
    /// The least number of imports among them; fewer mean that the search failed.
    imports: usize,
}

const FLOORS: [Floors; 3] = [
    Floors {
        krate: "ext4",
        floors: &[
            &["error", "types", "geometry", "content", "verified"],
            &["durability"],
            &["state"],
            &["volume"],
            &["space"],
            &["quota"],
            &["inode", "xattr"],
            &["data"],
            &["names"],
            &["fs"],
            &["ops"],
            &["mount"],
        ],
        imports: 300,
    },
    Floors {
        krate: "journal",
        floors: &[
            &["ids", "error", "canary", "damage", "stats", "head"],
            &["policy", "edges", "gate", "limits", "tx"],
            &["engine::config"],
            &["engine::base"],
            &[
                "engine::flush_clock",
                "engine::validity",
                "engine::record_state",
                "engine::syncs",
            ],
            &["engine::log_space", "engine::lanes"],
            &["engine::in_flight", "engine::spread"],
            &["engine"],
            &["handle"],
            &["journal", "records"],
        ],
        imports: 100,
    },
    Floors {
        krate: "fuse",
        floors: &[
            &["api"],
            &["system"],
            &["wire"],
            &["transport"],
            &["mount"],
            &["helper"],
            &["dispatch"],
            &["requests"],
            &["session"],
            &["server"],
        ],
        imports: 100,
    },
];

impl Floors {
    fn of(&self, module: &str) -> Option<usize> {
        let len = |name: &&str| match module.strip_prefix(name) {
            Some(rest) if rest.is_empty() || rest.starts_with("::") => Some(name.len()),
            _ => None,
        };
        let longest = |names: &&[&str]| names.iter().filter_map(len).max();
        let floors = self.floors.iter().enumerate();
        let matching = floors.filter_map(|(floor, names)| Some((longest(names)?, floor)));
        matching.max().map(|(_, floor)| floor)
    }
}

/// Inside these crates a module imports and calls only modules on its own floor or below.
#[test]
fn the_floors_inside_crates_hold() {
    for crates in &FLOORS {
        let src = root().join("crates").join(crates.krate).join("src");
        let modules = modules::Modules::read(&src);
        let (mut upwards, mut seen) = (BTreeSet::new(), 0);
        for (from, all) in modules.imports().into_iter().chain(modules.calls()) {
            for to in all {
                let floors = crates.of(&from).zip(crates.of(&to));
                seen += usize::from(floors.is_some());
                if floors.is_some_and(|(from, to)| to > from) {
                    upwards.insert((from.clone(), to));
                }
            }
        }
        let krate = crates.krate;
        assert!(
            seen > crates.imports,
            "{krate}: the imports were found, not {seen}"
        );
        assert!(
            upwards.is_empty(),
            "{krate}: these import or call upwards: {upwards:#?}"
        );
    }
}

/// A type whose methods are in several folders calls them downwards: no folders of a crate call
/// each other's methods of `self` in a circle.
#[test]
fn folders_call_downwards() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        let path = entry.unwrap().path();
        let modules = modules::Modules::read(&path.join("src"));
        let mut folders = modules::Edges::new();
        for (from, all) in modules.calls() {
            let from = modules.folder(&from);
            for to in &all {
                let to = modules.folder(to);
                seen += 1;
                // A folder and one inside it have one subject.
                let is_inside = |a: &str, b: &str| format!("{a}::").starts_with(&format!("{b}::"));
                if !is_inside(to, from) && !is_inside(from, to) {
                    folders.entry(from.into()).or_default().insert(to.into());
                }
            }
        }
        let circles = modules::circles(&folders);
        wrong.extend(circles.into_iter().map(|circle| (path.clone(), circle)));
    }
    assert!(seen > 300, "the calls were found, not {seen}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Operations of users are in `ops`; only opening, recovery and unmounting are in `mount`.
#[test]
fn the_facade_has_its_methods_in_ops_and_mount() {
    let src = "crates/ext4/src/";
    let mut sources = sources(&[src], ".rs");
    sources.retain(|source| source.lines.iter().any(|line| line == "impl Fs {"));
    let found = sources.len();
    let is_right = |folder: &str| folder.starts_with("ops/") || folder.starts_with("mount/");
    sources.retain(|source| !source.path.strip_prefix(src).is_some_and(is_right));
    let wrong: Vec<String> = sources.into_iter().map(|source| source.path).collect();
    assert!(found > 30, "the façade was found");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
