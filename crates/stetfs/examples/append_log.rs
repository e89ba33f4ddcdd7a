//! A log whose entries are durable once they are acknowledged, whatever happens to the process or
//! the machine. Each line of the standard input becomes an entry:
//!
//! ```text
//! seq 10 | cargo run --example append_log -- disk.img /log
//! ```

use std::error::Error;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;

use stetfs::{File, MountOptions, Volume};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [image, path] = args.as_slice() else {
        return Err("usage: append_log IMAGE PATH".into());
    };
    // A sync with this journal costs one write.
    let volume = Volume::open(image, MountOptions::new().journal("ijournal"))?;
    let mut log = File::options()
        .append(true)
        .create(true)
        .open(&volume, path)?;
    log.sync_all()?;
    // After a crash a part of the last entry may be there: it was not acknowledged.
    let text = volume.read(path)?;
    let whole = text.iter().rposition(|b| *b == b'\n').map_or(0, |n| n + 1);
    log.set_len(whole as u64)?;

    for line in io::stdin().lock().lines() {
        let mut entry = line?;
        entry.push('\n');
        log.write_all(entry.as_bytes())?;
        log.sync_data()?;
        println!("acknowledged");
    }
    drop(log);
    volume.close()?;
    Ok(())
}
