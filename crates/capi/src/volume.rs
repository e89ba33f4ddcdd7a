//! Volumes.

use std::ffi::c_int;

use crate::answer::{Failed, done, given};
use crate::border::Text;
use crate::options;

/// An open volume.
pub struct Volume(pub(crate) stetfs::Volume);

/// How much room there is (`struct stetfs_space`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Space {
    /// Bytes for files and directories, used or not.
    pub total: u64,
    /// Bytes that are free.
    pub free: u64,
    /// Of them, bytes that are not kept for the administrator.
    pub available: u64,
    /// Files that there can be.
    pub files: u64,
    /// Files that there can be more.
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
        let opened = stetfs::Volume::open(image, &options::read(options)?)?;
        *place = Box::into_raw(Box::new(Volume(opened)));
        Ok(())
    })
}

/// Brings all home and marks the volume clean. The handle is gone, whatever the answer.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_close(volume: Option<Box<Volume>>) -> c_int {
    done(|| match volume {
        Some(volume) => Ok(volume.0.close()?),
        None => Ok(()),
    })
}

/// Makes durable all that was done before.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_sync(volume: Option<&Volume>) -> c_int {
    done(|| Ok(given(volume, "volume")?.0.sync_all()?))
}

/// How much room there is.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_space(volume: Option<&Volume>, space: Option<&mut Space>) -> c_int {
    done(|| {
        *given(space, "space")? = given(volume, "volume")?.0.space().into();
        Ok(())
    })
}
