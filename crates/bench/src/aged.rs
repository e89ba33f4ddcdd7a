//! Simulated SSDs that were used before.

use anyhow::Result;
use stetfs::low::{BlockDevice, MemDevice};
use stetfs_flash::Ssd;
use stetfs_flash::ftl::{Ageing, FtlKind, Geometry, PAGE};

/// Size of an erase block, bytes, and the percentage of spare ones.
const ERASE_BLOCK: u64 = 4 << 20;
const SPARE: u32 = 15;

/// An SSD that holds only the volume. With `aged` all of it was first written once in sequence and
/// once more in runs and single pages.
pub(crate) fn ssd(volume: &MemDevice, aged: bool) -> Result<Ssd> {
    let mut layer = FtlKind::Page.make(Geometry::new(volume.size(), ERASE_BLOCK, SPARE)?);
    if aged {
        Ageing::FULL.run(&mut *layer, &mut ())?;
    }
    let ssd = Ssd::new(layer, true);
    for range in MemDevice::new(volume.size()).differences(volume) {
        let mut page = vec![0; PAGE as usize];
        for at in range.step_by(page.len()) {
            volume.read(at, &mut page)?;
            ssd.write(at, &page)?;
        }
    }
    ssd.flush()?;
    Ok(ssd)
}
