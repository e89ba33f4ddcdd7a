//! Fuzz targets for single blocks: directories and extended attributes. A block that is accepted
//! must stay valid through all changes.

use stetfs_ondisk::ext4::acl::Acl;
use stetfs_ondisk::ext4::dirent::{self, DirLayout, FileType};
use stetfs_ondisk::ext4::htree::{Index, IndexLayout, NodeKind, root_info};
use stetfs_ondisk::ext4::xattr::Attrs;

use crate::input::Input;

/// The next bytes of the input as a block, filled up with zeroes.
fn block(input: &mut Input<'_>, size: usize) -> Vec<u8> {
    let mut block = input.take(size).to_vec();
    block.resize(size, 0);
    block
}

/// Fuzzes a directory block: reads it as entries and as an index, then adds and removes names as
/// the bytes say.
pub fn directory(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let how = input.byte();
    let size = 1024 << (how & 3);
    let layout = DirLayout {
        tail: how & 4 != 0,
        filetype: how & 8 != 0,
        max_inode: 1 << 20,
    };
    let name_seed = input.word();
    let mut block = block(&mut input, size);
    let index = IndexLayout {
        tail: layout.tail,
        max_levels: 2,
    };
    let _ = root_info(&block, &index);
    for kind in [NodeKind::Root, NodeKind::Node] {
        if let Ok(node) = Index::new(&block, kind, &index) {
            let _ = node.check(1000);
            if node.len() > 0 {
                let (at, _) = node.search(u32::from(name_seed) << 16);
                assert!(at < node.len());
            }
            assert!(node.iter().count() <= node.len());
        }
    }
    if dirent::check(&block, &layout).is_err() {
        return;
    }
    let name = vec![b'n'; usize::from(name_seed % 255) + 1];
    let entries = dirent::entries(&block, &layout).unwrap();
    let room = entries.map(|e| e.unwrap().room()).max();
    let added = dirent::insert(&mut block, &layout, &name, 77, FileType::Regular).unwrap();
    assert_eq!(
        added.is_some(),
        room >= Some(dirent::min_rec_len(name.len()))
    );
    dirent::check(&block, &layout).expect("adding a name keeps a block sound");
    if added.is_some() {
        let found = dirent::find(&block, &layout, &name).unwrap();
        assert!(found.is_some(), "a name that was added is found");
    }
    let used = |block: &[u8]| {
        let entries = dirent::entries(block, &layout).unwrap();
        entries
            .map(Result::unwrap)
            .find(|e| e.inode != 0)
            .map(|e| e.offset)
    };
    while let Some(offset) = used(&block) {
        dirent::delete(&mut block, &layout, offset).expect("an entry in use can be removed");
        dirent::check(&block, &layout).expect("removing a name keeps a block sound");
    }
}

/// Fuzzes attributes in a block and in an inode, which must be the same after writing and reading
/// them again; also an ACL.
pub fn attributes(bytes: &[u8]) {
    use stetfs_ondisk::ext4::xattr;
    let mut input = Input::new(bytes);
    let size = 1024 << (input.byte() & 3);
    let block = block(&mut input, size);
    if let Ok(attrs) = Attrs::in_block(&block) {
        let all: Vec<_> = attrs.iter().collect();
        for attr in &all {
            assert!(attrs.find(attr.index, attr.name).is_some());
        }
        let mut again = vec![0; size];
        if xattr::write_block(&mut again, &all, 1).is_ok_and(|fits| fits) {
            let read = Attrs::in_block(&again).expect("what was written can be read");
            assert_eq!(read.iter().count(), all.len());
        }
    }
    if let Ok(attrs) = Attrs::in_inode(&block) {
        let all: Vec<_> = attrs.iter().collect();
        let mut again = vec![0; size];
        if xattr::write_in_inode(&mut again, &all).is_ok_and(|fits| fits) {
            let read = Attrs::in_inode(&again).expect("what was written can be read");
            assert_eq!(read.iter().count(), all.len());
        }
    }
    if let Ok(Some(acl)) = Acl::from_disk(&block) {
        assert_eq!(Acl::from_disk(&acl.to_disk()).unwrap(), Some(acl));
    }
    if let Ok(Some(acl)) = Acl::from_xattr(&block) {
        assert_eq!(Acl::from_xattr(&acl.to_xattr()).unwrap(), Some(acl));
    }
}
