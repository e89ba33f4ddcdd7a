//! Fault orders in words: the kind of fault, its place and its time.
//!
//! | word | meaning |
//! | --- | --- |
//! | `pass` | nothing fails |
//! | `drop-writes` | writes, discards, shares and flushes succeed and do nothing |
//! | `error-writes` | these fail |
//! | `error-reads` | reads fail |
//! | `error-all` | everything fails |
//! | `intervals=UP,DOWN` | faults come and go: UP seconds without them, then DOWN with them |
//! | `suspend`, `resume` | requests wait; they go on |
//! | `power-cut=lose`, `=keep`, `=SEED` | writes since the last flush are lost, kept, or lost at random; then `error-all` |
//!
//! `=FIRST+COUNT` after the name of a fault limits it to sectors of 512 bytes; of a write that is
//! partly inside, the rest arrives. Flushes have no place, so only a fault of the whole device
//! affects them.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use stetfs_block::{BlockDevice, Fault, FaultInjector, Op, SECTOR};
use stetfs_sync::timed::Instant;

use crate::volatile::{Kept, Volatile};

/// A device with injected faults, as [`Plan::faults`] gives them.
pub type Failing<D> = FaultInjector<Volatile<D>>;

/// `inner` with a fault injector; with `cache` it has a cache that a power cut empties.
pub fn failing<D: BlockDevice>(inner: D, cache: bool) -> Failing<D> {
    FaultInjector::new(Volatile::new(inner, cache))
}

/// The effect of a fault on requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Writes succeed and do nothing.
    DropWrites,
    /// Writes fail.
    ErrorWrites,
    /// Reads fail.
    ErrorReads,
    /// All requests fail.
    ErrorAll,
}

impl Effect {
    const ALL: [Effect; 4] = [
        Effect::DropWrites,
        Effect::ErrorWrites,
        Effect::ErrorReads,
        Effect::ErrorAll,
    ];

    fn name(self) -> &'static str {
        match self {
            Effect::DropWrites => "drop-writes",
            Effect::ErrorWrites => "error-writes",
            Effect::ErrorReads => "error-reads",
            Effect::ErrorAll => "error-all",
        }
    }
}

/// A fault and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The effect.
    pub effect: Effect,
    /// Range of sectors of 512 bytes; `None`: the whole device.
    pub sectors: Option<Range<u64>>,
}

/// A timetable of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intervals {
    /// Seconds without faults.
    pub up: u64,
    /// Seconds with faults, after those without.
    pub down: u64,
}

impl Intervals {
    /// Whether faults are active `seconds` after the beginning.
    fn is_down(self, seconds: u64) -> bool {
        // With a length of 0 they are always active.
        seconds
            .checked_rem(self.up.saturating_add(self.down))
            .is_none_or(|at| at >= self.up)
    }
}

/// The faults of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The faults.
    pub places: Vec<Place>,
    /// The timetable; `None`: always active.
    pub intervals: Option<Intervals>,
}

impl Plan {
    /// The faults as the fault injector takes them. Intervals begin now.
    pub fn faults(&self) -> Vec<Fault> {
        let begin = Instant::now();
        let intervals = self.intervals;
        let timed = |fault: Fault| match intervals {
            None => fault,
            Some(i) => fault.when(move |_, _| i.is_down(begin.elapsed().as_secs())),
        };
        self.places.iter().flat_map(faults_of).map(timed).collect()
    }
}

/// One fault in the fault injector's terms.
fn faults_of(place: &Place) -> Vec<Fault> {
    let mut faults = Vec::new();
    let Some(sectors) = &place.sectors else {
        let changes = [Op::Write, Op::Flush, Op::Discard, Op::Share];
        match place.effect {
            Effect::DropWrites => faults.extend(changes.map(Fault::lose)),
            Effect::ErrorReads => faults.push(Fault::fail(Op::Read, libc::EIO)),
            Effect::ErrorWrites => faults.extend(changes.map(|op| Fault::fail(op, libc::EIO))),
            Effect::ErrorAll => {
                faults.push(Fault::fail(Op::Read, libc::EIO));
                faults.extend(changes.map(|op| Fault::fail(op, libc::EIO)));
            }
        }
        return faults;
    };
    let sector = u64::from(SECTOR);
    let bytes = sectors.start.saturating_mul(sector)..sectors.end.saturating_mul(sector);
    let outside = |errno| {
        let bytes = bytes.clone();
        Fault::tear(move |at, _| !bytes.contains(&at), errno)
    };
    match place.effect {
        Effect::DropWrites => faults.extend([
            outside(None),
            Fault::lose(Op::Discard),
            Fault::lose(Op::Share),
        ]),
        Effect::ErrorReads => faults.push(Fault::fail(Op::Read, libc::EIO)),
        Effect::ErrorWrites => faults.extend([
            outside(Some(libc::EIO)),
            Fault::fail(Op::Discard, libc::EIO),
            Fault::fail(Op::Share, libc::EIO),
        ]),
        Effect::ErrorAll => faults.extend([
            Fault::fail(Op::Read, libc::EIO),
            outside(Some(libc::EIO)),
            Fault::fail(Op::Discard, libc::EIO),
            Fault::fail(Op::Share, libc::EIO),
        ]),
    }
    faults
        .into_iter()
        .map(|fault| fault.within(bytes.clone()))
        .collect()
}

/// One word of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// Nothing fails.
    Pass,
    /// A fault.
    Fault(Place),
    /// Faults come and go.
    Intervals(Intervals),
    /// Requests wait from now on.
    Suspend,
    /// Requests continue.
    Resume,
    /// The power is cut, and unflushed writes are lost as this says.
    PowerCut(Kept),
}

/// An error: the word is not part of an order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no fault {0:?}; there are pass, drop-writes, error-writes, error-reads, error-all \
     (each with =FIRST+COUNT for sectors), intervals=UP,DOWN, suspend, resume and \
     power-cut=lose|keep|SEED"
)]
pub struct UnknownWord(pub String);

impl FromStr for Word {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Word, UnknownWord> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let two = |separator| {
            let (a, b) = value?.split_once(separator)?;
            Some((a.parse::<u64>().ok()?, b.parse::<u64>().ok()?))
        };
        let effect = Effect::ALL.into_iter().find(|e| e.name() == name);
        let word = match (name, value, effect) {
            (_, None, Some(effect)) => Some(Word::Fault(Place {
                effect,
                sectors: None,
            })),
            (_, Some(_), Some(effect)) => two('+').and_then(|(first, count)| {
                let sectors = Some(first..first.checked_add(count)?);
                Some(Word::Fault(Place { effect, sectors }))
            }),
            ("pass", None, _) => Some(Word::Pass),
            ("suspend", None, _) => Some(Word::Suspend),
            ("resume", None, _) => Some(Word::Resume),
            ("intervals", Some(_), _) => {
                two(',').map(|(up, down)| Word::Intervals(Intervals { up, down }))
            }
            ("power-cut", Some("lose"), _) => Some(Word::PowerCut(Kept::Nothing)),
            ("power-cut", Some("keep"), _) => Some(Word::PowerCut(Kept::All)),
            ("power-cut", Some(seed), _) => seed
                .parse()
                .ok()
                .map(|seed| Word::PowerCut(Kept::Some(seed))),
            _ => None,
        };
        word.ok_or_else(|| UnknownWord(text.to_owned()))
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Word::Pass => f.write_str("pass"),
            Word::Fault(Place { effect, sectors }) => {
                f.write_str(effect.name())?;
                match sectors {
                    Some(s) => write!(f, "={}+{}", s.start, s.end - s.start),
                    None => Ok(()),
                }
            }
            Word::Intervals(i) => write!(f, "intervals={},{}", i.up, i.down),
            Word::Suspend => f.write_str("suspend"),
            Word::Resume => f.write_str("resume"),
            Word::PowerCut(Kept::Nothing) => f.write_str("power-cut=lose"),
            Word::PowerCut(Kept::All) => f.write_str("power-cut=keep"),
            Word::PowerCut(Kept::Some(seed)) => write!(f, "power-cut={seed}"),
        }
    }
}

/// An order: changes that take effect at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// The new faults; `None`: no change.
    pub plan: Option<Plan>,
    /// Whether requests wait from now on; `None`: no change.
    pub suspend: Option<bool>,
    /// A power cut, and the writes that it keeps.
    pub power_cut: Option<Kept>,
}

impl FromIterator<Word> for Order {
    fn from_iter<I: IntoIterator<Item = Word>>(words: I) -> Order {
        let mut order = Order::default();
        for word in words {
            match word {
                Word::Pass => *order.plan.get_or_insert_default() = Plan::default(),
                Word::Fault(place) => order.plan.get_or_insert_default().places.push(place),
                Word::Intervals(i) => order.plan.get_or_insert_default().intervals = Some(i),
                Word::Suspend => order.suspend = Some(true),
                Word::Resume => order.suspend = Some(false),
                Word::PowerCut(kept) => order.power_cut = Some(kept),
            }
        }
        order
    }
}

impl FromStr for Order {
    type Err = UnknownWord;

    /// Parses words with white space between them.
    fn from_str(text: &str) -> Result<Order, UnknownWord> {
        text.split_whitespace().map(str::parse::<Word>).collect()
    }
}

impl Plan {
    /// The words that give this plan.
    pub fn words(&self) -> Vec<Word> {
        let places = self.places.iter().cloned().map(Word::Fault);
        let mut words: Vec<Word> = places.chain(self.intervals.map(Word::Intervals)).collect();
        if words.is_empty() {
            words.push(Word::Pass);
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use stetfs_block::MemDevice;

    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() -> Result<(), UnknownWord> {
        for text in [
            "pass",
            "drop-writes",
            "error-writes=8+16",
            "error-reads=0+1",
            "error-all",
            "intervals=3,4",
            "suspend",
            "resume",
            "power-cut=lose",
            "power-cut=keep",
            "power-cut=17",
        ] {
            assert_eq!(text.parse::<Word>()?.to_string(), text);
        }
        for wrong in [
            "",
            "fail",
            "pass=1",
            "error-all=",
            "error-all=1",
            "error-all=1+x",
            "error-all=18446744073709551615+2",
            "intervals=1",
            "power-cut",
            "power-cut=some",
        ] {
            assert!(wrong.parse::<Word>().is_err(), "{wrong}");
        }
        let order: Order = "error-writes=0+8 suspend\nintervals=1,2".parse()?;
        let plan = order.plan.unwrap_or_default();
        assert_eq!(order.suspend, Some(true));
        assert_eq!(plan.words().len(), 2);
        assert_eq!("".parse(), Ok(Order::default()));
        Ok(())
    }

    #[test]
    fn intervals_begin_up() {
        let down = |up, down, at| Intervals { up, down }.is_down(at);
        assert!(!down(2, 3, 0) && !down(2, 3, 1) && down(2, 3, 2) && down(2, 3, 4));
        assert!(!down(2, 3, 5) && down(0, 5, 0) && down(0, 5, 7) && !down(5, 0, 4));
    }

    fn armed(text: &str) -> Result<FaultInjector<MemDevice>, UnknownWord> {
        let device = FaultInjector::new(MemDevice::new(1 << 20));
        let order: Order = text.parse()?;
        device.set(order.plan.unwrap_or_default().faults());
        Ok(device)
    }

    /// Whether a read, a write and a flush succeed, and the number of sectors that arrive of the 16
    /// written.
    fn tried(text: &str) -> Result<([bool; 3], usize), UnknownWord> {
        let device = armed(text)?;
        let mut bytes = vec![0; 8192];
        let done = [
            device.read(4096, &mut bytes).is_ok(),
            device.write(4096, &[1; 8192]).is_ok(),
            device.flush().is_ok(),
        ];
        let below = device.inner();
        assert!(below.read(4096, &mut bytes).is_ok());
        Ok((done, bytes.chunks(512).filter(|s| s[0] == 1).count()))
    }

    #[test]
    fn each_fault_hits_what_it_says() -> Result<(), UnknownWord> {
        assert_eq!(tried("pass")?, ([true, true, true], 16));
        assert_eq!(tried("drop-writes")?, ([true, true, true], 0));
        assert_eq!(tried("error-writes")?, ([true, false, false], 0));
        assert_eq!(tried("error-reads")?, ([false, true, true], 16));
        assert_eq!(tried("error-all")?, ([false, false, false], 0));
        // These are the second and third of its sectors.
        assert_eq!(tried("drop-writes=9+2")?, ([true, true, true], 14));
        assert_eq!(tried("error-writes=9+2")?, ([true, false, true], 14));
        assert_eq!(tried("error-reads=9+2")?, ([false, true, true], 16));
        assert_eq!(tried("error-all=0+9")?, ([false, false, true], 15));
        assert_eq!(tried("error-all=24+9")?, ([true, true, true], 16));
        assert_eq!(
            tried("error-all intervals=3600,1")?,
            ([true, true, true], 16)
        );
        assert_eq!(
            tried("error-all intervals=0,3600")?,
            ([false, false, false], 0)
        );
        Ok(())
    }
}
