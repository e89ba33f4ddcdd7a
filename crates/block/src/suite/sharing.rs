//! The checks of devices with the SHARE capability.

use super::rng::Rng;
use crate::{BlockDevice, BlockError, SharePair};

/// A shared destination reads as its source did, and changes independently from then on. A refused
/// batch changes nothing.
pub fn shares(dev: &dyn BlockDevice, seed: u64) {
    let share = dev.share().unwrap();
    let limits = share.limits();
    let unit = u64::from(limits.unit);
    // Few enough that reading them is fast and that random pairs meet.
    let units = (dev.size() / unit).min(32);
    assert!(units >= 8 && limits.pairs > 0 && limits.references > 1);
    let mut rng = Rng::new(seed);
    let mut model = vec![0; (units * unit) as usize];
    rng.fill(&mut model);
    dev.write(0, &model).unwrap();
    let (mut done, mut before) = (0, dev.stats());
    for round in 0..200 {
        let pairs: Vec<SharePair> = (0..1 + rng.below(4))
            .map(|_| {
                let (dst, src) = (rng.below(units), rng.below(units));
                let len = (1 + rng.below(3)).min(units - dst.max(src));
                SharePair {
                    dst: dst * unit,
                    src: src * unit,
                    len: len * unit,
                }
            })
            .collect();
        let old = model.clone();
        let (written, seen) = (rng.below(units * unit - 1) as usize, dev.stats());
        match share.share_batch(&pairs) {
            Ok(()) => {
                for p in &pairs {
                    let src = p.src as usize..(p.src + p.len) as usize;
                    model[p.dst as usize..(p.dst + p.len) as usize].copy_from_slice(&old[src]);
                }
                done += 1;
                let bytes: u64 = pairs.iter().map(|p| p.len).sum();
                let since = dev.stats().since(&seen);
                assert_eq!((since.shares, since.bytes_shared), (1, bytes));
            }
            Err(e) => {
                let refused = matches!(
                    e,
                    BlockError::ShareOverlap { .. }
                        | BlockError::ShareBatch { .. }
                        | BlockError::ShareReferences { .. }
                );
                assert!(refused, "round {round}: {e}");
                assert_eq!(dev.stats().since(&seen).shares, 0);
            }
        }
        if rng.below(3) == 0 {
            model[written] = round as u8;
            dev.write(written as u64, &[round as u8]).unwrap();
        }
        let mut now = vec![0; model.len()];
        dev.read(0, &mut now).unwrap();
        assert!(now == model, "round {round}: after {pairs:?}");
    }
    assert!(done > 20, "{done} batches were shared");
    before = dev.stats().since(&before);
    assert_eq!(before.shares, done);
    let odd = |dst, src, len| share.share_range(dst, src, len).unwrap_err();
    assert!(matches!(odd(1, unit, unit), BlockError::ShareUnit { .. }));
    assert!(matches!(
        odd(0, unit, unit / 2),
        BlockError::ShareUnit { .. }
    ));
    let end = dev.size() / unit * unit;
    assert!(matches!(
        odd(end, end - unit, unit),
        BlockError::OutOfRange { .. }
    ));
    assert!(matches!(
        odd(end - unit, u64::MAX - unit + 1, unit),
        BlockError::OutOfRange { .. }
    ));
    share.share_batch(&[]).unwrap();
}
