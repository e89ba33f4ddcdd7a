//! inode
