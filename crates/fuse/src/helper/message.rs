//! The messages between the server and its helper, over a socket that preserves message boundaries
//! (SOCK_SEQPACKET).

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::RecvFlags;
use stetfs::low::NbdAddress;

use crate::mount::Unmount;
use crate::mount::mounted::Mounted;
use crate::mount::mountinfo::{MountEntry, bytes};

/// Maximum length of an order, question or answer in bytes.
const LONGEST: usize = 64;

/// Receives the next message; empty when the other end is closed.
pub(super) fn receive(socket: impl AsFd) -> io::Result<Vec<u8>> {
    let mut buf = [0; LONGEST];
    loop {
        match rustix::net::recv(&socket, &mut buf[..], RecvFlags::empty()) {
            Ok((n, _)) => return Ok(buf.get(..n).unwrap_or_default().to_vec()),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

fn words<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let mut out = [0; N];
    if bytes.len() != N * 8 {
        return None;
    }
    for (word, eight) in out.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_ne_bytes(*eight);
    }
    Some(out)
}

fn concat<const N: usize>(words: [u64; N]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_ne_bytes()).collect()
}

/// An order to change something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Unmounts.
    Unmount(Unmount),
    /// Gives the mount these flags.
    Remount(MountFlags),
    /// Ends the mount's connection.
    Abort,
    /// Drops the kernel's cache of the loop device.
    Forget,
    /// Removes the socket for queries to the server.
    Hush,
}

impl Order {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        concat(match self {
            Order::Unmount(how) => [1, u64::from(how.flags().bits())],
            Order::Remount(flags) => [2, u64::from(flags.bits())],
            Order::Abort => [3, 0],
            Order::Forget => [4, 0],
            Order::Hush => [5, 0],
        })
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Order> {
        let [kind, flags] = words(bytes)?;
        let flags = u32::try_from(flags).ok()?;
        match kind {
            1 if UnmountFlags::from_bits_retain(flags).contains(UnmountFlags::DETACH) => {
                Some(Order::Unmount(Unmount::Lazy))
            }
            1 => Some(Order::Unmount(Unmount::Now)),
            2 => Some(Order::Remount(MountFlags::from_bits_truncate(flags))),
            3 => Some(Order::Abort),
            4 => Some(Order::Forget),
            5 => Some(Order::Hush),
            _ => None,
        }
    }
}

/// A question about a thread that waits for an answer of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// Its intent with a file ([`crate::helper::calls::Intent`]).
    Intent { pid: u32 },
    /// The flags of the descriptor through which it changes this inode.
    TargetFlags { pid: u32, ino: u32 },
    /// The word that the argument of its ioctl points to, if the ioctl is `command`.
    IoctlWord { pid: u32, command: u32 },
    /// Its process, and the descriptor that it uses: 1 and the number, or 0.
    Descriptor { pid: u32 },
    /// Whether it has this capability here: 1 or 0.
    Capable { pid: u32, capability: u32 },
    /// Its user and group ids for file systems.
    Ids { pid: u32 },
    /// Whether it is in the supplementary group: 1 or 0.
    InGroup { pid: u32, gid: u32 },
    /// Whether it and `other` are threads of one process: 1 or 0.
    OneProcess { pid: u32, other: u32 },
}

impl Question {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let (kind, pid, more) = match self {
            Question::Intent { pid } => (1, pid, 0),
            Question::TargetFlags { pid, ino } => (2, pid, ino),
            Question::Descriptor { pid } => (3, pid, 0),
            Question::Capable { pid, capability } => (4, pid, capability),
            Question::Ids { pid } => (5, pid, 0),
            Question::InGroup { pid, gid } => (6, pid, gid),
            Question::IoctlWord { pid, command } => (7, pid, command),
            Question::OneProcess { pid, other } => (8, pid, other),
        };
        concat([kind, pid.into(), more.into()])
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Question> {
        let [kind, pid, more] = words(bytes)?;
        let (pid, more) = (pid.try_into().ok()?, more.try_into().ok()?);
        Some(match kind {
            1 => Question::Intent { pid },
            2 => Question::TargetFlags { pid, ino: more },
            3 => Question::Descriptor { pid },
            4 => Question::Capable {
                pid,
                capability: more,
            },
            5 => Question::Ids { pid },
            6 => Question::InGroup { pid, gid: more },
            7 => Question::IoctlWord { pid, command: more },
            8 => Question::OneProcess { pid, other: more },
            _ => return None,
        })
    }
}

/// An answer, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer(pub(crate) [u64; 3]);

impl Answer {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        concat(self.0)
    }

    /// Decodes an answer; `None` if it is unknown, or the helper is gone.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Answer> {
        words(bytes).map(Answer)
    }
}

/// Encodes a mount: device number, type, flags, namespace if it is another, directory, loop device
/// if there is one.
pub(crate) fn about(mounted: &Mounted, flags: MountFlags, device: Option<&Path>) -> Vec<u8> {
    let namespace = mounted.namespace().map(|n| n.to_string());
    let flags = flags.bits().to_string();
    let parts = [
        mounted.dev().as_bytes(),
        mounted.entry().fstype.as_bytes(),
        flags.as_bytes(),
        namespace.as_deref().unwrap_or_default().as_bytes(),
        bytes(mounted.dir()),
        device.map(bytes).unwrap_or_default(),
    ];
    parts.join(&0)
}

/// Decodes a mount, its flags, and the loop device.
pub(crate) fn read_about(text: &[u8]) -> Option<(Mounted, MountFlags, Option<PathBuf>)> {
    let mut parts = text.split(|b| *b == 0);
    let mut next = || parts.next();
    let (dev, fstype, flags) = (next()?, next()?, next()?);
    let (namespace, dir, device) = (next()?, next()?, next()?);
    let flags = std::str::from_utf8(flags).ok()?.parse().ok()?;
    let path = |bytes| PathBuf::from(OsStr::from_bytes(bytes));
    let entry = MountEntry {
        id: 0,
        dev: String::from_utf8(dev.to_vec()).ok()?,
        dir: path(dir),
        read_only: false,
        fstype: String::from_utf8(fstype.to_vec()).ok()?,
        source: Default::default(),
    };
    let mounted = match std::str::from_utf8(namespace).ok()? {
        "" => Mounted::here(entry),
        number => Mounted::elsewhere(entry, number.parse().ok()?),
    };
    let flags = MountFlags::from_bits_truncate(flags);
    Some((mounted, flags, (!device.is_empty()).then(|| path(device))))
}

/// Encodes the message of the mounter to the helper: the mount, and the name of the server's socket
/// if it has one.
pub(crate) fn facts(
    mounted: &Mounted,
    flags: MountFlags,
    device: Option<&Path>,
    entrance: Option<&str>,
) -> Vec<u8> {
    let about = about(mounted, flags, device);
    [entrance.unwrap_or_default().as_bytes(), &about].join(&0)
}

/// The helper's knowledge of the mount.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) mounted: Mounted,
    pub(super) flags: MountFlags,
    pub(super) device: Option<PathBuf>,
    pub(super) entrance: Option<String>,
}

pub(super) fn read_facts(text: &[u8]) -> Option<Facts> {
    let end = text.iter().position(|b| *b == 0)?;
    let (entrance, about) = text.split_at_checked(end)?;
    let (mounted, flags, device) = read_about(about.get(1..)?)?;
    let entrance = std::str::from_utf8(entrance).ok()?;
    Some(Facts {
        mounted,
        flags,
        device,
        entrance: (!entrance.is_empty()).then(|| entrance.to_owned()),
    })
}

/// Encodes the addresses of the servers that the helper connects to.
pub(super) fn addresses(all: &[NbdAddress]) -> Vec<u8> {
    let all: Vec<String> = all.iter().map(NbdAddress::to_string).collect();
    // Never empty.
    [vec![b'.'], all.join("\n").into_bytes()].concat()
}

pub(super) fn read_addresses(text: &[u8]) -> Option<Vec<NbdAddress>> {
    let all = std::str::from_utf8(text.strip_prefix(b".")?).ok()?;
    all.lines().map(|line| line.parse().ok()).collect()
}

/// Encodes the error of a requested connection: an errno if there is one, and the text.
pub(super) fn refusal(e: &io::Error) -> Vec<u8> {
    let errno = e.raw_os_error().unwrap_or(0);
    [&errno.to_ne_bytes(), e.to_string().as_bytes()].concat()
}

/// Decodes the error in an answer without a connection.
pub(super) fn read_refusal(text: &[u8]) -> io::Error {
    match text.split_first_chunk::<4>() {
        Some((errno, said)) => match i32::from_ne_bytes(*errno) {
            0 => io::Error::other(String::from_utf8_lossy(said).into_owned()),
            errno => io::Error::from_raw_os_error(errno),
        },
        None => io::Error::other("the helper is gone, and with it who could connect"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood_and_nothing_else() {
        for order in [
            Order::Unmount(Unmount::Now),
            Order::Unmount(Unmount::Lazy),
            Order::Remount(MountFlags::RDONLY | MountFlags::NOATIME),
            Order::Abort,
            Order::Forget,
            Order::Hush,
        ] {
            assert_eq!(Order::from_bytes(&order.to_bytes()), Some(order));
        }
        let (pid, ino, gid, capability) = (7, u32::MAX, 9, 21);
        for question in [
            Question::Intent { pid },
            Question::TargetFlags { pid, ino },
            Question::Descriptor { pid },
            Question::Capable { pid, capability },
            Question::Ids { pid },
            Question::InGroup { pid, gid },
            Question::IoctlWord { pid, command: ino },
            Question::OneProcess { pid, other: ino },
        ] {
            assert_eq!(Question::from_bytes(&question.to_bytes()), Some(question));
        }
        for bytes in [&[][..], &[0; 16], &[9; 24], &[1; 8]] {
            assert_eq!(Order::from_bytes(bytes), None);
            assert_eq!(Question::from_bytes(bytes), None);
        }
        assert_eq!(Answer::from_bytes(&[]), None);
        let answer = Answer([1, 2, u64::MAX]);
        assert_eq!(Answer::from_bytes(&answer.to_bytes()), Some(answer));
    }

    #[test]
    fn the_mount_arrives_as_it_was() {
        let entry = MountEntry {
            id: 3,
            dev: "7:12".to_owned(),
            dir: "/mnt/my dir\n".into(),
            read_only: true,
            fstype: "fuse.stetfs".to_owned(),
            source: "x".into(),
        };
        let flags = MountFlags::NOSUID | MountFlags::RELATIME;
        let here = about(&Mounted::here(entry.clone()), flags, None);
        let (mounted, its, device) = read_about(&here).unwrap_or_else(|| panic!("{here:?}"));
        assert_eq!(
            (mounted.dev(), mounted.dir()),
            ("7:12", entry.dir.as_path())
        );
        assert_eq!((mounted.namespace(), device, its), (None, None, flags));
        let there = about(
            &Mounted::elsewhere(entry, 4_026_531_840),
            MountFlags::empty(),
            Some(Path::new("/dev/loop3")),
        );
        let (mounted, _, device) = read_about(&there).unwrap_or_else(|| panic!("{there:?}"));
        assert_eq!(mounted.namespace(), Some(4_026_531_840));
        assert_eq!(mounted.entry().fstype, "fuse.stetfs");
        assert_eq!(device, Some("/dev/loop3".into()));
        assert_eq!(read_about(b"7:1").map(|_| ()), None);
        for name in [None, Some("7-12.sock 9")] {
            let told = facts(&mounted, flags, device.as_deref(), name);
            let facts = read_facts(&told).unwrap_or_else(|| panic!("{told:?}"));
            assert_eq!(facts.mounted.dir(), mounted.dir());
            assert_eq!((facts.flags, facts.entrance.as_deref()), (flags, name));
            assert_eq!(facts.device, device);
        }
        assert!(read_facts(b"").is_none() && read_facts(b"x").is_none());
    }

    #[test]
    fn addresses_and_refusals_arrive() -> io::Result<()> {
        let parsed = |text: &str| text.parse::<NbdAddress>().map_err(io::Error::other);
        let two = [
            parsed("nbd://there/d")?,
            parsed("nbd+unix:///?socket=/a%0Ab")?,
        ];
        for all in [&two[..], &two[..1], &[]] {
            assert_eq!(read_addresses(&addresses(all)).as_deref(), Some(all));
        }
        assert_eq!(read_addresses(b""), None);
        assert_eq!(read_addresses(b".what"), None);
        let refused = io::Error::from_raw_os_error(libc::ECONNREFUSED);
        let arrived = read_refusal(&refusal(&refused));
        assert_eq!(arrived.kind(), io::ErrorKind::ConnectionRefused);
        let unknown = read_refusal(&refusal(&io::Error::other("no such name")));
        assert_eq!(unknown.to_string(), "no such name");
        assert!(read_refusal(b"").to_string().contains("gone"));
        Ok(())
    }
}
