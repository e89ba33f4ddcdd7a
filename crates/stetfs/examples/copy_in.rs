//! Copies a directory of the host into an image:
//!
//! ```text
//! truncate -s 1G disk.img && mke2fs -q -t ext4 disk.img
//! cargo run --example copy_in -- some/directory disk.img /where
//! ```

use std::error::Error;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use stetfs::{MountOptions, SetMetadata, Volume};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [from, image, to] = args.as_slice() else {
        return Err("usage: copy_in DIRECTORY IMAGE PATH".into());
    };
    let volume = Volume::open(image, &MountOptions::new())?;
    volume.create_dir_all(to)?;
    let files = copy(from, &volume, to)?;
    volume.close()?;
    println!("{files} files");
    Ok(())
}

/// Copies the content of `from` to `to` in the volume; returns the number of files.
fn copy(from: &Path, volume: &Volume, to: &Path) -> Result<u64, Box<dyn Error>> {
    let mut files = 0;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let metadata = entry.metadata()?;
        if metadata.is_dir() {
            volume.create_dir_all(&target)?;
            files += copy(&source, volume, &target)?;
        } else if metadata.is_symlink() {
            volume.symlink(fs::read_link(&source)?, &target)?;
        } else if metadata.is_file() {
            let mut file = volume.create_file(&target)?;
            io::copy(&mut fs::File::open(&source)?, &mut file)?;
            files += 1;
        } else {
            eprintln!("left out: {}", source.display());
            continue;
        }
        let mut set = SetMetadata::new();
        set.modified(metadata.modified()?);
        if !metadata.is_symlink() {
            set.mode(metadata.mode());
        }
        volume.set_symlink_metadata(&target, &set)?;
    }
    Ok(files)
}
