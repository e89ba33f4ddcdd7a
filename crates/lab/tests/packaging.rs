//! Tests of the packages: both programs, with their manual pages.

use std::path::{Path, PathBuf};
use std::process::Command;

use stetfs_testkit::{Scratch, cmd};

use crate::common::daemon::{BINARY, ok};
use crate::common::manual;

/// The server's program, where cargo puts it: beside the laboratory's. Tests of `crates/cli` build
/// it, and `./test lab`.
fn server() -> PathBuf {
    let server = Path::new(BINARY).with_file_name("stetfs");
    let built = Command::new(&server).arg("--version").output();
    let built = built.map(|said| String::from_utf8(said.stdout).unwrap());
    let built = built.unwrap_or_else(|e| e.to_string());
    let hint = format!("cargo build -p stetfs-cli makes {}", server.display());
    assert_eq!(built, ok(&["--version"]), "{hint}");
    server
}

/// The laboratory's program has pages of all commands.
#[test]
fn manual_pages_are_made_for_every_command() {
    let scratch = Scratch::new("man").unwrap();
    ok(&["man", scratch.path().to_str().unwrap()]);
    manual::all_are_listed(scratch.path());
    for (name, words) in [
        ("stetfs.1", ["stetfs-mount(1)", "stetfs-certify(1)"]),
        ("stetfs-crash.1", ["STETFS CRASH RUN", "workload"]),
        ("stetfs-device.1", ["STETFS DEVICE SERVE", "model"]),
    ] {
        manual::has(&scratch.path().join(name), &words);
    }
}

/// The shell completes the arguments of the laboratory's commands.
#[test]
fn completions_have_the_commands_of_the_laboratory() {
    let complete = "source /dev/stdin; COMP_WORDS=(stetfs crash run --workl); COMP_CWORD=3; \
        _stetfs stetfs --workl run; echo \"${COMPREPLY[@]}\"";
    let script = format!("\"$0\" completions bash | {{ {complete}; }}");
    let mut bash = Command::new("bash");
    bash.args(["-euc", &script, BINARY]);
    assert_eq!(cmd::run(&mut bash).unwrap().trim(), "--workload");
}

/// Runs in a copy of this machine's files: an overlay that leaves no trace.
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
stetfs crash --help 2>said && exit 9 || test $? = 2
grep -q "install the package stetfs-lab" said
dpkg -i stetfs-lab_*.deb stetfs-lab-dbgsym_*.deb
stetfs crash run --journal ldj --workload smoke --seconds 1
grep -q CycloneDX /usr/share/doc/stetfs/stetfs.cdx.json
grep -q CycloneDX /usr/share/doc/stetfs-lab/stetfs-lab.cdx.json
man -w stetfs stetfs-mount mount.fuse.stetfs stetfs-crash stetfs-lab
for program in stetfs stetfs-lab; do
    readelf -S /usr/bin/$program | grep -q debug_line && exit 9
done
mke2fs -q -t ext4 disk.img 32M
mkdir data
echo "/tmp/disk.img /tmp/data fuse.stetfs journal=ldj,noauto 0 0" >>/etc/fstab
mount /tmp/data
echo text >data/file
mount -o remount,ro /tmp/data
umount /tmp/data
test "$(stetfs cat disk.img:/file)" = text
e2fsck -fn disk.img
dpkg -r stetfs-dbgsym stetfs-lab-dbgsym stetfs-lab stetfs
dpkg -P stetfs-lab stetfs
test -z "$(find /usr /etc -name '*stetfs*' -newer /tmp/use)"
END
exec chroot "$T/root" sh /tmp/use
"#;

#[test]
fn debian_packages_are_installed_used_and_removed() {
    let scratch = Scratch::new("deb").unwrap();
    let (debs, copy) = (scratch.path().join("debs"), scratch.path().join("copy"));
    std::fs::create_dir(&copy).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/deb");
    let mut build = Command::new(script);
    build
        .arg("--programs")
        .arg(server().parent().unwrap())
        .arg(&debs)
        .env("DPKG_DEB_COMPRESSOR_TYPE", "gzip");
    cmd::run(&mut build).unwrap();
    let mut packages: Vec<PathBuf> = debs
        .read_dir()
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    packages.sort();
    assert_eq!(packages.len(), 4, "{packages:?}");
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
