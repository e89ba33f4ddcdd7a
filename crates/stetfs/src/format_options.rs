//! Options with which a volume is made.

use std::path::Path;

use crate::error::{Error, Result, Why};
use crate::low::{self, FormatError, FormatTarget, Formatted, Part, Profile};
use crate::volume::Volume;

/// Options with which a volume is made, set one by one as [`MountOptions`](crate::MountOptions)
/// are.
///
/// ```
/// # let dir = stetfs_testkit::Scratch::new("format").unwrap();
/// # let path = dir.path().join("disk.img");
/// use stetfs::{FormatOptions, MountOptions, Volume};
///
/// // A sparse file of 64 MiB, with the defaults of mke2fs.
/// Volume::format(&path, FormatOptions::new().size(64 << 20).label("data"))?;
/// let volume = Volume::open(&path, &MountOptions::new())?;
/// volume.write("/notes", "mine")?;
/// volume.close()?;
///
/// // A volume is not overwritten by accident.
/// let error = Volume::format(&path, &FormatOptions::new()).unwrap_err();
/// assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
/// Volume::format(&path, FormatOptions::new().force(true))?;
/// # Ok::<(), stetfs::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct FormatOptions {
    target: FormatTarget,
    numbers: low::FormatOptions,
    /// The texts of [`features`](Self::features).
    features: Vec<String>,
}

impl FormatOptions {
    /// All of a file or device that exists, with the defaults of mke2fs 1.47.
    pub fn new() -> FormatOptions {
        FormatOptions::default()
    }

    /// Size, bytes. A file that does not exist is made with it, sparse.
    pub fn size(&mut self, bytes: u64) -> &mut FormatOptions {
        self.target.size = Some(bytes);
        self
    }

    /// Makes the volume in a part of a file or device: from byte `offset` on, up to its end or
    /// `size` bytes. Both are multiples of its sector size.
    pub fn part(&mut self, offset: u64, size: Option<u64>) -> &mut FormatOptions {
        self.target.part = Part::Range { offset, size };
        self
    }

    /// Makes the volume in this partition: a number, else a UUID or a name.
    pub fn partition(&mut self, name: &str) -> &mut FormatOptions {
        self.target.part = Part::Partition(name.to_owned());
        self
    }

    /// Whether recognised content is overwritten (default: no).
    pub fn force(&mut self, force: bool) -> &mut FormatOptions {
        self.target.force = force;
        self
    }

    /// Whether everything is checked and nothing written (default: no).
    pub fn dry_run(&mut self, dry_run: bool) -> &mut FormatOptions {
        self.target.dry_run = dry_run;
        self
    }

    /// The defaults of everything else.
    pub fn profile(&mut self, profile: Profile) -> &mut FormatOptions {
        self.numbers.profile = profile;
        self
    }

    /// Features to add, and with `^` to leave out, separated by commas: `bigalloc,^resize_inode`.
    /// [`Volume::format`] reports those that a new volume cannot have.
    pub fn features(&mut self, text: &str) -> &mut FormatOptions {
        self.features.push(text.to_owned());
        self
    }

    /// The label, 16 bytes at most.
    pub fn label(&mut self, label: &str) -> &mut FormatOptions {
        self.numbers.label = label.into();
        self
    }

    /// The UUID (default: random).
    pub fn uuid(&mut self, uuid: [u8; 16]) -> &mut FormatOptions {
        self.numbers.uuid = Some(uuid);
        self
    }

    /// Makes volumes reproducible: all times are `seconds` since 1970, and the UUID and the seed of
    /// directory hashes follow from `seed`. Volumes made with the same options are equal, byte for
    /// byte; [`MountOptions::epoch`](crate::MountOptions::epoch) continues that.
    pub fn reproducible(&mut self, seconds: u64, seed: u64) -> &mut FormatOptions {
        self.numbers.epoch = Some(seconds);
        self.numbers.seed = Some(seed);
        self
    }

    /// Owner and group of the root directory (default: root).
    pub fn root_owner(&mut self, uid: u32, gid: u32) -> &mut FormatOptions {
        self.numbers.root_owner = (uid, gid);
        self
    }

    /// The numbers, for those without a method of their own.
    pub fn numbers(&mut self) -> &mut low::FormatOptions {
        &mut self.numbers
    }
}

impl Volume {
    /// Makes a new volume in the image file or on the block device at `path`. It is durable when
    /// this returns, and not open.
    ///
    /// # Errors
    /// It holds a file system or something else that is recognised
    /// ([`AlreadyExists`](std::io::ErrorKind::AlreadyExists)), unless [`FormatOptions::force`] is
    /// set; it is open or mounted ([`ResourceBusy`](std::io::ErrorKind::ResourceBusy)), also with
    /// force; options contradict each other or do not fit the size
    /// ([`InvalidInput`](std::io::ErrorKind::InvalidInput)); the host or the device failed.
    pub fn format(path: impl AsRef<Path>, options: &FormatOptions) -> Result<Formatted> {
        let path = path.as_ref();
        let mut numbers = options.numbers.clone();
        let made = options
            .features
            .iter()
            .try_for_each(|text| numbers.features.edit(text))
            .map_err(FormatError::Options)
            .and_then(|()| low::format(path, &options.target, &numbers));
        made.map_err(|e| Error::new("make a volume in", path, Why::Format(e)))
    }
}
