//! The interface between a script and a file system: a mounted directory, or a volume that is open
//! as a library.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};

use anyhow::{Context, Result, anyhow};
use stetfs::low::{
    Attr, Ctx, Done, Ino, OpenRef, ROOT_INO, RenameFlags, SetAttr, Volume, Wait, serve_processor,
};
use stetfs_testkit::Mounted;

use super::script::WRITERS;

/// The calls of a script. Paths are relative, with `/` between the names.
pub(super) trait Surface {
    fn make_dir(&mut self, path: &str) -> Result<()>;
    fn remove_dir(&mut self, path: &str) -> Result<()>;
    fn create(&mut self, slot: usize, path: &str) -> Result<()>;
    fn open(&mut self, slot: usize, path: &str) -> Result<()>;
    fn write(&mut self, slot: usize, at: u64, bytes: &[u8]) -> Result<()>;
    fn sync(&mut self, slot: usize) -> Result<()>;
    fn close(&mut self, slot: usize) -> Result<()>;
    fn truncate(&mut self, path: &str, len: u64) -> Result<()>;
    fn rename(&mut self, from: &str, to: &str) -> Result<()>;
    fn remove(&mut self, path: &str) -> Result<()>;
    fn sync_all(&mut self) -> Result<()>;
    /// Unmounts.
    fn end(self: Box<Self>) -> Result<()>;
}

fn slot<T>(slots: &mut [Option<T>; WRITERS], slot: usize) -> Result<&mut T> {
    let held = slots.get_mut(slot).and_then(Option::as_mut);
    held.ok_or_else(|| anyhow!("nothing is open in slot {slot}"))
}

/// A directory of a mount.
pub(super) struct Directory {
    slots: [Option<File>; WRITERS],
    root: PathBuf,
    mounted: Mounted,
}

impl Directory {
    pub(super) fn new(mounted: Mounted) -> Self {
        Self {
            slots: Default::default(),
            root: mounted.path().to_owned(),
            mounted,
        }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }
}

impl Surface for Directory {
    fn make_dir(&mut self, path: &str) -> Result<()> {
        Ok(fs::create_dir(self.at(path))?)
    }

    fn remove_dir(&mut self, path: &str) -> Result<()> {
        Ok(fs::remove_dir(self.at(path))?)
    }

    fn create(&mut self, slot: usize, path: &str) -> Result<()> {
        self.slots[slot] = Some(File::create_new(self.at(path))?);
        Ok(())
    }

    fn open(&mut self, slot: usize, path: &str) -> Result<()> {
        self.slots[slot] = Some(OpenOptions::new().write(true).open(self.at(path))?);
        Ok(())
    }

    fn write(&mut self, at_slot: usize, at: u64, bytes: &[u8]) -> Result<()> {
        Ok(slot(&mut self.slots, at_slot)?.write_all_at(bytes, at)?)
    }

    fn sync(&mut self, at_slot: usize) -> Result<()> {
        Ok(slot(&mut self.slots, at_slot)?.sync_all()?)
    }

    fn close(&mut self, at_slot: usize) -> Result<()> {
        slot(&mut self.slots, at_slot)?;
        self.slots[at_slot] = None;
        Ok(())
    }

    fn truncate(&mut self, path: &str, len: u64) -> Result<()> {
        let file = OpenOptions::new().write(true).open(self.at(path))?;
        Ok(file.set_len(len)?)
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        Ok(fs::rename(self.at(from), self.at(to))?)
    }

    fn remove(&mut self, path: &str) -> Result<()> {
        Ok(fs::remove_file(self.at(path))?)
    }

    fn sync_all(&mut self) -> Result<()> {
        rustix::fs::syncfs(File::open(&self.root)?)?;
        // The kernel does not pass syncfs to FUSE servers; the sync of a directory commits all
        // earlier changes.
        Ok(File::open(&self.root)?.sync_all()?)
    }

    fn end(self: Box<Self>) -> Result<()> {
        self.mounted.umount()
    }
}

/// A volume that is open in this process. Calls with a slot run as the thread of the processor of
/// that number, for journals with lanes.
pub(super) struct Library {
    slots: [Option<OpenRef>; WRITERS],
    volume: Arc<Volume>,
}

/// Waits for the answer of an asynchronous call.
fn wait(call: impl FnOnce(Done)) -> Result<()> {
    let (answer, answered) = mpsc::channel();
    call(Box::new(move |result| {
        // The send fails only if this thread is gone.
        let _ = answer.send(result);
    }));
    Ok(answered.recv().context("no answer to a sync")??)
}

impl Library {
    pub(super) fn new(volume: Arc<Volume>) -> Self {
        Self {
            slots: Default::default(),
            volume,
        }
    }

    fn look_up(&self, path: &str) -> Result<Ino> {
        let fs = self.volume.fs();
        let mut at = ROOT_INO;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            at = fs.lookup(at, name.as_bytes())?.ino;
            fs.forget(at, 1);
        }
        Ok(at)
    }

    /// The directory of a path, and the name in it.
    fn place<'p>(&self, path: &'p str) -> Result<(Ino, &'p [u8])> {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.look_up(dir)?, name.as_bytes()))
    }

    fn forget(&self, made: &Attr) {
        self.volume.fs().forget(made.ino, 1);
    }
}

impl Surface for Library {
    fn make_dir(&mut self, path: &str) -> Result<()> {
        let (dir, name) = self.place(path)?;
        let made = self.volume.fs().mkdir(&Ctx::ROOT, dir, name, 0o755, 0)?;
        self.forget(&made);
        Ok(())
    }

    fn remove_dir(&mut self, path: &str) -> Result<()> {
        let (dir, name) = self.place(path)?;
        Ok(self.volume.fs().rmdir(&Ctx::ROOT, dir, name)?)
    }

    fn create(&mut self, slot: usize, path: &str) -> Result<()> {
        serve_processor(slot as u16);
        let (dir, name) = self.place(path)?;
        let fs = self.volume.fs();
        let (made, file) = fs.create(&Ctx::ROOT, dir, name, 0o644, 0, libc::O_RDWR)?;
        self.forget(&made);
        self.slots[slot] = Some(file);
        Ok(())
    }

    fn open(&mut self, slot: usize, path: &str) -> Result<()> {
        serve_processor(slot as u16);
        let ino = self.look_up(path)?;
        let file = self.volume.fs().open_inode(&Ctx::ROOT, ino, libc::O_RDWR)?;
        self.slots[slot] = Some(file);
        Ok(())
    }

    fn write(&mut self, at_slot: usize, at: u64, bytes: &[u8]) -> Result<()> {
        serve_processor(at_slot as u16);
        let file = slot(&mut self.slots, at_slot)?;
        let done = self.volume.fs().write(&Ctx::ROOT, file, at, bytes, false)?;
        if done < bytes.len() {
            return Err(anyhow!("{done} bytes of {} were written", bytes.len()));
        }
        Ok(())
    }

    fn sync(&mut self, at_slot: usize) -> Result<()> {
        let file = slot(&mut self.slots, at_slot)?;
        wait(|done| self.volume.fs().fsync(file, false, Wait::Inline, done))
    }

    fn close(&mut self, at_slot: usize) -> Result<()> {
        serve_processor(at_slot as u16);
        slot(&mut self.slots, at_slot)?;
        self.slots[at_slot] = None;
        Ok(())
    }

    fn truncate(&mut self, path: &str, len: u64) -> Result<()> {
        let ino = self.look_up(path)?;
        let set = SetAttr {
            size: Some(len),
            ..SetAttr::default()
        };
        self.volume.fs().setattr(&Ctx::ROOT, ino, &set)?;
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        let ((from_dir, from), (to_dir, to)) = (self.place(from)?, self.place(to)?);
        let flags = RenameFlags::default();
        let fs = self.volume.fs();
        Ok(fs.rename(&Ctx::ROOT, from_dir, from, to_dir, to, flags)?)
    }

    fn remove(&mut self, path: &str) -> Result<()> {
        let (dir, name) = self.place(path)?;
        Ok(self.volume.fs().unlink(&Ctx::ROOT, dir, name)?)
    }

    fn sync_all(&mut self) -> Result<()> {
        wait(|done| self.volume.fs().sync_all(done))
    }

    fn end(self: Box<Self>) -> Result<()> {
        drop(self.slots);
        Ok(self.volume.close()?)
    }
}

/// The name space of a script: the path of each number.
#[derive(Debug, Default)]
pub(super) struct Paths {
    dirs: HashMap<u32, String>,
    files: HashMap<u32, (u32, u32)>,
}

impl Paths {
    pub(super) fn add_dir(&mut self, dir: u32, parent: Option<u32>) -> Result<String> {
        let path = match parent {
            None => format!("d{dir}"),
            Some(parent) => format!("{}/d{dir}", self.dir(parent)?),
        };
        self.dirs.insert(dir, path.clone());
        Ok(path)
    }

    pub(super) fn dir(&self, dir: u32) -> Result<&str> {
        let path = self.dirs.get(&dir);
        path.map(String::as_str)
            .ok_or_else(|| anyhow!("there is no directory {dir}"))
    }

    pub(super) fn add_file(&mut self, file: u32, dir: u32) -> Result<String> {
        self.files.insert(file, (dir, file));
        self.file(file)
    }

    pub(super) fn file(&self, file: u32) -> Result<String> {
        let (dir, name) = self
            .files
            .get(&file)
            .ok_or_else(|| anyhow!("there is no file {file}"))?;
        Ok(format!("{}/f{name}", self.dir(*dir)?))
    }

    /// Gives `file` the name of `old`, which no longer exists.
    pub(super) fn replace(&mut self, file: u32, old: u32) {
        if let Some(place) = self.files.remove(&old) {
            self.files.insert(file, place);
        }
    }

    pub(super) fn remove(&mut self, file: u32) {
        self.files.remove(&file);
    }
}
