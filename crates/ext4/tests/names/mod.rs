//! Names, attributes and the tree, against models, e2fsprogs and the kernel.

mod acls;
mod damage;
mod dirs;
mod faults;
mod interop;
mod readdir;
mod signs;
mod support;
mod threads;
mod tree;
mod values;
mod xattrs;
