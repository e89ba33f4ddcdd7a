//! Hashes of names in directory indexes (`dx_hash`; "Hash Tree Directories" in the ext4
//! documentation).

use super::superblock::SuperFlags;
use crate::error::{OnDiskError, Result};
use crate::num::{low32, sign_extended};

/// The hash function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HashKind {
    /// `DX_HASH_LEGACY`: the oldest, without a seed.
    Legacy,
    /// `DX_HASH_HALF_MD4`: MD4 with half its rounds; mke2fs's default.
    HalfMd4,
    /// `DX_HASH_TEA`: the Tiny Encryption Algorithm as a Davies-Meyer hash.
    Tea,
}

/// A hash function and its treatment of bytes above 127: `char` is signed on some machines and
/// unsigned on others, so ext4 has both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HashVersion {
    /// The function.
    pub kind: HashKind,
    /// Whether bytes are unsigned.
    pub unsigned: bool,
}

/// The hash of a name in a directory index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NameHash {
    /// The sort key of the index. It is even: in an index, bit 0 says that names with the hash
    /// began in the previous block.
    pub major: u32,
    /// Orders names of equal `major` in a directory stream; not in the index.
    pub minor: u32,
}

/// The hash that the kernel returns as the end of a directory stream, so no name may have it
/// (`EXT4_HTREE_EOF_32BIT << 1`).
const EOF: u32 = 0x7fff_ffff << 1;
/// The initial MD4 state for volumes without a seed.
const NO_SEED: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

impl HashVersion {
    /// Decodes `hash_version` of an index root; the volume's signedness applies if the version
    /// leaves it open ([`SuperFlags::hashes_unsigned`]).
    pub fn of_root(raw: u8, unsigned: bool) -> Result<HashVersion> {
        let kind = match raw {
            0 | 3 => HashKind::Legacy,
            1 | 4 => HashKind::HalfMd4,
            2 | 5 => HashKind::Tea,
            _ => {
                return Err(OnDiskError::Unsupported {
                    feature: format!("directory hash version {raw}"),
                });
            }
        };
        Ok(HashVersion {
            kind,
            unsigned: raw >= 3 || unsigned,
        })
    }

    /// Decodes `s_def_hash_version`. The volume's signedness always applies: an index root stores
    /// the function alone, so its readers know the signedness from the volume only.
    pub fn default_of_volume(raw: u8, flags: SuperFlags) -> Result<HashVersion> {
        let unsigned = flags.hashes_unsigned();
        let HashVersion { kind, .. } = HashVersion::of_root(raw, unsigned)?;
        Ok(HashVersion { kind, unsigned })
    }

    /// The byte to store in a new index root. Signedness is a property of the volume and is not
    /// stored.
    #[must_use]
    pub fn root_byte(self) -> u8 {
        match self.kind {
            HashKind::Legacy => 0,
            HashKind::HalfMd4 => 1,
            HashKind::Tea => 2,
        }
    }

    /// Hash of `name` with the volume's `s_hash_seed`; an all-zero seed means none.
    #[must_use]
    pub fn hash(self, name: &[u8], seed: [u32; 4]) -> NameHash {
        let seed = if seed == [0; 4] { NO_SEED } else { seed };
        let (major, minor) = match self.kind {
            HashKind::Legacy => (self.legacy(name), 0),
            HashKind::HalfMd4 => {
                let buf = name
                    .chunks(32)
                    .fold(seed, |buf, c| half_md4(buf, self.words(c)));
                (buf[1], buf[2])
            }
            HashKind::Tea => {
                let [b0, b1, ..] = seed;
                name.chunks(16)
                    .fold((b0, b1), |buf, c| tea(buf, self.words(c)))
            }
        };
        let major = major & !1;
        NameHash {
            major: if major == EOF { EOF - 2 } else { major },
            minor,
        }
    }

    /// Widens a byte as `char` of the volume's kind.
    fn widen(self, byte: u8) -> u32 {
        if self.unsigned {
            u32::from(byte)
        } else {
            sign_extended(byte)
        }
    }

    /// A piece of a name as `N` words of four bytes each, the first byte highest. Missing bytes are
    /// filled with the piece's length. Sign-extended bytes borrow from the ones before them.
    fn words<const N: usize>(self, piece: &[u8]) -> [u32; N] {
        let pad = (low32(piece.len() as u64) & 0xff) * 0x0101_0101;
        let mut words = [pad; N];
        for (word, bytes) in words.iter_mut().zip(piece.chunks(4)) {
            *word = bytes
                .iter()
                .fold(pad, |w, &b| self.widen(b).wrapping_add(w << 8));
        }
        words
    }

    fn legacy(self, name: &[u8]) -> u32 {
        let mut last = [0x12a3_fe2du32, 0x37ab_e8f9];
        for &b in name {
            let [h0, h1] = last;
            let h = h1.wrapping_add(h0 ^ self.widen(b).wrapping_mul(7_152_373));
            // The value stays below 2^31, so that the doubled result fits.
            last = [
                if h & 0x8000_0000 != 0 {
                    h.wrapping_sub(0x7fff_ffff)
                } else {
                    h
                },
                h0,
            ];
        }
        last[0] << 1
    }
}

/// One block of eight words through the three rounds of half MD4.
fn half_md4(buf: [u32; 4], x: [u32; 8]) -> [u32; 4] {
    type Mix = fn(u32, u32, u32) -> u32;
    /// Mixing function, constant, order of the words, rotations.
    const ROUNDS: [(Mix, u32, [usize; 8], [u32; 4]); 3] = [
        (
            |x, y, z| z ^ (x & (y ^ z)),
            0,
            [0, 1, 2, 3, 4, 5, 6, 7],
            [3, 7, 11, 19],
        ),
        (
            |x, y, z| (x & y).wrapping_add((x ^ y) & z),
            0x5a82_7999,
            [1, 3, 5, 7, 0, 2, 4, 6],
            [3, 5, 9, 13],
        ),
        (
            |x, y, z| x ^ y ^ z,
            0x6ed9_eba1,
            [3, 7, 2, 6, 1, 5, 0, 4],
            [3, 9, 11, 15],
        ),
    ];
    let [mut a, mut b, mut c, mut d] = buf;
    for (mix, constant, order, rotate) in ROUNDS {
        for (i, word) in order.into_iter().enumerate() {
            let sum = a
                .wrapping_add(mix(b, c, d))
                .wrapping_add(x[word])
                .wrapping_add(constant);
            (a, b, c, d) = (d, sum.rotate_left(rotate[i % 4]), b, c);
        }
    }
    let [b0, b1, b2, b3] = buf;
    [
        b0.wrapping_add(a),
        b1.wrapping_add(b),
        b2.wrapping_add(c),
        b3.wrapping_add(d),
    ]
}

/// One block of four words through 16 rounds of TEA; the block is the key.
fn tea((buf0, buf1): (u32, u32), [a, b, c, d]: [u32; 4]) -> (u32, u32) {
    let (mut x, mut y, mut sum) = (buf0, buf1, 0u32);
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9e37_79b9);
        x = x.wrapping_add(
            (y << 4).wrapping_add(a) ^ y.wrapping_add(sum) ^ (y >> 5).wrapping_add(b),
        );
        y = y.wrapping_add(
            (x << 4).wrapping_add(c) ^ x.wrapping_add(sum) ^ (x >> 5).wrapping_add(d),
        );
    }
    (buf0.wrapping_add(x), buf1.wrapping_add(y))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;
    use std::process::Command;

    /// Runs `debugfs -f` with one `dx_hash` per case; returns its answers in order.
    fn debugfs_hashes(cases: &[(u8, Option<&str>, Vec<u8>)]) -> Vec<NameHash> {
        let mut script = tempfile::NamedTempFile::new().unwrap();
        for (version, seed, name) in cases {
            let seed = seed.map(|s| format!("-s {s}")).unwrap_or_default();
            write!(script, "dx_hash -h {version} {seed} \"").unwrap();
            script.write_all(name).unwrap();
            writeln!(script, "\"").unwrap();
        }
        let out = Command::new("/usr/sbin/debugfs")
            .arg("-f")
            .arg(script.path())
            .output()
            .unwrap()
            .stdout;
        out.split(|&b| b == b'\n')
            .filter(|line| line.starts_with(b"Hash of "))
            .map(|line| {
                let text = String::from_utf8_lossy(line).into_owned();
                let (_, numbers) = text.rsplit_once(" is 0x").unwrap();
                let (major, minor) = numbers
                    .trim_end_matches(')')
                    .split_once(" (minor 0x")
                    .unwrap();
                NameHash {
                    major: u32::from_str_radix(major, 16).unwrap(),
                    minor: u32::from_str_radix(minor, 16).unwrap(),
                }
            })
            .collect()
    }

    fn seed_of(uuid: &str) -> [u32; 4] {
        let hex: String = uuid.chars().filter(|c| *c != '-').collect();
        let mut seed = [0; 4];
        for (word, digits) in seed.iter_mut().zip(hex.as_bytes().chunks(8)) {
            *word = u32::from_str_radix(std::str::from_utf8(digits).unwrap(), 16)
                .unwrap()
                .swap_bytes();
        }
        seed
    }

    #[test]
    fn agrees_with_debugfs() {
        const SEEDS: [Option<&str>; 3] = [
            None,
            Some("7d5a2f10-93be-4c86-a1d4-0e6f8b7c2935"),
            Some("ffffffff-ffff-ffff-8000-000000000001"),
        ];
        // Every length, ASCII and bytes that depend on signedness; no quotes and control bytes,
        // which debugfs interprets itself.
        let mut random = 0x2545_f491_4f6c_dd1du64;
        let mut cases = Vec::new();
        for len in (1..=255).chain([1, 2, 3, 4, 5, 8, 16, 31, 32, 33].repeat(20)) {
            let high = random & 1 == 0;
            let name: Vec<u8> = (0..len)
                .map(|_| {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let b = (random >> 24) as u8;
                    if high && b & 1 == 1 {
                        b | 0x80
                    } else {
                        b'0' + b % 75
                    }
                })
                .map(|b| if b == b'\\' || b == b'`' { b'x' } else { b })
                .collect();
            for version in 0..6 {
                for seed in SEEDS {
                    cases.push((version, seed, name.clone()));
                }
            }
        }
        let expected = debugfs_hashes(&cases);
        assert_eq!(expected.len(), cases.len());
        for ((version, seed, name), expected) in cases.iter().zip(expected) {
            let hash = HashVersion::of_root(*version, false).unwrap();
            let got = hash.hash(name, seed.map_or([0; 4], seed_of));
            assert_eq!(got, expected, "{hash:?} {seed:?} {}", name.escape_ascii());
        }
    }

    #[test]
    fn signedness_is_the_volumes() {
        for raw in 0..3 {
            let signed = HashVersion::of_root(raw, false).unwrap();
            let unsigned = HashVersion::of_root(raw, true).unwrap();
            assert_eq!(unsigned, HashVersion::of_root(raw + 3, false).unwrap());
            assert_eq!((signed.root_byte(), unsigned.root_byte()), (raw, raw));
            assert_eq!(
                signed.hash(b"plain", [0; 4]),
                unsigned.hash(b"plain", [0; 4])
            );
            assert_ne!(
                signed.hash(b"caf\xe9s", [0; 4]),
                unsigned.hash(b"caf\xe9s", [0; 4])
            );
        }
        assert!(matches!(
            HashVersion::of_root(6, false),
            Err(OnDiskError::Unsupported { .. })
        ));
    }

    #[test]
    fn the_flags_decide_for_new_indexes() {
        let both = SuperFlags::SIGNED_HASH | SuperFlags::UNSIGNED_HASH;
        for (flags, unsigned) in [
            (SuperFlags::empty(), false),
            (SuperFlags::SIGNED_HASH, false),
            (SuperFlags::UNSIGNED_HASH, true),
            (both, true),
        ] {
            for raw in 0..6 {
                let hash = HashVersion::default_of_volume(raw, flags).unwrap();
                assert_eq!((hash.root_byte(), hash.unsigned), (raw % 3, unsigned));
            }
        }
    }

    proptest! {
        #[test]
        fn any_name_has_a_storable_hash(
            name in proptest::collection::vec(any::<u8>(), 0..300), raw in 0u8..6, seed: [u32; 4],
        ) {
            let h = HashVersion::of_root(raw, false).unwrap().hash(&name, seed);
            prop_assert!(h.major.is_multiple_of(2) && h.major < EOF);
        }
    }
}
