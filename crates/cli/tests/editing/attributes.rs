//! `chmod`, `chown`, `chgrp`, `touch`, `truncate`, `setfattr`, `getfattr`, `stat`, `df` and `ls`.

use super::Pair;
use crate::common::daemon::{fails, json, ok, stetfs};
use crate::files::{at, kernel};

const FILES: &str = "mkdir -p d/sub etc; echo one > d/a; echo two > d/sub/b; echo x > d/sub/x
    chmod 2775 d; chmod 640 d/a; chmod 755 d/sub/x; echo f > f; echo g > g
    ln -s d link-d; ln -s f link-f; ln -s nowhere dangling; ln -s ../f d/up; mkfifo pipe
    mknod null c 1 3; setfacl -m u:7:rw d/a; setfacl -d -m g:9:rwx d/sub
    setfattr -n user.n -v v d/a; cp /etc/passwd /etc/group etc; : > empty; : > .hidden
    dd if=/dev/zero of=big bs=1000 count=20 status=none";

#[test]
fn permissions_change_as_by_chmod() {
    let pair = Pair::new(FILES);
    pair.all(&[
        "chmod 600 @/f",
        "chmod 4755 @/f",
        "chmod 755 @/d",
        "chmod 00755 @/d",
        "chmod g+s,o+t @/d",
        "chmod =750 @/d",
        "chmod u+x,go-r @/g",
        "chmod -w @/g",
        "chmod +w @/g",
        "chmod u=g,o=u @/d/a",
        "chmod g=rwx @/d/a",
        "chmod -R u=rwX,go=rX @/d",
        "chmod -R 700 @/link-d",
        "chmod -R a+X @/f",
        "chmod 640 @/link-f",
        "chmod 600 @/dangling",
        "chmod 611 @/nope @/pipe @/g",
        "chmod -R g-w @/nope @/d",
        "chmod 9 @/f",
        "chmod u+y @/f",
        "chmod 444 @/null @/d/sub @/empty",
    ]);
}

#[test]
fn owners_change_as_by_chown() {
    let pair = Pair::new(FILES);
    pair.all(&[
        "chown 1:2 @/f",
        "chown :3 @/f",
        "chown 5 @/link-f",
        "chown -h 6:6 @/link-f",
        "chmod 6755 @/f",
        "chown 1 @/f",
        "chown -R 7:8 @/d",
        "chown -R 9 @/link-d",
        "chown root:daemon @/g",
        "chown daemon: @/g",
        "chown +3:+4 @/g",
        "chown no-such-user @/g",
        "chown 1:no-such-group @/g",
        "chown 1 @/nope @/empty",
        "chown 2 @/dangling",
        "chgrp 4 @/f @/d/a",
        "chgrp -R 5 @/d",
        "chgrp -h daemon @/link-f",
        "chgrp nogroup-here @/f",
    ]);
}

/// The names are those of the volume, whatever the host calls them.
#[test]
fn names_of_users_are_those_of_the_volume() {
    let script = "mkdir etc; printf 'root:x:0:0::/:\\nalice:x:4321:4322::/:\\ndaemon:x:77:77::/:\\n' \
        > etc/passwd; printf 'crew:x:900:\\n123:x:901:\\n' > etc/group; echo f > f";
    let pair = Pair::new(script);
    let file = at(&pair.ours, "/f");
    let ids = || ok(&["stat", "-c", "%u %g %U %G", &file]);
    for (command, owner, is) in [
        ("chown", "alice:crew", "4321 900 alice crew\n"),
        ("chown", "daemon", "77 900 daemon crew\n"),
        ("chown", "alice:", "4321 4322 alice UNKNOWN\n"),
        ("chgrp", "123", "4321 901 alice 123\n"),
        ("chgrp", "+123", "4321 123 alice UNKNOWN\n"),
    ] {
        ok(&[command, owner, &file]);
        assert_eq!(ids(), is, "{command} {owner}");
    }
    fails(
        &["chown", "bin", &file],
        1,
        &["no user \"bin\"", "/etc/passwd", "number"],
    );
    // Without the files there are numbers only.
    ok(&["rm", "-r", &at(&pair.ours, "/etc")]);
    ok(&["chown", "8:9", &file]);
    fails(&["chown", "root", &file], 1, &["no user \"root\""]);
    assert_eq!(ids(), "8 9 UNKNOWN UNKNOWN\n");
}

#[test]
fn times_change_as_by_touch() {
    // All times are set, as the clock would set different ones.
    let reset = "find . -exec touch -h -d @1000000000 {} +";
    let mut pair = Pair::new(&format!("{FILES}\n{reset}"));
    pair.times = true;
    for line in [
        "touch -d '2001-02-03 04:05:06.7' @/f",
        "touch -a -d 2002-03-04 @/f",
        "touch -m -d @1500000000.25 @/f",
        "touch -d '1969-12-31T23:59:58Z' @/g",
        "touch -d '2010-01-01T00:00:00+02:30' @/g",
        "touch -c @/nope",
        "touch -r @/f @/d/a",
        "touch -r /etc/passwd @/d/sub/b",
        "touch -t 200102030405.06 @/d/sub",
        "touch -h -d @5 @/link-f",
        "touch -d @7 @/nope/x @/empty",
        "touch -d '2000-13-01' @/f",
        "touch -h -d @5 @/nope",
        "touch -d @4000000000 @/d",
        "touch -d @20000000000 @/d",
    ] {
        pair.both(line);
        pair.compare(line);
    }
    // Following a link is a read of it.
    pair.two(
        "touch -d @6 @/link-f",
        "stetfs touch -o noatime -d @6 @/link-f",
    );
    pair.compare("a link that is followed");
    pair.times = false;
    pair.all(&[
        "touch @/made @/made2",
        "touch @/dangling",
        "touch -c @/not-made @/f",
    ]);
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    let made: u64 = ok(&["stat", "-c", "%Y", &at(&pair.ours, "/made")])
        .trim()
        .parse()
        .unwrap();
    assert!(now.as_secs().abs_diff(made) < 60);
}

#[test]
fn sizes_change_as_by_truncate() {
    let pair = Pair::new(FILES);
    pair.all(&[
        "truncate -s 100 @/f",
        "truncate -s +50 @/f",
        "truncate -s -20 @/f",
        "truncate -s %4K @/f",
        "truncate -s /3000 @/f",
        "truncate -s '<10' @/f",
        "truncate -s '>2KB' @/f",
        "truncate -c -s 5 @/nope",
        "truncate -s 5 @/made @/nope/x @/g",
        "truncate -r @/f @/g",
        "truncate -r @/f -s +1 @/g",
        "truncate -r @/f -s 1 @/g",
        "truncate -s 10 @/d",
        "truncate -s 1M @/empty",
        "truncate -s 1X @/f",
        "truncate -s 0 @/big",
        "truncate -s 99E @/big",
    ]);
}

#[test]
fn attributes_are_those_of_attr() {
    let pair = Pair::new(FILES);
    pair.all(&[
        "setfattr -n user.x -v y @/f",
        "setfattr -n user.x -v 0x00ff @/f @/g",
        "setfattr -n user.y -v 0sAAEC @/link-f",
        "setfattr -n user.z @/f",
        "setfattr -n trusted.t -v t -h @/link-f",
        "setfattr -n user.x -v y -h @/link-f",
        "setfattr -n bogus.x -v y @/f",
        "setfattr -n user.p -v y @/pipe",
        "setfattr -x user.x @/g",
        "setfattr -x user.x @/g",
        "setfattr -n user.q -v 'a\\101\\\\' @/g",
        "setfattr -n user.r -v x @/nope @/d",
    ]);
    pair.print(&[
        "getfattr --absolute-names @/f",
        "getfattr --absolute-names -d @/f @/g @/d/a",
        "getfattr --absolute-names -d -m - @/d/a @/link-f",
        "getfattr --absolute-names -d -m ^user\\\\. -e hex @/f",
        "getfattr --absolute-names -n user.q -e text @/g",
        "getfattr --absolute-names -n user.x -e base64 @/f",
        "getfattr --absolute-names -n trusted.t -h @/link-f",
        "getfattr --absolute-names --only-values -n user.q @/g",
        "getfattr --absolute-names -R -d -m - @/d/sub",
    ]);
    pair.both("getfattr -n user.none @/f");
    pair.both("getfattr -d @/nope");
    let said = json(&["getfattr", "-d", &at(&pair.ours, "/g")]);
    assert_eq!(said["files"][0]["attributes"][0]["name"], "user.q");
    assert_eq!(said["files"][0]["attributes"][0]["value"], "aA\\");
}

#[test]
fn files_are_described_as_by_stat_and_listed_as_by_ls() {
    let pair = Pair::new(FILES);
    let files = "@/f @/d @/link-f @/pipe @/null @/empty @/d/a @/big @/dangling";
    pair.print(&[
        &format!("stat -c '%a %A %b %B %f %F %g %h %i %n %N %o %s %t %T %u %%' {files}"),
        &format!("stat -c '%U %G %X %x %Y %y %Z %z' {files}"),
        "stat -c '%W %w' @/f",
        "stat -L -c '%n %s %F' @/link-f @/link-d",
        "stat -c %s @/f @/nope @/g",
        "ls @/",
        "ls -a @/",
        "ls -A @/d",
        "ls -1 @/",
        "ls -d @/d @/f",
        "ls -R @/d",
        "ls -R @/d @/etc",
        "ls @/link-d",
    ]);
    pair.both("stat -L @/dangling");
    let whole = ok(&["stat", &at(&pair.ours, "/link-f")]);
    assert!(whole.contains("File: /link-f -> f\n"), "{whole}");
    assert!(whole.contains("Uid: (    0/    root)"), "{whole}");
    let said = json(&["stat", &at(&pair.ours, "/d/a")]);
    assert_eq!(said["entries"][0]["mode"], "0660");
    assert_eq!(said["entries"][0]["user"], "root");
    let long = ok(&["ls", "-lh", &at(&pair.ours, "/big")]);
    assert!(
        long.contains(" 20K ") && long.ends_with(" /big\n"),
        "{long}"
    );
    fails(
        &["stat", "-c", "%q", &at(&pair.ours, "/f")],
        1,
        &["%q", "known are"],
    );
    fails(&["stat", "-c", "%a", "/tmp"], 1, &["IMAGE:/PATH"]);
}

#[test]
fn space_is_that_of_the_kernel() {
    let pair = Pair::new(FILES);
    let image = pair.ours.path().to_str().unwrap();
    let said = json(&["df", image]);
    let mounted = kernel(&pair.ours);
    let fs = rustix::fs::statvfs(mounted.path()).unwrap();
    mounted.umount().unwrap();
    let of = &said["volumes"][0];
    assert_eq!(of["total"], fs.f_blocks * fs.f_frsize);
    assert_eq!(of["free"], fs.f_bfree * fs.f_frsize);
    assert_eq!(of["available"], fs.f_bavail * fs.f_frsize);
    assert_eq!(of["inodes"], fs.f_files);
    assert_eq!(of["inodes_free"], fs.f_ffree);
    // The lines are those of df(1) but for its first and last column.
    for option in ["-k", "-h", "-i"] {
        let theirs = std::process::Command::new("df")
            .arg(option)
            .arg(pair.root())
            .output()
            .unwrap();
        let theirs = String::from_utf8(theirs.stdout).unwrap();
        let numbers = |text: &str| -> Vec<String> {
            let line = text.lines().last().unwrap().split_whitespace();
            line.skip(1).take(4).map(Into::into).collect()
        };
        let ours = match option {
            "-k" => ok(&["df", image]),
            option => ok(&["df", option, image]),
        };
        assert_eq!(numbers(&ours), numbers(&theirs), "{option}: {ours}");
    }
    let out = stetfs(&["df", "/no/such/image", image]);
    assert_eq!(out.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&out.stdout).contains(image));
}
