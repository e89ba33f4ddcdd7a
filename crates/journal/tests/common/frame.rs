//! A second, trivial scheme: two lanes, and a transaction as a header block with a checksum,
//! followed by raw images. It shows that the engine knows nothing of a particular scheme.

use std::cell::Cell;
use std::sync::Arc;

use parking_lot::Mutex;
use stetfs_block::{BlockDevice, Write, WriteList};
use stetfs_cache::{Page, PageRef};
use stetfs_journal::policy::*;
use stetfs_journal::*;

use super::{BS, LOG};

const MAGIC: u64 = 0x7374_6574_7465_7374;
/// The words of a header before the block numbers.
const HEAD: usize = 8;

thread_local!(static LANE: Cell<u16> = const { Cell::new(0) });

/// Chooses the lane of this thread's next handles.
pub fn use_lane(lane: u16) {
    LANE.set(lane);
}

struct ByThread(u16);

impl Ordering for ByThread {
    fn lanes(&self) -> u16 {
        self.0
    }
    fn lane(&self, _near: Option<Near>) -> Lane {
        Lane(LANE.get() % self.0)
    }
}

/// A ring from block `first` to `end` of the device; the block before `first` holds the tail.
struct Ring {
    device: Arc<dyn BlockDevice>,
    first: u64,
    end: u64,
    lane: Lane,
    tail: Mutex<LogTail>,
}

impl Medium for Ring {
    fn lane(&self) -> Lane {
        self.lane
    }
    fn first(&self) -> u64 {
        self.first
    }
    fn end(&self) -> u64 {
        self.end
    }
    fn blocks<'a>(&self, at: u64, tx: &'a Encoded, _: bool) -> Result<WriteList<'a>> {
        let mut list = WriteList::new();
        for (i, page) in tx.body() {
            list.push(self.advance(at, i) * BS as u64, page);
        }
        Ok(list)
    }
    fn place(&self, at: u64) -> Result<Place> {
        super::area(self.device.clone()).place(self.lane, at)
    }
    fn write_early(&self, at: u64, blocks: &[PageRef]) -> Result<()> {
        for (i, page) in blocks.iter().enumerate() {
            self.device
                .write(self.advance(at, i as u64) * BS as u64, page)?;
        }
        Ok(())
    }
    fn flush_seals(&self) -> bool {
        true
    }
    fn set_tail(&self, tail: LogTail, _: bool) -> Result<()> {
        let mut page = Page::zeroed(BS);
        page[..8].copy_from_slice(&tail.seq.to_le_bytes());
        page[8..16].copy_from_slice(&tail.at.unwrap_or(0).to_le_bytes());
        self.device
            .write_batch_flush(&[Write::new((self.first - 1) * BS as u64, &page)])?;
        *self.tail.lock() = tail;
        Ok(())
    }
    /// Each lane has a header of its own.
    fn note_tail(&self, tail: LogTail) {
        self.set_tail(tail, true).unwrap();
    }
    fn tail(&self) -> LogTail {
        *self.tail.lock()
    }
    fn read(&self, at: u64, count: u64) -> Result<Vec<PageRef>> {
        (0..count)
            .map(|i| {
                let mut page = Page::zeroed(BS);
                self.device
                    .read(self.advance(at, i) * BS as u64, &mut page)?;
                Ok(Arc::new(page))
            })
            .collect()
    }
}

struct Frames;

fn checksum(words: &[u64], images: &[PageRef]) -> u64 {
    let mut sum = 0xcbf2_9ce4_8422_2325_u64;
    let mut eat = |b: u8| sum = (sum ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3);
    words
        .iter()
        .flat_map(|w| w.to_le_bytes())
        .for_each(&mut eat);
    images
        .iter()
        .flat_map(|p| p.iter().copied())
        .for_each(&mut eat);
    sum
}

impl Codec for Frames {
    fn bound(&self, images: u64, _: u64) -> u64 {
        images + 1
    }

    fn encode(&self, tx: &Snapshot, _: &mut Early<'_>) -> Result<Encoded> {
        let images: Vec<PageRef> = tx.images.iter().map(|i| i.page.clone()).collect();
        let edges: Vec<TxId> = tx.edges.iter().collect();
        let mut words = vec![0; HEAD];
        words[0] = MAGIC;
        words[2] = tx.id.seq;
        words[3] = tx.stamp;
        words[4] = images.len() as u64;
        words[5] = tx.revokes.len() as u64;
        words[6] = edges.len() as u64;
        words.extend(tx.images.iter().map(|i| i.nr));
        words.extend(&tx.revokes);
        words.extend(edges.iter().flat_map(|e| [u64::from(e.lane.0), e.seq]));
        assert!(words.len() * 8 <= BS, "a test transaction fits one header");
        words[1] = checksum(&words, &images);
        let mut head = Page::zeroed(BS);
        for (to, word) in head.chunks_exact_mut(8).zip(&words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        let verbatim = (0..images.len()).map(|i| Some(i as u32 + 1)).collect();
        let body = std::iter::once(Arc::new(head)).chain(images).collect();
        Ok(Encoded {
            body,
            verbatim,
            ..Encoded::default()
        })
    }

    fn scan(&self, log: &dyn Medium, tail: LogTail, _: &mut dyn FnMut(u64, u64)) -> Result<Scan> {
        let mut scan = Scan {
            txs: Vec::new(),
            end: EndReason::Empty,
            next_seq: tail.seq,
        };
        let Some(start) = tail.at else {
            return Ok(scan);
        };
        let lane = log.lane();
        let mut at = start;
        loop {
            let head = log.read(at, 1)?.remove(0);
            let mut words: Vec<u64> = head
                .chunks_exact(8)
                .map(|c| u64::from_le_bytes(c.try_into().unwrap()))
                .collect();
            let counts = [words[4], words[5], words[6].saturating_mul(2)].map(|c| c.min(1000));
            if words[0] != MAGIC || words[2] != scan.next_seq || counts.iter().sum::<u64>() > 120 {
                scan.end = EndReason::NoNext("no frame".into());
                return Ok(scan);
            }
            let [n, revokes, edges] = counts.map(|c| c as usize);
            words.truncate(HEAD + n + revokes + edges);
            let stored = std::mem::take(&mut words[1]);
            if checksum(&words, &log.read(log.advance(at, 1), n as u64)?) != stored {
                scan.end = EndReason::Torn("checksum".into());
                return Ok(scan);
            }
            let mut point = CommitPoint::none();
            for pair in words[HEAD + n + revokes..].chunks(2) {
                point.add(TxId {
                    lane: Lane(pair[0] as u16),
                    seq: pair[1],
                });
            }
            scan.txs.push(ScannedTx {
                id: TxId {
                    lane,
                    seq: words[2],
                },
                stamp: words[3],
                floor: 0,
                edges: point,
                images: (0..n)
                    .map(|i| {
                        let at = log.advance(at, 1 + i as u64);
                        let image = ImageRef {
                            at,
                            flags: 0,
                            check: 0,
                            place: Some(log.place(at).unwrap()),
                        };
                        (words[HEAD + i], image)
                    })
                    .collect(),
                revokes: words[HEAD + n..HEAD + n + revokes].to_vec(),
                at,
                blocks: n as u64 + 1,
            });
            scan.next_seq += 1;
            at = log.advance(at, n as u64 + 1);
        }
    }

    fn images(&self, log: &dyn Medium, _: TxId, refs: &[ImageRef]) -> Result<Vec<PageRef>> {
        refs.iter()
            .map(|r| Ok(log.read(r.at, 1)?.remove(0)))
            .collect()
    }
}

pub fn scheme(device: &Arc<dyn BlockDevice>, lanes: u16) -> Scheme {
    let each = LOG / u64::from(lanes);
    let media = (0..u64::from(lanes))
        .map(|i| {
            let mut page = vec![0; BS];
            device.read(i * each * BS as u64, &mut page).unwrap();
            let word = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().unwrap());
            let tail = LogTail {
                seq: word(0).max(1),
                at: (word(8) != 0).then_some(word(8)),
            };
            let (first, end) = (i * each + 1, (i + 1) * each);
            Box::new(Ring {
                device: device.clone(),
                first,
                end,
                lane: Lane(i as u16),
                tail: Mutex::new(tail),
            }) as Box<dyn Medium>
        })
        .collect();
    Scheme {
        ordering: Box::new(ByThread(lanes)),
        codec: Box::new(Frames),
        media,
        home: Box::new(CopyHome),
        records: None,
    }
}
