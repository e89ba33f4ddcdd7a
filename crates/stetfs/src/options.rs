//! How a volume is opened.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::low::{self, Atime, Composition, Ctx, Part, Preset, RegionFile, Source, VolumeOptions};

/// How a volume is opened: built step by step, as [`std::fs::OpenOptions`].
///
/// ```
/// # let image = stetfs_testkit::Image::make(16 << 20, &Default::default()).unwrap();
/// # let path = image.path();
/// use stetfs::{MountOptions, Volume};
///
/// let options = MountOptions::new().journal("data").owner(1000, 1000).clone();
/// let volume = Volume::open(path, &options)?;
/// volume.write("/notes", "mine")?;
/// assert_eq!(volume.metadata("/notes")?.uid(), 1000);
/// volume.close()?;
///
/// let volume = Volume::open(path, MountOptions::new().read_only(true))?;
/// let refused = volume.write("/notes", "yours").unwrap_err();
/// assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
/// # Ok::<(), stetfs::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct MountOptions {
    low: VolumeOptions,
    /// The journal is composed already.
    composed: bool,
    preset: Option<String>,
    journal: Vec<(String, String)>,
    pub(crate) maker: Ctx,
    umask: Option<u32>,
}

/// What may be changed by others goes from new files.
const UMASK: u32 = 0o022;

impl MountOptions {
    /// For reading and writing, with the journal that the volume asks for, or jbd2's in ordered
    /// mode.
    pub fn new() -> MountOptions {
        MountOptions::default()
    }

    /// Whether nothing may be changed. The journal is replayed all the same, if the image can be
    /// written.
    pub fn read_only(&mut self, read_only: bool) -> &mut MountOptions {
        self.low.fs.read_only = read_only;
        self
    }

    /// Whether the journal is replayed (yes). Without, the volume is [read-only](Self::read_only),
    /// and as it was before what the journal holds.
    pub fn recovery(&mut self, recovery: bool) -> &mut MountOptions {
        self.low.fs.no_recovery = !recovery;
        self
    }

    /// The journal, by the name of a preset: `ordered`, `data`, `writeback`, `ldj`, `ijournal`
    /// ([`Preset::all`] lists them). A name that is none is told by
    /// [`Volume::open`](crate::Volume::open).
    pub fn journal(&mut self, preset: &str) -> &mut MountOptions {
        self.preset = Some(preset.to_owned());
        self.composed = false;
        self
    }

    /// An option of the journal, as `stetfs mount -o` takes it, beside its [preset](Self::journal)
    /// or in place of a part of it.
    pub fn journal_option(&mut self, name: &str, value: &str) -> &mut MountOptions {
        self.journal.push((name.to_owned(), value.to_owned()));
        self.composed = false;
        self
    }

    /// Of an image or a device the bytes from `offset` on, and all up to its end or `size` bytes.
    /// Both are multiples of the size of its sectors, 512 of an image. Several parts of one
    /// image can be open at once.
    ///
    /// ```
    /// # let image = stetfs_testkit::Image::make(16 << 20, &Default::default()).unwrap();
    /// # let mut bytes = vec![0; 1 << 20];
    /// # bytes.extend(std::fs::read(image.path()).unwrap());
    /// # std::fs::write(image.path(), bytes).unwrap();
    /// # let path = image.path();
    /// use stetfs::{MountOptions, Volume};
    ///
    /// let volume = Volume::open(path, MountOptions::new().part(1 << 20, None))?;
    /// volume.write("/notes", "behind the boot loader")?;
    /// volume.close()?;
    ///
    /// let error = Volume::open(path, MountOptions::new().partition("1")).unwrap_err();
    /// assert!(error.to_string().contains("it has no partition table"));
    /// # Ok::<(), stetfs::Error>(())
    /// ```
    pub fn part(&mut self, offset: u64, size: Option<u64>) -> &mut MountOptions {
        self.low.part = Part::Range { offset, size };
        self
    }

    /// A partition of an image or a device with a GPT or an MBR: a number, else a UUID or a name,
    /// of the partition or of the volume in it. One that is not there is told by
    /// [`Volume::open`](crate::Volume::open).
    pub fn partition(&mut self, name: &str) -> &mut MountOptions {
        self.low.part = Part::Partition(name.to_owned());
        self
    }

    /// Where the journal is, on a volume that has it on another device.
    pub fn journal_path(&mut self, path: impl Into<PathBuf>) -> &mut MountOptions {
        self.low.journal_path = Some(path.into());
        self
    }

    /// The file for records of synced files: in persistent memory (DAX), or what stands in for
    /// that; its content is zeroes, or what a volume left there. A sync stores its record in it
    /// and waits for no device. The journal has to have such records (`sync=file`). After a
    /// crash the volume needs it; what it survives is said by
    /// [`Volume::region`](crate::low::Volume::region).
    pub fn nvm(&mut self, path: impl Into<PathBuf>) -> &mut MountOptions {
        self.low.nvm = Some(RegionFile::from(path.into()));
        self
    }

    /// The same in a part of a file, from byte `offset` on, of `size` bytes, both multiples of 64.
    /// Other parts are for other volumes.
    pub fn nvm_part(
        &mut self,
        path: impl Into<PathBuf>,
        offset: u64,
        size: u64,
    ) -> &mut MountOptions {
        self.low.nvm = Some(RegionFile {
            path: path.into(),
            offset,
            size: Some(size),
        });
        self
    }

    /// Longest time until a change is committed by itself, in whole seconds (5 s).
    pub fn commit_interval(&mut self, time: Duration) -> &mut MountOptions {
        let seconds = u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
        self.low.fs.commit_secs = seconds.max(1);
        self
    }

    /// Has volumes to which the same is done become the same, byte for byte, when they are closed:
    /// all times are `seconds` since 1970, what is set later is that, too, and nothing is left to
    /// chance. One thread uses the volume, for two are not put into an order. What is freed is
    /// discarded, and the log is cleared when the volume is closed. A volume made by
    /// `mke2fs -U UUID -E hash_seed=UUID` with `SOURCE_DATE_EPOCH` set is the same each time.
    pub fn epoch(&mut self, seconds: u64) -> &mut MountOptions {
        self.low.fs.epoch = Some(seconds);
        self
    }

    /// Whether every change is durable when the operation returns.
    pub fn sync(&mut self, sync: bool) -> &mut MountOptions {
        self.low.fs.sync = sync;
        self
    }

    /// Bytes of memory for the cache (128 MiB).
    pub fn cache(&mut self, bytes: u64) -> &mut MountOptions {
        self.low.fs.cache_bytes = bytes;
        self
    }

    /// How access times are kept.
    pub fn access_times(&mut self, atime: Atime) -> &mut MountOptions {
        self.low.fs.atime = atime;
        self
    }

    /// Whose new files are (root's). In a directory with set-group-id, the group is the
    /// directory's.
    pub fn owner(&mut self, uid: u32, gid: u32) -> &mut MountOptions {
        self.maker = Ctx { uid, gid, pid: 0 };
        self
    }

    /// Permissions that new files do not have (022). Where a directory has a default ACL, that
    /// counts in its place.
    pub fn umask(&mut self, mask: u32) -> &mut MountOptions {
        self.umask = Some(mask & 0o777);
        self
    }

    pub(crate) fn effective_umask(&self) -> u32 {
        self.umask.unwrap_or(UMASK)
    }

    /// As the volume at `path` is to be opened.
    ///
    /// # Errors
    /// What is wrong, as a sentence.
    pub(crate) fn settle(&self, path: &Path) -> Result<VolumeOptions, String> {
        let mut low = self.low.clone();
        if low.fs.no_recovery && !low.fs.read_only {
            return Err(
                "a volume whose journal is not replayed can be opened read-only alone".into(),
            );
        }
        if self.composed {
            return Ok(low);
        }
        let said = self.journal.iter().map(|(n, v)| (n.as_str(), v.as_str()));
        let said: Vec<(&str, &str)> = match self.preset {
            Some(_) => said.collect(),
            None => data_of(&Source {
                path: path.to_owned(),
                part: low.part.clone(),
                ..Source::default()
            })
            .into_iter()
            .map(|v| ("data", v))
            .chain(said)
            .collect(),
        };
        let preset = match &self.preset {
            Some(name) => name.parse().map_err(|e: low::BadJournal| e.to_string())?,
            None => Preset::default(),
        };
        low.fs.journal = Composition::new(preset, said).map_err(|e| e.to_string())?;
        if low.nvm.is_some() && !low.fs.read_only {
            low::check_region(&low.fs.journal)?;
        }
        Ok(low)
    }
}

/// What the volume itself asks the journal to do with data. Why that cannot be seen is told by
/// whoever opens it.
fn data_of(source: &Source) -> Option<&'static str> {
    let own = low::own_options(source).unwrap_or_default();
    own.iter()
        .rev()
        .find_map(|option| option.strip_prefix("data="))
}

impl From<VolumeOptions> for MountOptions {
    /// All that there is to say of a volume, its journal included.
    fn from(low: VolumeOptions) -> MountOptions {
        MountOptions {
            low,
            composed: true,
            ..MountOptions::default()
        }
    }
}
