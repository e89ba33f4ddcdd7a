//! The recipes of docs/images.md, run as they stand there.

use std::path::Path;
use std::process::Command;

use super::Bench;
use crate::BINARY;
use stetfs_testkit::cmd;

/// The shell blocks of the manual.
fn recipes() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images.md");
    let text = std::fs::read_to_string(path).unwrap();
    let blocks = text.split("```sh\n").skip(1);
    blocks
        .map(|block| block.split("```").next().unwrap().to_owned())
        .collect()
}

/// A root file system as a directory, as an archive and as a layout: the recipes begin with them.
const BEGIN: &str = r#"
    mkdir -p rootfs/etc rootfs/bin overlay/etc; echo box > rootfs/etc/hostname
    echo '#!' > rootfs/bin/tool; setcap cap_net_raw+ep rootfs/bin/tool
    echo mine > overlay/etc/hostname
    tar --xattrs --xattrs-include='*' -czf rootfs.tar.gz -C rootfs .
    mkdir -p layout/blobs/sha256
    blob() {
        sum=$(sha256sum < $1 | cut -d' ' -f1); cp $1 layout/blobs/sha256/$sum
        echo "{\"mediaType\":\"$2\",\"digest\":\"sha256:$sum\",\"size\":$(stat -c %s $1)}"
    }
    layer=$(blob rootfs.tar.gz application/vnd.oci.image.layer.v1.tar+gzip)
    echo "{\"schemaVersion\":2,\"layers\":[$layer]}" > m
    echo "{\"manifests\":[$(blob m application/vnd.oci.image.manifest.v1+json)]}" \
        > layout/index.json
    echo '{"imageLayoutVersion":"1.0.0"}' > layout/oci-layout; rm m
"#;

#[test]
fn the_recipes_of_the_manual_work() {
    let recipes = recipes();
    assert!(recipes.len() >= 5, "only {} recipes", recipes.len());
    let programs = Path::new(BINARY).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    for recipe in recipes {
        let bench = Bench::new("recipe");
        bench.shell(BEGIN);
        let mut shell = Command::new("bash");
        shell
            .args(["-euxo", "pipefail", "-c", &recipe])
            .env("PATH", &path);
        shell.env_remove("SOURCE_DATE_EPOCH");
        cmd::run(shell.current_dir(bench.path(""))).unwrap();
        let images = bench
            .names()
            .into_iter()
            .filter(|name| name.ends_with(".img"));
        let images: Vec<String> = images.collect();
        assert!(!images.is_empty(), "no image of:\n{recipe}");
        for name in images {
            stetfs_testkit::image::e2fsck(&bench.path(&name), &["-fn"], 0).unwrap();
        }
    }
}
