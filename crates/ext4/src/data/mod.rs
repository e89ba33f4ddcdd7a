//! Placeholder so that the crate type-checks until data/ lands: its author replaces this whole file. These are
//! the names that volume/ and inode/ call.
use crate::*;
use stetfs_journal::{Handle,JournalError};
#[derive(Default)] pub(crate) struct DirtyData;
impl DirtyData { pub(crate) fn is_clean(&self)->bool{true} }
impl Fs {
  pub(crate) fn truncate_body(&self,_h:&mut Handle<'_>,_i:&crate::inode::Inode,_b:&mut crate::inode::InodeBody,_s:u64)->Result<()> {Ok(())}
  pub(crate) fn write_home(&self,_i:&[Ino])->std::result::Result<(),JournalError>{Ok(())}
  pub(crate) fn write_old_data(&self){}
  pub(crate) fn throttle_data(&self)->Result<()>{Ok(())}
}
