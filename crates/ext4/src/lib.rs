//! The ext4 file system: allocation, inodes, extents, directories, xattrs, name space.
