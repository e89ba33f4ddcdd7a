//! The mounts that a process sees, from `/proc/thread-self/mountinfo`.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use stetfs::low::namespaces::{own_tables, unescape};

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// Number of the mount; several mounts can show one device.
    pub id: u64,
    /// Device number as `major:minor`.
    pub dev: String,
    /// The mount point.
    pub dir: PathBuf,
    /// Whether it is read-only.
    pub read_only: bool,
    /// Type, e.g. `fuse.stetfs`.
    pub fstype: String,
    /// The source, e.g. the image's path.
    pub source: OsString,
}

/// All mounts that the calling thread sees, in the order of mounting.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn mounts() -> io::Result<Vec<MountEntry>> {
    Ok(parse(&std::fs::read("/proc/thread-self/mountinfo")?))
}

/// The same, with the mounts that the user sees: a starting server has moved to another namespace,
/// and the process that mounts has stayed in the user's.
pub fn mounts_of_process() -> Vec<MountEntry> {
    let tables = own_tables();
    tables.iter().flat_map(|table| parse(table)).collect()
}

/// The topmost mount at exactly `dir`, an absolute path without symbolic links.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn mount_at(dir: &Path) -> io::Result<Option<MountEntry>> {
    Ok(mounts()?.into_iter().rfind(|m| m.dir == dir))
}

/// Whether the mount is one of StetFS.
pub fn is_stetfs(entry: &MountEntry) -> bool {
    entry.fstype == "fuse.stetfs" || entry.fstype == "fuseblk.stetfs"
}

fn parse(text: &[u8]) -> Vec<MountEntry> {
    text.split(|b| *b == b'\n').filter_map(parse_line).collect()
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
fn parse_line(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|b| *b == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let dev = fields.nth(1)?;
    let dir = fields.nth(1)?;
    let options = fields.next()?;
    fields.find(|f| *f == b"-")?;
    let fstype = fields.next()?;
    let source = fields.next()?;
    Some(MountEntry {
        id,
        dev: String::from_utf8_lossy(dev).into_owned(),
        dir: PathBuf::from(OsString::from_vec(unescape(dir))),
        read_only: options.split(|b| *b == b',').any(|o| o == b"ro"),
        fstype: String::from_utf8_lossy(fstype).into_owned(),
        source: OsString::from_vec(unescape(source)),
    })
}

/// The absolute form of `path`. The last component is not accessed: it works for a dead mount,
/// where canonicalize fails.
///
/// # Errors
/// If the parent directory is not accessible.
pub fn absolute(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Ok(full) => Ok(full),
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED)) => {
            let full = std::path::absolute(path)?;
            match (full.parent(), full.file_name()) {
                (Some(parent), Some(name)) => Ok(parent.canonicalize()?.join(name)),
                _ => Ok(full),
            }
        }
        Err(e) => Err(e),
    }
}

/// The bytes of a path.
pub(crate) fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_blanks_and_optional_fields() {
        let text = b"36 35 0:52 / /mnt/my\\040dir rw,nosuid shared:7 master:1 - fuse.stetfs /a\\134b.img rw,user_id=0\n\
            bad line\n";
        assert_eq!(
            parse(text),
            [MountEntry {
                id: 36,
                dev: "0:52".into(),
                dir: "/mnt/my dir".into(),
                read_only: false,
                fstype: "fuse.stetfs".into(),
                source: "/a\\b.img".into(),
            }]
        );
    }
}
