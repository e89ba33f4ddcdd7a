//! Extended attributes, POSIX ACLs and inode flags.
//!
//! Attributes lie in the inode, behind its fields, and in one block per inode, which inodes made by
//! other systems may share ([`layout`], [`store`]), and values without room there in inodes of
//! their own, where the volume has such ([`value`]). A change lays both places out anew: the plan
//! is made and refused ([`plan`]) before the journal handle is opened. ACLs are attributes with
//! rules of their own ([`acl`]).

mod acl;
mod flags;
mod inherit;
mod layout;
mod ops;
mod plan;
mod store;
mod value;
mod values;

pub(crate) use inherit::Inherited;
pub(crate) use layout::Layout;
pub(crate) use values::Values;
