//! Adapter from FUSE requests to the stetfs library.
