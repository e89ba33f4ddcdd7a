//! xattr
