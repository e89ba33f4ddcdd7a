//! The log of unflushed writes: content that the server has acknowledged and may lose. After a
//! reconnect it is written again.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Maximum length of a witness in bytes.
const WITNESS: u64 = 64 << 10;

/// The content of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Bytes(Arc<[u8]>),
    /// A number of zero bytes.
    Zeroes(u64),
}

impl Content {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Zeroes(len) => *len,
        }
    }

    /// Its memory use in bytes.
    fn weight(&self) -> u64 {
        match self {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Zeroes(_) => 0,
        }
    }

    fn part(&self, range: Range<u64>) -> Content {
        match self {
            Content::Bytes(bytes) => {
                let part = bytes.get(range.start as usize..range.end as usize);
                Content::Bytes(part.unwrap_or(&[]).into())
            }
            Content::Zeroes(_) => Content::Zeroes(range.end - range.start),
        }
    }
}

#[derive(Debug)]
struct Piece {
    content: Content,
    /// The number of its write.
    of: u64,
    /// The clock when the write was acknowledged.
    acknowledged: Option<u64>,
    /// Whether a part was discarded since, and may read as zeroes.
    is_discarded: bool,
}

/// The number and range of a write.
#[derive(Clone, Debug)]
pub(crate) struct Begun {
    number: u64,
    range: Range<u64>,
}

/// The newest content of each byte whose write is in flight, or acknowledged and not flushed.
///
/// A write drops older content of its range at once: old content written again could, with a crash
/// behind it, replace content that is durable.
#[derive(Debug, Default)]
pub(crate) struct Unflushed {
    /// By offset; none overlap.
    pieces: BTreeMap<u64, Piece>,
    /// Number of writes begun.
    begun: u64,
    /// Number of writes acknowledged.
    clock: u64,
    bytes: u64,
    witness: Option<(u64, Arc<[u8]>)>,
    guard: Option<Guard>,
}

/// A place that this process alone writes.
#[derive(Debug)]
struct Guard {
    start: u64,
    /// Content that may be there: the durable one and all written since. Empty if unknown.
    contents: Vec<Arc<[u8]>>,
}

/// A condition on a server that comes back: it must have one of these contents at this place.
pub(crate) struct Expected {
    pub(crate) offset: u64,
    pub(crate) contents: Vec<Arc<[u8]>>,
    /// Whether a mismatch means that another machine has taken the volume.
    pub(crate) is_guard: bool,
}

impl Unflushed {
    /// Notes a write before it is sent.
    pub(crate) fn begin(&mut self, offset: u64, content: Content) -> Begun {
        let range = offset..offset + content.len();
        self.cut(&range);
        self.dismiss_witness(&range);
        self.on_guard(&range, &content);
        self.begun += 1;
        if !range.is_empty() {
            self.insert(
                offset,
                Piece {
                    content,
                    of: self.begun,
                    acknowledged: None,
                    is_discarded: false,
                },
            );
        }
        Begun {
            number: self.begun,
            range,
        }
    }

    /// Notes that the server has acknowledged a write. It is also used for a write with an unknown
    /// outcome: that may be on the server, so it is written again, too.
    pub(crate) fn acknowledge(&mut self, write: &Begun) {
        self.clock += 1;
        for start in self.of(write) {
            if let Some(piece) = self.pieces.get_mut(&start) {
                piece.acknowledged = Some(self.clock);
            }
        }
    }

    /// Notes that a write is durable.
    pub(crate) fn durable(&mut self, write: &Begun) {
        for start in self.of(write) {
            self.settle(start);
        }
    }

    /// Notes that the server refused a write: the content of its range is unknown now.
    pub(crate) fn refuse(&mut self, write: &Begun) {
        for start in self.of(write) {
            self.remove(start);
        }
    }

    /// The clock at the begin of a flush: the flush makes durable all writes that were acknowledged
    /// up to it.
    pub(crate) fn mark(&self) -> u64 {
        self.clock
    }

    /// Notes that the flush that began at `mark` succeeded.
    pub(crate) fn flushed(&mut self, mark: u64) {
        let done = |piece: &Piece| piece.acknowledged.filter(|when| *when <= mark);
        let mut durable: Vec<_> = self
            .pieces
            .iter()
            .filter_map(|(start, piece)| Some((done(piece)?, *start)))
            .collect();
        durable.sort_unstable();
        for (_, start) in durable {
            self.settle(start);
        }
    }

    /// Notes that a range is to be discarded: it may read as zeroes from now on, or as before.
    pub(crate) fn discard(&mut self, range: &Range<u64>) {
        self.dismiss_witness(range);
        for start in self.overlapping(range) {
            if let Some(piece) = self.pieces.get_mut(&start) {
                piece.is_discarded = true;
            }
        }
    }

    fn dismiss_witness(&mut self, range: &Range<u64>) {
        let overlaps = |(at, bytes): &(u64, Arc<[u8]>)| {
            *at < range.end && range.start < *at + bytes.len() as u64
        };
        self.witness.take_if(|witness| overlaps(witness));
    }

    /// Declares that this process alone writes the content that begins at `start`.
    pub(crate) fn guard(&mut self, start: u64) {
        let contents = Vec::new();
        self.guard = Some(Guard { start, contents });
    }

    /// Adds content that the guarded place had at some time since the call of `guard`.
    pub(crate) fn guarded(&mut self, content: Arc<[u8]>) {
        if let Some(guard) = &mut self.guard {
            guard.contents.insert(0, content);
        }
    }

    fn on_guard(&mut self, range: &Range<u64>, content: &Content) {
        let Some(guard) = &mut self.guard else {
            return;
        };
        match content {
            Content::Bytes(bytes) if range.start == guard.start => {
                guard.contents.push(Arc::clone(bytes));
            }
            _ if range.contains(&guard.start) => guard.contents.clear(),
            _ => {}
        }
    }

    /// The content that the server must have: the guarded content, and the witness, which was
    /// flushed and not overwritten since.
    pub(crate) fn expected(&self) -> Vec<Expected> {
        let guard = self.guard.iter().filter(|guard| !guard.contents.is_empty());
        let guard = guard.map(|guard| Expected {
            offset: guard.start,
            contents: guard.contents.clone(),
            is_guard: true,
        });
        let witness = self.witness.iter().map(|(offset, content)| Expected {
            offset: *offset,
            contents: vec![Arc::clone(content)],
            is_guard: false,
        });
        guard.chain(witness).collect()
    }

    /// All unflushed content, with offsets.
    pub(crate) fn all(&self) -> Vec<(u64, Content)> {
        let each = self.pieces.iter();
        each.map(|(start, piece)| (*start, piece.content.clone()))
            .collect()
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Removes a piece that is durable, and makes it the witness if it suits.
    fn settle(&mut self, start: u64) {
        let Some(piece) = self.remove(start) else {
            return;
        };
        if let (Some(guard), Content::Bytes(bytes)) = (&mut self.guard, &piece.content)
            && guard.start == start
            && let Some(at) = guard.contents.iter().position(|c| Arc::ptr_eq(c, bytes))
        {
            guard.contents.drain(..at);
        }
        if let Content::Bytes(bytes) = &piece.content
            && piece.content.len() <= WITNESS
            && !piece.is_discarded
        {
            self.witness = Some((start, Arc::clone(bytes)));
        }
    }

    /// The offsets of the remaining pieces of a write.
    fn of(&self, write: &Begun) -> Vec<u64> {
        let there = self.pieces.range(write.range.clone());
        let its = there.filter(|(_, piece)| piece.of == write.number);
        its.map(|(start, _)| *start).collect()
    }

    fn insert(&mut self, start: u64, piece: Piece) {
        self.bytes += piece.content.weight();
        self.pieces.insert(start, piece);
    }

    fn remove(&mut self, start: u64) -> Option<Piece> {
        let piece = self.pieces.remove(&start)?;
        self.bytes -= piece.content.weight();
        Some(piece)
    }

    /// The offsets of the pieces that overlap `range`.
    fn overlapping(&self, range: &Range<u64>) -> Vec<u64> {
        let before = self.pieces.range(..range.start).next_back();
        let before = before.filter(|(start, piece)| *start + piece.content.len() > range.start);
        let inside = self.pieces.range(range.clone()).map(|(start, _)| *start);
        before
            .map(|(start, _)| *start)
            .into_iter()
            .chain(inside)
            .collect()
    }

    /// Removes all content in `range`, and keeps the parts of pieces outside.
    fn cut(&mut self, range: &Range<u64>) {
        for start in self.overlapping(range) {
            let Some(piece) = self.remove(start) else {
                continue;
            };
            let len = piece.content.len();
            let mut keep = |part: Range<u64>| {
                let content = piece.content.part(part.clone());
                let rest = Piece { content, ..piece };
                self.insert(start + part.start, rest);
            };
            if start < range.start {
                keep(0..range.start - start);
            }
            if start + len > range.end {
                keep(range.end - start..len);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(n: usize, fill: u8) -> Content {
        Content::Bytes(vec![fill; n].into())
    }

    #[test]
    fn what_was_written_since_the_flush_is_there() {
        let mut log = Unflushed::default();
        let first = log.begin(0, bytes(10, 1));
        log.acknowledge(&first);
        let mark = log.mark();
        let second = log.begin(4, bytes(2, 2));
        assert_eq!(log.bytes(), 10);
        log.flushed(mark);
        // The second write is in flight.
        assert_eq!(log.all(), [(4, bytes(2, 2))]);
        // The rest of the first write, settled last, is the witness.
        assert_eq!(log.witness, Some((6, vec![1; 4].into())));
        log.acknowledge(&second);
        log.flushed(mark);
        assert_eq!(log.bytes(), 2, "that flush began before");
        log.flushed(log.mark());
        assert_eq!(log.bytes(), 0);
        assert_eq!(log.witness, Some((4, vec![2; 2].into())));
        log.begin(5, bytes(4, 3));
        assert_eq!(log.witness, None);
    }

    #[test]
    fn a_durable_write_takes_older_ones_with_it() {
        let mut log = Unflushed::default();
        let first = log.begin(0, bytes(10, 1));
        log.acknowledge(&first);
        let second = log.begin(2, Content::Zeroes(3));
        log.durable(&second);
        assert_eq!(log.all(), [(0, bytes(2, 1)), (5, bytes(5, 1))]);
        let third = log.begin(0, bytes(1, 3));
        log.refuse(&third);
        assert_eq!(log.all(), [(1, bytes(1, 1)), (5, bytes(5, 1))]);
    }

    #[test]
    fn what_was_discarded_bears_no_witness() {
        let mut log = Unflushed::default();
        let first = log.begin(0, bytes(10, 1));
        log.acknowledge(&first);
        log.discard(&(4..6));
        assert_eq!(log.all(), [(0, bytes(10, 1))]);
        log.flushed(log.mark());
        assert_eq!(log.witness, None);
        let second = log.begin(0, bytes(10, 2));
        log.durable(&second);
        assert!(log.witness.is_some());
        log.discard(&(9..12));
        assert_eq!(log.witness, None);
    }

    #[test]
    fn what_is_guarded_is_what_was_written_last_or_is_on_its_way() {
        let mut log = Unflushed::default();
        let expected = |log: &Unflushed| {
            let of = log.expected().into_iter().find(|e| e.is_guard);
            of.map(|e| e.contents.iter().map(|c| c[0]).collect::<Vec<_>>())
        };
        log.guard(8);
        assert_eq!(expected(&log), None);
        let first = log.begin(8, bytes(4, 1));
        log.guarded(vec![9; 4].into());
        assert_eq!(expected(&log), Some(vec![9, 1]));
        let second = log.begin(8, bytes(4, 2));
        log.durable(&first);
        assert_eq!(
            expected(&log),
            Some(vec![9, 1, 2]),
            "the second took its place"
        );
        log.durable(&second);
        assert_eq!(expected(&log), Some(vec![2]));
        let third = log.begin(8, bytes(4, 3));
        log.acknowledge(&third);
        log.flushed(log.mark());
        assert_eq!(expected(&log), Some(vec![3]));
        log.begin(0, bytes(16, 4));
        assert_eq!(expected(&log), None);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Write(u64, u64, bool),
        Acknowledge(usize),
        Flush(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0..40u64, 1..20u64, any::<bool>()).prop_map(|(at, n, z)| Step::Write(at, n, z)),
            3 => (0..8usize).prop_map(Step::Acknowledge),
            1 => (0..4usize).prop_map(Step::Flush),
        ]
    }

    proptest! {
        /// Against a model of single bytes.
        #[test]
        fn it_is_the_newest_content_of_each_byte(steps in prop::collection::vec(step(), 1..60)) {
            let mut log = Unflushed::default();
            let mut model = vec![None::<(u8, u64, Option<u64>)>; 64];
            let (mut open, mut marks, mut clock) = (Vec::new(), vec![0], 0);
            for (n, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Write(at, len, zeroes) => {
                        let fill = if zeroes { 0 } else { n as u8 + 1 };
                        let content = if zeroes { Content::Zeroes(len) } else { bytes(len as usize, fill) };
                        open.push((log.begin(at, content), n as u64));
                        model[at as usize..(at + len) as usize].fill(Some((fill, n as u64, None)));
                    }
                    Step::Acknowledge(i) if !open.is_empty() => {
                        let (write, of) = open.remove(i % open.len());
                        log.acknowledge(&write);
                        clock += 1;
                        for byte in model.iter_mut().flatten().filter(|byte| byte.1 == of) {
                            byte.2 = Some(clock);
                        }
                        marks.push(clock);
                        prop_assert_eq!(log.mark(), clock);
                    }
                    Step::Flush(back) => {
                        let mark = marks[marks.len().saturating_sub(1 + back)];
                        log.flushed(mark);
                        for byte in &mut model {
                            byte.take_if(|byte| byte.2.is_some_and(|when| when <= mark));
                        }
                    }
                    Step::Acknowledge(_) => {}
                }
                let mut seen = vec![None; 64];
                for (at, content) in log.all() {
                    for i in 0..content.len() {
                        let byte = match &content {
                            Content::Bytes(bytes) => bytes[i as usize],
                            Content::Zeroes(_) => 0,
                        };
                        prop_assert!(seen[(at + i) as usize].replace(byte).is_none());
                    }
                }
                let expected: Vec<_> = model.iter().map(|byte| byte.map(|byte| byte.0)).collect();
                prop_assert_eq!(seen, expected);
                if let Some((at, bytes)) = &log.witness {
                    // No write in flight overlaps it.
                    let range = *at as usize..*at as usize + bytes.len();
                    prop_assert!(model[range].iter().all(Option::is_none));
                }
            }
        }
    }
}
