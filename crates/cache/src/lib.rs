//! Buffer cache of copy-on-write pages, with pluggable replacement policies.
