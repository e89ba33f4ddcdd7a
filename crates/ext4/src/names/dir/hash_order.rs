//! Places in the hash order of a directory, which readdir's cookies encode.
//!
//! A cookie must stay valid while entries are added and removed and blocks split. So it encodes a
//! place in an order that depends only on names: 31 bits of the directory hash (its lowest bit
//! marks collisions in index entries and is never part of a hash), 20 bits of a second hash of the
//! name, and 12 bits that number entries equal in both, by name. So an entry's place changes only
//! when another entry with the same 51 bits is added or removed.

use stetfs_ondisk::ext4::checksum::ext4_crc32c;
use stetfs_ondisk::num::low32;

const ORDINAL_BITS: u32 = 12;
const LAST_ORDINAL: u64 = (1 << ORDINAL_BITS) - 1;

/// The cookie of the entry after `..`; cookies of places begin here.
const FIRST: u64 = 2;

/// A place in the hash order, below 2^63.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(u64);

/// The position of readdir in a directory in hash order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cookie {
    /// `.` comes next.
    Dot,
    /// `..` comes next.
    DotDot,
    /// Entries from this place on.
    From(Place),
}

impl Cookie {
    /// The position that a cookie encodes. Every number is valid.
    pub(crate) fn decode(cookie: u64) -> Cookie {
        match cookie {
            0 => Cookie::Dot,
            1 => Cookie::DotDot,
            n => Cookie::From(Place(n - FIRST)),
        }
    }

    /// The cookie for the caller.
    pub(crate) fn encode(self) -> u64 {
        match self {
            Cookie::Dot => 0,
            Cookie::DotDot => 1,
            Cookie::From(place) => place.0.saturating_add(FIRST).min(i64::MAX as u64),
        }
    }
}

impl Place {
    /// The first place of entries with directory hash `hash`.
    pub(crate) fn of_hash(hash: u32) -> Place {
        Place(u64::from(hash >> 1) << 32)
    }

    /// The directory hash at this place.
    pub(crate) fn hash(self) -> u32 {
        ((self.0 >> 32) as u32) << 1
    }

    fn of_name(hash: u32, name: &[u8]) -> Place {
        let second = ext4_crc32c(!0, name) & !low32(LAST_ORDINAL);
        Place(Place::of_hash(hash).0 | u64::from(second))
    }

    fn after(self) -> Place {
        Place(self.0 + 1)
    }
}

/// An entry with its place, and the place at which reading continues after it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Placed<T> {
    pub(crate) place: Place,
    pub(crate) next: Place,
    pub(crate) entry: T,
}

/// Puts entries (hash, name, further content) into hash order. All entries that share a hash must
/// be given in one call.
pub(crate) fn order<T>(entries: Vec<(u32, Vec<u8>, T)>) -> Vec<Placed<(Vec<u8>, T)>> {
    let keyed = entries
        .into_iter()
        .map(|(hash, name, rest)| (Place::of_name(hash, &name), name, rest));
    number(keyed.collect())
}

/// Sorts by key and numbers the entries of each key by name.
fn number<T>(mut entries: Vec<(Place, Vec<u8>, T)>) -> Vec<Placed<(Vec<u8>, T)>> {
    entries.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    let mut placed: Vec<Placed<(Vec<u8>, T)>> = Vec::with_capacity(entries.len());
    let mut group: Option<(Place, u64)> = None;
    for (key, name, rest) in entries {
        let ordinal = match group {
            Some((k, n)) if k == key => n + 1,
            _ => 0,
        };
        group = Some((key, ordinal));
        // Only a forged directory has more than 4096 names with the same 51 bits. The surplus names
        // share the last place. A reader without room for all of them continues behind them, so
        // that it never gets stuck.
        let place = Place(key.0 | ordinal.min(LAST_ORDINAL));
        placed.push(Placed {
            place,
            next: place.after(),
            entry: (name, rest),
        });
    }
    placed
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn names_from(placed: &[Placed<(Vec<u8>, ())>], from: Place) -> Vec<Vec<u8>> {
        placed
            .iter()
            .filter(|p| p.place >= from)
            .map(|p| p.entry.0.clone())
            .collect()
    }

    #[test]
    fn cookies_round_trip_and_stay_below_two_to_the_63() {
        let last = Place::of_hash(!1).0 | u64::from(u32::MAX);
        for c in [
            Cookie::Dot,
            Cookie::DotDot,
            Cookie::From(Place(0)),
            Cookie::From(Place(77)),
        ] {
            assert_eq!(Cookie::decode(c.encode()), c);
        }
        assert!(Cookie::From(Place(last)).encode() <= i64::MAX as u64);
        assert_eq!(Place::of_hash(0x8000_0002).hash(), 0x8000_0002);
    }

    #[test]
    fn a_full_collision_resumes_after_each_of_its_members() {
        let key = Place(3 << ORDINAL_BITS);
        let group: Vec<_> = (0..20u8).rev().map(|n| (key, vec![n], ())).collect();
        let placed = number(group);
        for (i, p) in placed.iter().enumerate() {
            assert_eq!(names_from(&placed, p.next).len(), placed.len() - i - 1);
        }
    }

    #[test]
    fn a_forged_collision_ends() {
        let placed = number(
            (0..10_000u32)
                .map(|n| (Place(0), n.to_be_bytes().to_vec(), ()))
                .collect(),
        );
        let (mut from, mut calls) = (Place(0), 0);
        while let Some(last) = placed.iter().filter(|p| p.place >= from).take(10).last() {
            assert!(last.next > from);
            from = last.next;
            calls += 1;
        }
        assert_eq!(calls, 410);
    }

    proptest! {
        #[test]
        fn places_do_not_move_when_others_come_and_go(
            names in prop::collection::btree_set(prop::collection::vec(1u8..=255, 1..20), 2..80),
            hashes in prop::collection::vec(0u32..6, 80),
            gone in prop::collection::vec(any::<bool>(), 80),
        ) {
            let all: Vec<_> = names.iter().zip(&hashes).map(|(n, h)| (h << 1, n.clone(), ())).collect();
            let rest: Vec<_> = all.iter().zip(&gone).filter(|(_, g)| !**g).map(|(e, _)| e.clone()).collect();
            let key = |place: Place| place.0 & !LAST_ORDINAL;
            let before = order(all);
            for p in order(rest) {
                let same = before.iter().find(|b| b.entry.0 == p.entry.0).unwrap();
                prop_assert_eq!(key(same.place), key(p.place));
                // Entries with the same 51 bits are numbered: one in a thousand here.
                let alone = before.iter().filter(|b| key(b.place) == key(p.place)).count() == 1;
                prop_assert!(!alone || same.place == p.place);
            }
        }
    }
}
