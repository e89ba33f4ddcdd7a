//! Opening, recovery, superblock state, damage, statfs, unmount.
