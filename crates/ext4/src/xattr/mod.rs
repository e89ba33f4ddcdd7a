//! Extended attributes: their places and layouts, and values in inodes of their own.
//!
//! Attributes lie in the inode behind its fields, and in one block per inode, which inodes made by
//! other systems may share ([`layout`], [`store`]). Large values lie in inodes of their own, if the
//! volume has them ([`value`]). A change lays both places out anew: the plan is made, or refused
//! (`ops/attributes/plan`), before the journal handle is opened. ACLs are attributes with rules of
//! their own (`ops/attributes/acl`).

pub(crate) mod layout;
pub(crate) mod privileges;
mod store;
pub(crate) mod value;
pub(crate) mod values;

pub(crate) use layout::Layout;
pub(crate) use values::Values;
