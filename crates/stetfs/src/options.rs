//! Options with which a volume is opened.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::low::options::VolumeRequest;
use crate::low::{self, Atime, Ctx, Part, RegionFile, Source, VolumeOptions};

/// Options with which a volume is opened, set one by one as in [`std::fs::OpenOptions`], or read
/// from text as `stetfs mount -o` takes it.
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
    pub(crate) request: VolumeRequest,
    /// The journal is given as a composition already, in `request.fs`.
    composed: bool,
    preset: Option<String>,
    pub(crate) maker: Ctx,
    umask: Option<u32>,
}

/// The default umask: other users get no write permission on new files.
const UMASK: u32 = 0o022;

impl MountOptions {
    /// Opens for reading and writing, with the journal mode that the volume stores, or jbd2's
    /// ordered mode.
    pub fn new() -> MountOptions {
        MountOptions::default()
    }

    /// Whether changes are refused. The journal is still replayed, if the image can be written.
    pub fn read_only(&mut self, read_only: bool) -> &mut MountOptions {
        self.request.fs.read_only = read_only;
        self
    }

    /// Whether the journal is replayed (default: yes). Without, the volume is
    /// [read-only](Self::read_only), in the state before the changes in the journal.
    pub fn recovery(&mut self, recovery: bool) -> &mut MountOptions {
        self.request.fs.no_recovery = !recovery;
        self
    }

    /// The journal, by the name of a preset: `ordered`, `data`, `writeback`, `ldj`, `ijournal`
    /// ([`Preset::all`](crate::Preset::all) lists them). [`Volume::open`](crate::Volume::open)
    /// reports an unknown name.
    pub fn journal(&mut self, preset: &str) -> &mut MountOptions {
        self.preset = Some(preset.to_owned());
        self.composed = false;
        self
    }

    /// An option of the journal, as for `stetfs mount -o`, in addition to its
    /// [preset](Self::journal) or instead of a part of it.
    pub fn journal_option(&mut self, name: &str, value: &str) -> &mut MountOptions {
        let journal = &mut self.request.journal;
        journal.push((name.to_owned(), value.to_owned()));
        self.composed = false;
        self
    }

    /// Opens a part of an image or a device: from byte `offset` on, up to its end or `size` bytes.
    /// Both are multiples of its sector size, 512 in an image. Several parts of one image can be
    /// open at once.
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
        self.request.place = Part::Range { offset, size }.into();
        self
    }

    /// The partition of an image or a device with a GPT or an MBR: a number, else a UUID or a name,
    /// of the partition or of the volume in it. [`Volume::open`](crate::Volume::open) reports a
    /// missing one.
    pub fn partition(&mut self, name: &str) -> &mut MountOptions {
        self.request.place = Part::Partition(name.to_owned()).into();
        self
    }

    /// The path of the journal, on a volume that has it on another device.
    pub fn journal_path(&mut self, path: impl Into<PathBuf>) -> &mut MountOptions {
        self.request.journal_path = Some(path.into());
        self
    }

    /// The file for records of synced files, in persistent memory (DAX) or a substitute for it. Its
    /// content is zeroes, or the records that a volume left there. A sync stores its record in it
    /// and waits for no device. The journal must have such records (`sync=file`). After a crash the
    /// volume needs the file; [`Volume::region`](crate::low::Volume::region) states what the
    /// records survive.
    pub fn nvm(&mut self, path: impl Into<PathBuf>) -> &mut MountOptions {
        self.request.nvm = RegionFile::from(path.into()).into();
        self
    }

    /// The same with a part of a file, from byte `offset` on, of `size` bytes, both multiples of
    /// 64. Other parts are for other volumes.
    pub fn nvm_part(
        &mut self,
        path: impl Into<PathBuf>,
        offset: u64,
        size: u64,
    ) -> &mut MountOptions {
        let region = RegionFile {
            path: path.into(),
            offset,
            size: Some(size),
        };
        self.request.nvm = region.into();
        self
    }

    /// Longest time before a change is committed by itself, in whole seconds (default: 5 s).
    pub fn commit_interval(&mut self, time: Duration) -> &mut MountOptions {
        let seconds = u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
        self.request.fs.commit_secs = seconds.max(1);
        self
    }

    /// Makes volumes reproducible: after the same operations they are equal, byte for byte, when
    /// they are closed. All times are `seconds` since 1970, also times set later, and nothing is
    /// random. The volume must be used by one thread, because the order of several is undefined.
    /// Freed space is discarded, and the log is cleared when the volume is closed. A volume made by
    /// `mke2fs -U UUID -E hash_seed=UUID` with `SOURCE_DATE_EPOCH` set is the same each time.
    pub fn epoch(&mut self, seconds: u64) -> &mut MountOptions {
        self.request.fs.epoch = Some(seconds);
        self
    }

    /// Whether every change is durable when the operation returns.
    pub fn sync(&mut self, sync: bool) -> &mut MountOptions {
        self.request.fs.sync = sync;
        self
    }

    /// Size of the cache, bytes (default: 128 MiB).
    pub fn cache(&mut self, bytes: u64) -> &mut MountOptions {
        self.request.cache = Some(bytes);
        self
    }

    /// The policy for access times.
    pub fn access_times(&mut self, atime: Atime) -> &mut MountOptions {
        self.request.fs.atime = atime;
        self
    }

    /// Owner and group of new files (default: root). In a directory with set-group-id, the group is
    /// the directory's.
    pub fn owner(&mut self, uid: u32, gid: u32) -> &mut MountOptions {
        self.maker = Ctx { uid, gid, pid: 0 };
        self
    }

    /// Permissions that new files do not get (default: 022). A default ACL of the directory
    /// replaces it.
    pub fn umask(&mut self, mask: u32) -> &mut MountOptions {
        self.umask = Some(mask & 0o777);
        self
    }

    pub(crate) fn effective_umask(&self) -> u32 {
        self.umask.unwrap_or(UMASK)
    }

    /// The options with which to open the volume at `path`.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub(crate) fn settle(&self, path: &Path) -> Result<VolumeOptions, String> {
        if self.composed {
            return self.request.settle_with(self.request.fs.journal.clone());
        }
        let mut request = self.request.clone();
        if let Some(name) = &self.preset {
            request.preset = Some(name.parse().map_err(|e: low::BadJournal| e.to_string())?);
        }
        if request.preset.is_none() {
            let source = Source {
                path: path.to_owned(),
                part: request.place.part()?,
                ..Source::default()
            };
            request.volume_data = data_of(&source).map(str::to_owned);
        }
        request.settle()
    }
}

/// The journal mode for data that the volume stores. If it cannot be read, opening the volume
/// reports why.
fn data_of(source: &Source) -> Option<&'static str> {
    let own = low::own_options(source).unwrap_or_default();
    own.iter()
        .rev()
        .find_map(|option| option.strip_prefix("data="))
}

impl From<VolumeOptions> for MountOptions {
    /// All options of a volume, its journal included.
    fn from(low: VolumeOptions) -> MountOptions {
        MountOptions {
            request: low.into(),
            composed: true,
            ..MountOptions::default()
        }
    }
}
