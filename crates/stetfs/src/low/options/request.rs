//! A request: the options of a volume as they were given, before they are checked together.

use std::path::PathBuf;

use stetfs_block::{Direct, Uring};
use stetfs_ext4::FsOptions;
use stetfs_journal::{Composition, Preset};
use stetfs_nbd::NbdOptions;

use super::super::part::Source;
use super::super::region::check_region;
use super::super::volume::VolumeOptions;
use super::place::{PlaceRequest, RegionRequest};

/// The options of a volume as they were given. [`VolumeRequest::settle`] gives their effect.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VolumeRequest {
    /// Options of the file system, and defaults of those that nobody said. Its journal counts for
    /// [`settle_with`](VolumeRequest::settle_with) alone.
    pub fs: FsOptions,
    /// The preset of the journal.
    pub preset: Option<Preset>,
    /// Options of the journal, in the order in which they were given.
    pub journal: Vec<(String, String)>,
    /// `data=` of the volume's own options, which counts where no preset is said.
    pub volume_data: Option<String>,
    /// Bound of the cache in bytes; `None` for the one in `fs`.
    pub cache: Option<u64>,
    /// Bytes of an erase block; `None` for those in `fs`.
    pub erase_block: Option<u64>,
    /// The part of the image or device.
    pub place: PlaceRequest,
    /// The path of the journal, on a volume that has it on another device.
    pub journal_path: Option<PathBuf>,
    /// The file for records of synced files.
    pub nvm: RegionRequest,
    /// How an NBD server is used.
    pub nbd: NbdOptions,
    /// Whether requests pass the host's page cache by. No option says so.
    pub direct: Direct,
    /// Whether io_uring is used. No option says so.
    pub uring: Uring,
}

impl From<VolumeOptions> for VolumeRequest {
    fn from(volume: VolumeOptions) -> VolumeRequest {
        let VolumeOptions {
            fs,
            part,
            journal_path,
            nvm,
            direct,
            uring,
            nbd,
        } = volume;
        VolumeRequest {
            fs,
            place: part.into(),
            journal_path,
            nvm: nvm.map(RegionRequest::from).unwrap_or_default(),
            nbd,
            direct,
            uring,
            ..VolumeRequest::default()
        }
    }
}

impl VolumeRequest {
    /// The journal.
    ///
    /// # Errors
    /// Options that make no sense together; a sentence.
    pub fn composition(&self) -> Result<Composition, String> {
        let of_volume = self.volume_data.as_deref().map(|data| ("data", data));
        let of_volume = of_volume.filter(|_| self.preset.is_none());
        let said = self.journal.iter().map(|(n, v)| (n.as_str(), v.as_str()));
        Composition::new(
            self.preset.unwrap_or_default(),
            of_volume.into_iter().chain(said),
        )
        .map_err(|bad| bad.0)
    }

    /// The options of the file system, with this journal.
    pub fn fs_options(&self, journal: Composition) -> FsOptions {
        FsOptions {
            journal,
            cache_bytes: self.cache.unwrap_or(self.fs.cache_bytes),
            erase_block: self.erase_block.unwrap_or(self.fs.erase_block),
            ..self.fs.clone()
        }
    }

    /// The volume at `path` that the request means.
    ///
    /// # Errors
    /// Options that contradict each other; a sentence.
    pub fn source(&self, path: impl Into<PathBuf>) -> Result<Source, String> {
        Ok(Source {
            path: path.into(),
            part: self.place.part()?,
            journal_path: self.journal_path.clone(),
            nvm: self.nvm.region()?,
        })
    }

    /// The options with which the volume is opened.
    ///
    /// # Errors
    /// Options that contradict each other; a sentence.
    pub fn settle(&self) -> Result<VolumeOptions, String> {
        self.settle_with(self.composition()?)
    }

    /// The options with which the volume is opened, with a journal that was composed before.
    ///
    /// # Errors
    /// Options that contradict each other; a sentence.
    pub fn settle_with(&self, journal: Composition) -> Result<VolumeOptions, String> {
        if self.fs.no_recovery && !self.fs.read_only {
            return Err(
                "norecovery needs ro: a volume whose journal was not replayed cannot be written"
                    .into(),
            );
        }
        let fs = self.fs_options(journal);
        let nvm = self.nvm.region()?;
        if nvm.is_some() && !fs.read_only {
            check_region(&fs.journal)?;
        }
        Ok(VolumeOptions {
            fs,
            part: self.place.part()?,
            journal_path: self.journal_path.clone(),
            nvm,
            direct: self.direct,
            uring: self.uring,
            nbd: self.nbd,
        })
    }
}
