//! The first look: facts about a volume that are needed before its devices are opened, that is, its
//! place, the device of its journal, and its own mount options.
//!
//! A server that gives up its privileges before it reads anything leaves this to another process,
//! which has no privileges either: it opens the source ([`Unlooked::open`]), gives them up, and
//! reads ([`Unlooked::look`]). The facts are read again when the volume is open and locked.

use std::path::{Path, PathBuf};

use stetfs_block::{BlockDevice, BlockError, Peek, SparseDevice, SparseMap, Window};
use stetfs_ext4::{FsError, Result, is_journal, journal_device_of, read_superblock};
use stetfs_nbd::{Address, NbdOptions, Unconnected};

use super::external::by_uuid;
use super::own_options::options_of;
use super::part::{Part, Place, Source, span_of};

/// The result of a first look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirstLook {
    /// The place of the volume in its source.
    pub place: Place,
    /// The UUID of its journal's device, if it is another.
    pub journal: Option<String>,
    /// Mount options that the volume stores ([`own_options`]).
    pub own_options: Vec<&'static str>,
}

/// The mount options that a volume stores, for callers that do not mount it.
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

/// A volume's source, open and not locked, before anything is read from it.
pub struct Unlooked {
    path: PathBuf,
    part: Part,
    open: Open,
}

impl Unlooked {
    /// Opens the source; to an export it connects.
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

    /// Reads the facts. A source without a volume has none; opening it reports that.
    ///
    /// # Errors
    /// `Unsuitable` and `Missing` if there is no such part; the errors of the host, or of the
    /// server.
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

/// The device of a volume's journal, by its UUID, open and not locked, before anything is read from
/// it.
pub struct UnlookedJournal {
    path: PathBuf,
    disk: Peek,
    uuid: String,
}

impl UnlookedJournal {
    /// Opens the device that udev links by this UUID; `None` if there is none.
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

    /// Checks that it is a journal, and the right one: a volume may name any device of this
    /// machine.
    ///
    /// # Errors
    /// `JournalDevice` if not; the errors of the host.
    pub fn look(self) -> Result<()> {
        match is_journal(&self.disk, &self.uuid)? {
            true => Ok(()),
            false => Err(no_journal(&self.path)),
        }
    }
}

fn no_journal(path: &Path) -> FsError {
    FsError::JournalDevice(format!(
        "the volume names {} as its journal, but that is not a journal",
        path.display()
    ))
}
