//! Tests of the layouts, against e2fsprogs and the kernel, in one program: each subject is a
//! module.

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod mke2fs;
mod names;
