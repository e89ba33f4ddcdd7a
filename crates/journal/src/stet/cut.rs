//! How the blocks of a journal are cut into lanes.

use stetfs_ondisk::OnDiskError;
use stetfs_ondisk::stet::header::{Lane, MAX_LANES};

use super::codec::StetCodec;
use super::log::StetOptions;
use crate::engine::most_blocks;
use crate::error::Result;

/// A lane has at least so many blocks: below that hardly an operation fits a transaction.
const MIN_LANE: u64 = 64;
/// The same for file-level records.
const MIN_FILE_LANE: u64 = 8;
/// Bytes of a lane for file-level records, at most: what one thread may sync between two commits without waiting for the
/// second. Recovery reads all of it …
const FILE_LANE_BYTES: u64 = 8 << 20;
/// … and has all of them in memory.
pub(super) const FILE_LANES_BYTES: u64 = 64 << 20;

/// Cuts the blocks from `first` to `end` into lanes of transactions and behind them lanes of records. Where the options leave their
/// number to the log there are as many lanes of transactions as have room for what they should.
///
/// # Errors
/// `Unsupported` if there are too few blocks, with the number of lanes that they would carry.
pub(super) fn cut(
    first: u64,
    end: u64,
    options: &StetOptions,
    codec: &StetCodec,
) -> Result<Vec<Lane>> {
    let room = end.saturating_sub(first);
    // They are small: a transaction soon supersedes what is in them (iJournaling, §5.2).
    let file_lanes = u64::from(options.file_lanes);
    let file_lane = match file_lanes {
        0 => 0,
        n => {
            let bytes = FILE_LANE_BYTES.min(FILE_LANES_BYTES / n);
            (room / 4 / n).min(bytes / codec.size() as u64)
        }
    };
    let records_fit = file_lanes == 0 || file_lane >= MIN_FILE_LANE;
    let room = room - file_lanes * file_lane;
    // One lane is as large as can be: what does not fit it fits no other.
    let fits = |lanes: u64, transaction: u64| {
        let each = room / lanes;
        each >= MIN_LANE && (lanes == 1 || most_blocks(codec, each) >= transaction)
    };
    let wanted = u64::from(options.lanes.max(1));
    let most = |transaction| (1..=wanted).rev().find(|n| fits(*n, transaction));
    let lanes = match options.fewer {
        Some(transaction) => most(transaction),
        None => Some(wanted).filter(|n| fits(*n, options.least)),
    };
    let fitting = lanes.filter(|n| records_fit && n + file_lanes <= MAX_LANES as u64);
    let Some(lanes) = fitting else {
        let carries = most(options.least).filter(|n| records_fit && *n < wanted);
        let instead = carries.map_or(String::new(), |n| format!(", or say lanes={n}"));
        let carried = carries.map_or("it is too small for any".into(), |n| {
            format!("it carries {n}")
        });
        let all = wanted + file_lanes;
        return Err(OnDiskError::Unsupported {
            feature: format!(
                "{all} lanes in a journal of {end} blocks ({carried}; make the journal larger: tune2fs -J size={instead})"
            ),
        }
        .into());
    };
    let sizes = std::iter::repeat_n(room / lanes, lanes as usize)
        .chain(std::iter::repeat_n(file_lane, file_lanes as usize));
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
    use crate::engine::Canary;
    use crate::stet::compress::Compression;

    fn lanes_of(blocks: u64, options: &StetOptions) -> std::result::Result<usize, String> {
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
        for lane in &lanes[..lanes.len() - usize::from(options.file_lanes)] {
            let most = most_blocks(&codec, lane.end - lane.first);
            let wanted = options.fewer.unwrap_or(options.least);
            assert!(lanes.len() == 1 || most >= wanted, "{blocks}: {most}");
        }
        Ok(lanes.len())
    }

    fn asked(lanes: u16) -> StetOptions {
        StetOptions {
            lanes,
            least: 82,
            ..StetOptions::default()
        }
    }

    fn by_default(lanes: u16, transaction: u64) -> StetOptions {
        StetOptions {
            fewer: Some(transaction),
            ..asked(lanes)
        }
    }

    #[test]
    fn lanes_that_do_not_fit_are_refused_by_number() {
        assert_eq!(lanes_of(1024, &asked(2)), Ok(2));
        let refused = lanes_of(1024, &asked(3)).err().unwrap_or_default();
        assert!(
            refused.contains("3 lanes in a journal of 1024 blocks (it carries 2;")
                && refused.contains("or say lanes=2"),
            "{refused}"
        );
        let none = lanes_of(40, &asked(1)).err().unwrap_or_default();
        assert!(none.contains("too small for any"), "{none}");
        // A single lane is as large as it can be.
        assert_eq!(lanes_of(100, &asked(1)), Ok(1));
    }

    #[test]
    fn a_default_takes_what_there_is() {
        assert_eq!(lanes_of(1024, &by_default(8, 82)), Ok(2));
        assert_eq!(lanes_of(100, &by_default(8, 82)), Ok(1));
        assert_eq!(lanes_of(16384, &by_default(8, 82)), Ok(8));
        // 64 MiB, and writes of 1 MiB.
        assert_eq!(lanes_of(16384, &by_default(64, 82 + 257)), Ok(11));
    }
}
