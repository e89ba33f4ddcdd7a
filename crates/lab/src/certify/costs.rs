//! The cost of writes and syncs.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::page::Section;

const BLOCK: usize = 4096;
/// Bytes of one write of the stream, and largest size of its file.
const PIECE: usize = 1 << 20;
const STREAM: u64 = 32 << 20;
/// The size at which the synced file starts anew, bytes.
const LOG: u64 = 4 << 20;

/// A place for files: a mount or an open volume.
pub(super) trait Place: Sync {
    type File: Put + Send + Sync;
    fn make(&self, name: &str) -> io::Result<Self::File>;
}

/// A file to be written and synced.
pub(super) trait Put {
    fn put(&self, bytes: &[u8], at: u64) -> io::Result<()>;
    fn sync(&self) -> io::Result<()>;
}

/// A directory of a mount.
pub(super) struct Dir<'a>(pub(super) &'a Path);

impl Place for Dir<'_> {
    type File = File;

    fn make(&self, name: &str) -> io::Result<File> {
        File::create(self.0.join(name))
    }
}

impl Put for File {
    fn put(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }
}

impl Place for stetfs::Volume {
    type File = stetfs::File;

    fn make(&self, name: &str) -> io::Result<stetfs::File> {
        Ok(self.create_file(name)?)
    }
}

impl Put for stetfs::File {
    fn put(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        Ok(self.write_all_at(bytes, at)?)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(self.sync_all()?)
    }
}

/// Appends a block and syncs, for `time`: the time of each sync, in ascending order.
fn syncs(file: &impl Put, time: Duration) -> io::Result<Vec<Duration>> {
    let (begin, block) = (Instant::now(), vec![0x5a; BLOCK]);
    let (mut all, mut at) = (Vec::new(), 0);
    while begin.elapsed() < time {
        file.put(&block, at % LOG)?;
        at += BLOCK as u64;
        let start = Instant::now();
        file.sync()?;
        all.push(start.elapsed());
    }
    all.sort_unstable();
    Ok(all)
}

/// The quantile at `part` of 1000, µs.
fn at(sorted: &[Duration], part: usize) -> u128 {
    let last = sorted.len().saturating_sub(1);
    let index = (sorted.len() * part / 1000).min(last);
    sorted.get(index).map_or(0, Duration::as_micros)
}

fn shown(sorted: &[Duration]) -> String {
    let [median, p99, p999] = [500, 990, 999].map(|part| at(sorted, part));
    format!(
        "p50 {median} µs, p99 {p99} µs, p99.9 {p999} µs, of {}",
        sorted.len()
    )
}

/// Measures for about `time`, with files that are made in `place` and left there.
///
/// # Errors
/// The errors of the files.
pub(super) fn measure(place: &impl Place, time: Duration, section: &mut Section) -> io::Result<()> {
    let (log, stream) = (place.make("certify-log")?, place.make("certify-stream")?);
    let alone = syncs(&log, time / 3)?;
    section.row("4 KiB appended and synced, alone", shown(&alone));
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let beside = std::thread::scope(|scope| {
        let writer = scope.spawn(|| -> io::Result<()> {
            let piece = vec![0xa5; PIECE];
            while !stop.load(Ordering::Acquire) {
                let at = written.fetch_add(PIECE as u64, Ordering::Relaxed);
                stream.put(&piece, at % STREAM)?;
            }
            stream.sync()
        });
        let begin = Instant::now();
        let beside = syncs(&log, time / 3);
        let rate = written.load(Ordering::Relaxed) as f64 / begin.elapsed().as_secs_f64();
        stop.store(true, Ordering::Release);
        let ended = writer.join();
        ended.map_err(|_| io::Error::other("the stream's thread panicked"))??;
        Ok::<_, io::Error>((beside?, rate))
    })?;
    section.row("the same beside a stream", shown(&beside.0));
    section.row(
        "the stream meanwhile",
        format!("{:.0} MB/s", beside.1 / 1e6),
    );
    let mut large = Vec::new();
    let begin = Instant::now();
    while begin.elapsed() < time / 3 {
        let start = Instant::now();
        stream.put(&vec![1; PIECE], 0)?;
        stream.sync()?;
        large.push(start.elapsed());
    }
    large.sort_unstable();
    section.row("1 MiB overwritten and synced", shown(&large));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_1000() {
        let all: Vec<Duration> = (1..=1000).map(Duration::from_micros).collect();
        assert_eq!([500, 990, 999].map(|part| at(&all, part)), [501, 991, 1000]);
        assert_eq!(at(&[], 500), 0);
    }
}
