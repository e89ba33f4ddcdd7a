//! The records of a journal as lines.

use stetfs::low::{FastChange, FastName, JournalRecord, JournalRecordKind};

/// A record as a line.
pub(super) fn line(record: &JournalRecord) -> String {
    let lane = record.lane.unwrap_or(0);
    let of_lane = record
        .lane
        .map_or_else(String::new, |lane| format!("of lane {lane}: "));
    let what = match &record.kind {
        JournalRecordKind::Descriptor { images } => {
            let all: Vec<String> = images
                .iter()
                .map(|i| {
                    let escaped = if i.escaped { " escaped" } else { "" };
                    let wrong = if i.valid { "" } else { " DAMAGED" };
                    format!("{}{escaped}{wrong}", i.block)
                })
                .collect();
            format!("descriptor  {} images: {}", images.len(), all.join(", "))
        }
        JournalRecordKind::Revoke { blocks } => {
            let all: Vec<String> = blocks.iter().map(u64::to_string).collect();
            format!("revoke      {} blocks: {}", blocks.len(), all.join(", "))
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
            let list = |of: &[u64]| {
                let texts: Vec<String> = of.iter().map(u64::to_string).collect();
                texts.join(", ")
            };
            let needs: Vec<String> = edges.iter().map(|(l, s)| format!("{l}:{s}")).collect();
            let fate = match dropped {
                Some((lane, tx)) => format!("DROPPED, for {lane}:{tx} is missing or dropped"),
                None => format!("{home} go home"),
            };
            format!(
                "frame       lane {lane}, stamp {stamp}, {blocks} log blocks; {} images: {}; revokes: {}; needs: {}; {fate}",
                images.len(),
                list(images),
                list(revokes),
                needs.join(", ")
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
                "file        inode {inode} in {blocks} blocks of lane {lane}, stamp {stamp}{name}{made}, {} ranges, {} data blocks",
                ranges.len(),
                data.len()
            )
        }
        JournalRecordKind::Commit { time, valid, home } => {
            let fate = match (valid, home) {
                (false, _) => "DAMAGED".to_owned(),
                (true, Some(home)) => format!("{home} images go home"),
                (true, None) => "DROPPED, for it is not whole".to_owned(),
            };
            format!("commit      at {time:.6}, {fate}")
        }
        JournalRecordKind::Damaged { why, .. } => format!("damaged     {of_lane}{why}"),
        JournalRecordKind::End { why } => format!("end         {of_lane}{why}"),
    };
    format!(
        "{:>8}  transaction {:>6}  {what}",
        record.log_block, record.transaction
    )
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
