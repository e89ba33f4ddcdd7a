#![allow(clippy::unwrap_used)]

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

const VOLUME: core::ops::Range<u64> = 1..1 << 40;

#[test]
fn capacities() {
    assert_eq!(ROOT_ENTRIES, 4);
    assert_eq!(max_entries(1024), 84);
    assert_eq!(max_entries(4096), 340);
    assert_eq!(max_entries(65536), 5460);
    assert_eq!(max_entries(0), 0);
}

#[test]
fn length_32768_is_written_and_one_more_is_unwritten() {
    let mut bytes = [0u8; 60];
    let mut n = Node::init(&mut bytes[..], 0).unwrap();
    n.insert_extent(
        0,
        &Extent {
            block: 0,
            len: 32768,
            start: 9,
            unwritten: false,
        },
    )
    .unwrap();
    n.insert_extent(
        1,
        &Extent {
            block: 40000,
            len: 1,
            start: 99,
            unwritten: true,
        },
    )
    .unwrap();
    assert!(
        n.insert_extent(
            2,
            &Extent {
                block: 50000,
                len: 32768,
                start: 99,
                unwritten: true
            }
        )
        .is_err()
    );
    assert!(
        n.insert_extent(
            2,
            &Extent {
                block: u32::MAX,
                len: 1,
                start: 99,
                unwritten: false
            }
        )
        .is_err()
    );
    assert_eq!(bytes[16..18], [0x00, 0x80]);
    assert_eq!(bytes[28..30], [0x01, 0x80]);
    let n = Node::new(&bytes[..]).unwrap();
    assert_eq!(
        n.extent(1).unwrap(),
        Extent {
            block: 40000,
            len: 1,
            start: 99,
            unwritten: true
        }
    );
    assert_eq!(n.index(0), None);
}

#[test]
fn checks_reject_what_the_format_forbids() {
    let leaf = |extents: &[(u32, u32, u64)]| {
        let mut bytes = vec![0u8; 1024];
        let mut n = Node::init(&mut bytes[..], 0).unwrap();
        for (i, &(block, len, start)) in extents.iter().enumerate() {
            n.insert_extent(
                i,
                &Extent {
                    block,
                    len,
                    start,
                    unwritten: false,
                },
            )
            .unwrap();
        }
        bytes
    };
    let ok = |b: &[u8], e: &Expect| Node::new(b).unwrap().check(e).is_ok();
    let root = Expect::root(1..1000);
    assert!(ok(&leaf(&[(0, 10, 5), (10, 5, 100)]), &root));
    assert!(!ok(&leaf(&[(0, 11, 5), (10, 5, 100)]), &root), "overlap");
    assert!(!ok(&leaf(&[(20, 1, 5), (10, 5, 100)]), &root), "unsorted");
    assert!(!ok(&leaf(&[(0, 10, 991)]), &root), "past the volume");
    assert!(!ok(&leaf(&[(0, 10, 0)]), &root), "block 0");
    assert!(
        !ok(
            &leaf(&[(0, 1, 5)]),
            &Expect {
                depth: Some(1),
                ..root.clone()
            }
        ),
        "depth"
    );
    assert!(
        !ok(
            &leaf(&[(0, 10, 5)]),
            &Expect {
                logical: 0..9,
                ..root.clone()
            }
        ),
        "past its parent's range"
    );
    let mut zero_len = leaf(&[(0, 10, 5)]);
    zero_len[16..18].fill(0);
    assert!(!ok(&zero_len, &root), "empty extent");

    let header = |at: usize, v: u16| {
        let mut b = leaf(&[(0, 10, 5)]);
        b[at..at + 2].copy_from_slice(&v.to_le_bytes());
        Node::new(b).map(|_| ())
    };
    assert!(header(0, MAGIC).is_ok());
    assert!(header(0, 0xF30B).is_err());
    assert!(header(2, 85).is_err(), "entries over max");
    assert!(header(4, 0).is_err());
    assert!(header(4, 85).is_err(), "max over space");
    assert!(header(6, 6).is_err(), "depth");
    let mut empty_index = leaf(&[]);
    empty_index[6] = 1;
    assert!(Node::new(empty_index).is_err());
}

#[test]
fn children_inherit_their_range() {
    let mut bytes = [0u8; 60];
    let mut n = Node::init(&mut bytes[..], 2).unwrap();
    n.insert_index(
        0,
        &Index {
            block: 0,
            child: 10,
        },
    )
    .unwrap();
    n.insert_index(
        1,
        &Index {
            block: 700,
            child: 1 << 33,
        },
    )
    .unwrap();
    let root = Expect::root(VOLUME);
    n.check(&root).unwrap();
    assert_eq!(
        n.expect_child(0, &root).unwrap(),
        Expect {
            depth: Some(1),
            logical: 0..700,
            blocks: VOLUME
        }
    );
    assert_eq!(n.expect_child(1, &root).unwrap().logical, 700..LOGICAL_END);
    assert_eq!(n.expect_child(2, &root), None);
    assert!(n.check(&Expect::root(1..1 << 33)).is_err());
    n.set_index(
        1,
        &Index {
            block: 0,
            child: 11,
        },
    )
    .unwrap();
    assert!(n.check(&root).is_err(), "two entries for one block");
}

/// Sorted, disjoint extents.
fn extents() -> impl Strategy<Value = Vec<Extent>> {
    vec(
        (0u32..1000, 1u32..=MAX_LEN, 1u64..1 << 39, any::<bool>()),
        0..84,
    )
    .prop_map(|list| {
        let mut next = 0;
        list.into_iter()
            .map(|(gap, len, start, unwritten)| {
                let e = Extent {
                    block: next + gap,
                    len: if unwritten {
                        len.min(MAX_UNWRITTEN_LEN)
                    } else {
                        len
                    },
                    start,
                    unwritten,
                };
                next = e.block + e.len;
                e
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn round_trip_search_and_removal(list in extents(), order in any::<u64>(), probe in 0u32..3_000_000, cut in (0usize..90, 0usize..90)) {
        let mut block = vec![0xEEu8; 1024];
        let mut n = Node::init(&mut block[..], 0).unwrap();
        // Inserts in an order that moves entries.
        let mut model: Vec<Extent> = Vec::new();
        for (k, e) in list.iter().enumerate() {
            if order >> (k % 64) & 1 == 1 { continue }
            let at = model.partition_point(|m| m.block < e.block);
            model.insert(at, *e);
            n.insert_extent(at, e).unwrap();
        }
        for e in list.iter().filter(|e| !model.contains(e)).copied().collect::<Vec<_>>() {
            let at = model.partition_point(|m| m.block < e.block);
            model.insert(at, e);
            n.insert_extent(at, &e).unwrap();
        }
        prop_assert_eq!(&model, &list);
        prop_assert_eq!(n.extents().collect::<Vec<_>>(), list.clone());
        n.check(&Expect::root(VOLUME)).unwrap();
        prop_assert_eq!(n.find(probe), list.iter().rposition(|e| e.block <= probe));

        let mut other = Node::init(vec![0u8; 1024], 0).unwrap();
        other.append(&n, cut.0.min(list.len())..list.len()).unwrap();
        prop_assert_eq!(other.extents().collect::<Vec<_>>(), list[cut.0.min(list.len())..].to_vec());

        n.remove(cut.0..cut.1);
        let mut left = list.clone();
        if cut.0 < cut.1.min(left.len()) { left.drain(cut.0..cut.1.min(list.len())); }
        prop_assert_eq!(n.extents().collect::<Vec<_>>(), left);

        let seed = Some(7);
        update_block_checksum(seed, &mut block).unwrap();
        prop_assert!(verify_block_checksum(seed, &block));
        block[order as usize % 1024] ^= 1;
        prop_assert!(!verify_block_checksum(seed, &block));
    }

    #[test]
    fn no_bytes_make_it_panic(
        mut bytes in vec(any::<u8>(), 0..200), magic in any::<bool>(), small in any::<bool>(), probe: u32, at in 0usize..30,
    ) {
        if magic && bytes.len() >= 12 {
            bytes[..2].copy_from_slice(&MAGIC.to_le_bytes());
            bytes[7] = 0;
            if small { let depth = bytes[6] % 7; bytes[2..8].copy_from_slice(&[3, 0, 8, 0, depth, 0]); }
        }
        let _ = verify_block_checksum(Some(1), &bytes);
        let _ = update_block_checksum(Some(1), &mut bytes.clone());
        if let Ok(mut n) = Node::new(&mut bytes[..]) {
            let e = Expect::root(VOLUME);
            let _ = n.check(&e);
            let _ = (n.find(probe), n.extents().count(), n.indexes().count(), n.expect_child(at, &e));
            let _ = n.insert_extent(at, &Extent { block: probe, len: 1, start: 1, unwritten: false });
            let _ = n.insert_index(at, &Index { block: probe, child: 1 });
            n.remove(at..at + 2);
            prop_assert!(n.len() <= n.capacity());
        }
    }
}
