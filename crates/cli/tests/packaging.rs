//! Tests of the files that a package installs beside the program: they are complete, and match the
//! program.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::daemon::{BINARY, Daemon, json, ok};
use crate::common::manual;
use serde_json::Value;
use stetfs_testkit::{Scratch, cmd};

fn contrib(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../contrib")
        .join(name)
}

/// Every command has a page, including its subcommands, that man(1) formats at 80 columns without
/// warnings.
#[test]
fn manual_pages_are_made_for_every_command() {
    let scratch = Scratch::new("man").unwrap();
    let dir = scratch.path().join("share/man1");
    ok(&["man", dir.to_str().unwrap()]);
    manual::all_are_listed(&dir);
    for (name, words) in [
        ("stetfs.1", ["stetfs-mount(1)", "Exit codes"]),
        (
            "stetfs-mount.1",
            ["\n              lazytime, nolazytime\n", "foreground"],
        ),
        ("stetfs-umount.1", ["lazy", "clean"]),
        ("stetfs-recover.1", ["VOLUME", "json"]),
        ("stetfs-dump.1", ["STETFS DUMP JOURNAL", "VOLUME"]),
        ("stetfs-completions.1", ["bash", "zsh"]),
    ] {
        manual::has(&dir.join(name), &words);
    }
    // The laboratory's commands are listed; its own program makes their pages.
    manual::has(&dir.join("stetfs.1"), &["stetfs-crash(1)", "stetfs-lab"]);
    assert!(!dir.join("stetfs-crash.1").exists());
    let said = json(&["man", dir.to_str().unwrap()]);
    assert_eq!(said["dir"].as_str(), dir.to_str());
    crate::common::daemon::fails(&["man", "/dev/null/x"], 1, &["cannot write"]);
}

/// bash accepts the completion script, and completes with it.
#[test]
fn completions_complete() {
    let scratch = Scratch::new("complete").unwrap();
    let path = scratch.path().join("stetfs.bash");
    std::fs::write(&path, ok(&["completions", "bash"])).unwrap();
    let complete = "source \"$1\"; COMP_WORDS=(stetfs um); COMP_CWORD=1; \
        _stetfs stetfs um stetfs; echo \"${COMPREPLY[@]}\"";
    let mut bash = Command::new("bash");
    bash.args(["-euc", complete, "bash"]).arg(&path);
    assert_eq!(cmd::run(&mut bash).unwrap().trim(), "umount");
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        assert!(ok(&["completions", shell]).contains("recover"), "{shell}");
    }
    assert!(
        json(&["completions", "fish"])["script"]
            .as_str()
            .unwrap()
            .contains("umount")
    );
    crate::common::daemon::fails(&["completions", "csh"], 1, &["csh", "bash"]);
}

/// The value of `key=` in a unit.
fn value<'a>(unit: &'a str, key: &str) -> &'a str {
    let line = unit
        .lines()
        .find_map(|l| l.strip_prefix(key)?.strip_prefix('='));
    line.unwrap_or_else(|| panic!("no {key} in the unit"))
}

/// The text of a unit that systemd accepts.
fn unit(name: &str) -> String {
    let unit = contrib(name);
    let mut verify = Command::new("systemd-analyze");
    // The pages are not installed here.
    verify.args(["verify", "--man=no"]).arg(&unit);
    let out = cmd::output(&mut verify).unwrap();
    assert!(out.status.success(), "{}", cmd::said(&out));
    let said = cmd::said(&out);
    assert!(!said.contains(&format!("{name}:")), "{said}");
    std::fs::read_to_string(unit).unwrap()
}

#[test]
fn the_mount_unit_is_one_and_its_options_are_ours() {
    let text = unit("mnt-data.mount");
    assert_eq!(value(&text, "Type"), "fuse.stetfs");
    mounts_with(value(&text, "Options"));
}

/// The timer's service writes the metrics completely, and the dashboard uses none that are missing
/// there.
#[test]
fn the_numbers_that_the_dashboard_shows_are_those_that_the_timer_writes() {
    assert!(unit("stetfs-metrics.timer").contains("OnUnitActiveSec="));
    let service = unit("stetfs-metrics.service");
    let script = value(&service, "ExecStart").strip_prefix("/bin/sh -c '");
    let script = script.and_then(|s| s.strip_suffix('\'')).unwrap();
    let (d, scratch) = (Daemon::new(""), Scratch::new("metrics").unwrap());
    // Requests are counted by kind, and a kind appears with its first request.
    std::fs::write(d.file("file"), "content").unwrap();
    let programs = Path::new(BINARY).parent().unwrap();
    let mut run = Command::new("/bin/sh");
    run.args(["-c", script])
        .env("DIR", scratch.path())
        .env("PATH", format!("{}:/usr/bin:/bin", programs.display()));
    assert_eq!(cmd::run(&mut run).unwrap(), "");
    let names = |path: &Path| {
        let mut names = path.read_dir().unwrap().map(|e| e.unwrap().file_name());
        (names.next().unwrap(), names.next())
    };
    assert_eq!(names(scratch.path()), ("stetfs.prom".into(), None));
    let numbers = std::fs::read_to_string(scratch.path().join("stetfs.prom")).unwrap();
    let dir = d.dir.canonicalize().unwrap();
    assert!(numbers.contains(&format!("mountpoint=\"{}\"", dir.display())));

    let dashboard = std::fs::read_to_string(contrib("grafana-stetfs.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let mut asked = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let expr = target["expr"].as_str().unwrap();
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let words = expr.split(|c| !is_name(c));
            for name in words.filter(|word| word.starts_with("stetfs_")) {
                let sample = format!("\n{name}{{");
                assert!(numbers.contains(&sample), "{name} of {expr}");
                asked += 1;
            }
        }
    }
    assert!(asked > 20, "{asked}");
    ok(&["umount", d.dir()]);
}

/// findmnt accepts every line, and its options mount.
#[test]
fn the_fstab_lines_mount() {
    let text = std::fs::read_to_string(contrib("fstab")).unwrap();
    let lines = text.lines().filter(|l| !l.starts_with('#'));
    let mut count = 0;
    for line in lines {
        let fields: Vec<&str> = line.split_whitespace().collect();
        assert_eq!((fields.len(), fields[2]), (6, "fuse.stetfs"), "{line}");
        mounts_with(fields[3]);
        count += 1;
    }
    let mut findmnt = Command::new("findmnt");
    findmnt
        .args(["-n", "-o", "TARGET", "--tab-file"])
        .arg(contrib("fstab"));
    assert_eq!(cmd::run(&mut findmnt).unwrap().lines().count(), count);
}

fn mounts_with(options: &str) {
    let mount = Daemon::new(options);
    ok(&["umount", mount.dir()]);
    mount.image.e2fsck_fn().unwrap();
}

/// The version names the commit: the first question about a report.
#[test]
fn the_version_names_the_commit() {
    let head = Command::new("git")
        .args(["log", "-1", "--format=%h", "--abbrev=12"])
        .output()
        .unwrap();
    let head = String::from_utf8(head.stdout).unwrap();
    let said = ok(&["--version"]);
    let version = concat!("stetfs ", env!("CARGO_PKG_VERSION"));
    assert!(said.starts_with(version), "{said}");
    assert!(said.contains(head.trim()), "{said}");
}

/// Runs `scripts/sbom` after `before`, Python statements that see it as `m`.
fn sbom(before: &str) -> (bool, String, String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let load = "import importlib.machinery as i, importlib.util as u, sys
sys.dont_write_bytecode = True
loader = i.SourceFileLoader('sbom', 'scripts/sbom')
m = u.module_from_spec(u.spec_from_loader('sbom', loader))
loader.exec_module(m)";
    let program = format!("{load}\n{before}\nsys.exit(m.main([]))");
    let mut python = Command::new("python3");
    python.args(["-c", &program]).current_dir(root);
    let out = python.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (out.status.success(), text(out.stdout), text(out.stderr))
}

/// Every crate of `cargo tree` is in the bill of materials, with its version and its licence.
#[test]
fn the_bill_of_materials_is_whole() {
    let (made, text, said) = sbom("");
    assert!(made, "{said}");
    let bill: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&bill["bomFormat"], &bill["specVersion"]),
        (&"CycloneDX".into(), &"1.5".into())
    );
    let components = bill["components"].as_array().unwrap();
    let has = |name: &str, version: &str| {
        let is = |c: &&Value| c["name"] == name && c["version"] == version;
        let found = components.iter().find(is);
        let licence = found.and_then(|c| c["licenses"][0]["expression"].as_str());
        licence.is_some_and(|l| !l.is_empty() && !l.contains('/'))
    };
    let mut tree = Command::new(env!("CARGO"));
    tree.args(["tree", "-q", "--locked", "-p", "stetfs-cli", "-e", "normal"]);
    tree.args(["--prefix", "none", "--no-dedupe"]);
    let tree = cmd::run(&mut tree).unwrap();
    let mut seen = 0;
    for line in tree.lines().skip(1) {
        let mut words = line.split_whitespace();
        let (name, version) = (words.next().unwrap(), words.next().unwrap());
        assert!(
            has(name, version.trim_start_matches('v')),
            "{line} is not in it"
        );
        seen += 1;
    }
    assert!(seen > 100, "cargo tree shows {seen}");
    // Components that are not crates.
    for name in ["zstd", "mimalloc", "std"] {
        assert!(components.iter().any(|c| c["name"] == name), "{name}");
    }
    let scope = |name: &str| {
        let found = components.iter().find(|c| c["name"] == name);
        found.unwrap()["scope"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        (scope("libc"), scope("serde_derive")),
        ("required".into(), "excluded".into())
    );
    let known = |r: &Value| {
        *r == bill["metadata"]["component"]["bom-ref"]
            || components.iter().any(|c| c["bom-ref"] == *r)
    };
    for dependency in bill["dependencies"].as_array().unwrap() {
        assert!(known(&dependency["ref"]), "{dependency}");
        assert!(
            dependency["dependsOn"]
                .as_array()
                .unwrap()
                .iter()
                .all(known),
            "{dependency}"
        );
    }
}

#[test]
fn licences_that_are_not_on_the_list_are_told() {
    let (made, text, said) = sbom("m.ALLOWED.discard('Zlib')");
    assert!(!made && text.is_empty());
    assert!(
        said.contains("is under Zlib, which is not on the list"),
        "{said}"
    );
    let (made, _, said) = sbom("m.NATIVE.pop('zstd-sys')");
    assert!(!made && said.contains("zstd-sys"), "{said}");
    for (licence, allowed) in [
        ("MIT", true),
        ("MIT/Apache-2.0", true),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("GPL-3.0-only OR MIT", true),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("GPL-3.0-only", false),
        ("MIT AND GPL-3.0-only", false),
        (
            "(MIT OR GPL-3.0-only) AND (GPL-2.0-only OR AGPL-3.0-only)",
            false,
        ),
        ("MIT WITH LLVM-exception", false),
        ("MIT OR", false),
        ("(MIT", false),
        ("MIT MIT", false),
        ("", false),
    ] {
        let check = format!(
            "sys.exit(m.is_allowed({licence:?}) != {})",
            if allowed { "True" } else { "False" }
        );
        let (as_wanted, _, said) = sbom(&check);
        assert!(as_wanted, "{licence}: {said}");
    }
}
