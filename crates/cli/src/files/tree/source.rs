//! The content that is copied or packed, read so far that no trouble with it is to be expected:
//! before anything gives way to it, or is said of it.

use std::ops::Range;
use std::path::{Path, PathBuf};

use stetfs::Node;

use super::{Content, Item, Kind, Tree, runs};
use crate::failure::Result;

/// The content of something, beside its attributes.
pub(in crate::files) enum Source {
    /// Content, with its runs of data.
    Content(Box<dyn Content>, Vec<Range<u64>>),
    /// The target of a symbolic link.
    Link(PathBuf),
    Node(Node),
    Dir,
}

impl Source {
    /// Of what `item` tells of; `content` is that of a file that is open already.
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
