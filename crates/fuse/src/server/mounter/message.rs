//! The messages between the server and the mounter.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::mount::MountFlags;
use stetfs::low::Span;

use super::plan::{Entrance, Late, Stood};
use crate::helper;
use crate::mount::MountError;
use crate::mount::mounted::Mounted;

/// Separator of the parts of a message; no path contains it.
const BETWEEN: u8 = 0;

/// The server's last message before the volume is read.
pub(super) struct Begin {
    /// Whether the server is in another mount namespace than the mounter.
    pub(super) moved: bool,
}

impl Begin {
    pub(super) fn to_bytes(&self) -> [u8; 1] {
        [u8::from(self.moved)]
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Begin> {
        match bytes {
            [moved @ (0 | 1)] => Some(Begin { moved: *moved == 1 }),
            _ => None,
        }
    }
}

impl Late {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let span = self.span.map_or([0; 3], |span| [1, span.start, span.len]);
        let [has_part, start, len] = span;
        let block = u64::from(self.shown.unwrap_or(0));
        let words = [block, u64::from(self.read_only), has_part, start, len];
        words.iter().flat_map(|w| w.to_ne_bytes()).collect()
    }

    /// Decodes the message; `None` for bytes that only a compromised server sends.
    pub(super) fn read(bytes: &[u8]) -> Option<Late> {
        let (words, []) = bytes.as_chunks::<8>() else {
            return None;
        };
        let words: Vec<u64> = words.iter().map(|w| u64::from_ne_bytes(*w)).collect();
        let [block, read_only @ (0 | 1), has_part @ (0 | 1), start, len] = words[..] else {
            return None;
        };
        let block = u32::try_from(block).ok()?;
        if block != 0 && !(block.is_power_of_two() && (512..=1 << 16).contains(&block)) {
            return None;
        }
        start.checked_add(len)?;
        Some(Late {
            shown: (block != 0).then_some(block),
            span: (has_part == 1).then_some(Span { start, len }),
            read_only: read_only == 1,
        })
    }
}

/// The mounter's answer. Its descriptors are the connection, and the entrance if there is one.
pub(super) struct Answer;

impl Answer {
    /// Encodes a mount, with its flags.
    pub(super) fn stood(stood: &Stood, flags: MountFlags) -> Vec<u8> {
        let mounted = stood.mounted.as_ref();
        let device = stood.loop_device.as_deref();
        let name = stood.entrance.as_ref().map(|e| e.name.as_bytes());
        let mut text = vec![0];
        let parts = [
            stood.no_uring.as_deref().unwrap_or_default().as_bytes(),
            name.unwrap_or_default(),
            &mounted.map_or_else(Vec::new, |m| helper::about(m, flags, device)),
        ];
        text.extend(parts.join(&BETWEEN));
        text
    }

    /// Encodes a failure.
    pub(super) fn failed(e: &MountError) -> Vec<u8> {
        let (kind, source) = match e {
            MountError::NoFuse(e) => (1, Some(e)),
            MountError::NoFusermount => (2, None),
            MountError::Mount { source, .. } => (3, Some(source)),
            MountError::IoUring(e) => (4, Some(e)),
            MountError::Session(e) => (5, Some(e)),
            _ => (5, None),
        };
        let errno = source.and_then(io::Error::raw_os_error).unwrap_or(0);
        let said = source.map_or_else(|| e.to_string(), io::Error::to_string);
        let mut text = vec![kind];
        text.extend(errno.to_ne_bytes());
        text.extend(said.bytes());
        text
    }

    /// Decodes an answer about a mount on `dir`.
    pub(super) fn read(text: &[u8], fds: Vec<OwnedFd>, dir: &Path) -> Result<Stood, MountError> {
        let gone = || MountError::Session(io::Error::other("the process that mounts is gone"));
        let (kind, rest) = text.split_first().ok_or_else(gone)?;
        if *kind != 0 {
            let (errno, said) = rest.split_first_chunk::<4>().ok_or_else(gone)?;
            let source = match i32::from_ne_bytes(*errno) {
                0 => io::Error::other(String::from_utf8_lossy(said).into_owned()),
                errno => io::Error::from_raw_os_error(errno),
            };
            return Err(match kind {
                1 => MountError::NoFuse(source),
                2 => MountError::NoFusermount,
                3 => MountError::Mount {
                    dir: dir.to_owned(),
                    source,
                },
                4 => MountError::IoUring(source),
                _ => MountError::Session(source),
            });
        }
        let mut parts = rest.splitn(3, |b| *b == BETWEEN);
        let mut part = || parts.next().ok_or_else(gone);
        let (no_uring, name, about) = (part()?, part()?, part()?);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut fds = fds.into_iter();
        let fuse = fds.next().ok_or_else(gone)?;
        let (mounted, loop_device): (Option<Mounted>, _) = match about {
            [] => (None, None),
            about => {
                let (mounted, _, device) = helper::read_about(about).ok_or_else(gone)?;
                (Some(mounted), device)
            }
        };
        Ok(Stood {
            fuse,
            loop_device,
            mounted,
            no_uring: (!no_uring.is_empty()).then(|| text(no_uring)),
            entrance: fds.next().map(|socket| Entrance {
                socket,
                name: text(name),
            }),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_depends_on_the_volume_is_narrow() {
        let part = Span {
            start: 1 << 20,
            len: 7 << 20,
        };
        for late in [
            Late {
                shown: Some(4096),
                span: Some(part),
                read_only: true,
            },
            Late {
                shown: None,
                span: None,
                read_only: false,
            },
        ] {
            assert_eq!(Late::read(&late.to_bytes()), Some(late));
        }
        let words =
            |words: [u64; 5]| -> Vec<u8> { words.iter().flat_map(|w| w.to_ne_bytes()).collect() };
        for wrong in [
            words([4097, 0, 0, 0, 0]),
            words([1 << 20, 0, 0, 0, 0]),
            words([1 << 40, 0, 0, 0, 0]),
            words([4096, 2, 0, 0, 0]),
            words([4096, 0, 1, u64::MAX, 2]),
            vec![0; 39],
            vec![0; 48],
            Vec::new(),
        ] {
            assert_eq!(Late::read(&wrong), None, "{wrong:?}");
        }
        assert!(
            Begin::read(&Begin { moved: true }.to_bytes())
                .unwrap()
                .moved
        );
        assert!(Begin::read(&[2]).is_none() && Begin::read(&[]).is_none());
    }

    #[test]
    fn failures_arrive_as_they_were() {
        let dir = Path::new("/mnt");
        let busy = || io::Error::from_raw_os_error(libc::EBUSY);
        for failure in [
            MountError::NoFuse(busy()),
            MountError::NoFusermount,
            MountError::Mount {
                dir: dir.to_owned(),
                source: io::Error::other("fusermount3: no"),
            },
            MountError::IoUring(busy()),
            MountError::Session(busy()),
        ] {
            let read = Answer::read(&Answer::failed(&failure), Vec::new(), dir);
            let arrived = read.map(drop).unwrap_err();
            assert_eq!(arrived.to_string(), failure.to_string());
        }
        let gone = Answer::read(&[], Vec::new(), dir).map(drop).unwrap_err();
        assert!(gone.to_string().contains("is gone"), "{gone}");
    }
}
