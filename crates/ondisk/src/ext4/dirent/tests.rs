#![allow(clippy::unwrap_used)]

use super::tail::write_tail_head;
use super::*;
use crate::bytes::put;
use proptest::prelude::*;
use std::collections::BTreeMap;

const LAYOUT: DirLayout = DirLayout {
    tail: true,
    filetype: true,
    max_inode: 1000,
};

fn names(block: &[u8], layout: &DirLayout) -> BTreeMap<Vec<u8>, (u32, FileType)> {
    entries(block, layout)
        .unwrap()
        .map(Result::unwrap)
        .filter(|e| e.inode != 0)
        .map(|e| (e.name.to_vec(), (e.inode, e.file_type)))
        .collect()
}

#[test]
fn rec_len_of_64_kib_blocks() {
    for size in [1024usize, 4096, 65536] {
        for len in (12..=size).step_by(4) {
            let raw = encode_rec_len(len, size).unwrap();
            assert_eq!(decode_rec_len(raw, size), len);
        }
        assert_eq!(encode_rec_len(size + 4, size), None);
        assert_eq!(encode_rec_len(13, size), None);
    }
    assert_eq!(decode_rec_len(0, 65536), 65536);
}

#[test]
fn a_new_directory() {
    for size in [1024, 4096, 65536] {
        for tail in [false, true] {
            let layout = DirLayout { tail, ..LAYOUT };
            let mut b = vec![0xAA; size];
            init_dots(&mut b, &layout, 12, 2).unwrap();
            check(&b, &layout).unwrap();
            assert!(entries(&b, &layout).unwrap().all(|e| e.unwrap().is_dots()));
            assert_eq!(find(&b, &layout, b"..").unwrap().unwrap().inode, 2);
            assert_eq!(find(&b, &layout, b".").unwrap().unwrap().inode, 12);
            assert_eq!(has_tail(&b), tail);
            set_inode(&mut b, &layout, 12, 77, FileType::Directory).unwrap();
            assert_eq!(find(&b, &layout, b"..").unwrap().unwrap().inode, 77);
        }
    }
}

fn max_room(block: &[u8], layout: &DirLayout) -> usize {
    let all = entries(block, layout).unwrap();
    all.map(|e| e.unwrap().room()).max().unwrap()
}

#[test]
fn an_empty_64_kib_block_without_tail_is_one_entry() {
    let layout = DirLayout {
        tail: false,
        ..LAYOUT
    };
    let mut b = vec![0; 65536];
    init_empty(&mut b, &layout).unwrap();
    assert_eq!(b.get(4..6), Some(&[0xff, 0xff][..]));
    assert_eq!(max_room(&b, &layout), 65536);
    let at = insert(&mut b, &layout, b"x", 5, FileType::Fifo).unwrap();
    assert_eq!(at, Some(0));
    check(&b, &layout).unwrap();
}

#[test]
fn what_is_refused() {
    let mut good = vec![0; 1024];
    init_dots(&mut good, &LAYOUT, 12, 2).unwrap();
    let damaged: [(usize, &[u8]); 9] = [
        (4, &[0, 0]),     // rec_len 0 would loop
        (4, &[8, 0]),     // shorter than any name
        (4, &[14, 0]),    // not aligned
        (6, &[5]),        // longer name than rec_len
        (6, &[0]),        // in use without a name
        (0, &[0xe9, 3]),  // inode 1001 of 1000
        (16, &[0xf8, 3]), // past the tail
        (16, &[0xe4, 3]), // leaves 8 bytes, too few for an entry
        (1024 - 5, &[0]), // no tail
    ];
    for (at, bytes) in damaged {
        let mut b = good.clone();
        put(&mut b, at, bytes).unwrap();
        assert!(check(&b, &LAYOUT).is_err(), "{at} {bytes:?}");
        let before = b.clone();
        assert!(delete(&mut b, &LAYOUT, 12).is_err(), "{at} {bytes:?}");
        assert_eq!(b, before);
    }
    let old = DirLayout {
        filetype: false,
        ..LAYOUT
    };
    assert!(
        check(&good, &old).is_err(),
        "a type byte without the feature"
    );
    for name in [&b""[..], b"a/b", b"a\0b", &[b'x'; 256]] {
        assert!(insert(&mut good, &LAYOUT, name, 5, FileType::Regular).is_err());
    }
    assert!(insert(&mut good, &LAYOUT, b"ok", 0, FileType::Regular).is_err());
    assert!(insert(&mut good, &LAYOUT, b"ok", 1001, FileType::Regular).is_err());
    assert!(
        delete(&mut good, &LAYOUT, 16).is_err(),
        "not the start of an entry"
    );
}

#[test]
fn a_deleted_name_leaves_no_trace() {
    let mut b = vec![0; 1024];
    init_empty(&mut b, &LAYOUT).unwrap();
    let empty = b.clone();
    for name in [&b"first"[..], b"second", b"third"] {
        insert(&mut b, &LAYOUT, name, 9, FileType::Regular)
            .unwrap()
            .unwrap();
    }
    for name in [&b"second"[..], b"first", b"third"] {
        let at = find(&b, &LAYOUT, name).unwrap().unwrap().offset;
        delete(&mut b, &LAYOUT, at).unwrap();
        assert_eq!(find(&b, &LAYOUT, name).unwrap(), None);
    }
    assert!(entries(&b, &LAYOUT).unwrap().all(|e| e.unwrap().inode == 0));
    assert!(!b.windows(5).any(|w| w == b"first" || w == b"third"));
    fill(&mut b, &LAYOUT, []).unwrap();
    assert_eq!(b, empty);
}

fn name_strategy() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => "[a-f]{1,3}".prop_map(String::into_bytes),
        1 => proptest::collection::vec((1u8..=255).prop_filter("slash", |b| *b != b'/'), 1..=255),
    ]
}

proptest! {
    #[test]
    fn behaves_like_a_map(
        ops in proptest::collection::vec((any::<bool>(), name_strategy(), 1u32..=1000, 1u8..8), 1..120),
        size in prop_oneof![Just(1024usize), Just(4096), Just(65536)],
        tail: bool, filetype: bool, dots: bool,
    ) {
        let layout = DirLayout { tail, filetype, max_inode: 1000 };
        let mut b = vec![0; size];
        let mut model = BTreeMap::new();
        if dots {
            init_dots(&mut b, &layout, 12, 2).unwrap();
            model = names(&b, &layout);
        } else {
            init_empty(&mut b, &layout).unwrap();
        }
        for (remove, name, inode, raw) in ops {
            let kind = if filetype { FileType::from_raw(raw) } else { FileType::Unknown };
            match find(&b, &layout, &name).unwrap().map(|e| e.offset) {
                Some(at) if remove => {
                    delete(&mut b, &layout, at).unwrap();
                    prop_assert!(model.remove(&name).is_some());
                }
                Some(at) => {
                    set_inode(&mut b, &layout, at, inode, kind).unwrap();
                    model.insert(name, (inode, kind));
                }
                None => {
                    let fits = max_room(&b, &layout) >= min_rec_len(name.len());
                    let at = insert(&mut b, &layout, &name, inode, kind).unwrap();
                    prop_assert_eq!(at.is_some(), fits);
                    if let Some(at) = at {
                        prop_assert_eq!(find(&b, &layout, &name).unwrap().unwrap().offset, at);
                        model.insert(name, (inode, kind));
                    }
                }
            }
            check(&b, &layout).unwrap();
            prop_assert_eq!(&names(&b, &layout), &model);
        }
        // Packing keeps the content and leaves all room at the end.
        let mut packed = vec![0; size];
        let n = fill(&mut packed, &layout, model.iter().map(|(n, (i, t))| (*i, *t, n.as_slice()))).unwrap();
        prop_assert_eq!(n, model.len());
        prop_assert_eq!(names(&packed, &layout), model);
        prop_assert!(max_room(&packed, &layout) >= max_room(&b, &layout));
    }

    #[test]
    fn fill_stops_when_full(count in 0usize..20) {
        let mut b = vec![0; 1024];
        let name = [b'n'; 200];
        let n = fill(&mut b, &LAYOUT, (0..count).map(|_| (7, FileType::Regular, &name[..]))).unwrap();
        prop_assert_eq!(n, count.min((1024 - 12) / 208));
        check(&b, &LAYOUT).unwrap();
    }

    #[test]
    fn random_bytes_never_panic(
        mut b in proptest::collection::vec(any::<u8>(), 0..2048), tail: bool, filetype: bool, at in 0usize..2100,
    ) {
        let layout = DirLayout { tail, filetype, max_inode: u32::MAX };
        if tail && b.len() >= 16 {
            let space = layout.space(b.len());
            write_tail_head(&mut b, space).unwrap();
        }
        if let Ok(all) = entries(&b, &layout) {
            prop_assert!(all.count() <= b.len() / 12 + 1);
        }
        let _ = insert(&mut b, &layout, b"name", 5, FileType::Regular);
        let _ = delete(&mut b, &layout, at);
        let _ = set_inode(&mut b, &layout, at, 5, FileType::Regular);
        let _ = verify_checksum(&b, 1);
        let _ = update_checksum(&mut b, 1);
    }

    #[test]
    fn a_damaged_block_keeps_its_chain_or_says_so(
        damage in proptest::collection::vec((0usize..1024, any::<u8>()), 1..4),
    ) {
        let mut b = vec![0; 1024];
        init_dots(&mut b, &LAYOUT, 12, 2).unwrap();
        for i in 0..20u32 {
            insert(&mut b, &LAYOUT, format!("name{i}").as_bytes(), 20 + i, FileType::Regular).unwrap().unwrap();
        }
        for (at, byte) in damage {
            b[at] ^= byte;
        }
        if check(&b, &LAYOUT).is_ok() {
            // A block that passes the check can be changed and stays valid.
            let first = entries(&b, &LAYOUT).unwrap().map(Result::unwrap).find(|e| e.inode != 0).map(|e| e.offset);
            if let Some(at) = first {
                delete(&mut b, &LAYOUT, at).unwrap();
            }
            insert(&mut b, &LAYOUT, b"new", 5, FileType::Regular).unwrap();
            check(&b, &LAYOUT).unwrap();
        }
    }

    #[test]
    fn any_flipped_bit_breaks_the_checksum(bit in 0usize..1024 * 8, seed: u32) {
        let mut b = vec![0; 1024];
        init_dots(&mut b, &LAYOUT, 12, 2).unwrap();
        prop_assert!(update_checksum(&mut b, seed).is_ok());
        prop_assert!(verify_checksum(&b, seed).is_ok());
        b[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(verify_checksum(&b, seed).is_err());
    }
}
