//! Fuzz target for Android sparse images: an image that is accepted can be read to its end.

use stetfs_block::{BlockDevice, MemDevice, SparseDevice, SparseMap};

/// Bytes that are read at each place.
const PIECE: u64 = 300;
/// Number of places that are read.
const PLACES: u64 = 64;

/// Reads a sparse image as a device, at places all over it.
pub fn run(bytes: &[u8]) {
    let Ok(map) = SparseMap::read(&bytes) else {
        return;
    };
    let file = MemDevice::new(bytes.len() as u64);
    file.write(0, bytes).unwrap();
    let device = SparseDevice::new(file, map);
    let size = device.size();
    for place in 0..=PLACES {
        let at = (size / PLACES * place).min(size.saturating_sub(PIECE));
        let len = PIECE.min(size - at) as usize;
        device.read(at, &mut vec![0; len]).unwrap();
    }
    assert!(device.read(size, &mut [0]).is_err());
}
