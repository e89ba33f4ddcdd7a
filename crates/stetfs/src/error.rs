//! Errors: the attempted operation, the path, and the reason.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::low::{BlockError, FormatError, FsError};

/// Result of the operations of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The failure of an operation: the attempted operation, the path, and the reason.
///
/// ```
/// # let image = stetfs_testkit::Image::make(16 << 20, &Default::default()).unwrap();
/// # let volume = stetfs::Volume::open(image.path(), &stetfs::MountOptions::new())?;
/// let error = volume.open_file("/no/such/file").unwrap_err();
/// assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
/// let said = "cannot open /no/such/file: No such file or directory (os error 2)";
/// assert_eq!(error.to_string(), said);
///
/// // `?` converts it to an `io::Error` with the same text.
/// let error = std::io::Error::from(error);
/// assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
/// # Ok::<(), stetfs::Error>(())
/// ```
#[derive(Debug)]
pub struct Error(Box<Failed>);

#[derive(Debug)]
struct Failed {
    /// The operation as a verb, such as "open".
    doing: &'static str,
    path: PathBuf,
    /// The second path, of operations with two.
    to: Option<PathBuf>,
    why: Why,
}

/// The reason of an error.
#[derive(Clone, Debug)]
pub(crate) enum Why {
    /// An error of the file system.
    Fs(FsError),
    /// An invalid argument or option.
    Invalid(String),
    /// A volume that is not made.
    Format(FormatError),
}

impl From<FsError> for Why {
    fn from(e: FsError) -> Why {
        Why::Fs(e)
    }
}

impl Error {
    pub(crate) fn new(doing: &'static str, path: &Path, why: impl Into<Why>) -> Error {
        Error(Box::new(Failed {
            doing,
            path: path.to_owned(),
            to: None,
            why: why.into(),
        }))
    }

    /// The error of an operation on two paths.
    pub(crate) fn on_two(doing: &'static str, path: &Path, to: &Path, why: FsError) -> Error {
        let mut error = Error::new(doing, path, why);
        error.0.to = Some(to.to_owned());
        error
    }

    /// The same error with paths that begin with the directory `dir`, for callers of
    /// [`Volume::within`](crate::Volume::within).
    pub fn below(mut self, dir: &Path) -> Error {
        for path in [Some(&mut self.0.path), self.0.to.as_mut()]
            .into_iter()
            .flatten()
        {
            *path = match path == Path::new(".") {
                true => dir.to_owned(),
                false => dir.join(&*path),
            };
        }
        self
    }

    /// The path of the operation: one in the volume, or the image's if the volume could not be
    /// opened or closed.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The kind of the corresponding error of [`std::fs`].
    pub fn kind(&self) -> io::ErrorKind {
        self.errno().kind()
    }

    /// The errno that Linux would return.
    pub fn raw_os_error(&self) -> Option<i32> {
        self.errno().raw_os_error()
    }

    /// The error of the file system, if it is the reason.
    pub fn reason(&self) -> Option<&FsError> {
        match &self.0.why {
            Why::Fs(e) => Some(e),
            Why::Invalid(_) | Why::Format(_) => None,
        }
    }

    /// The reason why a volume was not made ([`Volume::format`](crate::Volume::format)).
    pub fn format_reason(&self) -> Option<&FormatError> {
        match &self.0.why {
            Why::Format(e) => Some(e),
            _ => None,
        }
    }

    fn errno(&self) -> io::Error {
        let number = match &self.0.why {
            Why::Fs(FsError::Device(e)) => e.errno(),
            Why::Fs(e) => e.errno(),
            Why::Format(FormatError::Device(e)) => e.errno(),
            Why::Format(FormatError::Occupied(_)) => Errno::EXIST.raw_os_error(),
            Why::Format(FormatError::Encoding(_)) => Errno::IO.raw_os_error(),
            Why::Invalid(_) | Why::Format(FormatError::Options(_) | FormatError::Size(_)) => {
                Errno::INVAL.raw_os_error()
            }
        };
        io::Error::from_raw_os_error(number)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failed {
            doing,
            path,
            to,
            why,
        } = &*self.0;
        // The device's error contains the path already.
        if let Why::Fs(FsError::Device(e)) = why
            && matches!(&**e, BlockError::Open { path: of, .. } if of == path)
            && *doing == "open"
        {
            return e.fmt(f);
        }
        write!(f, "cannot {doing} {}", path.display())?;
        if let Some(to) = to {
            write!(f, " to {}", to.display())?;
        }
        match why {
            Why::Fs(e) => write!(f, ": {e}"),
            Why::Invalid(e) => write!(f, ": {e}"),
            Why::Format(e) => write!(f, ": {e}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.reason().map(|e| e as _)
    }
}

/// Converts with the same kind and text. [`io::Error::get_ref`] and a downcast return the [`Error`]
/// with [its errno](Error::raw_os_error).
impl From<Error> for io::Error {
    fn from(e: Error) -> io::Error {
        io::Error::new(e.kind(), e)
    }
}
