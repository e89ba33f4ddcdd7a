//! Translation between the kernel's node numbers and inode numbers.

use stetfs::low::{Ino, ROOT_INO};

/// FUSE calls the root 1; ext4 calls it 2 and uses 1 for bad blocks, which no name leads to.
pub(crate) fn ino_of(nodeid: u64) -> Option<Ino> {
    match nodeid {
        1 => Some(ROOT_INO),
        n => Ino::try_from(n).ok().filter(|ino| *ino > ROOT_INO),
    }
}

/// The node number of `ino`.
pub(crate) fn node_of(ino: Ino) -> u64 {
    if ino == ROOT_INO { 1 } else { u64::from(ino) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_has_two_names_and_reserved_inodes_none() {
        assert_eq!(ino_of(1), Some(ROOT_INO));
        assert_eq!(node_of(ROOT_INO), 1);
        assert_eq!(ino_of(2), None);
        assert_eq!(ino_of(0), None);
        assert_eq!(ino_of(11), Some(11));
        assert_eq!(ino_of(1 << 40), None);
    }
}
