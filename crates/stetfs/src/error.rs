//! Errors that say what was tried, where, and why it failed.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::low::{BlockError, FsError};

/// Result of the operations of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed: what was tried, the path, and the reason.
///
/// ```
/// # let image = stetfs_testkit::Image::make(16 << 20, &Default::default()).unwrap();
/// # let volume = stetfs::Volume::open(image.path(), &stetfs::MountOptions::new())?;
/// let error = volume.open_file("/no/such/file").unwrap_err();
/// assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
/// let said = "cannot open /no/such/file: No such file or directory (os error 2)";
/// assert_eq!(error.to_string(), said);
///
/// // `?` makes an `io::Error` of it, which says the same.
/// let error = std::io::Error::from(error);
/// assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
/// # Ok::<(), stetfs::Error>(())
/// ```
#[derive(Debug)]
pub struct Error(Box<Failed>);

#[derive(Debug)]
struct Failed {
    /// As a verb: "open".
    doing: &'static str,
    path: PathBuf,
    /// The other path, where there are two.
    to: Option<PathBuf>,
    why: Why,
}

/// A reason.
#[derive(Clone, Debug)]
pub(crate) enum Why {
    /// The file system's.
    Fs(FsError),
    /// What was asked for makes no sense.
    Invalid(String),
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

    /// Of an operation on two paths.
    pub(crate) fn on_two(doing: &'static str, path: &Path, to: &Path, why: FsError) -> Error {
        let mut error = Error::new(doing, path, why);
        error.0.to = Some(to.to_owned());
        error
    }

    /// The same error for who asked at the directory `dir`, as of
    /// [`Volume::within`](crate::Volume::within): its paths begin with that.
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

    /// The path that it is about: one of the volume's, or the image's if the volume could not be
    /// opened or closed.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The kind that [`std::fs`] would give it.
    pub fn kind(&self) -> io::ErrorKind {
        self.errno().kind()
    }

    /// The number that Linux would give it.
    pub fn raw_os_error(&self) -> Option<i32> {
        self.errno().raw_os_error()
    }

    /// The reason as the file system says it, if it comes from there.
    pub fn reason(&self) -> Option<&FsError> {
        match &self.0.why {
            Why::Fs(e) => Some(e),
            Why::Invalid(_) => None,
        }
    }

    fn errno(&self) -> io::Error {
        let number = match &self.0.why {
            Why::Fs(FsError::Device(e)) => e.errno(),
            Why::Fs(e) => e.errno(),
            Why::Invalid(_) => rustix::io::Errno::INVAL.raw_os_error(),
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
        // Says so itself.
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
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.reason().map(|e| e as _)
    }
}

/// With the same kind and text. [`io::Error::get_ref`] and a downcast give the [`Error`] back, with
/// [its number](Error::raw_os_error).
impl From<Error> for io::Error {
    fn from(e: Error) -> io::Error {
        io::Error::new(e.kind(), e)
    }
}
