//! ext4 images and the e2fsprogs tools that make and check them.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use rustix::fs::{Advice, FallocateFlags, SeekFrom};
use rustix::io::Errno;

use crate::cmd;
use crate::scratch::Scratch;

/// Options of `mke2fs`. Fields left empty are left to mke2fs.
#[derive(Clone, Debug, Default)]
pub struct Mkfs {
    /// `-t`: `ext4` unless set (`ext2`, `ext3`).
    pub fs_type: Option<String>,
    /// `-b`: block size in bytes.
    pub block_size: Option<u32>,
    /// `-T`: usage type, e.g. `small`, `largefile`.
    pub usage: Option<String>,
    /// `-I`: inode size in bytes.
    pub inode_size: Option<u32>,
    /// `-O`: features, comma separated, `^` turns one off.
    pub features: Vec<String>,
    /// `-E`: extended options.
    pub extended: Vec<String>,
    /// `-J size=`: journal size in MiB.
    pub journal_mib: Option<u32>,
    /// Any further arguments.
    pub args: Vec<String>,
}

impl Mkfs {
    /// mke2fs's own defaults for ext4.
    pub fn new() -> Self {
        Self::default()
    }

    /// ext4 with blocks of `bytes` bytes.
    pub fn blocks(bytes: u32) -> Self {
        Self {
            block_size: Some(bytes),
            ..Self::default()
        }
    }

    /// Sets the usage type (`-T`).
    #[must_use]
    pub fn usage(mut self, usage: &str) -> Self {
        self.usage = Some(usage.into());
        self
    }

    /// Adds a feature (`-O`).
    #[must_use]
    pub fn feature(mut self, feature: &str) -> Self {
        self.features.push(feature.into());
        self
    }

    /// Adds an extended option (`-E`).
    #[must_use]
    pub fn extended(mut self, option: &str) -> Self {
        self.extended.push(option.into());
        self
    }

    /// Sets the size of the journal in MiB.
    #[must_use]
    pub fn journal_mib(mut self, mib: u32) -> Self {
        self.journal_mib = Some(mib);
        self
    }

    /// Puts the journal on this device, which was made with the feature `journal_dev`.
    #[must_use]
    pub fn journal_device(mut self, device: &Path) -> Self {
        let on = format!("device={}", device.display());
        self.args.extend(["-J".into(), on]);
        self
    }

    /// Sets the inode size in bytes.
    #[must_use]
    pub fn inode_size(mut self, bytes: u32) -> Self {
        self.inode_size = Some(bytes);
        self
    }

    fn command(&self, path: &Path) -> Command {
        let mut c = Command::new("mke2fs");
        c.args(["-q", "-F", "-t", self.fs_type.as_deref().unwrap_or("ext4")]);
        if let Some(b) = self.block_size {
            c.args(["-b", &b.to_string()]);
        }
        if let Some(u) = &self.usage {
            c.args(["-T", u]);
        }
        if let Some(i) = self.inode_size {
            c.args(["-I", &i.to_string()]);
        }
        if !self.features.is_empty() {
            c.args(["-O", &self.features.join(",")]);
        }
        if !self.extended.is_empty() {
            c.args(["-E", &self.extended.join(",")]);
        }
        if let Some(mib) = self.journal_mib {
            c.args(["-J", &format!("size={mib}")]);
        }
        c.args(&self.args).arg(path);
        c
    }
}

/// An image file in a temporary directory of its own.
#[derive(Debug)]
pub struct Image {
    path: PathBuf,
    scratch: Scratch,
}

impl Image {
    /// An empty sparse file of `bytes` bytes.
    pub fn sparse(bytes: u64) -> Result<Self> {
        Self::sparse_in(Scratch::new("img")?, bytes)
    }

    /// An empty sparse file in memory, if this machine has a file system in memory.
    pub fn in_memory(bytes: u64) -> Result<Self> {
        Self::sparse_in(Scratch::in_memory("img")?, bytes)
    }

    fn sparse_in(scratch: Scratch, bytes: u64) -> Result<Self> {
        let path = scratch.path().join("image");
        File::create_new(&path)?.set_len(bytes)?;
        Ok(Self { path, scratch })
    }

    /// Writes zeroes to every block that was never written, so that later writes allocate nothing
    /// and the host does not change the state of blocks; benchmarks need this. Call it after the
    /// file system was made, because mke2fs leaves the blocks that it zeroes (the journal, inode
    /// tables) unwritten. The file is dropped from the host's page cache.
    pub fn fill(&self) -> Result<()> {
        let file = File::options().read(true).write(true).open(&self.path)?;
        let end = file.metadata()?.len();
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, end)?;
        // Data in the page cache counts as written, so the cache is dropped first.
        let forget = || -> Result<()> {
            file.sync_all()?;
            Ok(rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?)
        };
        forget()?;
        let zeroes = vec![0u8; 4 << 20];
        let seek = |to| match rustix::fs::seek(&file, to) {
            // No further hole or data.
            Err(Errno::NXIO) => Ok(end),
            at => at,
        };
        let mut at = seek(SeekFrom::Hole(0))?;
        while at < end {
            let data = seek(SeekFrom::Data(at))?;
            while at < data {
                let part = zeroes.len().min((data - at) as usize);
                file.write_all_at(&zeroes[..part], at)?;
                at += part as u64;
            }
            at = seek(SeekFrom::Hole(data))?;
        }
        forget()
    }

    /// A sparse image with a file system made by `mkfs`.
    pub fn make(bytes: u64, mkfs: &Mkfs) -> Result<Self> {
        let image = Self::sparse(bytes)?;
        image.mkfs(mkfs)?;
        Ok(image)
    }

    /// Makes a file system in the image.
    pub fn mkfs(&self, mkfs: &Mkfs) -> Result<()> {
        cmd::run(&mut mkfs.command(&self.path)).map(drop)
    }

    /// The image file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The temporary directory that holds the image; other files may be put beside it.
    pub fn dir(&self) -> &Path {
        self.scratch.path()
    }

    /// An image from an existing file in a temporary directory, which is removed with the image.
    pub fn at(path: PathBuf, scratch: Scratch) -> Self {
        Self { path, scratch }
    }

    /// A copy (sparse where this one is) in a directory of its own.
    pub fn copy(&self) -> Result<Self> {
        let scratch = Scratch::new("img")?;
        let path = scratch.path().join("image");
        cmd::run(
            Command::new("cp")
                .args(["--sparse=always", "--reflink=auto"])
                .arg(&self.path)
                .arg(&path),
        )?;
        Ok(Self { path, scratch })
    }

    /// Runs `e2fsck -fn`; an error quotes the output unless the file system is clean.
    pub fn e2fsck_fn(&self) -> Result<()> {
        e2fsck(&self.path, &["-fn"], 0)
    }

    /// `e2fsck -fy -E journal_only`: replays the journal as e2fsck does, and nothing else.
    pub fn e2fsck_replay(&self) -> Result<()> {
        // 1: "file system errors corrected", which a replay is.
        e2fsck(&self.path, &["-fy", "-E", "journal_only"], 1)
    }

    /// `e2fsck -fy`: replays, processes the orphan list and repairs; an error if it cannot repair
    /// everything.
    pub fn e2fsck_fy(&self) -> Result<()> {
        e2fsck(&self.path, &["-fy"], 1)
    }

    /// Runs one `debugfs` request read-only and returns the output.
    pub fn debugfs(&self, request: &str) -> Result<String> {
        debugfs(&self.path, &[], request)
    }

    /// Runs such a request on an image whose bitmaps and checksums may be wrong.
    pub fn debugfs_of_damaged(&self, request: &str) -> Result<String> {
        debugfs(&self.path, &["-c", "-n"], request)
    }

    /// Runs one `debugfs` request that may change the image.
    pub fn debugfs_write(&self, request: &str) -> Result<String> {
        debugfs(&self.path, &["-w"], request)
    }
}

fn debugfs(path: &Path, how: &[&str], request: &str) -> Result<String> {
    let mut c = Command::new("debugfs");
    cmd::run(c.args(how).args(["-R", request]).arg(path))
}

/// Runs `e2fsck ARGS PATH` on an image or device; an exit status above `highest` is an error.
pub fn e2fsck(path: &Path, args: &[&str], highest: i32) -> Result<()> {
    e2fsck_said(path, args, highest).map(drop)
}

/// Runs [`e2fsck`] and returns the output.
pub fn e2fsck_said<A: AsRef<OsStr>>(path: &Path, args: &[A], highest: i32) -> Result<String> {
    let mut c = Command::new("e2fsck");
    let out = cmd::output(c.args(args).arg(path))?;
    match out.status.code() {
        Some(code) if code <= highest => Ok(cmd::said(&out)),
        Some(code) => bail!(
            "{} exited with {code}:\n{}",
            cmd::shown(&c),
            cmd::said(&out)
        ),
        None => Err(anyhow::anyhow!("{}", cmd::said(&out))).with_context(|| {
            format!(
                "{} was killed by signal {:?}",
                cmd::shown(&c),
                out.status.signal()
            )
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filled_image_has_no_holes_and_is_as_it_was_made() -> Result<()> {
        let image = Image::make(32 << 20, &Mkfs::new().journal_mib(4))?;
        let before = std::fs::read(image.path())?;
        image.fill()?;
        let file = File::open(image.path())?;
        let hole = rustix::fs::seek(&file, SeekFrom::Hole(0))?;
        assert_eq!(hole, 32 << 20);
        assert!(std::fs::read(image.path())? == before);
        Ok(())
    }
}
