//! The places that arguments name: paths of the host and paths in volumes.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use stetfs::low::NbdAddress;

use crate::failure::{Code, Failure, Result};

/// A path of the host, or one in a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A path of the host.
    Host(PathBuf),
    /// A path in the volume of an image.
    Inside {
        /// The image file or block device.
        image: PathBuf,
        /// The path in the volume; it begins with a slash.
        path: PathBuf,
    },
}

impl From<OsString> for Place {
    fn from(text: OsString) -> Place {
        Place::from(text.as_os_str())
    }
}

impl From<&OsStr> for Place {
    /// The image ends at the first colon that is followed by a slash or by nothing; in an address,
    /// colons of its scheme do not count.
    fn from(text: &OsStr) -> Place {
        let bytes = text.as_bytes();
        let scheme = match NbdAddress::is_meant(Path::new(text)) {
            true => bytes.iter().position(|b| *b == b':').unwrap_or(0),
            false => 0,
        };
        let ends = |(at, b): (usize, &u8)| {
            *b == b':' && at > scheme && matches!(bytes.get(at + 1), None | Some(b'/'))
        };
        let Some((image, path)) = bytes.iter().enumerate().position(ends).map(|at| {
            let (image, rest) = bytes.split_at(at);
            (image, rest.get(1..).unwrap_or_default())
        }) else {
            return Place::Host(text.into());
        };
        let path = match path {
            [] => b"/",
            path => path,
        };
        Place::Inside {
            image: OsStr::from_bytes(image).into(),
            path: OsStr::from_bytes(path).into(),
        }
    }
}

impl Place {
    /// The image and the path in its volume.
    ///
    /// # Errors
    /// It is a path of the host.
    pub(super) fn inside(&self) -> Result<(&Path, &Path)> {
        match self {
            Place::Inside { image, path } => Ok((image, path)),
            Place::Host(path) => {
                let message = format!("{} does not name a place in a volume", path.display());
                Err(Failure::new(Code::Usage, message)
                    .hint("write IMAGE:/PATH, such as disk.img:/etc"))
            }
        }
    }
}

/// The name that a copy gets in a directory. `None` for a root and for paths that end in `.` or
/// `..`: then the content of the directory is copied.
pub(super) fn last_name(path: &Path) -> Option<&OsStr> {
    let text = path.as_os_str().as_encoded_bytes();
    match text.ends_with(b"/.") || text == b"." {
        true => None,
        false => path.file_name(),
    }
}

pub(super) fn ends_with_slash(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(b"/")
}

/// The directory of a path and the name in it, which may be that of a symbolic link. There is no
/// name if the path can only be a directory: with a slash at its end, as `.` or `..`, or a root.
pub(super) fn split(path: &Path) -> (&Path, Option<&OsStr>) {
    match (path.parent(), last_name(path)) {
        (Some(dir), Some(name)) if !ends_with_slash(path) => {
            let here = dir.as_os_str().is_empty();
            (if here { Path::new(".") } else { dir }, Some(name))
        }
        _ => (path, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_before_a_slash_ends_the_image() {
        let inside = |image: &str, path: &str| Place::Inside {
            image: image.into(),
            path: path.into(),
        };
        for (text, place) in [
            ("disk.img:/etc", inside("disk.img", "/etc")),
            ("/images/disk.img:/", inside("/images/disk.img", "/")),
            ("disk.img:", inside("disk.img", "/")),
            ("./a:b", Place::Host("./a:b".into())),
            ("a:b:/c:/d", inside("a:b", "/c:/d")),
            (":/etc", Place::Host(":/etc".into())),
            ("nbd://a:1/b:/c", inside("nbd://a:1/b", "/c")),
            (
                "nbd+unix:///b?socket=/s:",
                inside("nbd+unix:///b?socket=/s", "/"),
            ),
            ("plain", Place::Host("plain".into())),
        ] {
            assert_eq!(Place::from(OsStr::new(text)), place, "{text}");
        }
    }
}
