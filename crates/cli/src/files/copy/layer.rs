//! A layer: a tree whose files replace what lower layers have brought into a volume, whatever kinds
//! both are of.

use std::ffi::OsStr;

use stetfs::Node;

use crate::files::tree::{Inside, Item, Kind, Xattr};

/// The attributes of overlayfs (Documentation/filesystems/overlayfs.rst), for mounts by root and by
/// users.
const OVERLAY: [&str; 2] = ["trusted.overlay.", "user.overlay."];

/// A layer, and the volume into which it goes.
#[derive(Clone, Copy)]
pub(in crate::files) struct Layer<'a> {
    /// The volume.
    pub(in crate::files) to: &'a Inside,
    /// The source is an upper directory of overlayfs: a character device 0/0 removes a name, and
    /// `trusted.overlay.opaque=y` hides what lower layers have in the directory.
    pub(in crate::files) overlay: bool,
    /// Owner and group of everything; `None` for those of the source.
    pub(in crate::files) owner: Option<(u32, u32)>,
}

impl Layer<'_> {
    /// Whether a file of the source stands for a removed name.
    pub(super) fn is_whiteout(self, item: &Item) -> bool {
        self.overlay && item.kind == Kind::Node(Node::CharDevice(0, 0))
    }

    /// Takes the attributes away that mean something to overlayfs alone.
    pub(super) fn tidy(self, xattrs: &mut Vec<Xattr>) {
        if self.overlay {
            xattrs.retain(|(name, _)| !is_of_overlay(name, ""));
        }
    }
}

/// Whether this is the attribute `what` of overlayfs, or with an empty `what` any of them.
pub(super) fn is_of_overlay(name: &OsStr, what: &str) -> bool {
    let bytes = name.as_encoded_bytes();
    let mut rest = OVERLAY
        .iter()
        .filter_map(|prefix| bytes.strip_prefix(prefix.as_bytes()));
    rest.any(|rest| what.is_empty() || rest == what.as_bytes())
}
