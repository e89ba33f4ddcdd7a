//! Fuzz target for whole volumes: they are damaged, opened (with a journal replay), walked, changed
//! and closed.

use std::sync::{Arc, OnceLock};

use stetfs::low::{BlockDevice, Fs, FsOptions, OnError, Preset};
use stetfs_crash::volume::options;

use crate::images::{Image, images};
use crate::input::Input;
use crate::visit::{change, wander};

/// Most places that are damaged.
const PATCHES: usize = 64;

/// Fuzzes a volume. The bytes choose a volume and options, then places in its metadata and new
/// content for them: kind of block, its number, offset, length, content.
pub fn run(bytes: &[u8]) {
    static IMAGES: OnceLock<Vec<Image>> = OnceLock::new();
    let images = IMAGES.get_or_init(images);
    let mut input = Input::new(bytes);
    let image = &images[usize::from(input.byte()) % images.len()];
    let how = input.byte();
    let device = Arc::new(image.device.fork());
    for _ in 0..PATCHES {
        if input.is_empty() {
            break;
        }
        let kind = &image.targets[usize::from(input.byte()) % image.targets.len()];
        let nr = kind[usize::from(input.word()) % kind.len()];
        let offset = u64::from(input.word()) % image.block;
        let room = (image.block - offset) as usize;
        let len = usize::from(input.byte()).min(room);
        device
            .write(nr * image.block + offset, input.take(len))
            .unwrap();
    }
    let options = FsOptions {
        read_only: how & 1 != 0,
        on_error: Some(if how & 2 == 0 {
            OnError::Continue
        } else {
            OnError::RemountRo
        }),
        cache_bytes: 2 << 20,
        ..options(Preset::on_a_device()[usize::from(how >> 2) % Preset::on_a_device().len()])
    };
    let Ok(fs) = Fs::open(device, options) else {
        return;
    };
    let mut rng = fastrand::Rng::with_seed(how.into());
    let found = wander(&fs, &mut rng);
    if how & 1 == 0 {
        change(&fs, &found, &mut rng);
    }
    let _ = fs.unmount();
}
