//! The ioctls of ext4, and of Linux file systems in general, that reach a FUSE server.

use stetfs::low::{Ctx, Done, Fs, FsError, GoingDown, Ino};

use super::guarded;
use crate::api::ops::{IoctlArgs, IoctlReply};
use crate::helper::{caller, calls};
use crate::wire::ioctl::{
    FITRIM, FSGETXATTR, FSSETXATTR, GETFLAGS, GETFSLABEL, GETVERSION, SETFLAGS, SETFSLABEL,
    SHUTDOWN,
};

/// Bytes of a label's argument and answer.
const LABEL_MAX: usize = 256;
/// Bytes of `struct fsxattr`.
const FSXATTR_LEN: usize = 28;

/// Offset of `fsx_projid` in it.
const FSX_PROJECT: usize = 12;

/// Flag pairs: `EXT4_*_FL`, `FS_XFLAG_*`.
const XFLAGS: [(u32, u32); 7] = [
    (0x0000_0008, 0x0000_0020), // SYNC
    (0x0000_0010, 0x0000_0008), // IMMUTABLE
    (0x0000_0020, 0x0000_0010), // APPEND
    (0x0000_0040, 0x0000_0080), // NODUMP
    (0x0000_0080, 0x0000_0040), // NOATIME
    (0x0200_0000, 0x0000_8000), // DAX
    (0x2000_0000, 0x0000_0200), // PROJINHERIT
];

/// XFS flags that ext4 ignores: REALTIME, RTINHERIT, NOSYMLINKS, NODEFRAG, FILESTREAM.
const PASSED_OVER: u32 = 0x0000_6501;

fn xflags_of(flags: u32) -> u32 {
    XFLAGS
        .iter()
        .filter(|(fl, _)| flags & fl != 0)
        .map(|(_, x)| x)
        .sum()
}

/// `old` with the flags that XFS has replaced by those of `xflags`; `None` if `xflags` has a bit
/// that ext4 neither has nor ignores.
fn flags_of(old: u32, xflags: u32) -> Option<u32> {
    let known: u32 = XFLAGS.iter().map(|(_, x)| x).sum();
    if xflags & !(known | PASSED_OVER) != 0 {
        return None;
    }
    let mask: u32 = XFLAGS.iter().map(|(fl, _)| fl).sum();
    let set: u32 = XFLAGS
        .iter()
        .filter(|(_, x)| xflags & x != 0)
        .map(|(fl, _)| fl)
        .sum();
    Some(old & !mask | set)
}

fn word(input: &[u8]) -> Result<u32, FsError> {
    let bytes = input
        .first_chunk::<4>()
        .ok_or(FsError::Errno(libc::EINVAL))?;
    Ok(u32::from_ne_bytes(*bytes))
}

/// An answer without data.
pub(crate) fn nothing() -> IoctlReply {
    out(Vec::new())
}

/// An answer with data.
pub(crate) fn out(data: Vec<u8>) -> IoctlReply {
    IoctlReply { result: 0, data }
}

/// A number for a caller that gave room for an int or, as the command says, a long.
pub(crate) fn number(value: u32, out_size: u32) -> IoctlReply {
    let mut data = value.to_ne_bytes().to_vec();
    data.resize((out_size as usize).clamp(4, 8), 0);
    out(data)
}

/// The `struct fsxattr` of an inode.
fn fsxattr(fs: &Fs, ino: Ino) -> Result<IoctlReply, FsError> {
    let mut data = vec![0; FSXATTR_LEN];
    let fields = [
        (0, xflags_of(fs.get_flags(ino)?)),
        (FSX_PROJECT, fs.project(ino)?),
    ];
    for (at, value) in fields {
        data[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }
    Ok(out(data))
}

/// FITRIM with its `struct fstrim_range`: start, length, minimum run. The answer holds the trimmed
/// length.
fn trim(fs: &Fs, input: &[u8]) -> Result<IoctlReply, FsError> {
    let field = |i: usize| {
        let bytes = input.get(i * 8..).and_then(|b| b.first_chunk::<8>());
        bytes
            .map(|b| u64::from_ne_bytes(*b))
            .ok_or(FsError::Errno(libc::EINVAL))
    };
    let (start, len, min) = (field(0)?, field(1)?, field(2)?);
    let trimmed = fs.trim(start..start.saturating_add(len), min)?;
    let answer = [start, trimmed, min];
    Ok(out(answer.iter().flat_map(|n| n.to_ne_bytes()).collect()))
}

/// The label in the argument of FS_IOC_SETFSLABEL, up to its NUL.
fn label(input: &[u8]) -> &[u8] {
    let end = input.iter().position(|b| *b == 0).unwrap_or(input.len());
    input.get(..end).unwrap_or_default()
}

/// The flags of SHUTDOWN, read from the memory of the waiting caller.
fn going_down(ctx: &Ctx, address: u64) -> Result<GoingDown, FsError> {
    let flags = calls::ioctl_word(ctx.pid, SHUTDOWN, address).ok_or_else(|| {
        tracing::warn!(pid = ctx.pid, "cannot read the flags of a shutdown request");
        FsError::Errno(libc::EFAULT)
    })?;
    match flags {
        0 => Ok(GoingDown::Synced),
        1 => Ok(GoingDown::Committed),
        2 => Ok(GoingDown::AtOnce),
        _ => Err(FsError::Errno(libc::EINVAL)),
    }
}

fn shut_down(fs: &Fs, ctx: &Ctx, address: u64, done: Done<IoctlReply>) {
    if !caller::is_admin(ctx) {
        return done(Err(FsError::Errno(libc::EPERM)));
    }
    match going_down(ctx, address) {
        Ok(how) => {
            tracing::warn!(pid = ctx.pid, "the volume is shut down ({how:?})");
            fs.go_down(how, Box::new(move |r| done(r.map(|()| out(Vec::new())))));
        }
        Err(e) => done(Err(e)),
    }
}

/// Whether an ioctl sets one of the flags that guard a file.
pub(crate) fn guards(args: &IoctlArgs<'_>) -> bool {
    let asked = word(args.input).unwrap_or(0);
    match args.cmd {
        SETFLAGS => asked & guarded::GUARDS != 0,
        FSSETXATTR => asked & xflags_of(guarded::GUARDS) != 0,
        _ => false,
    }
}

/// Runs an ioctl. `changed` is called when attributes that the kernel caches have changed,
/// `renamed` when the volume's label has changed.
pub(crate) fn run(
    fs: &Fs,
    ctx: &Ctx,
    ino: Ino,
    args: IoctlArgs<'_>,
    changed: impl FnOnce(),
    renamed: impl FnOnce(),
    done: Done<IoctlReply>,
) {
    if args.cmd == SHUTDOWN {
        return shut_down(fs, ctx, args.arg, done);
    }
    let set = |flags: u32| {
        fs.set_flags(ctx, ino, flags).map(|()| {
            changed();
            out(Vec::new())
        })
    };
    done(match args.cmd {
        GETFLAGS => fs.get_flags(ino).map(|flags| number(flags, args.out_size)),
        SETFLAGS => word(args.input).and_then(set),
        GETVERSION => fs.getattr(ino).map(|a| number(a.generation, args.out_size)),
        FSGETXATTR => fsxattr(fs, ino),
        FSSETXATTR => word(args.input).and_then(|xflags| {
            let project = word(args.input.get(FSX_PROJECT..).unwrap_or_default())?;
            let old = fs.get_flags(ino)?;
            let flags = flags_of(old, xflags).ok_or(FsError::Errno(libc::EOPNOTSUPP))?;
            // Flags first, as in the kernel.
            let reply = set(flags)?;
            fs.set_project(ctx, ino, project)?;
            Ok(reply)
        }),
        GETFSLABEL => fs.label().map(|mut data| {
            data.resize(LABEL_MAX, 0);
            out(data)
        }),
        SETFSLABEL | FITRIM if !caller::is_admin(ctx) => Err(FsError::Errno(libc::EPERM)),
        SETFSLABEL => fs.set_label(label(args.input)).map(|()| {
            renamed();
            out(Vec::new())
        }),
        FITRIM => trim(fs, args.input),
        _ => Err(FsError::Errno(libc::ENOTTY)),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_translate_both_ways_and_unknown_bits_are_refused() {
        const EXTENTS: u32 = 0x0008_0000;
        assert_eq!(xflags_of(EXTENTS | 0x10 | 0x20), 0x08 | 0x10);
        assert_eq!(flags_of(EXTENTS | 0x10, 0x10), Some(EXTENTS | 0x20));
        assert_eq!(flags_of(0, 0x0000_0001), Some(0));
        assert_eq!(flags_of(0, 0x0000_0004), None);
    }

    #[test]
    fn what_guards_a_file_is_seen_in_both_terms() {
        let guards = |cmd, flags: u32| {
            let input = flags.to_ne_bytes();
            super::guards(&IoctlArgs {
                cmd,
                input: &input,
                out_size: 0,
                arg: 0,
            })
        };
        assert!(guards(SETFLAGS, 0x10) && guards(SETFLAGS, 0x8_0020));
        assert!(!guards(SETFLAGS, 0x8_0040) && !guards(GETFLAGS, 0x10));
        assert!(guards(FSSETXATTR, 0x08) && guards(FSSETXATTR, 0x10));
        assert!(!guards(FSSETXATTR, 0x20));
    }

    #[test]
    fn a_caller_with_room_for_an_int_gets_an_int() {
        assert_eq!(number(7, 4).data.len(), 4);
        assert_eq!(number(7, 8).data, 7u64.to_le_bytes());
    }
}
