//! The directory of the control sockets: owned by this user, closed to all others, and kept open.
//!
//! It may have to be created where every user can create directories (`/tmp`). So an existing
//! directory is used only if it is this user's, is not a symbolic link, and is closed to others.
//! Its entries are named through the open directory, which no other user can replace.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use stetfs_fuse::is_root;

/// The path of the directory for this user's mounts.
pub(crate) fn place() -> PathBuf {
    if is_root() {
        return PathBuf::from("/run/stetfs");
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(run) => PathBuf::from(run).join("stetfs"),
        None => {
            let uid = rustix::process::geteuid().as_raw();
            std::env::temp_dir().join(format!("stetfs-{uid}"))
        }
    }
}

/// The error for a directory or a peer of another user.
fn refused(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, what)
}

/// The open directory.
pub(super) struct Dir(OwnedFd);

/// A lock, held while sockets are created and removed: a device number may belong to another mount
/// as soon as its own is taken down, before the server has removed its socket.
pub(super) struct Turn(#[expect(dead_code, reason = "unlocks when it is closed")] OwnedFd);

impl Dir {
    /// Opens the directory, and creates it if it does not exist.
    ///
    /// # Errors
    /// `PermissionDenied`, with advice, if it is not this user's own.
    pub(super) fn make() -> io::Result<Dir> {
        let path = place();
        if let Some(parent) = path.parent() {
            let mut builder = std::fs::DirBuilder::new();
            builder.recursive(true).mode(0o700).create(parent)?;
        }
        match rustix::fs::mkdirat(CWD, &path, Mode::RWXU) {
            Err(Errno::EXIST) | Ok(()) => Dir::at(&path),
            Err(e) => Err(e.into()),
        }
    }

    /// Opens the directory.
    ///
    /// # Errors
    /// As [`Dir::make`]; `NotFound`.
    pub(super) fn open() -> io::Result<Dir> {
        Dir::at(&place())
    }

    fn at(path: &Path) -> io::Result<Dir> {
        let shown = path.display();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| match e {
            Errno::LOOP | Errno::NOTDIR => refused(format!(
                "{shown} is not a directory; remove it, or set XDG_RUNTIME_DIR"
            )),
            Errno::ACCESS => refused(format!(
                "{shown} is not accessible to this user; have it removed, or set XDG_RUNTIME_DIR"
            )),
            e => e.into(),
        })?;
        let stat = rustix::fs::fstat(&dir)?;
        if stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(refused(format!(
                "{shown} belongs to user {}; have it removed, or set XDG_RUNTIME_DIR",
                stat.st_uid
            )));
        }
        let others = Mode::from_raw_mode(stat.st_mode) & (Mode::RWXG | Mode::RWXO);
        if !others.is_empty() {
            return Err(refused(format!(
                "{shown} is open to others; remove it, or chmod 700 it if all in it is yours"
            )));
        }
        Ok(Dir(dir))
    }

    /// Waits for the lock that allows changing the directory's content.
    pub(super) fn turn(&self) -> io::Result<Turn> {
        // A lock belongs to an open file, so each turn needs its own.
        let turn = OwnedFd::from(File::open(self.path("."))?);
        rustix::fs::flock(&turn, FlockOperation::LockExclusive)?;
        Ok(Turn(turn))
    }

    /// The path of the entry `name`, valid whatever becomes of the directory's own name.
    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.0.as_raw_fd()))
    }

    /// Creates a socket of this name. Only this user can connect to it.
    pub(super) fn bind(&self, name: &str) -> io::Result<OwnedFd> {
        let kind = (
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
        );
        let socket = rustix::net::socket_with(kind.0, kind.1, kind.2, None)?;
        let address = SocketAddrUnix::new(self.path(name))?;
        rustix::net::bind(&socket, &address)?;
        rustix::fs::chmodat(&self.0, name, Mode::RUSR | Mode::WUSR, AtFlags::empty())?;
        Ok(socket)
    }

    /// Connects to the socket of this name, if the listener is a process of this user.
    pub(super) fn connect(&self, name: &str) -> io::Result<UnixStream> {
        let stream = UnixStream::connect(self.path(name))?;
        check_peer(&stream)?;
        Ok(stream)
    }

    /// An identity of the file of this name; `None` if there is none. Another file may get its
    /// inode number soon, but not with the same time.
    pub(super) fn identity(&self, name: &str) -> Option<String> {
        let stat = rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(format!(
            "{}-{}.{}",
            stat.st_ino, stat.st_mtime, stat.st_mtime_nsec
        ))
    }

    /// Removes the socket of this name, if there is one.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.0, name, AtFlags::empty()) {
            Err(Errno::NOENT) | Ok(()) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}

/// Checks that the peer is a process of this user, or root's.
///
/// # Errors
/// `PermissionDenied` if not.
pub(super) fn check_peer(stream: &UnixStream) -> io::Result<()> {
    let peer = rustix::net::sockopt::socket_peercred(stream)?.uid;
    if peer.is_root() || peer == rustix::process::geteuid() {
        return Ok(());
    }
    let uid = peer.as_raw();
    Err(refused(format!("the other end is a process of user {uid}")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn only_a_closed_directory_of_ones_own_will_do() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        let set = |name: &str, mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(path(name), mode).unwrap();
        };
        let why = |name: &str| Dir::at(&path(name)).map(drop).unwrap_err();
        assert_eq!(why("none").kind(), io::ErrorKind::NotFound);
        std::fs::create_dir(path("own")).unwrap();
        for open in [0o701, 0o710, 0o777, 0o1777] {
            set("own", open);
            assert!(why("own").to_string().contains("chmod 700"), "{open:o}");
        }
        set("own", 0o700);
        let dir = Dir::at(&path("own")).unwrap();
        symlink(path("own"), path("link")).unwrap();
        std::fs::write(path("file"), "").unwrap();
        for no in ["link", "file"] {
            assert!(why(no).to_string().contains("not a directory"), "{no}");
        }

        // The directory's name may go: the open directory is the same.
        let socket = dir.bind("a.sock").unwrap();
        let refused = dir.connect("a.sock").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        rustix::net::listen(&socket, 1).unwrap();
        std::fs::rename(path("own"), path("moved")).unwrap();
        dir.connect("a.sock").unwrap();
        let mode = std::fs::metadata(path("moved/a.sock")).unwrap();
        assert_eq!(mode.permissions().mode() & 0o777, 0o600);
        assert!(dir.identity("a.sock").is_some());
        let _turn = dir.turn().unwrap();
        dir.remove("a.sock").unwrap();
        assert!(dir.identity("a.sock").is_none());
        dir.remove("a.sock").unwrap();
    }
}
