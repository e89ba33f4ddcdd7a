//! Walks over trees.

use std::collections::HashSet;
use std::fmt;
use std::path::Path;
use std::vec;

use rustix::io::Errno;

use crate::dir::{DirEntry, ReadDir};
use crate::error::{Error, Result};
use crate::low::Ino;
use crate::shared::error_of;
use crate::volume::Volume;

/// All files below a directory, without the directory itself. A directory comes before its content,
/// and the names of each directory come in the order of their bytes. Symbolic links are not
/// followed. Memory holds the names of the directories on the way, and the number of each
/// directory. A directory with two names, which is damage, is ELOOP the second time.
pub struct Walk {
    volume: Volume,
    /// The remaining names of each directory on the way.
    stack: Vec<vec::IntoIter<DirEntry>>,
    /// A directory that was returned and is entered next.
    below: Option<DirEntry>,
    /// Directories that were entered: each has one name.
    entered: HashSet<Ino>,
}

impl fmt::Debug for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Walk")
            .field("depth", &self.stack.len())
            .finish()
    }
}

impl Walk {
    fn enter(&mut self, path: &Path) -> Result<()> {
        let dir = ReadDir::new(&self.volume, path)?;
        let ino = dir.ino();
        // Only damage gives a directory a second name; such a tree might be endless.
        if !self.entered.insert(ino) {
            return Err(Error::new("walk below", path, error_of(Errno::LOOP)));
        }
        let mut names: Vec<DirEntry> = dir.collect::<Result<_>>()?;
        names.sort_unstable_by(|a, b| a.path().as_os_str().cmp(b.path().as_os_str()));
        self.stack.push(names.into_iter());
        Ok(())
    }

    /// Skips the content of the directory that was returned last.
    pub fn skip_dir(&mut self) {
        self.below = None;
    }
}

impl Iterator for Walk {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        if let Some(dir) = self.below.take()
            && let Err(e) = self.enter(dir.path())
        {
            return Some(Err(e));
        }
        loop {
            let names = self.stack.last_mut()?;
            match names.next() {
                Some(entry) => {
                    if entry.file_type().is_dir() {
                        self.below = Some(entry.clone());
                    }
                    return Some(Ok(entry));
                }
                None => {
                    self.stack.pop();
                }
            }
        }
    }
}

impl Volume {
    /// All files below the directory at `path`.
    ///
    /// ```
    /// # let image = stetfs_testkit::Image::make(16 << 20, &Default::default()).unwrap();
    /// # let volume = stetfs::Volume::open(image.path(), &stetfs::MountOptions::new())?;
    /// volume.create_dir_all("/a/b")?;
    /// volume.write("/a/b/c", "text")?;
    /// let mut files = Vec::new();
    /// for entry in volume.walk("/a")? {
    ///     let entry = entry?;
    ///     if entry.file_type().is_file() {
    ///         files.push((entry.path().to_owned(), entry.metadata()?.len()));
    ///     }
    /// }
    /// assert_eq!(files, [("/a/b/c".into(), 4)]);
    /// # Ok::<(), stetfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// It does not exist, or is not a directory.
    pub fn walk(&self, path: impl AsRef<Path>) -> Result<Walk> {
        let mut walk = Walk {
            volume: self.clone(),
            stack: Vec::new(),
            below: None,
            entered: HashSet::new(),
        };
        walk.enter(path.as_ref())?;
        Ok(walk)
    }
}
