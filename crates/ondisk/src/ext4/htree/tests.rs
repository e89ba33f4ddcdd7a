#![allow(clippy::unwrap_used)]

use super::*;
use proptest::prelude::*;

const LAYOUT: IndexLayout = IndexLayout {
    tail: true,
    max_levels: 1,
};

fn root(size: usize, layout: &IndexLayout) -> Vec<u8> {
    let mut b = vec![0xEE; size];
    init_root(&mut b, layout, (12, 2), true, 1, 1).unwrap();
    b
}

fn all(block: &[u8], kind: NodeKind, layout: &IndexLayout) -> Vec<(u32, u32)> {
    Index::new(block, kind, layout)
        .unwrap()
        .iter()
        .map(|e| (e.hash, e.block))
        .collect()
}

#[test]
fn limits_of_the_documentation() {
    let bare = IndexLayout {
        tail: false,
        ..LAYOUT
    };
    assert_eq!(
        (
            bare.limit(NodeKind::Root, 4096),
            bare.limit(NodeKind::Node, 4096)
        ),
        (508, 511)
    );
    assert_eq!(
        (
            LAYOUT.limit(NodeKind::Root, 4096),
            LAYOUT.limit(NodeKind::Node, 4096)
        ),
        (507, 510)
    );
    assert_eq!(
        (
            LAYOUT.limit(NodeKind::Root, 1024),
            LAYOUT.limit(NodeKind::Node, 1024)
        ),
        (123, 126)
    );
}

#[test]
fn a_new_root_is_also_a_linear_block() {
    for size in [1024, 4096, 65536] {
        let b = root(size, &LAYOUT);
        assert_eq!(root_dots(&b).unwrap(), (12, 2));
        assert_eq!(
            root_info(&b, &LAYOUT).unwrap(),
            RootInfo {
                hash_version: 1,
                indirect_levels: 0
            }
        );
        assert_eq!(all(&b, NodeKind::Root, &LAYOUT), [(0, 1)]);
        let mut moved = b.clone();
        dirent::set_inode(&mut moved, &DOTS, 12, 99, dirent::FileType::Directory).unwrap();
        assert_eq!(root_dots(&moved).unwrap(), (12, 99));
        assert_eq!(all(&moved, NodeKind::Root, &LAYOUT), [(0, 1)]);
    }
}

#[test]
fn what_is_refused() {
    let good = root(1024, &LAYOUT);
    let damaged: [(usize, &[u8]); 10] = [
        (0, &[0]),     // "." free
        (8, b"x"),     // "." misnamed
        (4, &[16]),    // "." too long
        (16, &[0xf0]), // ".." ends early
        (24, &[1]),    // reserved_zero
        (29, &[16]),   // info_length
        (30, &[2]),    // too many levels
        (31, &[1]),    // unknown flag
        (32, &[124]),  // limit without room for the tail
        (34, &[0]),    // count 0
    ];
    for (at, bytes) in damaged {
        let mut b = good.clone();
        put(&mut b, at, bytes).unwrap();
        assert!(
            root_info(&b, &LAYOUT).is_err() || Index::new(&b, NodeKind::Root, &LAYOUT).is_err(),
            "{at}"
        );
    }
    let mut b = good.clone();
    put(&mut b, 34, &[124]).unwrap();
    assert!(
        Index::new(&b, NodeKind::Root, &LAYOUT).is_err(),
        "count above limit"
    );
    assert!(
        Index::new(&good, NodeKind::Root, &LAYOUT)
            .unwrap()
            .check(1)
            .is_err(),
        "leaf past the end"
    );
    assert!(
        Index::new(&good, NodeKind::Root, &LAYOUT)
            .unwrap()
            .check(2)
            .is_ok()
    );
}

#[test]
fn what_cannot_be_changed() {
    let mut deep = root(1024, &LAYOUT);
    let (mut child, mut other) = (vec![0; 1024], vec![0; 1024]);
    deepen(&mut deep, &mut child, &LAYOUT, 2).unwrap();
    assert!(
        deepen(&mut deep, &mut other, &LAYOUT, 3).is_err(),
        "one level too many"
    );
    assert!(
        split_node(&mut child, &mut other, &LAYOUT).is_err(),
        "one entry cannot be split"
    );
    let mut add = |at, hash, block| {
        let entry = IndexEntry { hash, block };
        insert(&mut deep, NodeKind::Root, &LAYOUT, at, entry)
    };
    add(0, 10, 3).unwrap();
    add(1, 20, 4).unwrap();
    assert!(add(0, 12, 5).is_err());
    assert!(add(1, 8, 5).is_err());
    assert!(add(3, 30, 5).is_err());
    put(&mut deep, 40, &30u32.to_le_bytes()).unwrap();
    assert!(
        Index::new(&deep, NodeKind::Root, &LAYOUT)
            .unwrap()
            .check(9)
            .is_err(),
        "descending hashes"
    );
}

#[test]
fn continuation() {
    let e = IndexEntry {
        hash: 0x1235,
        block: 1,
    };
    assert!(e.continues(0x1234) && !e.continues(0x1236));
    assert!(
        !IndexEntry {
            hash: 0x1234,
            block: 1
        }
        .continues(0x1234)
    );
}

proptest! {
    /// Grows a tree as a directory does, and finds every hash where a sorted map has it.
    #[test]
    fn grows_like_a_sorted_map(hashes in proptest::collection::vec(0u32..u32::MAX, 1..400), tail: bool) {
        let layout = IndexLayout { tail, max_levels: 1 };
        let mut root = root(1024, &layout);
        let mut nodes: Vec<(u32, Vec<u8>)> = Vec::new();
        let mut model = std::collections::BTreeMap::from([(0u32, 1u32)]);
        for (hash, leaf) in hashes.into_iter().zip(2..) {
            if model.contains_key(&hash) {
                continue;
            }
            let entry = IndexEntry { hash, block: leaf };
            if nodes.is_empty() {
                let (at, _) = Index::new(&root, NodeKind::Root, &layout).unwrap().search(hash);
                if insert(&mut root, NodeKind::Root, &layout, at, entry).unwrap() {
                    model.insert(hash, leaf);
                    continue;
                }
                let mut child = vec![0xEE; 1024];
                deepen(&mut root, &mut child, &layout, 1000).unwrap();
                prop_assert_eq!(root_info(&root, &layout).unwrap().indirect_levels, 1);
                nodes.push((1000, child));
            }
            loop {
                let (at, up) = Index::new(&root, NodeKind::Root, &layout).unwrap().search(hash);
                let fresh = 1000 + nodes.len() as u32;
                let node = &mut nodes.iter_mut().find(|(n, _)| *n == up.block).unwrap().1;
                let (i, _) = Index::new(node, NodeKind::Node, &layout).unwrap().search(hash);
                if insert(node, NodeKind::Node, &layout, i, entry).unwrap() {
                    model.insert(hash, leaf);
                    break;
                }
                let mut new = vec![0xEE; 1024];
                let first = split_node(node, &mut new, &layout).unwrap();
                nodes.push((fresh, new));
                let up = IndexEntry { hash: first, block: fresh };
                prop_assert!(insert(&mut root, NodeKind::Root, &layout, at, up).unwrap());
            }
        }
        let lookup = |hash| {
            let (_, e) = Index::new(&root, NodeKind::Root, &layout).unwrap().search(hash);
            match nodes.iter().find(|(n, _)| *n == e.block) {
                Some((_, node)) => Index::new(node, NodeKind::Node, &layout).unwrap().search(hash).1.block,
                None => e.block,
            }
        };
        Index::new(&root, NodeKind::Root, &layout).unwrap().check(2000).unwrap();
        for (_, node) in &nodes {
            Index::new(node, NodeKind::Node, &layout).unwrap().check(2000).unwrap();
        }
        for (&hash, &leaf) in &model {
            prop_assert_eq!(lookup(hash), leaf);
            let below = hash.saturating_sub(1);
            prop_assert_eq!(lookup(below), *model.range(..=below).next_back().unwrap().1);
        }
    }

    #[test]
    fn random_bytes_never_panic(
        mut b in proptest::collection::vec(any::<u8>(), 0..1500), head: bool, node: bool, tail: bool, hash: u32,
    ) {
        let layout = IndexLayout { tail, max_levels: 1 };
        let kind = if node { NodeKind::Node } else { NodeKind::Root };
        if head {
            let limit = (layout.limit(kind, b.len()) as u16).to_le_bytes();
            let rec_len = (b.len() as u16).to_le_bytes();
            let _ = put(&mut b, entries_at(kind), &limit);
            let _ = put(&mut b, 0, &[0; 4]);
            let _ = put(&mut b, 4, &rec_len);
        }
        let _ = root_info(&b, &layout);
        if let Ok(index) = Index::new(&b, kind, &layout) {
            let (i, e) = index.search(hash);
            prop_assert_eq!(index.get(i), Some(e));
            let _ = index.check(100);
            let _ = insert(&mut b, kind, &layout, i, IndexEntry { hash, block: 5 });
        }
        let mut other = vec![0; b.len()];
        let _ = deepen(&mut b, &mut other, &layout, 5);
        let _ = split_node(&mut b, &mut other, &layout);
        let _ = verify_checksum(&b, kind, &layout, 5);
        let _ = update_checksum(&mut b, kind, &layout, 5);
    }

    #[test]
    fn a_flipped_bit_in_use_breaks_the_checksum(bit in 0usize..1024 * 8, seed: u32) {
        let mut b = root(1024, &LAYOUT);
        for i in 1..50 {
            let entry = IndexEntry { hash: i * 1000, block: i + 1 };
            insert(&mut b, NodeKind::Root, &LAYOUT, i as usize - 1, entry).unwrap();
        }
        update_checksum(&mut b, NodeKind::Root, &LAYOUT, seed).unwrap();
        verify_checksum(&b, NodeKind::Root, &LAYOUT, seed).unwrap();
        b[bit / 8] ^= 1 << (bit % 8);
        let covered = !(32 + 50 * 8..1024 - 8).contains(&(bit / 8));
        prop_assert_eq!(verify_checksum(&b, NodeKind::Root, &LAYOUT, seed).is_err(), covered);
    }
}
