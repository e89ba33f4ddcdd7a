//! The header of a region, which says whose region it is.

use std::ops::Range;
use std::sync::Arc;

use stetfs_nvm::Region;
use stetfs_ondisk::num::to_usize;
use stetfs_ondisk::stet::region::{
    COPIES, HEADER_BYTES, HEADER_MAGIC, LANES_AT, RegionHeader, State,
};
use stetfs_ondisk::{OnDiskError, uuid};
use stetfs_sync::plain::Mutex;

use super::MOST_BYTES;
use super::error::RegionError;
use crate::error::Result;

/// The number of bytes compared at once.
const PIECE: usize = 1 << 20;

/// The owner of a region: one mount of one volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The UUID of the volume.
    pub uuid: [u8; 16],
    /// The epoch of its log, drawn for the mount.
    pub epoch: u64,
}

/// The header that a region is found to have.
enum Found {
    /// None: a new file.
    Blank,
    /// A part of the first copy: a crash while a new file was taken.
    Torn,
    /// The newer of the valid copies.
    Header(RegionHeader),
    /// No valid copy.
    Other(OnDiskError),
}

fn look(region: &dyn Region) -> Result<Found> {
    let (mut best, mut wrong): (Option<RegionHeader>, _) = (None, None);
    let (mut blank, mut torn) = (false, false);
    for at in COPIES {
        let mut bytes = [0; HEADER_BYTES];
        region.read(at, &mut bytes)?;
        match RegionHeader::decode(&bytes) {
            Ok(header) => {
                let newer = best.is_none_or(|b| header.generation > b.generation);
                best = newer.then_some(header).or(best);
            }
            Err(_) if bytes == [0; HEADER_BYTES] => blank = true,
            Err(e) => {
                torn = bytes.starts_with(&HEADER_MAGIC);
                wrong = Some(e);
            }
        }
    }
    Ok(match (best, wrong) {
        (Some(header), _) => Found::Header(header),
        (None, Some(OnDiskError::Corrupt { .. })) if blank && torn => Found::Torn,
        (None, Some(e)) => Found::Other(e),
        (None, None) => Found::Blank,
    })
}

/// Whether all these bytes are zero.
fn is_blank(region: &dyn Region, range: Range<u64>) -> Result<bool> {
    let mut bytes = vec![0; PIECE];
    for at in range.clone().step_by(PIECE) {
        bytes.truncate(to_usize(range.end - at));
        region.read(at, &mut bytes)?;
        if bytes.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The contents that a region is made for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    /// The number of lanes of records.
    pub(super) lanes: u16,
    /// Whether it has a log of transactions.
    pub(super) log: bool,
    /// The size of a block of the volume, in bytes.
    pub(super) block_size: u32,
}

/// A region that belongs to a mount of a volume.
pub(super) struct Claim {
    region: Arc<dyn Region>,
    header: Mutex<RegionHeader>,
}

impl Claim {
    /// Takes an empty region, durably. Until it is marked as in use, other mounts may take it, too.
    ///
    /// # Errors
    /// The region's; [`RegionError`].
    pub(super) fn take(region: Arc<dyn Region>, owner: Owner, held: Held) -> Result<Claim> {
        let Owner { uuid, epoch } = owner;
        let size = region.size().min(MOST_BYTES);
        if size < LANES_AT {
            let least = LANES_AT;
            return Err(RegionError::TooSmall { size, least }.into());
        }
        let generation = match look(&*region)? {
            // The bytes that the region has gained since may be another volume's.
            Found::Header(old)
                if old.state == State::Empty && !is_blank(&*region, old.size..size)? =>
            {
                return Err(RegionError::Grown(old.size).into());
            }
            Found::Header(old) if old.state == State::Empty => old.generation + 1,
            Found::Header(old) if old.uuid == uuid => return Err(RegionError::Earlier.into()),
            Found::Header(old) => return Err(RegionError::InUse(old.uuid).into()),
            // Other formats may have zeroes in place of the header.
            Found::Blank if !is_blank(&*region, 0..size)? => {
                return Err(RegionError::NotOurs.into());
            }
            Found::Blank | Found::Torn => 1,
            Found::Other(OnDiskError::Corrupt { .. }) => return Err(RegionError::NotOurs.into()),
            Found::Other(e) => return Err(e.into()),
        };
        let header = RegionHeader {
            generation,
            epoch,
            uuid,
            size,
            state: State::Empty,
            lanes: held.lanes,
            block_size: held.block_size,
            log: held.log,
        };
        let claim = Claim {
            region,
            header: Mutex::new(header),
        };
        claim.write(&header)?;
        Ok(claim)
    }

    /// Opens the region of a mount that ended in a crash.
    ///
    /// # Errors
    /// The region's; [`RegionError::Lost`] if it is not of this mount.
    pub(super) fn find(region: Arc<dyn Region>, owner: Owner) -> Result<Claim> {
        let lost = |why: String| Err(RegionError::Lost(why).into());
        if region.size() < LANES_AT {
            return lost(format!("it has {} bytes", region.size()));
        }
        let header = match look(&*region)? {
            Found::Header(header) => header,
            Found::Blank => return lost("it holds only zeroes".into()),
            Found::Torn => return lost("its header was never written completely".into()),
            Found::Other(e) => return lost(e.to_string()),
        };
        if header.uuid != owner.uuid {
            return lost(format!(
                "this one belongs to volume {}",
                uuid::text(&header.uuid)
            ));
        }
        if header.epoch != owner.epoch {
            return lost("this one belongs to another mount of the volume".into());
        }
        if header.size > region.size() {
            return lost(format!(
                "it has {} bytes instead of {}",
                region.size(),
                header.size
            ));
        }
        Ok(Claim {
            region,
            header: Mutex::new(header),
        })
    }

    /// The header.
    pub(super) fn header(&self) -> RegionHeader {
        *self.header.lock()
    }

    /// Marks, durably, whether there may be records.
    pub(super) fn set_state(&self, state: State) -> Result<()> {
        let mut header = self.header.lock();
        let new = RegionHeader {
            generation: header.generation + 1,
            state,
            ..*header
        };
        self.write(&new)?;
        *header = new;
        Ok(())
    }

    /// Writes the header over the older copy, so that a torn write leaves the newer.
    fn write(&self, header: &RegionHeader) -> Result<()> {
        let [even, odd] = COPIES;
        let at = if header.generation.is_multiple_of(2) {
            even
        } else {
            odd
        };
        self.region.store(at, &header.encode())?;
        self.region.persist(at..at + HEADER_BYTES as u64)?;
        Ok(())
    }
}
