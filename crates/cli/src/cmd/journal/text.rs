//! The records of a journal as lines.

use stetfs::low::{FastChange, FastName, JournalImage, JournalRecord, JournalRecordKind};

/// A record as a line.
pub(super) fn line(record: &JournalRecord) -> String {
    format!(
        "{:>8}  transaction {:>6}  {}",
        record.log_block,
        record.transaction,
        what(record)
    )
}

/// The content of a record, in words.
fn what(record: &JournalRecord) -> String {
    let lane = record.lane.unwrap_or(0);
    let of_lane = record
        .lane
        .map_or_else(String::new, |lane| format!("of lane {lane}: "));
    match &record.kind {
        JournalRecordKind::Descriptor { images } => {
            let all = listed(images, image);
            format!("descriptor  {} images: {all}", images.len())
        }
        JournalRecordKind::Revoke { blocks } => {
            let all = listed(blocks, u64::to_string);
            format!("revoke      {} blocks: {all}", blocks.len())
        }
        JournalRecordKind::FastCommit { changes } => {
            let all: Vec<String> = changes.iter().map(change).collect();
            format!("fast commit {}", all.join("; "))
        }
        JournalRecordKind::Frame {
            stamp,
            blocks,
            images,
            revokes,
            edges,
            home,
            dropped,
        } => {
            let fate = match dropped {
                Some((lane, tx)) => {
                    format!("DROPPED: depends on {lane}:{tx}, which is missing or dropped")
                }
                None => format!("{home} to write back"),
            };
            format!(
                "frame       lane {lane}, stamp {stamp}, {blocks} log blocks; {} images: {}; \
                 revokes: {}; needs: {}; {fate}",
                images.len(),
                listed(images, u64::to_string),
                listed(revokes, u64::to_string),
                listed(edges, |(l, s)| format!("{l}:{s}"))
            )
        }
        JournalRecordKind::File {
            stamp,
            blocks,
            inode,
            name,
            directories,
            ranges,
            data,
        } => {
            let name = name.as_ref().map_or_else(String::new, |(dir, name)| {
                format!(", named {name} in {dir}")
            });
            let made = match directories.len() {
                0 => String::new(),
                n => format!(", {n} directories"),
            };
            format!(
                "file        inode {inode} in {blocks} blocks of lane {lane}, stamp \
                 {stamp}{name}{made}, {} ranges, {} data blocks",
                ranges.len(),
                data.len()
            )
        }
        JournalRecordKind::Commit { time, valid, home } => {
            let fate = match (valid, home) {
                (false, _) => "DAMAGED".to_owned(),
                (true, Some(home)) => format!("{home} images to write back"),
                (true, None) => "DROPPED: it is not whole".to_owned(),
            };
            format!("commit      at {time:.6}, {fate}")
        }
        JournalRecordKind::Damaged { why, .. } => format!("damaged     {of_lane}{why}"),
        JournalRecordKind::End { why } => format!("end         {of_lane}{why}"),
    }
}

/// The texts of all items, separated by commas.
fn listed<T>(all: &[T], text: impl Fn(&T) -> String) -> String {
    let texts: Vec<String> = all.iter().map(text).collect();
    texts.join(", ")
}

/// An image of a descriptor: its block number and its flags.
fn image(image: &JournalImage) -> String {
    let escaped = if image.escaped { " escaped" } else { "" };
    let wrong = if image.valid { "" } else { " DAMAGED" };
    format!("{}{escaped}{wrong}", image.block)
}

fn change(change: &FastChange) -> String {
    let entry = |what: &str, e: &FastName| {
        format!("{what} {} in {} for inode {}", e.name, e.directory, e.inode)
    };
    match change {
        FastChange::Add {
            inode,
            first,
            count,
            block,
            unwritten,
        } => {
            let kind = if *unwritten { " unwritten" } else { "" };
            format!("inode {inode} has {count}{kind} blocks from {first} on at {block}")
        }
        FastChange::Remove {
            inode,
            first,
            count,
        } => format!("inode {inode} has no blocks from {first} on, for {count}"),
        FastChange::Create(e) => entry("new", e),
        FastChange::Link(e) => entry("name", e),
        FastChange::Unlink(e) => entry("no name", e),
        FastChange::Inode { inode } => format!("inode {inode}"),
    }
}
