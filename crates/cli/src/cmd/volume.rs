//! Commands on a volume that is not mounted: `info` and `recover`.

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use stetfs::low::RecoveryInfo;

use crate::args::{RecoverArgs, VolumeArg};
use crate::failure::{Code, Failure, Result};
use crate::{log, print};

/// `stetfs info`.
pub(crate) fn info(args: &VolumeArg, json: bool) -> Result {
    let info = stetfs::low::info(&args.source()?)?;
    let mut value = json!(info);
    value["recovery"]["exit_code"] = json!(outcome(&info.recovery) as u8);
    print::value(&value, json);
    Ok(())
}

/// The exit code of a recovery.
fn outcome(recovery: &RecoveryInfo) -> Code {
    match &recovery.failure {
        Some(e) => Failure::from(e.clone()).code,
        None if recovery.is_complete() => Code::Done,
        None => Code::Partly,
    }
}

/// `stetfs recover`.
pub(crate) fn recover(args: &RecoverArgs, json: bool) -> Result<Code> {
    log::to_stderr();
    let source = args.volume.source()?;
    let bar = ProgressBar::new(0);
    if let Ok(style) =
        ProgressStyle::with_template("{bar:30} {pos}/{len} blocks, {elapsed}, {eta} left")
    {
        bar.set_style(style);
    }
    let progress = &mut |done, of| {
        bar.set_length(of);
        bar.set_position(done);
    };
    let done = stetfs::low::recover(&source, args.salvage, progress);
    bar.finish_and_clear();
    let done = done?;
    if json {
        print::value(&json!(done), true);
    } else {
        println!("{}: {}", done.volume, said(&done.recovery));
        for dropped in &done.recovery.dropped {
            println!("does not count: {dropped}");
        }
        for damage in &done.recovery.damage {
            println!("left out: {damage}");
        }
    }
    Ok(outcome(&done.recovery))
}

/// What was done, and how the volume is now.
fn said(r: &RecoveryInfo) -> String {
    let now = if !r.damage.is_empty() {
        "the journal was damaged: run e2fsck -f".to_owned()
    } else if r.orphans_left > 0 {
        let left = r.orphans_left;
        format!("{left} orphaned inodes are left, for the volume has errors: run e2fsck -f")
    } else if r.has_errors {
        "the journal is empty, but the volume is marked as one with errors: run e2fsck -f"
            .to_owned()
    } else if r.needed {
        "the volume is clean".to_owned()
    } else {
        "clean, there was nothing to do".to_owned()
    };
    if !r.needed {
        return now;
    }
    format!(
        "replayed {} transactions ({} blocks), {} records of files and {} fast commits, deleted {} orphaned inodes and truncated {}; {now}",
        r.transactions, r.blocks, r.records, r.fast_commits, r.deleted, r.truncated
    )
}
<<<<<<< HEAD

/// `stetfs dump journal`: a line per record; with `json` an object per line.
pub(crate) fn dump_journal(args: &VolumeArg, json: bool) -> Result {
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut written = Ok(());
    stetfs::low::dump_journal(&args.source()?, &mut |record| {
        if written.is_ok() {
            written = if json {
                // As it goes: a value in memory takes many times what the record does.
                serde_json::to_writer(&mut out, &record)
                    .map_err(std::io::Error::from)
                    .and_then(|()| writeln!(out))
            } else {
                writeln!(out, "{}", line(&record))
            };
        }
    })?;
    match written.and_then(|()| out.flush()) {
        // Whoever reads has seen enough.
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|e| Failure::new(Code::Io, format!("cannot write: {e}"))),
    }
}

fn line(record: &JournalRecord) -> String {
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
            lane,
            stamp,
            blocks,
            images,
            revokes,
            edges,
        } => {
            let list = |of: &[u64]| {
                let texts: Vec<String> = of.iter().map(u64::to_string).collect();
                texts.join(", ")
            };
            let needs: Vec<String> = edges.iter().map(|(l, s)| format!("{l}:{s}")).collect();
            format!(
                "frame       lane {lane}, stamp {stamp}, {blocks} log blocks; {} images: {}; revokes: {}; needs: {}",
                images.len(),
                list(images),
                list(revokes),
                needs.join(", ")
            )
        }
        JournalRecordKind::File {
            lane,
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
        JournalRecordKind::Commit { time, valid: true } => format!("commit      at {time:.6}"),
        JournalRecordKind::Commit { time, valid: false } => {
            format!("commit      at {time:.6} DAMAGED")
        }
        JournalRecordKind::Damaged { why } => format!("damaged     {why}"),
        JournalRecordKind::End { why } => format!("end         {why}"),
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
=======
>>>>>>> 512fc5b77f850c254accad736d7fa2c142324692
