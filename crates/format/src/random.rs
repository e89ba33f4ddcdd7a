//! UUIDs and seeds: random, or derived from a number so that a volume can be made again.

use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::{FormatError, Result};

/// A source of 16-byte values.
pub(crate) enum Source {
    /// The kernel's random numbers.
    Kernel,
    /// SplitMix64 with this state.
    Seeded(u64),
}

impl Source {
    pub(crate) fn new(seed: Option<u64>) -> Source {
        seed.map_or(Source::Kernel, Source::Seeded)
    }

    /// The next value as a UUID of version 4 (RFC 9562, section 5.4).
    pub(crate) fn uuid(&mut self) -> Result<[u8; 16]> {
        let mut bytes = self.bytes()?;
        let [_, _, _, _, _, _, version, _, variant, ..] = &mut bytes;
        *version = *version & 0x0f | 0x40;
        *variant = *variant & 0x3f | 0x80;
        Ok(bytes)
    }

    fn bytes(&mut self) -> Result<[u8; 16]> {
        let mut bytes = [0; 16];
        match self {
            Source::Kernel => {
                let mut at = 0;
                while let Some(rest) = bytes.get_mut(at..).filter(|rest| !rest.is_empty()) {
                    match getrandom(rest, GetRandomFlags::empty()) {
                        Ok(n) => at += n,
                        Err(rustix::io::Errno::INTR) => {}
                        Err(e) => {
                            return Err(FormatError::Options(format!(
                                "the kernel gives no random numbers ({e}): set --seed"
                            )));
                        }
                    }
                }
            }
            Source::Seeded(state) => {
                let (words, _) = bytes.as_chunks_mut::<8>();
                for word in words {
                    *word = splitmix(state).to_le_bytes();
                }
            }
        }
        Ok(bytes)
    }
}

/// The next number of SplitMix64 (Steele, Lea and Flood 2014).
fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_values_again() {
        let two = |seed| {
            let mut source = Source::new(seed);
            [source.uuid().unwrap(), source.uuid().unwrap()]
        };
        assert_eq!(two(Some(7)), two(Some(7)));
        assert_ne!(two(Some(7)), two(Some(8)));
        assert_ne!(two(None), two(None));
        let [first, second] = two(Some(7));
        assert_ne!(first, second);
        assert_eq!((first[6] >> 4, first[8] >> 6), (4, 2));
    }
}
