//! The negotiation with the kernel when a connection begins (INIT).

use std::io;

use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::wire::abi::{self, InHeader, InitIn, InitOut, init, op};
use crate::wire::limits::MAX_WRITE;

/// The oldest supported minor version of the protocol (Linux 5.4).
const OLDEST_MINOR: u32 = 31;
/// Maximum number of background requests of the kernel in flight: read-ahead and the like.
const MAX_BACKGROUND: u16 = 64;

/// The names of the flags of INIT, by bit, as in `linux/fuse.h` without `FUSE_`.
const NAMES: [&str; 43] = [
    "async_read",
    "posix_locks",
    "file_ops",
    "atomic_o_trunc",
    "export_support",
    "big_writes",
    "dont_mask",
    "splice_write",
    "splice_move",
    "splice_read",
    "flock_locks",
    "has_ioctl_dir",
    "auto_inval_data",
    "do_readdirplus",
    "readdirplus_auto",
    "async_dio",
    "writeback_cache",
    "no_open_support",
    "parallel_dirops",
    "handle_killpriv",
    "posix_acl",
    "abort_error",
    "max_pages",
    "cache_symlinks",
    "no_opendir_support",
    "explicit_inval_data",
    "map_alignment",
    "submounts",
    "handle_killpriv_v2",
    "setxattr_ext",
    "init_ext",
    "init_reserved",
    "security_ctx",
    "has_inode_dax",
    "create_supp_group",
    "has_expire_only",
    "direct_io_allow_mmap",
    "passthrough",
    "no_export_support",
    "has_resend",
    "allow_idmap",
    "over_io_uring",
    "request_timeout",
];

/// The use of a capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// It is used.
    Yes,
    /// It is wanted, but this kernel lacks it.
    NotOffered,
    /// The kernel has it, and it is not wanted.
    NotWanted,
}

/// The result of the negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    /// The kernel's minor version of the protocol.
    pub(crate) kernel_minor: u32,
    /// The minor version in use.
    pub(crate) minor: u32,
    /// Flags of INIT that the kernel offered.
    pub(crate) offered: u64,
    /// Flags that the server wants, offered or not.
    pub(crate) wanted: u64,
    /// Maximum length of a write request in bytes.
    pub(crate) max_write: u32,
    /// The initial read-ahead of the kernel in bytes.
    max_readahead: u32,
}

impl Agreed {
    /// The flags in use.
    pub(crate) fn flags(&self) -> u64 {
        self.offered & self.wanted
    }

    /// The capabilities that either side has by name, and their use.
    pub(crate) fn capabilities(&self) -> impl Iterator<Item = (&'static str, Use)> {
        let all = NAMES.into_iter().enumerate();
        all.filter_map(|(bit, name)| {
            let has = |flags: u64| flags & 1 << bit != 0;
            let used = match (has(self.offered), has(self.wanted)) {
                (true, true) => Use::Yes,
                (false, true) => Use::NotOffered,
                (true, false) => Use::NotWanted,
                (false, false) => return None,
            };
            Some((name, used))
        })
    }

    /// Flags that the kernel offered and this program does not know by name.
    pub(crate) fn unknown(&self) -> u64 {
        self.offered >> NAMES.len() << NAMES.len()
    }

    /// The answer to INIT.
    pub(crate) fn answer(&self) -> InitOut {
        let flags = self.flags();
        InitOut {
            major: abi::MAJOR,
            minor: self.minor,
            max_readahead: self.max_readahead,
            flags: flags as u32,
            max_background: MAX_BACKGROUND,
            congestion_threshold: MAX_BACKGROUND / 4 * 3,
            max_write: self.max_write,
            time_gran: 1,
            max_pages: (self.max_write / 4096) as u16,
            flags2: (flags >> 32) as u32,
            ..InitOut::new_zeroed()
        }
    }
}

/// Negotiates with a kernel that sent `arg`.
///
/// # Errors
/// It is too old, also for features that `options` require.
fn negotiate(arg: &InitIn, options: &SessionOptions) -> io::Result<Agreed> {
    if arg.major != abi::MAJOR || arg.minor < OLDEST_MINOR {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the kernel's FUSE is older than 7.31 (Linux 5.4)",
        ));
    }
    let mut offered = u64::from(arg.flags);
    // Without this flag the kernel does not have the upper half (before Linux 5.17).
    if offered & init::INIT_EXT != 0 {
        offered |= u64::from(arg.flags2) << 32;
    }
    let mut wanted = WANTED;
    let mut set = |flag: u64, on: bool| match on {
        true => wanted |= flag,
        false => wanted &= !flag,
    };
    // With ACLs the kernel checks permissions by itself, whatever the mount options say.
    set(init::POSIX_ACL, !options.noxattr && !options.fakeroot);
    set(init::ASYNC_DIO, options.async_dio);
    set(init::DIRECT_IO_ALLOW_MMAP, options.maps_past_cache);
    set(init::WRITEBACK_CACHE, options.writeback_cache);
    set(STATELESS, options.stateless);
    set(init::OVER_IO_URING, options.io_uring);
    set(init::ALLOW_IDMAP, options.idmap);
    if options.idmap && offered & init::ALLOW_IDMAP == 0 {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "-o idmap takes Linux 6.12",
        ));
    }
    Ok(Agreed {
        kernel_minor: arg.minor,
        minor: arg.minor.min(abi::MINOR),
        offered,
        wanted,
        max_write: MAX_WRITE,
        max_readahead: arg.max_readahead,
    })
}

/// The flags that are always wanted.
///
/// Not `ATOMIC_O_TRUNC`: with it an open with O_TRUNC truncates the file of a running program
/// before the kernel returns ETXTBSY. Nor `READDIRPLUS_AUTO`: this server decides which threads get
/// attributes (`requests::readdirplus_hint`).
const WANTED: u64 = init::ASYNC_READ
    | init::EXPORT_SUPPORT
    | init::BIG_WRITES
    | init::DONT_MASK
    | init::HAS_IOCTL_DIR
    | init::DO_READDIRPLUS
    | init::PARALLEL_DIROPS
    | init::POSIX_ACL
    | init::MAX_PAGES
    | init::CACHE_SYMLINKS
    | init::EXPLICIT_INVAL_DATA
    | init::HANDLE_KILLPRIV_V2
    | init::SETXATTR_EXT
    | init::INIT_EXT;

/// Options of a session with the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SessionOptions {
    /// Request the write-back cache.
    pub(crate) writeback_cache: bool,
    /// Direct writes of asynchronous I/O do not wait. After the last of them the kernel does not
    /// drop pages that were read into its cache meanwhile: only for mounts on which no file is
    /// cached.
    pub(crate) async_dio: bool,
    /// Files that bypass the page cache can be mapped shared.
    pub(crate) maps_past_cache: bool,
    /// Take requests by io_uring, if the kernel offers it.
    pub(crate) io_uring: bool,
    /// Allow a mapping of the mount to other ids.
    pub(crate) idmap: bool,
    /// Open files and directories without a request, if the kernel can.
    pub(crate) stateless: bool,
    /// Disable extended attributes and ACLs.
    pub(crate) noxattr: bool,
    /// The user of the mount is root in the volume.
    pub(crate) fakeroot: bool,
}

/// The flags of a kernel that can open without a request.
const STATELESS: u64 = init::NO_OPEN_SUPPORT | init::NO_OPENDIR_SUPPORT;

pub(crate) fn is_stateless(agreed: Agreed) -> bool {
    agreed.flags() & STATELESS == STATELESS
}

/// The result of the first request.
pub(crate) struct First {
    /// The number of the request, which is still unanswered.
    pub(crate) unique: u64,
    pub(crate) agreed: Agreed,
}

/// Negotiates with a kernel whose first request is `request`. `send` sends a refusal: the request's
/// number and an errno.
///
/// # Errors
/// It is not INIT, or the kernel is too old.
pub(crate) fn agree(
    request: &[u8],
    options: &SessionOptions,
    send: impl Fn(u64, i32, &[u8]),
) -> io::Result<First> {
    let bad = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let (header, body) =
        InHeader::read_from_prefix(request).map_err(|_| bad("the first request is too short"))?;
    // Older kernels send a shorter structure.
    let mut arg = InitIn::new_zeroed();
    for (to, from) in arg.as_mut_bytes().iter_mut().zip(body) {
        *to = *from;
    }
    let agreed = match header.opcode {
        op::INIT => negotiate(&arg, options),
        _ => Err(bad("the first request is not INIT")),
    };
    let unique = header.unique;
    match agreed {
        Ok(agreed) => Ok(First { unique, agreed }),
        Err(e) => {
            send(unique, libc::EPROTO, &[]);
            Err(e)
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The flags that Linux 5.15 offers (`fuse_send_init`); later versions add to them.
    const LINUX_5_15: u64 = 0x33ff_fffb;
    const LINUX_6_1: u64 = LINUX_5_15 | 1 << 30 | 1 << 32;
    const LINUX_6_6: u64 = LINUX_6_1 | 1 << 34 | 1 << 35 | 1 << 36;
    const LINUX_6_14: u64 = LINUX_6_6 | 1 << 37 | 1 << 38 | 1 << 39 | 1 << 40 | 1 << 41;
    const LINUX_6_18: u64 = LINUX_6_14 | 1 << 42;

    fn says(minor: u32, flags: u64) -> InitIn {
        InitIn {
            major: 7,
            minor,
            max_readahead: 128 << 10,
            flags: flags as u32,
            flags2: (flags >> 32) as u32,
            ..InitIn::new_zeroed()
        }
    }

    fn all() -> SessionOptions {
        SessionOptions {
            io_uring: true,
            maps_past_cache: true,
            ..SessionOptions::default()
        }
    }

    fn used(agreed: &Agreed, what: &str) -> Option<Use> {
        agreed
            .capabilities()
            .find(|(name, _)| *name == what)
            .map(|(_, used)| used)
    }

    #[test]
    fn each_kernel_gets_what_it_has_and_no_more() {
        let kernels = [
            (34, LINUX_5_15),
            (37, LINUX_6_1),
            (39, LINUX_6_6),
            (42, LINUX_6_14),
            (45, LINUX_6_18),
            (60, LINUX_6_18 | 0xabcd << 48),
        ];
        for (minor, flags) in kernels {
            let agreed = negotiate(&says(minor, flags), &all()).unwrap();
            let answer = agreed.answer();
            let answered = u64::from(answer.flags) | u64::from(answer.flags2) << 32;
            assert_eq!(answered & !flags, 0, "7.{minor}: not offered");
            assert_eq!(answered & !agreed.wanted, 0, "7.{minor}: not wanted");
            assert_eq!(answer.minor, minor.min(abi::MINOR));
            assert_eq!((answer.max_write, answer.max_pages), (1 << 20, 256));
            let uring = if minor >= 42 {
                Use::Yes
            } else {
                Use::NotOffered
            };
            assert_eq!(used(&agreed, "over_io_uring"), Some(uring), "7.{minor}");
            let mmap = if minor >= 39 {
                Use::Yes
            } else {
                Use::NotOffered
            };
            assert_eq!(
                used(&agreed, "direct_io_allow_mmap"),
                Some(mmap),
                "7.{minor}"
            );
            for everywhere in ["posix_acl", "parallel_dirops", "handle_killpriv_v2"] {
                assert_eq!(used(&agreed, everywhere), Some(Use::Yes), "7.{minor}");
            }
            assert_eq!(used(&agreed, "atomic_o_trunc"), Some(Use::NotWanted));
            assert_eq!(used(&agreed, "map_alignment"), None, "neither side has it");
        }
    }

    #[test]
    fn the_upper_half_counts_only_where_the_kernel_says_so() {
        let mut garbage = says(34, LINUX_5_15);
        garbage.flags2 = u32::MAX;
        let agreed = negotiate(&garbage, &all()).unwrap();
        assert_eq!(agreed.flags() >> 32, 0);
        assert_eq!(used(&agreed, "over_io_uring"), Some(Use::NotOffered));
    }

    #[test]
    fn flags_of_the_future_are_told_and_left() {
        let agreed = negotiate(&says(60, LINUX_6_18 | 3 << 50), &all()).unwrap();
        assert_eq!(agreed.unknown(), 3 << 50);
        assert_eq!(agreed.flags() >> 43, 0);
        let today = negotiate(&says(45, LINUX_6_18), &all()).unwrap();
        assert_eq!(today.unknown(), 0);
    }

    #[test]
    fn options_ask_for_more_or_less() {
        let with = |options: SessionOptions| negotiate(&says(45, LINUX_6_18), &options).unwrap();
        let plain = with(SessionOptions::default());
        for off in [
            "over_io_uring",
            "writeback_cache",
            "async_dio",
            "direct_io_allow_mmap",
            "allow_idmap",
        ] {
            assert_eq!(used(&plain, off), Some(Use::NotWanted), "{off}");
        }
        let noxattr = with(SessionOptions {
            noxattr: true,
            ..SessionOptions::default()
        });
        assert_eq!(used(&noxattr, "posix_acl"), Some(Use::NotWanted));
        assert_eq!(
            used(&noxattr, "dont_mask"),
            Some(Use::Yes),
            "the server applies default ACLs"
        );
    }

    #[test]
    fn a_kernel_that_lacks_what_must_be_is_refused() {
        assert!(negotiate(&says(30, LINUX_5_15), &all()).is_err());
        let mut other = says(45, LINUX_6_18);
        other.major = 8;
        assert!(negotiate(&other, &all()).is_err());
        let idmap = SessionOptions {
            idmap: true,
            ..SessionOptions::default()
        };
        let refused = negotiate(&says(39, LINUX_6_6), &idmap).unwrap_err();
        assert!(refused.to_string().contains("6.12"));
        assert!(negotiate(&says(45, LINUX_6_18), &idmap).is_ok());
    }
}
