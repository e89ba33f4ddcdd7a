//! The transactions of a journal as rows of boxes, put together from its records.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::Serialize;
use stetfs::low::{JournalRecord, JournalRecordKind};

/// Largest number of boxes drawn; each row keeps its newest.
pub(super) const BOXES: usize = 2000;

/// The effect of recovery on the content of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fate {
    /// It is replayed.
    Counts,
    /// Later transactions replace or free all its blocks: none of its images is written to a home
    /// location.
    Superseded,
    /// A transaction it depends on is missing.
    Dropped,
    /// The crash left only a part of it.
    Torn,
    /// It had been durable, and is damaged.
    Lost,
    /// Another transaction needs it, and the log does not hold it.
    Missing,
    /// A record of a file, or a fast commit of Linux.
    Record,
    /// A box for this many older ones, which are not drawn.
    Older,
}

/// A transaction, or a record.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) seq: u64,
    /// Its place in the order of commits.
    pub(super) stamp: u64,
    pub(super) fate: Fate,
    /// Lanes and transactions it depends on.
    pub(super) edges: Vec<(u16, u64)>,
    /// The lines of the box below its number.
    pub(super) lines: Vec<String>,
    /// The text shown under the pointer: all that is known of it.
    pub(super) about: String,
}

impl Node {
    fn new(seq: u64, stamp: u64, fate: Fate, lines: Vec<String>, about: String) -> Node {
        Node {
            seq,
            stamp,
            fate,
            edges: Vec::new(),
            lines,
            about,
        }
    }
}

/// The key of a row: what its boxes have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Key {
    /// The ring of a jbd2 log.
    Ring,
    /// A lane of transactions.
    Lane(u16),
    /// A lane of records of files.
    Files(u16),
    /// A lane of records of files whose number is unknown.
    AnyFiles,
    /// The fast commits of Linux.
    Fast,
}

impl Key {
    pub(super) fn name(self) -> String {
        match self {
            Key::Ring => "transactions".into(),
            Key::Lane(lane) => format!("lane {lane}"),
            Key::Files(lane) => format!("files, lane {lane}"),
            Key::AnyFiles => "records of files".into(),
            Key::Fast => "fast commits".into(),
        }
    }
}

/// A row of boxes, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    pub(super) nodes: VecDeque<Node>,
    /// The number of boxes that were dropped in front of the first.
    pub(super) older: u64,
}

impl Row {
    fn push(&mut self, node: Node) {
        self.nodes.push_back(node);
        self.keep(BOXES);
    }

    fn keep(&mut self, most: usize) {
        while self.nodes.len() > most {
            self.nodes.pop_front();
            self.older += 1;
        }
    }
}

/// Counts of everything in the log, drawn or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Counts {
    /// Whole transactions.
    pub(super) transactions: u64,
    /// Images in them.
    pub(super) images: u64,
    /// Images that recovery would write to their home locations.
    pub(super) home: u64,
    /// Transactions that do not count because one that they need is missing.
    pub(super) dropped: u64,
    /// Transactions whose images were all superseded.
    pub(super) superseded: u64,
    /// Transactions of which the crash left only a part.
    pub(super) torn: u64,
    /// Places where a record that had been durable is damaged.
    pub(super) damaged: u64,
    /// Records of files.
    pub(super) records: u64,
    /// Fast commits of Linux.
    pub(super) fast_commits: u64,
}

/// A jbd2 transaction whose commit record was not seen yet.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    at: u64,
    images: u64,
    revokes: u64,
    damaged: bool,
}

/// The content of the picture.
#[derive(Debug, Default)]
pub(super) struct Graph {
    pub(super) rows: BTreeMap<Key, Row>,
    /// The places where the log ends, and why.
    pub(super) ends: Vec<String>,
    format: &'static str,
    counts: Counts,
    open: Option<Open>,
}

impl Graph {
    /// Takes the next record.
    pub(super) fn add(&mut self, record: &JournalRecord) {
        let seq = record.transaction;
        match &record.kind {
            JournalRecordKind::Descriptor { images } => {
                let open = self.open(record.log_block);
                open.images += images.len() as u64;
                open.damaged |= images.iter().any(|image| !image.valid);
            }
            JournalRecordKind::Revoke { blocks } => {
                self.open(record.log_block).revokes += blocks.len() as u64;
            }
            JournalRecordKind::Commit { home, .. } => {
                self.open(record.log_block);
                self.close(seq, *home, Some(record.log_block));
            }
            JournalRecordKind::FastCommit { changes } => {
                self.counts.fast_commits += 1;
                let what = some(changes.len() as u64, "change");
                let at = record.log_block;
                let about = format!("fast commit of transaction {seq} at log block {at}: {what}");
                let node = Node::new(seq, 0, Fate::Record, vec![what], about);
                self.push(Key::Fast, node);
            }
            JournalRecordKind::Frame { .. } => self.frame(record),
            JournalRecordKind::File {
                stamp,
                blocks,
                inode,
                ranges,
                data,
                ..
            } => {
                self.counts.records += 1;
                let holds = format!("{} ranges, {} data", ranges.len(), data.len());
                let at = record.log_block;
                let about = format!(
                    "record {seq} of inode {inode} at log block {at}, {blocks} log blocks, stamp {stamp}: {holds}"
                );
                let lines = vec![format!("inode {inode}"), holds];
                let node = Node::new(seq, *stamp, Fate::Record, lines, about);
                self.push(Key::Files(record.lane.unwrap_or(0)), node);
            }
            JournalRecordKind::Damaged { why, lost } => {
                if *lost || record.lane.is_some() {
                    self.end(record, why);
                }
                self.damaged(record, why, *lost);
            }
            JournalRecordKind::End { why } => {
                self.close(seq, None, None);
                self.end(record, why);
            }
        }
    }

    /// Completes the content: adds missing transactions that others need, and leaves out boxes
    /// beyond [`BOXES`].
    pub(super) fn finished(mut self, format: &'static str) -> Graph {
        self.format = format;
        self.add_missing();
        let lengths: Vec<usize> = self.rows.values().map(|row| row.nodes.len()).collect();
        let all = |most: usize| lengths.iter().map(|len| (*len).min(most)).sum::<usize>();
        let mut most = BOXES;
        while all(most) > BOXES {
            most -= 1;
        }
        for row in self.rows.values_mut() {
            row.keep(most);
        }
        self
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// The number of lanes of transactions.
    pub(super) fn lanes(&self) -> usize {
        let is_lane = |key: &&Key| matches!(key, Key::Lane(_) | Key::Ring);
        self.rows.keys().filter(is_lane).count().max(1)
    }

    /// The journal's format and the counts, in a line.
    pub(super) fn summary(&self) -> String {
        let c = &self.counts;
        let mut parts = vec![
            some(c.transactions, "transaction"),
            format!("{} ({} to write back)", some(c.images, "image"), c.home),
        ];
        let others = [
            (c.dropped, "dropped"),
            (c.superseded, "superseded"),
            (c.torn, "not whole"),
            (c.damaged, "damaged"),
        ];
        let others = others.iter().filter(|(count, _)| *count > 0);
        parts.extend(others.map(|(count, what)| format!("{count} {what}")));
        if c.records > 0 {
            parts.push(format!("{} of files", some(c.records, "record")));
        }
        if c.fast_commits > 0 {
            parts.push(some(c.fast_commits, "fast commit"));
        }
        let kind = match self.format {
            "stetfs" => format!("a StetFS journal of {}", some(self.lanes() as u64, "lane")),
            other => format!("a {other} journal"),
        };
        format!("{kind}: {}", parts.join(", "))
    }

    fn open(&mut self, at: u64) -> &mut Open {
        self.open.get_or_insert(Open {
            at,
            ..Open::default()
        })
    }

    fn push(&mut self, key: Key, node: Node) {
        let c = &mut self.counts;
        match node.fate {
            Fate::Counts => c.transactions += 1,
            Fate::Superseded => {
                c.transactions += 1;
                c.superseded += 1;
            }
            Fate::Dropped => {
                c.transactions += 1;
                c.dropped += 1;
            }
            Fate::Torn => c.torn += 1,
            Fate::Lost => c.damaged += 1,
            Fate::Missing | Fate::Record | Fate::Older => {}
        }
        self.rows.entry(key).or_default().push(node);
    }

    /// Ends a jbd2 transaction, at its commit block or where the log ends within it.
    fn close(&mut self, seq: u64, home: Option<u64>, end: Option<u64>) {
        let Some(open) = self.open.take() else {
            return;
        };
        let fate = match home {
            None => Fate::Torn,
            Some(_) if open.damaged => Fate::Lost,
            Some(0) if open.images > 0 => Fate::Superseded,
            Some(_) => Fate::Counts,
        };
        if let Some(home) = home {
            self.counts.images += open.images;
            self.counts.home += home;
        }
        let home = home.unwrap_or(0);
        let to = end.map_or_else(|| ", without an end".into(), |end| format!(" to {end}"));
        let damaged = if open.damaged { "; damaged" } else { "" };
        let about = format!(
            "transaction {seq} at log block {}{to}: {}, {}, {home} to write back{damaged}",
            open.at,
            some(open.images, "image"),
            some(open.revokes, "revoke")
        );
        let lines = lines(fate, Some((open.images, home)));
        self.push(Key::Ring, Node::new(seq, 0, fate, lines, about));
    }

    fn frame(&mut self, record: &JournalRecord) {
        let JournalRecordKind::Frame {
            stamp,
            blocks,
            images,
            revokes,
            edges,
            home,
            dropped,
        } = &record.kind
        else {
            return;
        };
        let (lane, seq) = (record.lane.unwrap_or(0), record.transaction);
        let count = images.len() as u64;
        let fate = match dropped {
            Some(_) => Fate::Dropped,
            None if count > 0 && *home == 0 => Fate::Superseded,
            None => Fate::Counts,
        };
        self.counts.images += count;
        self.counts.home += home;
        let mut about = format!(
            "transaction {seq} of lane {lane} at log block {}, {blocks} log blocks, stamp {stamp}: \
             {}, {}, {home} to write back",
            record.log_block,
            some(count, "image"),
            some(revokes.len() as u64, "revoke")
        );
        if !edges.is_empty() {
            let shown = edges.iter().take(16).map(|(l, s)| format!(" {l}:{s}"));
            about.push_str("; needs");
            about.extend(shown);
        }
        if let Some((lane, seq)) = dropped {
            about.push_str(&format!(
                "; dropped: depends on {lane}:{seq}, which is missing or dropped"
            ));
        }
        let lines = lines(fate, Some((count, *home)));
        let node = Node {
            edges: edges.clone(),
            ..Node::new(seq, *stamp, fate, lines, about)
        };
        self.push(Key::Lane(lane), node);
    }

    fn damaged(&mut self, record: &JournalRecord, why: &str, lost: bool) {
        let key = match record.lane {
            Some(lane) => Key::Lane(lane),
            None if self.is_stet() => Key::AnyFiles,
            None => Key::Ring,
        };
        if key == Key::Ring && !lost {
            // The next record says why the transaction ends here.
            self.open(record.log_block).damaged = true;
            return;
        }
        let seq = record.transaction;
        self.open = None;
        let last = self.rows.get_mut(&key).and_then(|row| row.nodes.back_mut());
        if let Some(last) = last.filter(|last| last.fate == Fate::Torn && last.seq == seq) {
            last.fate = Fate::Lost;
            last.lines = lines(Fate::Lost, None);
            last.about = why.to_owned();
            self.counts.torn -= 1;
            self.counts.damaged += 1;
            return;
        }
        let fate = if lost { Fate::Lost } else { Fate::Torn };
        let node = Node::new(seq, 0, fate, lines(fate, None), why.to_owned());
        self.push(key, node);
    }

    /// Notes the end of a row.
    fn end(&mut self, record: &JournalRecord, why: &str) {
        let key = match record.lane {
            Some(lane) => Key::Lane(lane),
            None if self.is_stet() => Key::AnyFiles,
            None => Key::Ring,
        };
        if key != Key::AnyFiles {
            self.rows.entry(key).or_default();
        }
        self.ends.push(format!("{} end: {why}", key.name()));
    }

    fn is_stet(&self) -> bool {
        let is_lane = |key: &Key| matches!(key, Key::Lane(_));
        self.rows.keys().any(is_lane)
    }

    /// Adds boxes for the transactions that dropped ones need and the log does not hold.
    fn add_missing(&mut self) {
        let dropped = self.rows.values().flat_map(|row| &row.nodes);
        let dropped = dropped.filter(|node| node.fate == Fate::Dropped);
        let mut missing = BTreeSet::new();
        for (lane, seq) in dropped.flat_map(|node| &node.edges) {
            let row = self.rows.get(&Key::Lane(*lane));
            let is_behind = row.is_some_and(|row| row.nodes.back().is_none_or(|n| n.seq < *seq));
            if is_behind && missing.len() < BOXES {
                missing.insert((*lane, *seq));
            }
        }
        for (lane, seq) in missing {
            let about = format!("transaction {seq} of lane {lane} is not in the log");
            let lines = lines(Fate::Missing, None);
            let node = Node::new(seq, 0, Fate::Missing, lines, about);
            self.push(Key::Lane(lane), node);
        }
    }
}

/// The lines below the number in a box: the number of images, how many of them recovery writes to
/// their home locations, and the fate.
fn lines(fate: Fate, images: Option<(u64, u64)>) -> Vec<String> {
    let many = images.map(|(images, _)| some(images, "image"));
    let word = match (fate, images) {
        (Fate::Counts, Some((images, home))) if home < images => {
            Some(format!("{home} to write back"))
        }
        (Fate::Counts | Fate::Record | Fate::Older, _) => None,
        (Fate::Superseded, _) => Some("superseded".into()),
        (Fate::Dropped, _) => Some("DROPPED".into()),
        (Fate::Torn, _) => Some("not whole".into()),
        (Fate::Lost, _) => Some("DAMAGED".into()),
        (Fate::Missing, _) => Some("not in the log".into()),
    };
    many.into_iter().chain(word).collect()
}

/// A count with its noun, in the plural where needed.
pub(super) fn some(count: u64, what: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {what}{s}")
}
