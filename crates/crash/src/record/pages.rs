//! The content of a volume in the file of a recording: the pages that are not zero.

use anyhow::Result;
use stetfs::low::{BlockDevice, MemDevice};

use super::stream::{In, Out};

/// Bytes of a page in the file.
const PAGE: usize = 4096;

pub(super) fn write(image: &MemDevice, out: &mut Out) -> std::io::Result<()> {
    let size = image.size();
    let empty = MemDevice::new(size);
    let mut page = vec![0; PAGE];
    for range in empty.differences(image) {
        for at in range.step_by(PAGE) {
            let n = (size - at).min(PAGE as u64) as usize;
            let page = &mut page[..n];
            image.read(at, page).map_err(std::io::Error::other)?;
            out.number(at)?;
            out.slice(page)?;
        }
    }
    out.number(u64::MAX)
}

/// Reads the pages that [`write`] wrote into an empty device.
///
/// # Errors
/// The bytes are no such pages, or they do not fit the device.
pub(super) fn read(input: &mut In, image: &MemDevice) -> Result<()> {
    loop {
        let at = input.number()?;
        if at == u64::MAX {
            return Ok(());
        }
        image.write(at, &input.slice(PAGE as u64)?)?;
    }
}
