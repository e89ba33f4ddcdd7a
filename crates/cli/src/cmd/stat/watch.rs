//! `stetfs stat --watch`: the changes of the counters, step by step.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use stetfs_fuse::mountinfo::MountEntry;

use super::units;
use crate::control::client::Client;
use crate::failure::{Code, Failure, Result};
use crate::interrupt::Interrupt;

/// The timed operations, in the order of the columns.
const TIMED: [&str; 5] = ["read", "write", "sync", "commit", "checkpoint"];

/// Shows one step after the other until Ctrl-C, or until the mount ends.
pub(super) fn run(
    mount: &MountEntry,
    mut client: Client,
    step: Duration,
    as_json: bool,
) -> Result<Code> {
    let interrupt = Interrupt::watch()?;
    let mut screen = Screen::new(as_json);
    let pid = client.pid();
    let mut before: Option<(Instant, Value)> = None;
    let mut next = Instant::now();
    loop {
        let Some(mut now) = client.request_or_end(&json!({ "op": "stat" }))? else {
            let _ = writeln!(io::stderr(), "{} was unmounted", mount.dir.display());
            return Ok(Code::Done);
        };
        now["pid"] = json!(pid);
        let at = Instant::now();
        let shown = match &before {
            Some((then, before)) => {
                let passed = Step {
                    before,
                    now: &now,
                    seconds: at.duration_since(*then).as_secs_f64().max(1e-6),
                };
                screen.show(mount, &passed)
            }
            None => Ok(()),
        };
        match shown {
            // The reader closed the pipe.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(Code::Done),
            Err(e) => {
                return Err(Failure::new(
                    Code::Io,
                    format!("cannot write the figures: {e}"),
                ));
            }
            Ok(()) => before = Some((at, now)),
        }
        next = (next + step).max(at);
        loop {
            let left = next.saturating_duration_since(Instant::now());
            if interrupt.came() {
                return Ok(Code::Interrupted);
            }
            if left.is_zero() {
                break;
            }
            let ended = client
                .rest(&interrupt.pipe, left)
                .map_err(|e| Failure::new(Code::System, format!("cannot wait: {e}")))?;
            if ended {
                break;
            }
        }
    }
}

/// The counters at the begin and the end of a step.
struct Step<'a> {
    before: &'a Value,
    now: &'a Value,
    seconds: f64,
}

impl Step<'_> {
    /// The increase of a counter; its whole value where the counters began anew (a remount).
    fn added(&self, at: &str) -> f64 {
        let of = |answer: &Value| answer.pointer(at).and_then(Value::as_f64);
        added(of(self.before), of(self.now))
    }

    /// The increase per second.
    fn rate(&self, at: &str) -> f64 {
        self.added(at) / self.seconds
    }

    fn latency(&self, name: &str) -> Latency {
        let buckets = |answer: &Value| {
            let all = answer["latency"][name]["buckets"].as_array();
            let all = all.map(Vec::as_slice).unwrap_or_default().iter();
            all.map(|one| (one["up_to"].as_f64(), one["count"].as_f64()))
                .collect::<Vec<_>>()
        };
        let (before, now) = (buckets(self.before), buckets(self.now));
        let added = now.iter().enumerate().map(|(i, (up_to, count))| {
            let before = before.get(i).and_then(|(_, count)| *count);
            (*up_to, added(before, *count))
        });
        Latency(added.collect())
    }

    fn bytes_rate(&self, at: &str) -> String {
        format!("{}/s", units::bytes(self.rate(at)))
    }

    /// Percentage of look-ups that found their block; `None` if there were none.
    fn hits(&self) -> Option<f64> {
        let (hits, misses) = (self.added("/cache/hits"), self.added("/cache/misses"));
        (hits + misses > 0.0).then(|| 100.0 * hits / (hits + misses))
    }
}

fn added(before: Option<f64>, now: Option<f64>) -> f64 {
    let (before, now) = (before.unwrap_or_default(), now.unwrap_or_default());
    if now < before { now } else { now - before }
}

/// The latency buckets of a step: the upper bound of each (s), and its count.
struct Latency(Vec<(Option<f64>, f64)>);

impl Latency {
    fn count(&self) -> f64 {
        self.0.iter().map(|(_, count)| count).sum()
    }

    /// The upper bound of this share of the latencies; `-` if there were none.
    fn quantile(&self, share: f64) -> String {
        let rank = (self.count() * share).ceil().max(1.0);
        let mut seen = 0.0;
        for (up_to, count) in &self.0 {
            seen += count;
            if seen >= rank {
                return up_to.map_or_else(|| "> 137 s".to_owned(), units::time);
            }
        }
        "-".to_owned()
    }
}

/// The output of the steps.
struct Screen {
    as_json: bool,
    /// Standard output is a terminal: a frame replaces the one before.
    terminal: bool,
    /// The number of lines of the frame that is shown.
    lines: usize,
}

impl Screen {
    fn new(as_json: bool) -> Screen {
        Screen {
            as_json,
            terminal: io::stdout().is_terminal(),
            lines: 0,
        }
    }

    fn show(&mut self, mount: &MountEntry, step: &Step<'_>) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.as_json {
            writeln!(out, "{}", step.now)?;
        } else if self.terminal {
            let frame = frame(mount, step);
            if self.lines > 0 {
                // Moves up to the first line, and clears everything below.
                write!(out, "\x1b[{}A\x1b[J", self.lines)?;
            }
            // Lines are cut at the right edge: a wrapped line would count as two.
            write!(out, "\x1b[?7l{frame}\x1b[?7h")?;
            self.lines = frame.lines().count();
        } else {
            writeln!(out, "{}", line(step))?;
        }
        out.flush()
    }
}

/// `, 3 errors`: all errors of the device so far; empty if there are none.
fn errors(answer: &Value) -> String {
    let all = answer.pointer("/device/errors").and_then(Value::as_object);
    let counts = all.into_iter().flatten();
    match counts.filter_map(|(_, one)| one["count"].as_u64()).sum() {
        0 => String::new(),
        1 => ", 1 error".into(),
        n => format!(", {n} errors"),
    }
}

/// The time of day, UTC.
fn clock() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let day = now.map_or(0, |d| d.as_secs()) % 86_400;
    format!("{:02}:{:02}:{:02}Z", day / 3600, day / 60 % 60, day % 60)
}

/// A step as a frame of several lines, for a terminal.
fn frame(mount: &MountEntry, step: &Step<'_>) -> String {
    let said = |at: &str| step.now.pointer(at).and_then(Value::as_str).unwrap_or("-");
    let state = match step.now["read_only"] == true {
        true => ", read-only",
        false => "",
    };
    let mut out = format!(
        "{} on {}, journal {}{state}  {}\n",
        said("/volume"),
        mount.dir.display(),
        said("/journal/preset"),
        clock(),
    );
    out.push_str("                    /s        p50        p90        p99      p99.9\n");
    for name in TIMED {
        let latency = step.latency(name);
        let rate = units::three(latency.count() / step.seconds);
        let shares = [0.5, 0.9, 0.99, 0.999].map(|share| latency.quantile(share));
        let [p50, p90, p99, p999] = shares;
        out.push_str(&format!(
            "{name:12}{rate:>10} {p50:>10} {p90:>10} {p99:>10} {p999:>10}\n"
        ));
    }
    out.push_str(&format!(
        "device      read {}, written {}, {} flushes/s{}\n",
        step.bytes_rate("/device/bytes_read"),
        step.bytes_rate("/device/bytes_written"),
        units::three(step.rate("/device/flushes")),
        errors(step.now),
    ));
    let cached = step.now.pointer("/cache/bytes").and_then(Value::as_f64);
    let hits = step.hits().map_or_else(
        || "no look-ups".to_owned(),
        |hits| format!("{hits:.1} % hits"),
    );
    out.push_str(&format!(
        "cache       {}, {hits}\n",
        units::bytes(cached.unwrap_or_default())
    ));
    out
}

/// A step in one line.
fn line(step: &Step<'_>) -> String {
    let mut out = clock();
    for name in TIMED {
        let latency = step.latency(name);
        let rate = units::three(latency.count() / step.seconds);
        out.push_str(&format!("  {name} {rate}/s p99 {}", latency.quantile(0.99)));
    }
    out.push_str(&format!(
        "  device read {} written {} flushes {}/s{}",
        step.bytes_rate("/device/bytes_read"),
        step.bytes_rate("/device/bytes_written"),
        units::three(step.rate("/device/flushes")),
        errors(step.now),
    ));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(counts: [u64; 3], flushes: u64) -> Value {
        let [a, b, c] = counts;
        json!({
            "latency": { "sync": { "buckets": [
                { "up_to": 0.001, "count": a }, { "up_to": 0.002, "count": b },
                { "up_to": null, "count": c },
            ] } },
            "device": { "flushes": flushes },
        })
    }

    #[test]
    fn a_step_shows_what_happened_in_it() {
        let (before, now) = (answer([100, 7, 1], 10), answer([104, 8, 1], 30));
        let step = Step {
            before: &before,
            now: &now,
            seconds: 2.0,
        };
        let sync = step.latency("sync");
        assert_eq!(sync.count(), 5.0);
        assert_eq!(
            (sync.quantile(0.5), sync.quantile(0.99)),
            ("1 ms".into(), "2 ms".into())
        );
        assert_eq!(step.latency("read").quantile(0.5), "-");
        assert_eq!(step.rate("/device/flushes"), 10.0);
        let shown = line(&step);
        assert!(shown.contains("sync 2.5/s p99 2 ms"), "{shown}");
        assert!(shown.ends_with("flushes 10/s"), "{shown}");
        let mut failing = answer([104, 8, 1], 30);
        failing["device"]["errors"] = json!({ "read": { "count": 1 }, "write": { "count": 2 } });
        let shown = line(&Step {
            now: &failing,
            ..step
        });
        assert!(shown.ends_with("flushes 10/s, 3 errors"), "{shown}");
    }

    #[test]
    fn counters_that_begin_anew_are_not_negative() {
        let (before, now) = (answer([100, 7, 1], 10), answer([3, 0, 0], 2));
        let step = Step {
            before: &before,
            now: &now,
            seconds: 1.0,
        };
        assert_eq!(step.latency("sync").count(), 3.0);
        assert_eq!(step.rate("/device/flushes"), 2.0);
    }
}
