//! Deterministic content.

/// A source of reproducible bytes: they depend only on the seed and the arguments, so content need
/// not be stored to be checked.
#[derive(Clone, Copy, Debug)]
pub struct Bytes {
    seed: u64,
}

impl Bytes {
    /// A source for this seed.
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// `length` bytes, different for each `key`. About one in four runs of 64 bytes is a
    /// repetition, so that compression has an effect.
    pub fn get(&self, key: u64, length: usize) -> Vec<u8> {
        let mut rng = fastrand::Rng::with_seed(self.seed ^ key.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut out = vec![0u8; length];
        for run in out.chunks_mut(64) {
            if rng.u8(..) < 64 {
                run.fill(rng.u8(..));
            } else {
                rng.fill(run);
            }
        }
        out
    }

    /// A seed for the part of the workload with this name.
    pub fn seed_for(&self, name: &str) -> u64 {
        xxhash_rust::xxh3::xxh3_64_with_seed(name.as_bytes(), self.seed)
    }

    /// A random number generator for choices that are not content.
    pub fn rng(&self) -> fastrand::Rng {
        fastrand::Rng::with_seed(!self.seed)
    }
}
