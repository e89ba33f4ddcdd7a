//! What has to be read of a volume before its devices are opened: where it is, where its journal
//! is, and how it wants to be mounted.
//!
//! A server that gives its privileges away before it reads anything has this read by another
//! process, which has none either: it opens the source ([`Unlooked::open`]), gives all away, and
//! reads ([`Unlooked::look`]). What it says is read once more when the volume is open and locked.

use std::path::{Path, PathBuf};

use stetfs_block::{BlockDevice, BlockError, Peek, SparseDevice, SparseMap, Window};
use stetfs_ext4::{FsError, Result, is_journal, journal_device_of, read_superblock};
use stetfs_nbd::{Address, NbdOptions, Unconnected};

use super::external::by_uuid;
use super::own_options::options_of;
use super::part::{Part, Place, Source, span_of};

/// The findings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirstLook {
    /// Where the volume is.
    pub place: Place,
    /// The UUID of the device that its journal is on, if that is another one.
    pub journal: Option<String>,
    /// Mount options that it has of its own ([`own_options`]).
    pub own_options: Vec<&'static str>,
}

/// The options of a volume, for who mounts nothing.
///
/// # Errors
/// As [`Unlooked::open`] and [`Unlooked::look`].
pub fn own_options(source: &Source) -> Result<Vec<&'static str>> {
    let look = Unlooked::open(source, NbdOptions::default())?.look()?;
    Ok(look.own_options)
}

enum Open {
    File(Peek),
    Export(Box<Unconnected>),
}

/// A volume's source, open and not locked, of which nothing was read yet.
pub struct Unlooked {
    path: PathBuf,
    part: Part,
    open: Open,
}

impl Unlooked {
    /// Opens it; an export is connected to.
    ///
    /// # Errors
    /// It cannot be read, or is an export in use.
    pub fn open(source: &Source, nbd: NbdOptions) -> Result<Unlooked> {
        let path = source.path.clone();
        let open = match Address::is_meant(&path) {
            true => {
                let one = NbdOptions {
                    connections: 1,
                    ..nbd
                };
                let mut export = Unconnected::prepare(&path, one)?;
                export.reach()?;
                Open::Export(Box::new(export))
            }
            false => Open::File(Peek::open(&path)?),
        };
        let part = source.part.clone();
        Ok(Unlooked { path, part, open })
    }

    /// Reads what there is to know. Of what is no volume nothing is: that is told by who opens it.
    ///
    /// # Errors
    /// `Unsuitable` and `Missing` where there is no such part; what the host, or the server, says.
    pub fn look(self) -> Result<FirstLook> {
        let Unlooked { path, part, open } = self;
        let (place, disk): (_, Box<dyn BlockDevice>) = match open {
            Open::Export(export) => (Place::default(), Box::new(export.connect(true)?)),
            Open::File(disk) => {
                let place = Place::read(&disk, &path, &part)?;
                match place.is_sparse {
                    false => (place, Box::new(disk)),
                    true => {
                        let unsuitable = |reason| BlockError::Unsuitable {
                            path: path.clone(),
                            reason,
                        };
                        let map = SparseMap::read(&disk);
                        let map = map.map_err(|e| unsuitable(e.to_string()))?;
                        (place, Box::new(SparseDevice::new(disk, map)))
                    }
                }
            }
        };
        let mut look = FirstLook {
            place,
            ..FirstLook::default()
        };
        let volume: Box<dyn BlockDevice> = match span_of(&path, &part, &*disk)? {
            None => disk,
            Some(span) => Box::new(Window::new(disk, span, &path)?),
        };
        if let Ok(sb) = read_superblock(&*volume) {
            look.journal = journal_device_of(&sb);
            look.own_options = options_of(&sb);
        }
        Ok(look)
    }
}

/// The device that a volume's journal is on, by its UUID, open and not locked, of which nothing
/// was read yet.
pub struct UnlookedJournal {
    path: PathBuf,
    disk: Peek,
    uuid: String,
}

impl UnlookedJournal {
    /// Opens what udev links by that UUID; `None` where nothing is.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn open(uuid: &str) -> Result<Option<UnlookedJournal>> {
        let path = by_uuid(uuid);
        if !path.exists() {
            return Ok(None);
        }
        let disk = Peek::open(&path)?;
        let uuid = uuid.to_owned();
        Ok(Some(UnlookedJournal { path, disk, uuid }))
    }

    /// Whether it is a journal, and that one: a volume may name any device of this machine.
    ///
    /// # Errors
    /// `JournalDevice` if not; what the host says.
    pub fn look(self) -> Result<()> {
        match is_journal(&self.disk, &self.uuid)? {
            true => Ok(()),
            false => Err(no_journal(&self.path)),
        }
    }
}

fn no_journal(path: &Path) -> FsError {
    FsError::JournalDevice(format!(
        "the volume says that its journal is on {}, which is none",
        path.display()
    ))
}
