//! The names of options.

use stetfs::low::options::{self as table, VolumeRequest};

use super::kernels::KERNEL_OPTIONS;
use super::mount::MOUNT_OPTIONS;

/// Options that have no meaning here, or describe what is done anyway.
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
    // Limits of quota that the volume has always apply.
    "quota",
    "usrquota",
    "grpquota",
    "prjquota",
    // Options that the kernel shows for a FUSE mount, and mount(8) repeats in a remount.
    "user_id",
    "group_id",
    "rootmode",
    "max_read",
    "blksize",
];

/// All names that a misspelt option may mean.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    VolumeRequest::names(VolumeRequest::ALL)
        .chain(table::names(MOUNT_OPTIONS))
        .chain(IGNORED)
        .chain(table::names(KERNEL_OPTIONS))
}

/// Whether an option is for other programs, and ignored.
pub(super) fn is_comment(name: &str) -> bool {
    IGNORED.contains(&name) || name.starts_with("x-") || name.starts_with("X-") || name == "comment"
}
