//! Layers: archives with whiteouts, OCI layouts, directories over directories.

use std::fs;

use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use super::{Bench, capture};
use crate::common::assert_same;
use crate::common::daemon::{fails, ok};
use crate::files::text;

/// Three layers as directories, in `1`, `2` and `3`, a fourth archive with a second name of a file
/// of the first, and `expected`, in which tar(1) and rm(1) have put them together.
const LAYERS: &str = "
    mkdir -p 1/usr/lib/gone 1/opaque/sub 1/etc 2/etc 2/usr/lib 2/opaque 3/etc 3/usr/lib 3/opaque
    ln -s usr/lib 1/lib
    echo one > 1/usr/lib/one; echo keep > 1/usr/lib/keep; echo x > 1/usr/lib/gone/x
    echo old > 1/etc/conf; echo under > 1/opaque/under; echo under > 1/opaque/sub/under
    head -c 300000 /dev/urandom > 1/large; ln 1/large 1/etc/large-too
    echo ping > 1/ping; setcap cap_net_raw+ep 1/ping; chmod 4755 1/usr/lib/one
    setfattr -n user.note -v first 1/etc/conf; setfacl -m u:77:rwx 1/usr/lib/keep
    mkdir 1/dir; echo x > 1/dir/x; echo x > 1/file
    truncate -s 3M 1/sparse; echo end >> 1/sparse
    mknod 1/null c 1 3; mkfifo 1/pipe; chown -R 5:6 1/opaque

    touch 2/usr/lib/.wh.gone 2/usr/lib/.wh.none 2/opaque/.wh..wh..opq
    echo second > 2/opaque/second; echo new > 2/etc/conf; chown 7:8 2/etc/conf
    setfattr -n user.note -v second 2/etc/conf
    echo dir > 2/dir; mkdir 2/file; echo y > 2/file/y

    touch 3/.wh.sparse; echo third > 3/usr/lib/one
    echo again > 3/usr/lib/gone; chmod 700 3/opaque

    find 1 2 3 -exec touch -h -d @1000000000.5 {} +
    for n in 1 2 3; do
        tar --format=posix --xattrs --xattrs-include='*' --acls -C $n -cf $n.tar .
    done
    mkdir 4; cp -a 1/large 4/large; ln 4/large 4/linked
    touch -d @1000000000.5 4
    tar --format=posix --no-recursion -C 4 -cf 4.tar . ./large ./linked; tar --delete -f 4.tar ./large
    mkdir expected; put='tar --xattrs --xattrs-include=* --acls --numeric-owner -C expected -xpf'
    $put 1.tar
    rm -r expected/usr/lib/gone expected/opaque/* expected/dir expected/file; $put 2.tar
    rm expected/sparse; $put 3.tar; $put 4.tar
    find expected -name '.wh.*' -delete
    find expected -type d -exec touch -h -d @1000000000.5 {} +";

fn bench() -> Bench {
    let bench = Bench::new("layers");
    bench.shell(LAYERS);
    bench
}

#[test]
fn archives_are_layers_and_their_whiteouts_remove_what_lower_ones_have() {
    let bench = bench();
    bench.shell("gzip -k 2.tar; zstd -q 3.tar");
    let expected = capture(&bench.path("expected"));
    assert!(
        expected.entries["ping"]
            .xattrs
            .contains_key("security.capability")
    );
    assert_eq!(expected.entries["linked"].nlink, 3);
    bench.build(&[
        "--from",
        "@1.tar",
        "@2.tar.gz",
        "--from",
        "@3.tar.zst",
        "@4.tar",
    ]);
    assert_same("archives", &expected, &bench.seen());
}

/// A blob of a layout; returns its descriptor.
fn blob(bench: &Bench, kind: &str, content: &[u8]) -> Value {
    let digest = digest(&SHA256, content);
    let hex: String = digest.as_ref().iter().map(|b| format!("{b:02x}")).collect();
    fs::create_dir_all(bench.path("layout/blobs/sha256")).unwrap();
    fs::write(bench.path(&format!("layout/blobs/sha256/{hex}")), content).unwrap();
    json!({ "mediaType": kind, "digest": format!("sha256:{hex}"), "size": content.len() })
}

fn json_blob(bench: &Bench, kind: &str, content: &Value) -> Value {
    let kind = format!("application/vnd.oci.image.{kind}.v1+json");
    blob(bench, &kind, content.to_string().as_bytes())
}

/// A manifest with these archives as layers, for a platform.
fn manifest(bench: &Bench, archives: &[&str], architecture: &str) -> Value {
    let layer = |name: &&str| {
        let packed = name.rsplit_once("tar.").map_or("", |(_, packed)| packed);
        let packed = packed.replace("gz", "+gzip").replace("zst", "+zstd");
        let kind = format!("application/vnd.oci.image.layer.v1.tar{packed}");
        blob(bench, &kind, &fs::read(bench.path(name)).unwrap())
    };
    let layers: Vec<Value> = archives.iter().map(layer).collect();
    let platform = json!({ "os": "linux", "architecture": architecture });
    let config = json_blob(bench, "config", &platform);
    let manifest = json!({ "schemaVersion": 2, "config": config, "layers": layers });
    json_blob(bench, "manifest", &manifest)
}

fn layout(bench: &Bench, manifests: &[Value]) {
    let index = json!({ "schemaVersion": 2, "manifests": manifests });
    fs::write(bench.path("layout/index.json"), index.to_string()).unwrap();
    let version = r#"{ "imageLayoutVersion": "1.0.0" }"#;
    fs::write(bench.path("layout/oci-layout"), version).unwrap();
}

#[test]
fn the_layers_of_an_oci_layout_are_those_of_its_image_for_the_platform() {
    let bench = bench();
    bench.shell("gzip -k 2.tar; zstd -q 3.tar; mkdir o; echo other > o/other; tar -cf o.tar o");
    let here = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let mut attestation = manifest(&bench, &["o.tar"], "unknown");
    attestation["platform"] = json!({ "os": "unknown", "architecture": "unknown" });
    // One says its platform, and one leaves it to its configuration.
    let mut other = manifest(&bench, &["o.tar"], "none");
    other["platform"] = json!({ "os": "linux", "architecture": "none" });
    let own = manifest(&bench, &["1.tar", "2.tar.gz", "3.tar.zst", "4.tar"], here);
    let inner = json!({ "schemaVersion": 2, "manifests": [attestation, other, own] });
    layout(&bench, &[json_blob(&bench, "index", &inner)]);
    let answer = bench.build(&["--from", "@layout"]);
    assert_eq!(answer["sources"][0]["kind"], "oci-layout");
    assert_eq!(answer["sources"][0]["layers"], 4);
    assert_same("layout", &capture(&bench.path("expected")), &bench.seen());
    bench.build(&["--from", "@layout", "--platform", "linux/none"]);
    assert!(bench.seen().entries.contains_key("o/other"));
    let (image, layout) = (bench.path("new.img"), bench.path("layout"));
    let args = [
        "image",
        "build",
        text(&image),
        "--from",
        text(&layout),
        "--platform",
        "s390x",
    ];
    fails(
        &args,
        3,
        &[
            "no image is for linux/s390x",
            "--platform: linux/none",
            here,
        ],
    );
}

#[test]
fn a_damaged_blob_of_an_oci_layout_is_found() {
    let bench = bench();
    let own = manifest(&bench, &["1.tar", "2.tar"], "any");
    layout(&bench, std::slice::from_ref(&own));
    bench.build(&["--from", "@layout"]);
    let before = bench.names();
    let name = own["digest"]
        .as_str()
        .unwrap()
        .replace("sha256:", "layout/blobs/sha256/");
    let bytes = fs::read(bench.path(&name)).unwrap();
    let layers: Value = serde_json::from_slice(&bytes).unwrap();
    let layer = layers["layers"][1]["digest"].as_str().unwrap();
    let layer = bench.path(&layer.replace("sha256:", "layout/blobs/sha256/"));
    let mut content = fs::read(&layer).unwrap();
    content[1000] ^= 1;
    fs::write(&layer, content).unwrap();
    let (image, layout) = (bench.path("new.img"), bench.path("layout"));
    let args = ["image", "build", text(&image), "--from", text(&layout)];
    fails(
        &args,
        1,
        &["is damaged: its digest is", "copy the image again"],
    );
    fs::remove_file(&layer).unwrap();
    fails(&args, 3, &["cannot open"]);
    // A digest is no path.
    let index = r#"{ "manifests": [{ "digest": "sha256:../../../disk.img" }] }"#;
    fs::write(bench.path("layout/index.json"), index).unwrap();
    fails(&args, 1, &["is no digest of a known kind"]);
    assert_eq!(bench.names(), before);
}

#[test]
fn a_directory_over_another_replaces_what_has_its_names() {
    let bench = Bench::new("over");
    bench.shell(
        "mkdir -p a/sub/deep a/dir b/dir; echo 1 > a/sub/deep/x; echo 1 > a/file; ln -s sub a/link
        echo 2 > b/sub; mkdir b/file b/link; echo 2 > b/file/y; echo 2 > b/link/z; echo 2 > b/dir/n
        chmod 750 b/dir; chown 3:4 b/dir; setfattr -n trusted.kept -v 1 b/dir
        mkfifo b/pipe; truncate -s 1M b/hole; ln b/dir/n b/second
        cp -a a expected; rm -r expected/sub expected/file expected/link
        tar -S --xattrs --xattrs-include='*' -C b -c . | \
            tar --xattrs --xattrs-include='*' -C expected -xp
        for d in a b expected; do touch -d @1000000000 $d $d/dir; done",
    );
    bench.build(&["--from", "@a", "@b"]);
    assert_same(
        "directories",
        &capture(&bench.path("expected")),
        &bench.seen(),
    );
    bench.build(&["--from", "@a", "@b", "--owner", "9:10"]);
    for (path, entry) in bench.seen().entries {
        assert_eq!((entry.uid, entry.gid), (9, 10), "{path}");
    }
}

#[test]
fn upper_directories_of_overlayfs_are_layers() {
    let bench = Bench::new("overlay");
    bench.shell(
        "mkdir -p a/opaque a/merged b/opaque b/merged; echo 1 > a/opaque/x; echo 1 > a/merged/x
        echo 1 > a/gone; mkdir a/gone-too; echo 1 > a/gone-too/x
        echo 2 > b/opaque/y; echo 2 > b/merged/y; mknod b/gone c 0 0; mknod b/gone-too c 0 0
        setfattr -n trusted.overlay.opaque -v y b/opaque; setfattr -n user.kept -v 1 b/opaque
        setfattr -n trusted.overlay.origin -v z b/merged
        find a b -exec touch -h -d @1000000000 {} +
        mkdir expected; cp -a b/opaque a/merged expected; cp -a b/merged/y expected/merged
        setfattr -x trusted.overlay.opaque expected/opaque
        touch -d @1000000000 expected expected/merged",
    );
    bench.build(&["--overlay", "--from", "@a", "@b"]);
    assert_same("overlay", &capture(&bench.path("expected")), &bench.seen());
    // Without the option they are devices.
    bench.build(&["--from", "@a", "@b"]);
    assert!(bench.seen().entries["gone"].rdev == Some((0, 0)));
    assert_eq!(
        ok(&["ls", &format!("{}:/opaque", text(&bench.path("disk.img")))]),
        "x\ny\n"
    );
}
