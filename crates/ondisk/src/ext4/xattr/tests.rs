#![allow(clippy::unwrap_used)]

use super::attr::{BLOCK_HEADER, ENTRY, MAGIC};
use super::*;
use crate::bytes::put;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn bytes<'a>(index: u8, name: &'a [u8], value: &'a [u8]) -> Attr<'a> {
    Attr {
        index,
        name,
        value: Value::Bytes(value),
    }
}

#[test]
fn names_as_programs_see_them() {
    type Row = (&'static [u8], Option<(u8, &'static [u8])>);
    let table: [Row; 12] = [
        (b"user.mime", Some((index::USER, b"mime"))),
        (b"user.", None),
        (b"user", None),
        (
            b"system.posix_acl_access",
            Some((index::POSIX_ACL_ACCESS, b"")),
        ),
        (
            b"system.posix_acl_default",
            Some((index::POSIX_ACL_DEFAULT, b"")),
        ),
        (b"system.posix_acl_defaults", None),
        (b"system.richacl", Some((index::RICHACL, b""))),
        (b"system.data", None),
        (
            b"trusted.overlay.opaque",
            Some((index::TRUSTED, b"overlay.opaque")),
        ),
        (
            b"security.capability",
            Some((index::SECURITY, b"capability")),
        ),
        (b"gnu.translator", Some((index::HURD, b"translator"))),
        (b"com.apple.x", None),
    ];
    for (full, split) in table {
        assert_eq!(split_name(full), split, "{}", full.escape_ascii());
        if let Some((index, name)) = split {
            assert_eq!(full_name(index, name).unwrap(), full);
        }
    }
    assert_eq!(full_name(index::SYSTEM, b"data"), None);
    assert_eq!(full_name(index::POSIX_ACL_ACCESS, b"x"), None);
}

#[test]
fn what_is_refused() {
    let mut good = vec![0; 1024];
    let attrs = [bytes(1, b"ab", b"value"), bytes(6, b"cd", b"12345678")];
    assert!(write_block(&mut good, &attrs, 3).unwrap());
    assert_eq!(BlockHeader::read(&good).unwrap().refcount, 3);
    let damaged: [(usize, &[u8]); 10] = [
        (0, &[1]),        // magic
        (4, &[0]),        // refcount
        (8, &[2]),        // blocks
        (32, &[255]),     // name runs on, with NULs in it
        (34, &[0xfc, 3]), // value past the end
        (34, &[40, 0]),   // value in the entries
        (34, &[72, 0]),   // value in the terminator
        (40, &[0, 0, 2]), // too large
        (40, &[0xff, 0xff, 0xff, 0xff]),
        (48, &[0]), // NUL in the name
    ];
    for (at, bytes) in damaged {
        let mut b = good.clone();
        put(&mut b, at, bytes).unwrap();
        assert!(Attrs::in_block(&b).is_err(), "{at} {bytes:?}");
    }
    assert!(Attrs::in_block(&[]).is_err());
    let mut full = vec![0xff; 100];
    put(&mut full, 0, &MAGIC.to_le_bytes()).unwrap();
    assert!(Attrs::in_inode(&full).is_err());
    assert!(
        Attrs::in_inode(&MAGIC.to_le_bytes()).is_err(),
        "no terminator"
    );

    let before = good.clone();
    let long = [b'n'; 256];
    let huge = vec![0; VALUE_MAX + 1];
    for bad in [
        bytes(1, &long, b""),
        bytes(1, b"a\0", b""),
        bytes(0, b"", b"x"),
        bytes(1, b"n", &huge),
    ] {
        assert!(write_block(&mut good, &[bad], 1).is_err());
    }
    assert!(
        write_block(&mut good, &[attrs[0], attrs[0]], 1).is_err(),
        "twice"
    );
    assert!(set_refcount(&mut good, 0).is_err());
    assert!(set_refcount(&mut good, REFCOUNT_MAX + 1).is_err());
    assert_eq!(good, before);
}

#[test]
fn an_inode_with_too_little_room_has_none() {
    for len in 0..8 {
        assert!(
            Attrs::in_inode(&vec![0; len])
                .unwrap()
                .iter()
                .next()
                .is_none()
        );
    }
}

#[test]
fn values_elsewhere_keep_their_hash() {
    let elsewhere = Attr {
        index: 1,
        name: b"big",
        value: Value::Inode {
            ino: 77,
            size: 60000,
            hash: 0xabcd,
        },
    };
    let mut b = vec![0; 1024];
    assert!(write_block(&mut b, &[elsewhere], 1).unwrap());
    assert_eq!(
        Attrs::in_block(&b).unwrap().find(1, b"big"),
        Some(elsewhere)
    );
    assert_eq!(BlockHeader::read(&b).unwrap().hash, 0xabcd);
    let mut body = vec![0; 96];
    assert!(write_in_inode(&mut body, &[elsewhere]).unwrap());
    assert_eq!(
        Attrs::in_inode(&body).unwrap().find(1, b"big"),
        Some(elsewhere)
    );
}

type Model = BTreeMap<(u8, Vec<u8>), Vec<u8>>;

fn model() -> impl Strategy<Value = Model> {
    let name = proptest::collection::vec(1u8..=255, 1..20);
    let value = proptest::collection::vec(any::<u8>(), 0..60);
    proptest::collection::btree_map((1u8..=10, name), value, 0..12)
}

fn attrs(model: &Model) -> Vec<Attr<'_>> {
    model.iter().map(|((i, n), v)| bytes(*i, n, v)).collect()
}

fn read(attrs: Attrs<'_>) -> Model {
    let bytes_of = |v| match v {
        Value::Bytes(v) => v.to_vec(),
        Value::Inode { .. } => unreachable!(),
    };
    attrs
        .iter()
        .map(|a| ((a.index, a.name.to_vec()), bytes_of(a.value)))
        .collect()
}

proptest! {
    #[test]
    fn round_trip(model in model(), size in 0usize..400) {
        let list = attrs(&model);
        let mut body = vec![0xEE; size];
        let fits = model.is_empty() || space(&list) <= inode_room(size);
        prop_assert_eq!(write_in_inode(&mut body, &list).unwrap(), fits);
        if fits {
            prop_assert_eq!(&read(Attrs::in_inode(&body).unwrap()), &model);
        } else {
            prop_assert!(body.iter().all(|b| *b == 0xEE));
        }

        let size = size / 4 * 4 + BLOCK_HEADER;
        let mut block = vec![0xEE; size];
        let fits = space(&list) <= block_room(size);
        prop_assert_eq!(write_block(&mut block, &list, 1).unwrap(), fits);
        if fits {
            let got = Attrs::in_block(&block).unwrap();
            prop_assert_eq!(&read(got), &model);
            prop_assert!(got.iter().is_sorted_by_key(|a| (a.index, a.name.len(), a.name)));
            for ((i, n), v) in &model {
                prop_assert_eq!(got.find(*i, n), Some(bytes(*i, n, v)));
            }
            prop_assert_eq!(got.find(1, b"not there, as it is too long"), None);
        }
    }

    #[test]
    fn random_bytes_never_panic(
        mut b in proptest::collection::vec(any::<u8>(), 0..600), head: bool, sparse: bool,
    ) {
        if sparse {
            b.iter_mut().for_each(|b| *b &= 0x11);
        }
        if head {
            for (at, word) in [(0, MAGIC), (4, 1), (8, 1)] {
                let _ = put(&mut b, at, &word.to_le_bytes());
            }
        }
        for attrs in [Attrs::in_inode(&b), Attrs::in_block(&b)].into_iter().flatten() {
            prop_assert!(attrs.iter().count() <= b.len() / ENTRY);
        }
        let _ = set_refcount(&mut b, 5);
        let _ = verify_block_checksum(&b, 1, 1);
        let _ = update_block_checksum(&mut b, 1, 1);
    }

    #[test]
    fn damage_is_noticed_or_harmless(model in model(), at in 0usize..1024, byte: u8) {
        let mut block = vec![0; 1024];
        if write_block(&mut block, &attrs(&model), 1).unwrap() {
            block[at] ^= byte;
            if let Ok(attrs) = Attrs::in_block(&block) {
                let list: Vec<_> = attrs.iter().collect();
                prop_assert!(list.len() <= 1024 / ENTRY);
                // The list can be written back, unless two names have become one.
                let mut again = vec![0; 65536];
                if let Ok(written) = write_block(&mut again, &list, 1) {
                    prop_assert!(written);
                    prop_assert_eq!(Attrs::in_block(&again).unwrap().iter().count(), list.len());
                }
            }
        }
    }

    #[test]
    fn any_flipped_bit_breaks_the_checksum(bit in 0usize..1024 * 8, seed: u32, nr: u64) {
        let mut b = vec![0; 1024];
        prop_assert!(write_block(&mut b, &[bytes(1, b"name", b"value")], 1).unwrap());
        update_block_checksum(&mut b, seed, nr).unwrap();
        verify_block_checksum(&b, seed, nr).unwrap();
        prop_assert!(verify_block_checksum(&b, seed, nr ^ 1).is_err());
        b[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(verify_block_checksum(&b, seed, nr).is_err());
    }
}
