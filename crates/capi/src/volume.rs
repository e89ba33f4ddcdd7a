//! The C functions on volumes.

use std::ffi::c_int;

use crate::answer::{Failed, done, given};
use crate::border::Text;

/// An open volume.
pub struct Volume(pub(crate) stetfs::Volume);

/// The space of a volume (`struct stetfs_space`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Space {
    /// Bytes for files and directories, used or not.
    pub total: u64,
    /// Free bytes.
    pub free: u64,
    /// Free bytes without those reserved for the administrator.
    pub available: u64,
    /// Number of inodes.
    pub files: u64,
    /// Number of free inodes.
    pub files_free: u64,
}

impl From<stetfs::Space> for Space {
    fn from(s: stetfs::Space) -> Space {
        Space {
            total: s.total,
            free: s.free,
            available: s.available,
            files: s.files,
            files_free: s.files_free,
        }
    }
}

/// Makes a volume in a file or on a device.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_format(image: Text, options: Text) -> c_int {
    done(|| {
        let image = given(image.path(), "image")?;
        let options = options.utf8();
        let options = options.ok_or_else(|| Failed::argument("the options are no UTF-8"))?;
        let options = options.parse::<stetfs::FormatOptions>();
        let options = options.map_err(|bad| Failed::argument(bad.to_string()))?;
        stetfs::Volume::format(image, &options)?;
        Ok(())
    })
}

/// Opens the volume of an image or a device into `volume`.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_open(
    image: Text,
    options: Text,
    volume: Option<&mut *mut Volume>,
) -> c_int {
    done(|| {
        let place = given(volume, "volume")?;
        let image = given(image.path(), "image")?;
        let options = options.utf8();
        let options = options.ok_or_else(|| Failed::argument("the options are no UTF-8"))?;
        let options = options.parse::<stetfs::MountOptions>();
        let options = options.map_err(|bad| Failed::argument(bad.to_string()))?;
        let opened = stetfs::Volume::open(image, &options)?;
        *place = Box::into_raw(Box::new(Volume(opened)));
        Ok(())
    })
}

/// Writes everything back and closes the volume as clean. The handle is invalid afterwards,
/// whatever the result.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_close(volume: Option<Box<Volume>>) -> c_int {
    done(|| match volume {
        Some(volume) => Ok(volume.0.close()?),
        None => Ok(()),
    })
}

/// Makes all earlier changes durable.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_sync(volume: Option<&Volume>) -> c_int {
    done(|| Ok(given(volume, "volume")?.0.sync_all()?))
}

/// Reads the space of a volume.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_space(volume: Option<&Volume>, space: Option<&mut Space>) -> c_int {
    done(|| {
        *given(space, "space")? = given(volume, "volume")?.0.space().into();
        Ok(())
    })
}
