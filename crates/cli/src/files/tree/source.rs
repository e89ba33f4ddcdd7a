//! The content to be copied or packed, opened far enough to expect no errors. This happens before
//! an existing file gives way to the copy, or an archive header states its size.

use std::ops::Range;
use std::path::{Path, PathBuf};

use stetfs::Node;

use super::{Content, Item, Kind, Tree, runs};
use crate::failure::Result;

/// The content of a file, as opposed to its attributes.
pub(in crate::files) enum Source {
    /// Data, with its runs.
    Content(Box<dyn Content>, Vec<Range<u64>>),
    /// The target of a symbolic link.
    Link(PathBuf),
    Node(Node),
    Dir,
}

impl Source {
    /// The content of the file that `item` describes; `content` is that of a file that is open
    /// already.
    ///
    /// # Errors
    /// It cannot be read.
    pub(in crate::files) fn of(
        tree: &dyn Tree,
        path: &Path,
        item: &Item,
        content: Option<Box<dyn Content>>,
    ) -> Result<Source> {
        match item.kind {
            Kind::File => {
                let content = content.map_or_else(|| tree.open(path, item), Ok)?;
                let runs = runs(&*content, item.size)?;
                Ok(Source::Content(content, runs))
            }
            Kind::Symlink => tree.link(path).map(Source::Link),
            Kind::Node(node) => Ok(Source::Node(node)),
            Kind::Dir => Ok(Source::Dir),
        }
    }
}
