//! The content of files: reading and changing it, and the space that goes with it.
//!
//! `pages` gives the pages of a file in one operation; `whole` and `steps` share long changes among
//! transactions; `logged` and `journaled` are for data that goes through the journal; `inline`,
//! `symlink` and `value` are content outside of data blocks, and of attributes.

pub(in crate::data) mod atime;
pub(in crate::data) mod bmap;
pub(in crate::data) mod fallocate;
pub(in crate::data) mod inline;
pub(in crate::data) mod journaled;
pub(in crate::data) mod logged;
pub(crate) mod pages;
pub(in crate::data) mod read;
pub(in crate::data) mod steps;
pub(in crate::data) mod symlink;
pub(in crate::data) mod truncate;
pub(in crate::data) mod value;
pub(crate) mod whole;
pub(crate) mod write;
