//! Repeated messages: a failing device must not fill a disk with its log. The first message is
//! written at once; later ones are counted, and the count is written when a window of time ends.
//!
//! A message is a repetition if its place in the program wrote the same text, or [`TEXTS`] others,
//! in the current window. The windows of a place that goes on grow from [`SHORTEST`] to
//! [`LONGEST`]. Messages below the level INFO are not counted: they are asked for.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{DefaultFields, Writer};
use tracing_subscriber::layer::{Context, Filter};

/// Different messages of one place in a window.
const TEXTS: usize = 8;
const SHORTEST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(600);

/// The target of the counts.
pub(super) const TARGET: &str = "repeated";

/// A filter that counts repetitions instead of letting them pass.
pub(super) struct Repeats;

impl<S: Subscriber> Filter<S> for Repeats {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let meta = event.metadata();
        if *meta.level() > Level::INFO || meta.target() == TARGET {
            return true;
        }
        let mut text = format!("{}: ", meta.target());
        // Before the lock is taken: code of the values makes the text. Memory takes every text.
        let _ = DefaultFields::new().format_fields(Writer::new(&mut text), event);
        match lock().as_mut() {
            Some(counter) => counter.lets_pass(meta, text),
            None => true,
        }
    }
}

/// The counter; `None` until counting begins.
static COUNTER: Mutex<Option<Counter>> = Mutex::new(None);

fn lock() -> MutexGuard<'static, Option<Counter>> {
    COUNTER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins to count repetitions. A thread writes the counts, so this process forks no other from now
/// on.
pub(crate) fn join() {
    lock().get_or_insert_default();
}

/// Writes all counts, before the process ends.
pub(crate) fn finish() {
    let counts = lock().as_mut().map(|counter| counter.origins.take(None));
    counts.into_iter().flatten().for_each(Count::tell);
}

#[derive(Default)]
struct Counter {
    origins: Origins<Identifier>,
    has_thread: bool,
}

impl Counter {
    /// Whether a message is none to be counted.
    fn lets_pass(&mut self, meta: &Metadata<'_>, text: String) -> bool {
        let now = Instant::now();
        let passes = self
            .origins
            .is_first(meta.callsite(), *meta.level(), text, now);
        // If the thread cannot start, the next repetition tries again, and [`finish`] writes the
        // counts at the latest.
        if !passes && !self.has_thread {
            let thread = std::thread::Builder::new().name("stet-log".into());
            self.has_thread = thread.spawn(write).is_ok();
        }
        passes
    }
}

/// Writes counts when their windows end, until there are none.
fn write() {
    let next = || {
        let mut counter = lock();
        let counter = counter.as_mut()?;
        let due = counter.origins.due();
        counter.has_thread = due.is_some();
        due
    };
    while let Some(due) = next() {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let now = Some(Instant::now());
        let counts = lock().as_mut().map(|counter| counter.origins.take(now));
        counts.into_iter().flatten().for_each(Count::tell);
    }
}

/// A count as it is written.
#[derive(Debug, PartialEq, Eq)]
struct Count {
    level: Level,
    text: String,
}

impl Count {
    fn tell(self) {
        let text = self.text;
        match self.level {
            Level::ERROR => tracing::error!(target: TARGET, "{text}"),
            Level::WARN => tracing::warn!(target: TARGET, "{text}"),
            _ => tracing::info!(target: TARGET, "{text}"),
        }
    }
}

/// The origins of messages, which are statements of the program, by an identity.
struct Origins<K>(HashMap<K, Origin>);

impl<K> Default for Origins<K> {
    fn default() -> Self {
        Origins(HashMap::new())
    }
}

impl<K: Eq + Hash> Origins<K> {
    /// Whether this message of `origin` is to be written. It is counted if not.
    fn is_first(&mut self, origin: K, level: Level, text: String, now: Instant) -> bool {
        let origin = self.0.entry(origin).or_insert_with(|| Origin {
            level,
            since: now,
            window: SHORTEST,
            texts: Vec::new(),
            others: 0,
        });
        origin.is_first(text, now)
    }

    /// The time at which the next counts are to be written.
    fn due(&self) -> Option<Instant> {
        let counting = self.0.values().filter(|origin| origin.counts());
        counting.map(Origin::end).min()
    }

    /// The counts of the windows that ended by `until`, or of all; their origins begin new windows.
    fn take(&mut self, until: Option<Instant>) -> Vec<Count> {
        let counting = self.0.values_mut().filter(|origin| origin.counts());
        let ended = counting.filter(|origin| until.is_none_or(|now| origin.end() <= now));
        ended.flat_map(|origin| origin.take(until)).collect()
    }
}

/// The messages of one statement in its current window.
struct Origin {
    level: Level,
    /// The begin of the window.
    since: Instant,
    /// The length of the window.
    window: Duration,
    /// The texts that were written, and their repetitions.
    texts: Vec<(String, u64)>,
    /// The messages with other texts.
    others: u64,
}

impl Origin {
    fn counts(&self) -> bool {
        self.others > 0 || self.texts.iter().any(|(_, n)| *n > 0)
    }

    fn end(&self) -> Instant {
        self.since + self.window
    }

    fn is_first(&mut self, text: String, now: Instant) -> bool {
        if !self.counts() && self.end() <= now {
            (self.since, self.window) = (now, SHORTEST);
            self.texts.clear();
        }
        if let Some((_, n)) = self.texts.iter_mut().find(|(told, _)| *told == text) {
            *n += 1;
            return false;
        }
        let is_first = self.texts.len() < TEXTS;
        match is_first {
            true => self.texts.push((text, 0)),
            false => self.others += 1,
        }
        is_first
    }

    /// The counts. The next window is longer, and begins with the texts that were repeated.
    fn take(&mut self, now: Option<Instant>) -> Vec<Count> {
        let now = now.unwrap_or_else(Instant::now);
        let secs = now.saturating_duration_since(self.since).as_secs().max(1);
        let like = self
            .texts
            .first()
            .map_or_else(String::new, |(text, _)| text.clone());
        self.texts.retain(|(_, n)| *n > 0);
        let mut counts: Vec<String> = self
            .texts
            .iter_mut()
            .map(|(text, n)| format!("… {} more in {secs} s: {text}", std::mem::take(n)))
            .collect();
        let others = std::mem::take(&mut self.others);
        if others > 0 {
            counts.push(format!("… {others} others of its kind in {secs} s: {like}"));
        }
        (self.since, self.window) = (now, (self.window * 2).min(LONGEST));
        let level = self.level;
        counts
            .into_iter()
            .map(|text| Count { level, text })
            .collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn texts(counts: Vec<Count>) -> Vec<String> {
        counts.into_iter().map(|count| count.text).collect()
    }

    #[test]
    fn repetitions_are_counted_until_their_window_ends() {
        let mut origins = Origins::default();
        let begin = Instant::now();
        let at = |secs| begin + Duration::from_secs(secs);
        let mut tell = |secs, text: &str| {
            let first = origins.is_first(1, Level::ERROR, text.into(), at(secs));
            (first, origins.due())
        };
        assert_eq!(tell(0, "a"), (true, None));
        assert_eq!(tell(1, "a"), (false, Some(at(10))));
        assert_eq!(tell(2, "b"), (true, Some(at(10))));
        assert_eq!(tell(3, "a"), (false, Some(at(10))));
        assert!(
            origins.is_first(2, Level::WARN, "a".into(), at(3)),
            "it comes from elsewhere"
        );
        assert_eq!(origins.take(Some(at(9))), []);
        assert_eq!(texts(origins.take(Some(at(10)))), ["… 2 more in 10 s: a"]);
        assert_eq!(origins.due(), None);
        // It goes on: the next window is twice as long.
        assert!(!origins.is_first(1, Level::ERROR, "a".into(), at(11)));
        assert!(origins.is_first(1, Level::ERROR, "b".into(), at(11)));
        assert_eq!(origins.due(), Some(at(30)));
        assert_eq!(texts(origins.take(Some(at(30)))), ["… 1 more in 20 s: a"]);
        // It is over, and comes again later.
        assert!(origins.is_first(1, Level::ERROR, "a".into(), at(70)));
        assert!(!origins.is_first(1, Level::ERROR, "a".into(), at(79)));
        assert_eq!(origins.due(), Some(at(80)));
    }

    #[test]
    fn messages_that_differ_are_bounded_too() {
        let mut origins = Origins::default();
        let now = Instant::now();
        let told =
            (0..100).filter(|nr| origins.is_first(1, Level::ERROR, format!("block {nr}"), now));
        assert_eq!(told.count(), TEXTS);
        origins.is_first(1, Level::ERROR, "block 0".into(), now);
        let counts = texts(origins.take(Some(now + SHORTEST)));
        let others = "… 92 others of its kind in 10 s: block 0";
        assert_eq!(counts, ["… 1 more in 10 s: block 0", others]);
    }

    #[test]
    fn windows_grow_to_a_bound() {
        let mut origins = Origins::default();
        let mut now = Instant::now();
        for _ in 0..20 {
            origins.is_first(1, Level::ERROR, "a".into(), now);
            origins.is_first(1, Level::ERROR, "a".into(), now);
            now = origins.due().unwrap();
            assert_eq!(origins.take(Some(now)).len(), 1);
        }
        origins.is_first(1, Level::ERROR, "a".into(), now);
        assert_eq!(origins.due(), Some(now + LONGEST));
    }
}
