//! Tests of StetFS as part of a system: through mount(8) and fstab, and by users without root.
//!
//! Each test is a shell script, as an administrator or user would type it, in a mount namespace of
//! its own: its files in `/sbin` and `/dev` are invisible elsewhere, and its mounts end with it.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::common::daemon::BINARY;
use stetfs_testkit::{Image, Mkfs, Scratch, cmd};

/// `fails CODE WORD COMMAND…`: the command exits with the code, and prints the word.
const FUNCTIONS: &str = r#"
set -eu
fails() {
    code=$1 word=$2; shift 2
    set +e; said=$("$@" 2>&1); got=$?; set -e
    case "$got:$said" in
        "$code:"*"$word"*) ;;
        *) echo "$*: wanted $code and '$word', got $got: $said" >&2; exit 99 ;;
    esac
}
not() { if "$@"; then echo "should not be: $*" >&2; exit 98; fi; }
"#;

/// Runs `script` in a mount namespace of its own. `$S` is the program, `$I` an image, `$M` a
/// directory to mount on, `$T` a working directory; everybody may use them.
fn script(prepare: &str, script: &str) {
    let image = Image::make(64 << 20, &Mkfs::new()).unwrap();
    let scratch = Scratch::new("system").unwrap();
    let dir = scratch.path();
    let everyone = |path: &Path| {
        let mode = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(path, mode).unwrap();
    };
    everyone(dir);
    // The build directory may be closed to others.
    let program = dir.join("stetfs");
    std::fs::copy(BINARY, &program).unwrap();
    let here = dir.join("image");
    std::fs::copy(image.path(), &here).unwrap();
    let mount = dir.join("mount point");
    std::fs::create_dir(&mount).unwrap();
    for path in [&program, &here, &mount] {
        everyone(path);
    }
    std::fs::write(dir.join("script"), format!("{FUNCTIONS}{script}")).unwrap();
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "sh", "-c"])
        .arg(format!("{FUNCTIONS}{prepare}"))
        .env("S", &program)
        .env("I", &here)
        .env("M", &mount)
        .env("T", dir)
        .current_dir(dir);
    let out = cmd::output(&mut command).unwrap();
    assert!(out.status.success(), "{}: {}", out.status, cmd::said(&out));
    let mut fsck = Command::new("e2fsck");
    cmd::run(fsck.arg("-fn").arg(&here)).unwrap();
}

/// A `/sbin` with the helpers that docs/mounting.md says to install.
const WITH_HELPERS: &str = r#"
mkdir "$T/sbin"
sbin=$(readlink -f /sbin)
mount --bind "$sbin" "$T/sbin"
mount -t tmpfs tmpfs "$sbin"
ln -s "$T"/sbin/* "$sbin/"
ln -sf "$S" "$sbin/mount.fuse.stetfs"
ln -sf "$S" "$sbin/mount.fuseblk.stetfs"
sh "$T/script"
"#;

#[test]
fn an_fstab_line_mounts_remounts_and_unmounts() {
    script(
        WITH_HELPERS,
        r#"
point=$(printf %s "$M" | sed 's/ /\\040/g')
options=journal=data,noatime,nofail,_netdev,x-systemd.device-timeout=9
printf '%s\n' "$I $point fuse.stetfs $options 0 2" >fstab
mount -T fstab "$M"
[ "$(findmnt -no FSTYPE,OPTIONS "$M" | grep -c 'stetfs.*rw,noatime')" = 1 ]
echo kept >"$M/a"
"$S" stat "$M" | grep -q 'preset.*data'
# A second time is no error, and no second mount.
mount -T fstab -a
[ "$(findmnt -n "$M" | wc -l)" = 1 ]

mount -o remount,ro "$M"
fails 1 'Read-only' touch "$M/b"
e2fsck -fn "$I" >e2fsck.log 2>&1
not grep recover e2fsck.log
mount -o remount,rw,journal=writeback,commit=20 "$M"
"$S" stat "$M" | grep -q 'preset.*writeback'
touch "$M/b"
fails 1 'frobnicate' mount -o remount,frobnicate "$M"
fails 1 'frobnicate' mount -t fuse.stetfs -o frobnicate "$I" "$T"
umount "$M"
e2fsck -fn "$I"

# Read-only first, and writable later.
mount -T fstab -o ro "$M"
fails 1 'Read-only' touch "$M/c"
mount -o remount,rw "$M"
touch "$M/c"
exec 9<"$M/c"
fails 32 'busy' umount "$M"
umount -l "$M"
fails 4 'in use' "$S" info "$I"
exec 9<&-
# The server ends with the last user.
for _ in $(seq 100); do "$S" info "$I" >info.log 2>&1 && break; sleep 0.1; done
"$S" info "$I" | grep -q 'state.*clean'
"#,
    );
}

/// `/dev/fuse` as udev makes it everywhere, and a user who owns the image.
const AS_NOBODY: &str = r#"
mkdir -m 777 "$T/dev" "$T/run"
mount -t tmpfs -o mode=755 tmpfs "$T/dev"
mknod -m 666 "$T/dev/fuse" c 10 229
mount --bind "$T/dev/fuse" /dev/fuse
chown 65534:65534 "$I" "$M"
chmod 644 "$I"
HOME=$T XDG_RUNTIME_DIR=$T/run exec setpriv --reuid 65534 --regid 65534 --clear-groups sh "$T/script"
"#;

#[test]
fn a_user_is_root_in_his_volume() {
    script(
        AS_NOBODY,
        r#"
closed() { for _ in $(seq 100); do "$S" info "$I" >info.log 2>&1 && return; sleep 0.1; done; return 1; }
owner() { { "$S" ls -l "$I:/etc"; "$S" ls -l "$I:/"; } | grep " $1\$" | awk '{print $1, $3, $4}'; }
cd "$T"
"$S" mkdir --owner 0:0 "$I:/etc"
echo root >motd
"$S" cp --owner 0:0 motd "$I:/etc/motd"
"$S" cp --owner 65534:65534 motd "$I:/etc/his"
"$S" cp --owner 7:8 motd "$I:/etc/other"
fails 1 'does not go with allow_other' "$S" mount -o fakeroot,allow_other "$I" "$M"

"$S" mount -o fakeroot "$I" "$M"
"$S" --json stat "$M" | grep -q '"fakeroot"'
grep 'mount.040point fuse.stetfs' /proc/self/mounts >line
not grep -q default_permissions line
# Root's are his, his are root's, and others' are theirs.
[ "$(stat -c %u:%g "$M" "$M/etc/motd" "$M/etc/his" "$M/etc/other" | xargs)" = '65534:65534 65534:65534 0:0 7:8' ]
[ "$(ls -ln "$M/etc" | awk '/motd/ {print $3, $4}')" = '65534 65534' ]
echo more >>"$M/etc/motd"
echo new >"$M/etc/new"
chmod 0 "$M/etc/new"
[ "$(cat "$M/etc/new")" = new ]
echo x >"$M/etc/given"
chown 33:34 "$M/etc/given"
echo y >>"$M/etc/given"
chown 65534:65534 "$M/etc/other"
echo z >"$M/etc/to"
chown 0:0 "$M/etc/to"
mkdir "$M/dir"
ln -s motd "$M/etc/link"
chmod 4755 "$M/etc/motd"
# By a listing as by a look.
[ "$(find "$M/etc" -name given -printf '%U:%G')" = 33:34 ]
"$S" umount "$M"
closed
e2fsck -fn "$I"
[ "$(owner motd | tail -c 4)" = '0 0' ]
owner motd | grep -q '^-rws'
[ "$(owner new)" = '---------- 0 0' ] || { owner new; exit 3; }
owner given | grep -q ' 33 34$'
owner other | grep -q ' 0 0$'
owner his | grep -q ' 65534 65534$'
owner to | grep -q ' 65534 65534$'
owner dir | grep -q ' 0 0$'
"#,
    );
}

#[test]
fn users_mount_their_images_without_root() {
    script(
        AS_NOBODY,
        r#"
mounted() { grep -q " $M fuse.stetfs " /proc/self/mounts; }
# The mount goes before its server does.
closed() { for _ in $(seq 100); do "$S" info "$I" >info.log 2>&1 && return; sleep 0.1; done; cat info.log; return 1; }
pid() { "$S" --json stat "$M" | sed 's/.*"pid"://; s/}//'; }

"$S" mount -o journal=data,noatime "$I" "$M"
grep -q 'fuse.stetfs rw,nosuid,nodev,noatime' /proc/self/mounts
# The root directory of the volume belongs to root, and permissions are checked.
fails 1 'Permission denied' touch "$M/a"
"$S" stat "$M" | grep -q 'preset.*data'
fails 4 'mounted already' "$S" mount "$I" "$M"
fails 1 'only root' "$S" mount -o remount,ro none "$M"
"$S" mount -o remount,journal=ordered,commit=30 none "$M"
"$S" stat "$M" | grep -q 'preset.*ordered'
exec 9<"$M"
fails 4 'busy' "$S" umount "$M"
exec 9<&-
"$S" umount "$M"
not mounted
"$S" info "$I" | grep -q 'state.*clean'

# In the foreground; fusermount3 ends it.
"$S" mount -f "$I" "$M" &
for _ in $(seq 100); do mounted && break; sleep 0.1; done
fusermount3 -u "$M"
wait $!

# Killed.
"$S" mount "$I" "$M"
kill -9 "$(pid)"
for _ in $(seq 100); do [ -d "$M" ] || break; sleep 0.1; done
fails 4 'server died' "$S" mount "$I" "$M"
fails 6 'was gone' "$S" umount "$M"
"$S" mount "$I" "$M"
kill -TERM "$(pid)"
for _ in $(seq 100); do mounted || break; sleep 0.1; done
not mounted
closed

fails 32 'write access' "$S" mount "$I" /
chmod 444 "$I"
"$S" mount "$I" "$M" 2>mount.log
grep -q 'WARNING: source write-protected, mounted read-only' mount.log
grep -q 'fuse.stetfs ro,' /proc/self/mounts
"$S" umount "$M"
"$S" recover "$I" | grep -q 'nothing to do'
"$S" mount -o ro "$I" "$M"
"$S" umount "$M"
chmod 644 "$I"
"#,
    );
}

/// Without XDG_RUNTIME_DIR the sockets are in a shared directory, where another user may have
/// created the name first.
#[test]
fn sockets_are_in_a_directory_of_the_users_own() {
    let prepare = r#"
mkdir -m 1777 "$T/tmp"
mkdir -m 755 "$T/tmp/stetfs-65534"
mkdir "$T/taken"
echo victim >"$T/taken/file"
chmod 755 "$T/taken/file"
chown -R 65534 "$T/taken"
"#;
    script(
        &format!("{prepare}{AS_NOBODY}"),
        r#"
unset XDG_RUNTIME_DIR
export TMPDIR="$T/tmp"
own="$TMPDIR/stetfs-65534"
"$S" mount "$I" "$M"
fails 3 'belongs to user 0' "$S" stat "$M"
"$S" umount "$M"

# The directory of another user's, with links to what is this user's, in a place that is not sticky.
export TMPDIR="$T"
own="$TMPDIR/stetfs-65534"
ln -s "$T/taken" "$own"
"$S" mount "$I" "$M"
fails 3 'is not a directory' "$S" stat "$M"
[ "$(ls "$T/taken")" = file ]
[ "$(stat -c %a "$T/taken/file")" = 755 ]
"$S" umount "$M"
rm "$own"

mkdir -m 777 "$own"
chmod 777 "$own"
"$S" mount "$I" "$M"
fails 3 'chmod 700' "$S" stat "$M"
[ -z "$(ls "$own")" ]
"$S" umount "$M"
chmod 700 "$own"

"$S" mount "$I" "$M"
"$S" stat "$M" | grep -q preset
[ "$(stat -c %a "$own"/*.sock)" = 600 ]
"$S" umount "$M"
# The log stays where there is no other.
[ "$(ls "$own")" = log ]
rm "$own/log"
rmdir "$own"
"$S" mount "$I" "$M"
[ "$(stat -c %a "$own")" = 700 ]
"$S" umount "$M"
"#,
    );
}

/// Another user neither sees a user's mount nor gets answers from its server; root does not see it
/// either.
#[test]
fn a_users_mount_is_his_alone() {
    let prepare = AS_NOBODY.replace("exec setpriv", "setpriv");
    let prepare = prepare.replace(r#"sh "$T/script""#, r#""$S" mount "$I" "$M""#);
    script(
        &format!(
            r#"{prepare}
as() {{ HOME=$T XDG_RUNTIME_DIR=$T/run setpriv --reuid "$1" --regid "$1" --clear-groups "$S" "$2" "$M"; }}
other() {{ setpriv --reuid 65533 --regid 65533 --clear-groups "$@"; }}
fails 2 'Permission denied' ls "$M/."
fails 2 'Permission denied' other ls "$M/."
fails 3 'does not answer' as 65533 stat
fails 32 '' as 65533 umount
as 65534 stat >/dev/null
as 65534 umount
"#
        ),
        "",
    );
}

#[test]
fn a_mount_by_root_is_not_for_others_to_take_down() {
    script(
        r#"
"$S" mount "$I" "$M"
fails 32 'only root' setpriv --reuid 65534 --regid 65534 --clear-groups "$S" umount "$M"
setpriv --reuid 65534 --regid 65534 --clear-groups stat -f "$M" >/dev/null
"$S" umount "$M"
"#,
        "",
    );
}
