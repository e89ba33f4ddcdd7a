//! What a package installs beside the program is whole, and is what the program does.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::daemon::{BINARY, Daemon, json, ok};
use serde_json::Value;
use stetfs_testkit::{Scratch, cmd};

fn contrib(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../contrib")
        .join(name)
}

/// Every command has a page, with all that is below it, that man(1) formats at 80 columns without
/// complaint.
#[test]
fn manual_pages_are_made_for_every_command() {
    let scratch = Scratch::new("man").unwrap();
    let dir = scratch.path().join("share/man1");
    ok(&["man", dir.to_str().unwrap()]);
    let page = |path: &Path| {
        let mut man = Command::new("man");
        man.args(["--warnings", "-l"])
            .arg(path)
            .env("MANWIDTH", "80");
        let out = cmd::output(&mut man).unwrap();
        assert!(
            out.status.success() && out.stderr.is_empty(),
            "{}: {}",
            path.display(),
            cmd::said(&out)
        );
        String::from_utf8_lossy(&out.stdout).replace('\u{2010}', "-")
    };
    let main = page(&dir.join("stetfs.1"));
    for found in dir.read_dir().unwrap() {
        let name = found.unwrap().file_name().into_string().unwrap();
        let text = page(&dir.join(&name));
        assert!(!name.contains("help"), "{name}");
        let name = name.replace(".1", "(1)");
        assert!(name == "stetfs(1)" || main.contains(&name), "{name}");
        let wide = text.lines().find(|line| line.chars().count() > 80);
        assert_eq!(wide, None, "{name}");
    }
    for (name, words) in [
        ("stetfs.1", ["stetfs-mount(1)", "Exit codes"]),
        (
            "stetfs-mount.1",
            ["\n              lazytime\n", "foreground"],
        ),
        ("stetfs-umount.1", ["lazy", "clean"]),
        ("stetfs-recover.1", ["VOLUME", "json"]),
        ("stetfs-dump.1", ["STETFS DUMP JOURNAL", "VOLUME"]),
        ("stetfs-crash.1", ["STETFS CRASH RUN", "workload"]),
        ("stetfs-device.1", ["STETFS DEVICE SERVE", "model"]),
        ("stetfs-completions.1", ["bash", "zsh"]),
    ] {
        let text = page(&dir.join(name));
        for word in words {
            assert!(text.contains(word), "{word:?} is not in {name}:\n{text}");
        }
    }
    let said = json(&["man", dir.to_str().unwrap()]);
    assert_eq!(said["dir"].as_str(), dir.to_str());
    crate::common::daemon::fails(&["man", "/dev/null/x"], 1, &["cannot write"]);
}

/// bash takes the completions, and completes with them.
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

/// The text of a unit to which systemd has no objection.
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

/// What the timer's service runs writes the numbers whole, and the dashboard asks for none that are
/// not among them.
#[test]
fn the_numbers_that_the_dashboard_shows_are_those_that_the_timer_writes() {
    assert!(unit("stetfs-metrics.timer").contains("OnUnitActiveSec="));
    let service = unit("stetfs-metrics.service");
    let script = value(&service, "ExecStart").strip_prefix("/bin/sh -c '");
    let script = script.and_then(|s| s.strip_suffix('\'')).unwrap();
    let (d, scratch) = (Daemon::new(""), Scratch::new("metrics").unwrap());
    // Requests are counted by kind, those that came.
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

/// Every line is one to findmnt, and its options mount.
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

/// Which commit it is, is asked first of all by who gets a report.
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

/// `scripts/sbom`, run after `before`, statements of Python that have it as `m`.
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

/// Every crate of `cargo tree` is in the bill, with its version and its licence.
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
    // What no crate is.
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

/// In a copy of this machine: lower layer of an overlay, of which nothing is left afterwards.
const IN_A_COPY: &str = r#"
D=$1; T=$2
mount -t tmpfs tmpfs "$T"
mkdir "$T/upper" "$T/work" "$T/root"
mount -t overlay -o "lowerdir=/,upperdir=$T/upper,workdir=$T/work" overlay "$T/root"
for dir in dev proc sys; do mount --rbind "/$dir" "$T/root/$dir"; done
mount -t tmpfs tmpfs "$T/root/tmp"
cp "$D"/*.deb "$T/root/tmp"
cat >"$T/root/tmp/use" <<'END'
set -eux
cd /tmp
dpkg -i stetfs_*.deb stetfs-dbgsym_*.deb
stetfs --version
grep -q CycloneDX /usr/share/doc/stetfs/stetfs.cdx.json
man -w stetfs stetfs-mount mount.fuse.stetfs
readelf -S /usr/bin/stetfs | grep -q debug_line && exit 9
mke2fs -q -t ext4 disk.img 32M
mkdir data
echo "/tmp/disk.img /tmp/data fuse.stetfs journal=ldj,noauto 0 0" >>/etc/fstab
mount /tmp/data
echo text >data/file
mount -o remount,ro /tmp/data
umount /tmp/data
test "$(stetfs cat disk.img:/file)" = text
e2fsck -fn disk.img
dpkg -r stetfs-dbgsym stetfs
dpkg -P stetfs
test -z "$(find /usr /etc -name '*stetfs*' -newer /tmp/use)"
END
exec chroot "$T/root" sh /tmp/use
"#;

#[test]
fn a_debian_package_is_installed_used_and_removed() {
    let scratch = Scratch::new("deb").unwrap();
    let (debs, copy) = (scratch.path().join("debs"), scratch.path().join("copy"));
    std::fs::create_dir(&copy).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/deb");
    let mut build = Command::new(script);
    build
        .args(["--binary", env!("CARGO_BIN_EXE_stetfs")])
        .arg(&debs)
        .env("DPKG_DEB_COMPRESSOR_TYPE", "gzip");
    cmd::run(&mut build).unwrap();
    let mut packages: Vec<PathBuf> = debs
        .read_dir()
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    packages.sort();
    assert_eq!(packages.len(), 2, "{packages:?}");
    let mut lintian = Command::new("lintian");
    lintian
        .args(["--allow-root", "--fail-on", "warning,error"])
        .args(&packages);
    cmd::run(&mut lintian).unwrap();
    let mut install = Command::new("unshare");
    install
        .args(["-m", "sh", "-euc", IN_A_COPY, "sh"])
        .args([&debs, &copy]);
    cmd::run(&mut install).unwrap();
}
