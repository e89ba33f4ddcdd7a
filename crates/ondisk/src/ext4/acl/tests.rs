#![allow(clippy::unwrap_used)]

use super::*;
use proptest::prelude::*;

fn acl(entries: &[(Tag, u8)]) -> core::result::Result<Acl, AclError> {
    Acl::new(
        entries
            .iter()
            .map(|&(tag, perm)| AclEntry { tag, perm })
            .collect(),
    )
}

#[test]
fn bytes_of_both_forms() {
    // `setfacl -m u:1000:rw` on a file of mode 0644.
    use Tag::*;
    let a = acl(&[
        (UserObj, 6),
        (User(1000), 6),
        (GroupObj, 4),
        (Mask, 6),
        (Other, 4),
    ])
    .unwrap();
    let disk = [
        &[1u8, 0, 0, 0][..],
        &[1, 0, 6, 0],
        &[2, 0, 6, 0, 0xe8, 3, 0, 0],
        &[4, 0, 4, 0],
        &[0x10, 0, 6, 0],
        &[0x20, 0, 4, 0],
    ]
    .concat();
    let xattr = [
        &[2u8, 0, 0, 0][..],
        &[1, 0, 6, 0, 255, 255, 255, 255],
        &[2, 0, 6, 0, 0xe8, 3, 0, 0],
        &[4, 0, 4, 0, 255, 255, 255, 255],
        &[0x10, 0, 6, 0, 255, 255, 255, 255],
        &[0x20, 0, 4, 0, 255, 255, 255, 255],
    ]
    .concat();
    assert_eq!(a.to_disk(), disk);
    assert_eq!(a.to_xattr(), xattr);
    assert_eq!(Acl::from_disk(&disk).unwrap().unwrap(), a);
    assert_eq!(Acl::from_xattr(&xattr).unwrap().unwrap(), a);
    assert_eq!(a.mode_bits(), 0o664);
    assert!(!a.is_minimal());
}

#[test]
fn what_is_refused() {
    use Tag::*;
    let base = [(UserObj, 7), (GroupObj, 5), (Other, 0)];
    assert!(acl(&base).unwrap().is_minimal());
    let bad: [&[(Tag, u8)]; 11] = [
        &[],
        &[(UserObj, 7), (GroupObj, 5)],
        &[(GroupObj, 5), (UserObj, 7), (Other, 0)],
        &[(UserObj, 7), (UserObj, 7), (GroupObj, 5), (Other, 0)],
        &[(UserObj, 7), (User(1), 7), (GroupObj, 5), (Other, 0)],
        &[
            (UserObj, 7),
            (User(1), 7),
            (User(2), 7),
            (User(1), 6),
            (GroupObj, 5),
            (Mask, 7),
            (Other, 0),
        ],
        &[
            (UserObj, 7),
            (GroupObj, 5),
            (Group(3), 7),
            (Group(3), 7),
            (Mask, 7),
            (Other, 0),
        ],
        &[
            (UserObj, 7),
            (GroupObj, 5),
            (Mask, 7),
            (Group(3), 7),
            (Other, 0),
        ],
        &[
            (UserObj, 7),
            (GroupObj, 5),
            (Mask, 7),
            (Mask, 7),
            (Other, 0),
        ],
        &[(UserObj, 8), (GroupObj, 5), (Other, 0)],
        &[
            (UserObj, 7),
            (User(NO_ID), 7),
            (GroupObj, 5),
            (Mask, 7),
            (Other, 0),
        ],
    ];
    for entries in bad {
        assert!(
            matches!(acl(entries), Err(AclError::Invalid(_))),
            "{entries:?}"
        );
    }
    // Ids need not ascend.
    assert!(
        acl(&[
            (UserObj, 7),
            (User(2), 7),
            (User(1), 6),
            (GroupObj, 5),
            (Mask, 7),
            (Other, 0)
        ])
        .is_ok()
    );
}

#[test]
fn what_is_not_whole_or_of_another_version_is_refused() {
    use Tag::*;
    let good = acl(&[(UserObj, 7), (GroupObj, 5), (Other, 0)]).unwrap();
    assert_eq!(Acl::from_xattr(&[]), Err(AclError::Invalid("too short")));
    assert_eq!(Acl::from_xattr(&[2, 0, 0, 0]), Ok(None));
    assert_eq!(Acl::from_xattr(&good.to_disk()), Err(AclError::Version(1)));
    assert!(matches!(
        Acl::from_disk(&good.to_xattr()),
        Err(OnDiskError::Unsupported { .. })
    ));
    assert_eq!(Acl::from_disk(&[1, 0, 0, 0]), Ok(None));
    let (disk, xattr) = (good.to_disk(), good.to_xattr());
    for cut in 1..HEADER + 3 * SHORT {
        assert!(cut == HEADER || Acl::from_disk(disk.get(..cut).unwrap()).is_err());
    }
    for cut in 1..HEADER + 3 * LONG {
        assert!(cut == HEADER || Acl::from_xattr(xattr.get(..cut).unwrap()).is_err());
    }
}

#[test]
fn chmod_and_inheritance() {
    use Tag::*;
    let named = [
        (UserObj, 7),
        (User(1), 7),
        (GroupObj, 5),
        (Group(9), 6),
        (Mask, 7),
        (Other, 5),
    ];
    let mut a = acl(&named).unwrap();
    a.chmod(0o640);
    let after = [
        (UserObj, 6),
        (User(1), 7),
        (GroupObj, 5),
        (Group(9), 6),
        (Mask, 4),
        (Other, 0),
    ];
    assert_eq!(a, acl(&after).unwrap());

    // A file created 0666 under this default list, as setfacl(1) and acl(5) describe it.
    let (access, mode) = acl(&named).unwrap().inherit(0o100666);
    let inherited = [
        (UserObj, 6),
        (User(1), 7),
        (GroupObj, 5),
        (Group(9), 6),
        (Mask, 6),
        (Other, 4),
    ];
    assert_eq!(access.unwrap(), acl(&inherited).unwrap());
    assert_eq!(mode, 0o100664);

    let (access, mode) = acl(&[(UserObj, 7), (GroupObj, 5), (Other, 0)])
        .unwrap()
        .inherit(0o042777);
    assert_eq!((access, mode), (None, 0o042750));

    // A mask without named entries is kept: the group's own bits differ from the mode's.
    let (access, mode) = acl(&[(UserObj, 7), (GroupObj, 7), (Mask, 5), (Other, 0)])
        .unwrap()
        .inherit(0o777);
    assert!(access.is_some());
    assert_eq!(mode, 0o750);
}

fn valid_acl() -> impl Strategy<Value = Acl> {
    let ids = || proptest::collection::btree_map(0..NO_ID, 0u8..8, 0..5);
    (ids(), ids(), proptest::option::of(0u8..8), 0u32..0o1000).prop_map(
        |(users, groups, mask, mode)| {
            let mask = mask.or((!users.is_empty() || !groups.is_empty()).then_some(7));
            let mut list = vec![(Tag::UserObj, class(mode, 6))];
            list.extend(users.into_iter().map(|(id, p)| (Tag::User(id), p)));
            list.push((Tag::GroupObj, class(mode, 3)));
            list.extend(groups.into_iter().map(|(id, p)| (Tag::Group(id), p)));
            list.extend(mask.map(|p| (Tag::Mask, p)));
            list.push((Tag::Other, class(mode, 0)));
            acl(&list).unwrap()
        },
    )
}

proptest! {
    #[test]
    fn round_trip(a in valid_acl()) {
        prop_assert_eq!(&Acl::from_disk(&a.to_disk()).unwrap().unwrap(), &a);
        prop_assert_eq!(&Acl::from_xattr(&a.to_xattr()).unwrap().unwrap(), &a);
    }

    #[test]
    fn mode_and_list_stay_in_step(mut a in valid_acl(), mode in 0u32..0o10000) {
        let (access, new) = a.inherit(mode);
        prop_assert_eq!(new & !0o777, mode & !0o777);
        prop_assert_eq!(new & 0o777, mode & 0o777 & a.mode_bits());
        prop_assert_eq!(access.is_none(), a.is_minimal());
        if let Some(access) = access {
            prop_assert_eq!(access.mode_bits(), new & 0o777);
        }
        a.chmod(mode);
        prop_assert_eq!(a.mode_bits(), mode & 0o777);
    }

    #[test]
    fn random_bytes_never_panic(b in proptest::collection::vec(any::<u8>(), 0..100), version: bool, sparse: bool) {
        let mut b = b;
        if sparse {
            b.iter_mut().for_each(|b| *b &= 0x07);
        }
        for v in [1, 2] {
            if version && b.len() >= 4 {
                b.splice(..4, [v, 0, 0, 0]);
            }
            // A decodable list encodes to the same bytes (except the ids of entries without one).
            if let Ok(Some(a)) = Acl::from_disk(&b) {
                prop_assert_eq!(a.to_disk(), b.clone());
            }
            if let Ok(Some(a)) = Acl::from_xattr(&b) {
                prop_assert_eq!(a.to_xattr().len(), b.len());
            }
        }
    }
}
