//! The names of options.

use super::kernels;
use crate::{net, part};

/// Options that mean nothing here, or are what is done anyway.
const IGNORED: [&str; 38] = [
    "defaults",
    "auto",
    "noauto",
    "nofail",
    "user",
    "users",
    "nouser",
    "owner",
    "group",
    "_netdev",
    "async",
    "suid",
    "dev",
    "exec",
    "symfollow",
    "loop",
    "silent",
    "loud",
    "iversion",
    "noiversion",
    "acl",
    "user_xattr",
    "default_permissions",
    "diratime",
    "atime",
    "norelatime",
    "nostrictatime",
    "mand",
    "nomand",
    // Limits that the volume has hold in any case.
    "quota",
    "usrquota",
    "grpquota",
    "prjquota",
    // What the kernel shows of a FUSE mount, and mount(8) gives back for a remount.
    "user_id",
    "group_id",
    "rootmode",
    "max_read",
    "blksize",
];

/// The options that mean something and are not the journal's.
const NAMES: [&str; 54] = [
    "ro",
    "rw",
    "remount",
    "noatime",
    "relatime",
    "strictatime",
    "nodiratime",
    "lazytime",
    "nolazytime",
    "discard",
    "nodiscard",
    "grpid",
    "bsdgroups",
    "nogrpid",
    "sysvgroups",
    "allow_other",
    "noallow_other",
    "norecovery",
    "noload",
    "direct_io",
    "writeback_cache",
    "atomic",
    "atomic_timeout",
    "noxattr",
    "idmap",
    "fakeroot",
    "sync",
    "dirsync",
    "nobarrier",
    "journal_async_commit",
    "nosuid",
    "nodev",
    "noexec",
    "nosymfollow",
    "barrier",
    "journal",
    "journal_path",
    "nvm",
    "nvm_offset",
    "nvm_size",
    "commit",
    "epoch",
    "dirty_expire",
    "cache",
    "cache_policy",
    "erase_block",
    "io_uring",
    "opens",
    "low_latency",
    "sandbox",
    "log_file",
    "threads",
    "errors",
    "data_err",
];

/// All that people may mean.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    NAMES
        .into_iter()
        .chain(part::NAMES)
        .chain(net::NAMES)
        .chain(IGNORED)
        .chain(kernels::names())
        .chain(stetfs::low::option_names())
}

/// Whether an option is for others, and passed over.
pub(super) fn is_comment(name: &str) -> bool {
    IGNORED.contains(&name) || name.starts_with("x-") || name.starts_with("X-") || name == "comment"
}
