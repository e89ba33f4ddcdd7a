//! Files: reading and changing content.

mod atime;
mod bmap;
mod dirty;
mod fallocate;
mod journaled;
mod once;
mod read;
mod seek;
mod write;
