//! The division of a journal's blocks into lanes.

use stetfs_ondisk::OnDiskError;
use stetfs_ondisk::num::to_usize;
use stetfs_ondisk::stet::header::{Lane, MAX_LANES};

use super::codec::StetCodec;
use super::options::StetOptions;
use crate::error::{JournalError, Result};
use crate::limits::most_blocks;

/// The fewest blocks of a lane: fewer hardly hold a transaction of one operation.
const MIN_LANE: u64 = 64;
/// The fewest blocks of a lane for records of files.
const MIN_FILE_LANE: u64 = 8;
/// The most bytes of a lane for records of files. They bound what one thread may sync between two
/// commits before it has to wait. Recovery reads all of them.
const FILE_LANE_BYTES: u64 = 8 << 20;
/// The most bytes of all lanes for records of files. Recovery has all of them in memory.
pub(super) const FILE_LANES_BYTES: u64 = 64 << 20;

/// The smallest ring of at most `room` blocks whose transactions can hold `transaction` blocks;
/// `None` if there is none.
fn ring_for(codec: &StetCodec, transaction: u64, room: u64) -> Option<u64> {
    let holds = |ring: u64| most_blocks(codec, ring) >= transaction;
    let (mut short, mut long) = (0, room);
    while holds(long) && long - short > 1 {
        let between = short + (long - short) / 2;
        match holds(between) {
            true => long = between,
            false => short = between,
        }
    }
    holds(long).then_some(long)
}

/// The refusal of `all` lanes in a journal of `blocks` blocks, with the options that would fit.
fn refusal(all: u64, blocks: u64, carries: Option<u64>, records: Option<u64>) -> JournalError {
    let carried = carries.map_or("it is too small for any".into(), |n| {
        format!("it has room for {n}")
    });
    let instead = match (carries, records) {
        (Some(n), _) => format!(", or use lanes={n}"),
        (None, Some(n)) => format!(", or use records={n}"),
        (None, None) => String::new(),
    };
    let feature = format!(
        "{all} lanes in a journal of {blocks} blocks ({carried}; make the journal larger: tune2fs \
         -J size={instead})"
    );
    OnDiskError::Unsupported { feature }.into()
}

/// Divides the blocks from `first` to `end` into lanes of transactions, followed by lanes of
/// records. If the options leave the number to the log, there are as many lanes of transactions as
/// can each hold the largest transaction. Otherwise the first lane is made wide enough for it.
///
/// # Errors
/// `Unsupported` if there are too few blocks; the text has the number of lanes that would fit.
pub(super) fn cut(
    first: u64,
    end: u64,
    options: &StetOptions,
    codec: &StetCodec,
) -> Result<Vec<Lane>> {
    let room = end.saturating_sub(first);
    // Lanes of records are small, for a transaction soon supersedes their contents (iJournaling,
    // §5.2).
    let file_lanes = u64::from(options.file_lanes);
    let file_lane = match file_lanes {
        0 => 0,
        n => {
            let bytes = FILE_LANE_BYTES.min(FILE_LANES_BYTES / n);
            (room / 4 / n).min(bytes / codec.size() as u64)
        }
    };
    let most_file_lanes = room / 4 / MIN_FILE_LANE;
    let records_fit = file_lanes == 0 || file_lane >= MIN_FILE_LANE;
    let room = room - file_lanes * file_lane;
    let all_hold = |lanes: u64| {
        let each = room / lanes;
        each >= MIN_LANE && most_blocks(codec, each) >= options.most
    };
    // The largest transaction needs to fit only one lane: the first is then wider than the others.
    // A transaction that does not fit a log of one lane fits no other, either.
    let wide = ring_for(codec, options.most, room);
    let others = |lanes: u64, wide: u64| room.saturating_sub(wide) / (lanes - 1).max(1);
    let widest = |lanes: u64| match wide {
        Some(wide) if lanes > 1 && !all_hold(lanes) => wide,
        _ => room / lanes,
    };
    let holds = |lanes: u64| {
        let others = others(lanes, widest(lanes));
        lanes == 1 && room >= MIN_LANE
            || others >= MIN_LANE && most_blocks(codec, others) >= options.least
    };
    let wanted = u64::from(options.lanes.max(1));
    let most = |fits: &dyn Fn(u64) -> bool| (1..=wanted).rev().find(|n| fits(*n));
    let lanes = match options.fewer {
        true => most(&|n| all_hold(n) || n == 1 && holds(n)),
        false => Some(wanted).filter(|n| holds(*n)),
    };
    let fitting = lanes.filter(|n| records_fit && n + file_lanes <= MAX_LANES as u64);
    let Some(lanes) = fitting else {
        let carries = most(&holds).filter(|n| records_fit && *n < wanted);
        let records = (!records_fit && most_file_lanes > 0).then_some(most_file_lanes);
        return Err(refusal(wanted + file_lanes, end, carries, records));
    };
    let wide = widest(lanes);
    let sizes = std::iter::once(wide)
        .chain(std::iter::repeat_n(
            others(lanes, wide),
            to_usize(lanes) - 1,
        ))
        .chain(std::iter::repeat_n(file_lane, to_usize(file_lanes)));
    let lanes = sizes.scan(first, |at, blocks| {
        let lane = Lane {
            first: *at,
            end: *at + blocks,
            tail_at: 0,
            tail_seq: 1,
        };
        *at = lane.end;
        Some(lane)
    });
    Ok(lanes.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The blocks of an operation, and of a write of 1 MiB.
    const LARGEST: u64 = 82 + 257;
    use crate::canary::Canary;
    use crate::stet::compress::Compression;

    fn lanes_of(blocks: u64, options: &StetOptions) -> std::result::Result<usize, String> {
        cut_of(blocks, options).map(|(lanes, _)| lanes)
    }

    /// The number of lanes of transactions, and the blocks that a transaction of the first holds.
    fn cut_of(blocks: u64, options: &StetOptions) -> std::result::Result<(usize, u64), String> {
        let codec = StetCodec {
            block_size: 4096,
            epoch: 1,
            lanes: options.lanes,
            compression: Compression::None,
            chunk: options.chunk,
            pace: Default::default(),
            unordered: false,
            canary: Canary::default(),
        };
        let lanes = cut(9, blocks, options, &codec).map_err(|e| e.to_string())?;
        let lanes = &lanes[..lanes.len() - usize::from(options.file_lanes)];
        let ends = lanes.iter().map(|lane| lane.end).max();
        assert!(ends.is_some_and(|end| end <= blocks && lanes[0].first == 9));
        let hold = |lane: &Lane| most_blocks(&codec, lane.end - lane.first);
        for lane in lanes {
            assert!(lanes.len() == 1 || hold(lane) >= options.least);
            assert!(lanes.len() == 1 || !options.fewer || hold(lane) >= options.most);
        }
        // One lane holds the largest transaction if a lane of all blocks would.
        let can = most_blocks(&codec, blocks - 9) >= options.most;
        assert!(!can || lanes.iter().any(|lane| hold(lane) >= options.most));
        Ok((lanes.len(), hold(&lanes[0])))
    }

    fn asked(lanes: u16) -> StetOptions {
        StetOptions {
            lanes,
            least: 82,
            most: 82,
            ..StetOptions::default()
        }
    }

    fn by_default(lanes: u16, most: u64) -> StetOptions {
        StetOptions {
            fewer: true,
            most,
            ..asked(lanes)
        }
    }

    #[test]
    fn lanes_that_do_not_fit_are_refused_by_number() {
        assert_eq!(lanes_of(1024, &asked(2)), Ok(2));
        let refused = lanes_of(1024, &asked(3)).err().unwrap_or_default();
        assert!(
            refused.contains("3 lanes in a journal of 1024 blocks (it has room for 2;")
                && refused.contains("or use lanes=2"),
            "{refused}"
        );
        let none = lanes_of(40, &asked(1)).err().unwrap_or_default();
        assert!(none.contains("too small for any"), "{none}");
        // A single lane takes all blocks.
        assert_eq!(lanes_of(100, &asked(1)), Ok(1));
    }

    #[test]
    fn records_that_do_not_fit_are_refused_by_number() {
        let with = |file_lanes| StetOptions {
            file_lanes,
            ..asked(1)
        };
        let refused = lanes_of(1024, &with(64)).err().unwrap_or_default();
        assert!(refused.contains("or use records=31"), "{refused}");
        assert_eq!(lanes_of(1024, &with(31)), Ok(1));
    }

    /// Chunks of one block take a block each beside their images. A journal of the smallest size
    /// that mke2fs makes holds an operation with them.
    #[test]
    fn small_chunks_take_more_of_the_log() {
        for file_lanes in [0, 31] {
            let options = StetOptions {
                chunk: 4096,
                file_lanes,
                ..asked(1)
            };
            let (_, first) = cut_of(1024, &options).unwrap();
            assert!(first >= 82, "{first}");
        }
    }

    #[test]
    fn one_lane_holds_the_largest_transaction() {
        let asked = |lanes| StetOptions {
            most: LARGEST,
            ..asked(lanes)
        };
        // 16 MiB: two lanes can each hold a write of 1 MiB.
        assert_eq!(lanes_of(4096, &by_default(8, LARGEST)), Ok(2));
        for lanes in 1..=8 {
            assert_eq!(lanes_of(4096, &asked(lanes)), Ok(usize::from(lanes)));
        }
        let refused = lanes_of(4096, &asked(9)).err().unwrap_or_default();
        assert!(refused.contains("or use lanes=8"), "{refused}");
        for blocks in (1400..40_000).step_by(777) {
            for lanes in [1, 2, 3, 8, 17, 64] {
                let said = lanes_of(blocks, &asked(lanes));
                assert!(said.is_ok() || lanes > 1, "{blocks}: {said:?}");
            }
        }
        // Here no lane can hold it, whatever their number.
        assert_eq!(lanes_of(1024, &asked(2)), Ok(2));
    }

    #[test]
    fn a_default_takes_what_there_is() {
        assert_eq!(lanes_of(1024, &by_default(8, 82)), Ok(2));
        assert_eq!(lanes_of(100, &by_default(8, 82)), Ok(1));
        assert_eq!(lanes_of(16384, &by_default(8, 82)), Ok(8));
        // 64 MiB, with writes of 1 MiB.
        assert_eq!(lanes_of(16384, &by_default(64, LARGEST)), Ok(11));
    }
}
