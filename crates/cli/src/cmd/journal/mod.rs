//! `stetfs dump journal`: the records as lines or JSON, or the transactions as a picture.

mod draw;
mod graph;
mod layout;
mod svg;
#[cfg(test)]
mod tests;
mod text;

use std::io::{BufWriter, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use serde_json::json;

use self::graph::Graph;
use crate::args::DumpJournalArgs;
use crate::failure::{Code, Failure, Result};

/// Runs `stetfs dump journal`: prints a line per record, with `json` an object per line; or draws
/// the picture and says what it holds.
pub(crate) fn dump(args: &DumpJournalArgs, json: bool) -> Result {
    match &args.graph {
        Some(file) => draw(args, file, json),
        None => tell(args, json),
    }
}

fn tell(args: &DumpJournalArgs, json: bool) -> Result {
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut written = Ok(());
    stetfs::low::dump_journal(&args.volume.source()?, &mut |record| {
        if written.is_ok() {
            written = if json {
                // Each record is written directly: as a JSON value in memory it would take many
                // times its size.
                serde_json::to_writer(&mut out, &record)
                    .map_err(std::io::Error::from)
                    .and_then(|()| writeln!(out))
            } else {
                writeln!(out, "{}", text::line(&record))
            };
        }
    })?;
    match written.and_then(|()| out.flush()) {
        // The reader closed the pipe: it has enough.
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|e| Failure::new(Code::Io, format!("cannot write: {e}"))),
    }
}

fn draw(args: &DumpJournalArgs, file: &Path, json: bool) -> Result {
    let source = args.volume.source()?;
    let beside = source.journal_path.as_deref();
    let nvm = source.nvm.as_ref().map(|nvm| nvm.path.as_path());
    may_write(file, &[Some(&source.path), beside, nvm])?;
    let mut graph = Graph::default();
    let add = &mut |record| graph.add(&record);
    let format = stetfs::low::dump_journal(&source, add)?;
    let graph = graph.finished(format);
    let picture = draw::picture(&graph, &source.path.to_string_lossy());
    std::fs::write(file, picture)
        .map_err(|e| Failure::new(Code::Io, format!("cannot write {}: {e}", file.display())))?;
    let counts = graph.counts();
    if json {
        let mut value = json!(counts);
        value["volume"] = json!(source.path.to_string_lossy());
        value["format"] = json!(format);
        value["lanes"] = json!(graph.lanes());
        value["graph"] = json!(file.to_string_lossy());
        outln!("{value}");
    } else {
        outln!("{}: {}", file.display(), graph.summary());
    }
    Ok(())
}

/// Checks that the picture does not overwrite the volume or the journal that it shows, nor a
/// device.
fn may_write(file: &Path, shown: &[Option<&Path>]) -> Result {
    let Ok(there) = std::fs::metadata(file) else {
        return Ok(());
    };
    let same = |path: &&Path| {
        std::fs::metadata(path).is_ok_and(|m| (m.dev(), m.ino()) == (there.dev(), there.ino()))
    };
    if there.file_type().is_block_device() || shown.iter().flatten().any(same) {
        let said = format!(
            "{} is a device, or belongs to the volume: the picture cannot be written there",
            file.display()
        );
        return Err(Failure::new(Code::Usage, said)
            .hint("name a file of its own behind --graph, such as journal.svg"));
    }
    Ok(())
}
