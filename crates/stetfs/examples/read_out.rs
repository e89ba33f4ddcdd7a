//! Reads a file from an image, without changing the image:
//!
//! ```text
//! cargo run --example read_out -- disk.img /etc/hostname
//! ```

use std::error::Error;
use std::io;
use std::path::PathBuf;

use stetfs::{MountOptions, Volume};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [image, path] = args.as_slice() else {
        return Err("usage: read_out IMAGE PATH".into());
    };
    let volume = Volume::open(image, MountOptions::new().read_only(true))?;
    let mut file = volume.open_file(path)?;
    io::copy(&mut file, &mut io::stdout().lock())?;
    Ok(())
}
