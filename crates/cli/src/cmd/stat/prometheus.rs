//! Counters in Prometheus' text exposition format (version 0.0.4).

use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::Value;

/// The counters of a mount.
pub(super) struct Scrape {
    pub(super) dir: PathBuf,
    /// The source as its server calls it, as far as the table of mounts tells.
    pub(super) source: PathBuf,
    /// The server's answer; `None` if it does not answer.
    pub(super) answer: Option<Value>,
}

impl Scrape {
    fn labels(&self) -> Labels {
        let said = self.answer.as_ref().and_then(|a| a["volume"].as_str());
        let source = self.source.to_string_lossy();
        let volume = said.unwrap_or(&source).to_owned();
        let dir = self.dir.to_string_lossy().into_owned();
        Labels(vec![("volume", volume), ("mountpoint", dir)])
    }
}

/// The labels of a sample: names and values.
#[derive(Clone)]
struct Labels(Vec<(&'static str, String)>);

impl Labels {
    fn and(&self, name: &'static str, value: impl Into<String>) -> Labels {
        let mut all = self.0.clone();
        all.push((name, value.into()));
        Labels(all)
    }

    fn text(&self) -> String {
        let escaped = |value: &str| {
            value
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n")
        };
        let one = |(name, value): &(&str, String)| format!("{name}=\"{}\"", escaped(value));
        let all: Vec<String> = self.0.iter().map(one).collect();
        all.join(",")
    }
}

/// A metric that is a single number of a mount.
struct Number {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    /// The JSON pointer of the number in the answer.
    at: &'static str,
    /// The factor that converts the number to the metric's base unit.
    scale: f64,
}

const fn counter(name: &'static str, at: &'static str, help: &'static str) -> Number {
    Number {
        name,
        kind: "counter",
        help,
        at,
        scale: 1.0,
    }
}

/// A metric in seconds, of a number in microseconds.
const fn micros(name: &'static str, at: &'static str, help: &'static str) -> Number {
    Number {
        scale: 1e-6,
        ..counter(name, at, help)
    }
}

const fn gauge(name: &'static str, at: &'static str, help: &'static str) -> Number {
    Number {
        kind: "gauge",
        ..counter(name, at, help)
    }
}

const NUMBERS: &[Number] = &[
    gauge(
        "read_only",
        "/read_only",
        "Whether the volume takes no changes, as asked or after an error.",
    ),
    counter(
        "journal_commits_total",
        "/journal/commits",
        "Transactions committed.",
    ),
    counter(
        "journal_syncs_total",
        "/journal/syncs",
        "Syncs that the journal was asked for.",
    ),
    counter(
        "journal_file_records_total",
        "/journal/file_records",
        "Syncs of files by a record, without a commit.",
    ),
    counter(
        "journal_logged_bytes_total",
        "/journal/bytes_logged",
        "Bytes written to the log.",
    ),
    counter(
        "journal_home_bytes_total",
        "/journal/bytes_home",
        "Bytes that checkpoints wrote to home locations.",
    ),
    counter(
        "journal_checkpoints_total",
        "/journal/checkpoints",
        "Checkpoint rounds.",
    ),
    counter(
        "journal_forced_checkpoints_total",
        "/journal/forced_checkpoints",
        "Checkpoint rounds that a caller waited for.",
    ),
    counter(
        "journal_edges_total",
        "/journal/edges",
        "Transactions of other lanes that committed ones depend on.",
    ),
    counter(
        "journal_borrowed_total",
        "/journal/borrowed",
        "Changes that went into another lane than their thread's, because its log was full.",
    ),
    counter(
        "journal_waits_locked_total",
        "/journal/waits_locked",
        "Times a change waited for a transaction's snapshot.",
    ),
    counter(
        "journal_waits_room_total",
        "/journal/waits_room",
        "Times a change waited for room in the log.",
    ),
    micros(
        "journal_waiting_locked_seconds_total",
        "/journal/waiting_locked_micros",
        "How long changes waited for a transaction's snapshot.",
    ),
    micros(
        "journal_waiting_room_seconds_total",
        "/journal/waiting_room_micros",
        "How long changes waited for room in the log.",
    ),
    counter(
        "journal_copies_bytes_total",
        "/journal/copies_bytes",
        "Bytes of pages that a snapshot held, copied by the changing thread.",
    ),
    micros(
        "journal_copying_seconds_total",
        "/journal/copying_micros",
        "How long that took.",
    ),
    counter(
        "journal_copies_ahead_bytes_total",
        "/journal/copies_ahead_bytes",
        "Bytes of pages of snapshots, copied by commits ahead of changes.",
    ),
    micros(
        "journal_copying_ahead_seconds_total",
        "/journal/copying_ahead_micros",
        "How long that took.",
    ),
    micros(
        "journal_packing_seconds_total",
        "/journal/packing_micros",
        "Processor time of compressing the log.",
    ),
    counter(
        "device_reads_total",
        "/device/reads",
        "Read requests to the device.",
    ),
    counter(
        "device_read_bytes_total",
        "/device/bytes_read",
        "Bytes read from the device.",
    ),
    counter(
        "device_writes_total",
        "/device/writes",
        "Write requests to the device.",
    ),
    counter(
        "device_written_bytes_total",
        "/device/bytes_written",
        "Bytes written to the device.",
    ),
    counter(
        "device_flushes_total",
        "/device/flushes",
        "Flushes of the device's cache.",
    ),
    counter(
        "device_discarded_bytes_total",
        "/device/bytes_discarded",
        "Bytes discarded on the device.",
    ),
    counter(
        "device_shared_bytes_total",
        "/device/bytes_shared",
        "Bytes that the device shared instead of being written.",
    ),
    counter(
        "cache_hits_total",
        "/cache/hits",
        "Look-ups in the block cache that found the block.",
    ),
    counter(
        "cache_misses_total",
        "/cache/misses",
        "Look-ups in the block cache that had to read.",
    ),
    counter(
        "cache_evictions_total",
        "/cache/evictions",
        "Blocks that left the block cache to make room.",
    ),
    gauge("cache_bytes", "/cache/bytes", "Bytes in the block cache."),
    gauge(
        "cache_limit_bytes",
        "/cache/bytes_at_most",
        "Bytes that the block cache may hold.",
    ),
    gauge(
        "memory_bytes",
        "/memory/bytes",
        "Memory that the server has taken for blocks.",
    ),
    gauge(
        "inodes_in_memory",
        "/inodes/in_memory",
        "Inodes in the server's memory.",
    ),
];

impl Number {
    fn of(&self, answer: &Value) -> Option<f64> {
        let found = answer.pointer(self.at)?;
        let as_number = found.as_bool().map(|yes| f64::from(u8::from(yes)));
        Some(found.as_f64().or(as_number)? * self.scale)
    }
}

/// The histograms in the answer: metric, label, help text, and the names below `latency`.
const HISTOGRAMS: [(&str, &str, &str, &[&str]); 2] = [
    (
        "request_duration_seconds",
        "kind",
        "Time from a request of the kernel to its answer; sync is fsync, fdatasync, syncfs and O_SYNC.",
        &["read", "write", "sync"],
    ),
    (
        "journal_duration_seconds",
        "work",
        "Time of commits (from lock to durable) and of checkpoint rounds (without their pauses).",
        &["commit", "checkpoint"],
    ),
];

/// The times of device errors: metric, JSON pointer in the answer, help text.
const ERROR_TIMES: [(&str, &str, &str); 2] = [
    (
        "device_first_error_timestamp_seconds",
        "/first/time",
        "When the device failed a request of this kind first, seconds since 1970; absent if it never did.",
    ),
    (
        "device_last_error_timestamp_seconds",
        "/last/time",
        "When the device failed a request of this kind last, seconds since 1970; absent if it never did.",
    ),
];

/// The exposition of the counters of these mounts.
pub(super) fn exposition(scrapes: &[Scrape]) -> String {
    let mut out = Exposition::default();
    let up = |s: &Scrape| if s.answer.is_some() { 1.0 } else { 0.0 };
    let alive = scrapes.iter().map(|s| (s.labels(), up(s)));
    out.metric(
        "up",
        "gauge",
        "Whether the server of the mount answers.",
        alive,
    );
    let answers: Vec<(Labels, &Value)> = scrapes
        .iter()
        .filter_map(|s| Some((s.labels(), s.answer.as_ref()?)))
        .collect();
    let info = answers.iter().map(|(labels, answer)| {
        let said = |at: &str| {
            answer
                .pointer(at)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let labels = labels.and("journal", said("/journal/preset"));
        (labels.and("cache_policy", said("/cache/policy")), 1.0)
    });
    out.metric(
        "volume_info",
        "gauge",
        "What the volume was mounted with; always 1.",
        info,
    );
    for number in NUMBERS {
        let values = answers
            .iter()
            .filter_map(|(labels, answer)| Some((labels.clone(), number.of(answer)?)));
        out.metric(number.name, number.kind, number.help, values);
    }
    let requests = answers.iter().flat_map(|(labels, answer)| {
        let all = answer["requests"].as_object().into_iter().flatten();
        all.filter_map(move |(kind, n)| Some((labels.and("kind", kind), n.as_f64()?)))
    });
    out.metric(
        "requests_total",
        "counter",
        "Requests of the kernel, by kind.",
        requests,
    );
    let errors = |at: &'static str| {
        answers.iter().flat_map(move |(labels, answer)| {
            let all = answer["device"]["errors"].as_object().into_iter().flatten();
            all.filter_map(move |(kind, n)| {
                Some((labels.and("kind", kind), n.pointer(at)?.as_f64()?))
            })
        })
    };
    out.metric(
        "device_errors_total",
        "counter",
        "Requests that the device failed, by kind.",
        errors("/count"),
    );
    for (name, at, help) in ERROR_TIMES {
        out.metric(name, "gauge", help, errors(at));
    }
    for (name, label, help, parts) in HISTOGRAMS {
        let of = |(labels, answer): &(Labels, &Value)| {
            let all = parts.iter().filter_map(|part| {
                let latency = answer["latency"].get(part)?;
                Some((labels.and(label, *part), latency.clone()))
            });
            all.collect::<Vec<_>>()
        };
        let all: Vec<_> = answers.iter().flat_map(of).collect();
        out.histogram(name, help, &all);
    }
    out.0
}

/// The exposition as far as it is written.
#[derive(Default)]
struct Exposition(String);

impl Exposition {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "# HELP stetfs_{name} {help}");
        let _ = writeln!(self.0, "# TYPE stetfs_{name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &Labels, value: f64) {
        let _ = writeln!(self.0, "stetfs_{name}{{{}}} {value}", labels.text());
    }

    /// Adds a metric with a number for each of these labels; without any the metric is left out.
    fn metric(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl Iterator<Item = (Labels, f64)>,
    ) {
        let mut samples = samples.peekable();
        if samples.peek().is_none() {
            return;
        }
        self.head(name, kind, help);
        for (labels, value) in samples {
            self.sample(name, &labels, value);
        }
    }

    /// Adds a histogram with every second bucket, that is, two for each power of two: each bucket
    /// is a time series of its own.
    fn histogram(&mut self, name: &str, help: &str, all: &[(Labels, Value)]) {
        if all.is_empty() {
            return;
        }
        self.head(name, "histogram", help);
        let bucket = format!("{name}_bucket");
        for (labels, latency) in all {
            let buckets = latency["buckets"].as_array().into_iter().flatten();
            let mut count = 0.0;
            for (i, one) in buckets.enumerate() {
                count += one["count"].as_f64().unwrap_or_default();
                if let Some(up_to) = one["up_to"].as_f64()
                    && i % 2 == 0
                {
                    self.sample(&bucket, &labels.and("le", up_to.to_string()), count);
                }
            }
            // The count is taken from the same buckets, so that they agree.
            self.sample(&bucket, &labels.and("le", "+Inf"), count);
            let sum = latency["sum"].as_f64().unwrap_or_default();
            self.sample(&format!("{name}_sum"), labels, sum);
            self.sample(&format!("{name}_count"), labels, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_are_escaped_and_who_does_not_answer_is_down() {
        let answer = json!({ "volume": "a\\b\"c\nd", "read_only": true, "journal": { "packing_micros": 1500 } });
        let scrape = |dir: &str, answer| Scrape {
            dir: PathBuf::from(dir),
            source: PathBuf::from("/dev/loop7"),
            answer,
        };
        let text = exposition(&[scrape("/one", Some(answer)), scrape("/two", None)]);
        let labels = r#"{volume="a\\b\"c\nd",mountpoint="/one"}"#;
        for line in [
            format!("stetfs_up{labels} 1"),
            r#"stetfs_up{volume="/dev/loop7",mountpoint="/two"} 0"#.to_owned(),
            format!("stetfs_read_only{labels} 1"),
            format!("stetfs_journal_packing_seconds_total{labels} 0.0015"),
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        assert!(
            !text.contains("stetfs_device"),
            "what is not known is left out"
        );
        assert_eq!(exposition(&[]), "");
    }

    #[test]
    fn buckets_add_up() {
        let latency = json!({
            "count": 6, "sum": 7.5,
            "buckets": [
                { "up_to": 0.000_001_024, "count": 1 }, { "up_to": 0.5, "count": 2 },
                { "up_to": 1.0, "count": 0 }, { "up_to": null, "count": 3 },
            ],
        });
        let mut out = Exposition::default();
        let labels = Labels(vec![("kind", "read".into())]);
        out.histogram("t_seconds", "Help.", &[(labels, latency)]);
        let wanted = "\
# HELP stetfs_t_seconds Help.
# TYPE stetfs_t_seconds histogram
stetfs_t_seconds_bucket{kind=\"read\",le=\"0.000001024\"} 1
stetfs_t_seconds_bucket{kind=\"read\",le=\"1\"} 3
stetfs_t_seconds_bucket{kind=\"read\",le=\"+Inf\"} 6
stetfs_t_seconds_sum{kind=\"read\"} 7.5
stetfs_t_seconds_count{kind=\"read\"} 6
";
        assert_eq!(out.0, wanted);
    }
}
