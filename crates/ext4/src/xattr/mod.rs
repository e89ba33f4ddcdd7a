//! Extended attributes, POSIX ACLs and inode flags.
//!
//! Attributes lie in the inode, behind its fields, and in one block per inode, which inodes made by
//! other systems may share ([`store`]). A change lays both out anew: the plan is made and refused
//! before the journal handle is opened. ACLs are attributes with rules of their own ([`acl`]).

mod acl;
mod flags;
mod inherit;
mod ops;
mod store;
mod value;

pub(crate) use inherit::{INHERIT_CREDITS, Inherited};
pub(crate) use store::{LAYOUT_CREDITS, Layout};
