//! Attributes of inodes: owners, modes, times, flags, extended attributes, ACLs.

mod acl;
mod attr;
mod blocks;
mod flags;
mod inherit;
mod migrate;
mod plan;
mod values;
mod xattrs;

pub(crate) use inherit::Inherited;
