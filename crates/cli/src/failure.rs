//! Errors for the user: the message, advice on what to do next, and an exit code.

use std::path::Path;
use std::process::ExitCode;
use std::{fmt, io};

use stetfs::low::{
    BlockError, Foreign, ForeignKind, FormatError, FsError, JournalError, NbdAddress, Partitions,
};
pub(crate) use stetfs::low::{is_unseen, printable};
use stetfs_fuse::{MountError, ServeError};

use crate::held::detached;

/// Exit codes, the same for every command (docs/operations.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// All is done.
    Done = 0,
    /// Wrong arguments, or not permitted.
    Usage = 1,
    /// The system lacks something: FUSE, fusermount3.
    System = 2,
    /// There is no such volume, mount or file.
    NotFound = 3,
    /// The volume or the mount is in use by another process.
    InUse = 4,
    /// The volume is damaged, or of a kind that this version does not know.
    Volume = 5,
    /// A device failed, there is no room, or the volume was not closed clean.
    Io = 6,
    /// The crash lab found a broken promise.
    Broken = 7,
    /// Recovered in part: something was left out, for e2fsck to put in order.
    Partly = 8,
    /// Mounting failed for another reason (mount(8)'s code).
    Mount = 32,
    /// Ctrl-C (128 and SIGINT's number, as shells have it).
    Interrupted = 130,
}

impl Code {
    /// The code with this number, as another process reported it.
    pub(crate) fn from_number(n: u8) -> Code {
        [
            Code::Done,
            Code::Usage,
            Code::System,
            Code::NotFound,
            Code::InUse,
            Code::Volume,
            Code::Io,
            Code::Broken,
            Code::Partly,
        ]
        .into_iter()
        .find(|c| *c as u8 == n)
        .unwrap_or(Code::Mount)
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> ExitCode {
        ExitCode::from(code as u8)
    }
}

/// The exit code for an error of the host.
pub fn code_of(kind: io::ErrorKind) -> Code {
    use io::ErrorKind::{NotFound, QuotaExceeded, StorageFull};
    match kind {
        NotFound => Code::NotFound,
        StorageFull | QuotaExceeded => Code::Io,
        _ => Code::Usage,
    }
}

/// The failure of a command.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub code: Code,
    /// The message: what happened.
    pub message: String,
    /// The advice: what to do next. Empty when the message says it.
    pub hint: String,
}

/// The outcome of a command.
pub type Result<T = ()> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure without advice.
    pub fn new(code: Code, message: impl Into<String>) -> Failure {
        Failure {
            code,
            message: message.into(),
            hint: String::new(),
        }
    }

    /// Adds advice.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = hint.into();
        self
    }

    /// The failure of making a volume at `path`.
    pub(crate) fn of_format(path: &Path, e: &FormatError) -> Failure {
        match e {
            FormatError::Device(e) => Failure::from(e),
            FormatError::Occupied(found) => {
                let message = format!("{}: {e}", path.display());
                let way = match found.is_partition_table() {
                    true => {
                        "name a partition with -o partition=N, or overwrite the whole with --force"
                    }
                    false => "if it is not needed any more, overwrite it with --force",
                };
                Failure::new(Code::Usage, message).hint(format!("nothing was changed; {way}"))
            }
            FormatError::Options(_) | FormatError::Size(_) => {
                Failure::new(Code::Usage, e.to_string())
            }
            FormatError::Encoding(_) => Failure::new(Code::Volume, e.to_string()),
        }
    }

    pub(crate) fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "error": { "message": self.message, "hint": self.hint, "code": self.code as u8 }
        })
    }

    /// Reads what [`Failure::to_json`] wrote in another process.
    pub(crate) fn from_json(value: &serde_json::Value) -> Option<Failure> {
        let error = value.get("error")?;
        let text = |key| {
            error
                .get(key)
                .and_then(|v| v.as_str())
                .unwrap_or_default()
                .to_owned()
        };
        let code = error
            .get("code")
            .and_then(serde_json::Value::as_u64)
            .and_then(|n| u8::try_from(n).ok());
        Some(Failure {
            code: code.map_or(Code::Mount, Code::from_number),
            message: text("message"),
            hint: text("hint"),
        })
    }

    /// Prints the failure, and returns the process's exit code.
    pub(crate) fn report(&self, json: bool) -> ExitCode {
        if json {
            outln!("{}", self.to_json());
        } else {
            eprintln!("stetfs: {}", printable(&self.to_string()));
        }
        self.code.into()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if !self.hint.is_empty() {
            write!(f, "\n  {}", self.hint.replace('\n', "\n  "))?;
        }
        Ok(())
    }
}

impl From<&BlockError> for Failure {
    fn from(e: &BlockError) -> Failure {
        let failure = |code| Failure::new(code, e.to_string());
        match e {
            BlockError::Locked { path, holder } => {
                let pid = holder.as_ref().and_then(|holder| holder.pid);
                let detached = pid.and_then(|pid| detached(path, pid));
                failure(Code::InUse).hint(detached.unwrap_or_else(|| {
                    "unmount it first (stetfs umount DIR), or detach the loop device (losetup -d); \
                     `stetfs stat DIR` looks at a mounted volume"
                        .into()
                }))
            }
            BlockError::Open { source, path } => match source.kind() {
                io::ErrorKind::NotFound if NbdAddress::is_meant(path) => {
                    failure(Code::NotFound).hint("start the server: nbdkit -U SOCKET file disk.img")
                }
                io::ErrorKind::InvalidInput if NbdAddress::is_meant(path) => failure(Code::Usage)
                    .hint(
                        "write it as nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH; \
                         docs/remote.md has the rest",
                    ),
                io::ErrorKind::NotFound => failure(Code::NotFound)
                    .hint("make a volume with: stetfs mkfs --size 1G disk.img"),
                io::ErrorKind::PermissionDenied => failure(Code::Usage)
                    .hint("run as a user who may read and write it (with -o ro, read it)"),
                io::ErrorKind::ReadOnlyFilesystem => failure(Code::Usage)
                    .hint("it cannot be written here; `stetfs mount -o ro` reads it"),
                _ => failure(Code::Io),
            },
            BlockError::Missing { .. } => failure(Code::NotFound),
            BlockError::Unsuitable { .. } | BlockError::Sparse { .. } => failure(Code::Usage),
            BlockError::NoSpace { .. } => failure(Code::Io).hint(
                "make room on the file system that holds the image (df), then try again; \
                 what the journal holds is not lost",
            ),
            _ => failure(Code::Io).hint("look at the kernel log (dmesg) for the device"),
        }
    }
}

impl From<FsError> for Failure {
    fn from(e: FsError) -> Failure {
        match &e {
            FsError::Device(block) => Failure::from(block.as_ref()),
            FsError::Journal(JournalError::Device(block)) => Failure::from(block.as_ref()),
            FsError::JournalDevice(_) => Failure::new(Code::Volume, e.to_string())
                .hint("name the device that holds it: -o journal_path=PATH (blkid shows its UUID)"),
            FsError::Journal(JournalError::Region(why)) if why.is_needed() => Failure::new(
                Code::Usage,
                e.to_string(),
            )
            .hint(
                "write it as -o journal=nvm,nvm=PATH; docs/schemes/nvm.md says what file that is",
            ),
            FsError::Journal(JournalError::Region(_)) => Failure::new(Code::Volume, e.to_string()),
            FsError::InUse(_) => Failure::new(Code::InUse, e.to_string()),
            FsError::Journal(JournalError::Format(_))
            | FsError::Corrupt {
                what: "file-level record",
                ..
            } => Failure::new(Code::Volume, e.to_string()).hint(
                "nothing was changed; `stetfs recover --salvage` replays the undamaged part of the \
                 journal; then run e2fsck -f",
            ),
            FsError::Corrupt { .. } | FsError::NoVolume(_) => {
                Failure::new(Code::Volume, e.to_string())
            }
            FsError::Format(_) => {
                Failure::new(Code::Volume, e.to_string()).hint("check it with e2fsck -f")
            }
            FsError::Foreign(foreign) => {
                Failure::new(Code::Volume, e.to_string()).hint(way_to(foreign))
            }
            FsError::Unsupported(_) => Failure::new(Code::Volume, e.to_string()).hint(
                "mount it with the kernel's ext4, or turn the feature off with tune2fs -O ^FEATURE",
            ),
            FsError::Journal(_) => Failure::new(Code::Volume, e.to_string())
                .hint("if this persists, repair the volume with e2fsck -f"),
            FsError::Errno(libc::EROFS) => Failure::new(Code::Usage, e.to_string())
                .hint("the volume or its device is read-only; mount it with -o ro"),
            FsError::Errno(_) | FsError::GroupFull { .. } => Failure::new(Code::Io, e.to_string()),
        }
    }
}

/// The advice for a source that is not an ext4 volume. Making a new volume is advised only where
/// nothing can be lost.
fn way_to(foreign: &Foreign) -> String {
    match foreign {
        Foreign::Zeroes => "if there is nothing to lose on it, make a volume with stetfs mkfs".into(),
        Foreign::Partitions(table) => way_to_partition(table),
        Foreign::Backup { block, block_size } => {
            format!("e2fsck -b {block} -B {block_size} repairs the volume from that copy")
        }
        Foreign::Unknown => {
            "nothing was changed; find out what it is with blkid -p or file -s before anything is \
             written to it"
                .into()
        }
        Foreign::Known(known) => match known.kind {
            ForeignKind::FileSystem => "nothing was changed; mount(8) mounts it",
            ForeignKind::Encrypted => {
                "nothing was changed; open it with cryptsetup open, and name the device below /dev/mapper"
            }
            ForeignKind::Member => {
                "nothing was changed; activate the set that it belongs to (vgchange -ay, mdadm \
                 --assemble --scan, zpool import), and name a volume of it"
            }
            ForeignKind::Packed => "nothing was changed; unpack it first, and name its content",
            ForeignKind::Disk => {
                "nothing was changed; qemu-img convert -O raw makes a plain image of it, qemu-nbd a device"
            }
            ForeignKind::Sparse => "nothing was changed; stetfs image unsparse makes a plain image of it",
            ForeignKind::Swap => "nothing was changed; the system may be using it (swapon --show)",
        }
        .into(),
    }
}

/// The advice on which of the partitions may be meant.
fn way_to_partition(table: &Partitions) -> String {
    let with_ext4: Vec<_> = table.with_ext4().map(|p| p.number.to_string()).collect();
    match &with_ext4[..] {
        [] => {
            "nothing was changed; none of the partitions holds an ext4 volume that could be found"
                .into()
        }
        [one] => format!("the ext4 volume is in partition {one}: name it with -o partition={one}"),
        [first, ..] => format!(
            "there are ext4 volumes in partitions {}: name one of them, such as -o partition={first}",
            with_ext4.join(", ")
        ),
    }
}

impl From<&MountError> for Failure {
    fn from(e: &MountError) -> Failure {
        let code = match e {
            MountError::NoFuse(_)
            | MountError::NoFusermount
            | MountError::IoUring(_)
            | MountError::LowLatency(_) => Code::System,
            MountError::Busy(_) | MountError::DeadMount(_) | MountError::Taken { .. } => {
                Code::InUse
            }
            MountError::NotMounted(_) | MountError::Gone => Code::NotFound,
            MountError::Dir { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Code::NotFound
            }
            MountError::Dir { .. } => Code::Usage,
            MountError::Mount { .. } | MountError::Unmount { .. } | MountError::Session(_) => {
                Code::Mount
            }
        };
        Failure::new(code, e.to_string())
    }
}

impl From<MountError> for Failure {
    fn from(e: MountError) -> Failure {
        Failure::from(&e)
    }
}

impl From<ServeError> for Failure {
    fn from(e: ServeError) -> Failure {
        match e {
            ServeError::Session(e) => e.into(),
            ServeError::Close(_) => Failure::new(Code::Io, e.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_crosses_a_pipe_whole() {
        let sent = Failure::new(Code::InUse, "x is in use").hint("unmount it");
        let got = Failure::from_json(&sent.to_json());
        assert!(
            got.is_some_and(
                |g| g.code == Code::InUse && g.to_string() == "x is in use\n  unmount it"
            )
        );
        assert!(Failure::from_json(&serde_json::json!({"mounted": true})).is_none());
    }
}
