//! Byte layouts of ext4, jbd2 and (later) the StetFS log: encode, decode, checksums; no I/O.
