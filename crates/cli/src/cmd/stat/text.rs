//! Counters in words and units.

use std::io;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Map, Value};

use super::units;
use crate::date::utc;

/// A server's answer for people: dates, times and sizes with units, a histogram as one line, and
/// the errors of a kind as one line.
pub(super) fn readable(mut answer: Value) -> Value {
    if let Some(Value::Object(all)) = answer.get_mut("latency") {
        for latency in all.values_mut() {
            *latency = Value::String(summary(latency));
        }
    }
    if let Some(Value::Object(all)) = answer.pointer_mut("/device/errors") {
        for errors in all.values_mut() {
            *errors = Value::String(failed(errors));
        }
    }
    if let Some(since) = answer.pointer_mut("/frozen/since") {
        *since = Value::String(date(since));
    }
    if let Some(Value::Array(all)) = answer.get_mut("atomic_writes") {
        let shown: Vec<String> = all.iter().map(atomic_write).collect();
        answer["atomic_writes"] = match shown.is_empty() {
            true => Value::Null,
            false => shown.join("; ").into(),
        };
    }
    with_units(answer)
}

/// `inode 12, 13: by process 7 (uid 1000) since 2026-11-25 16:40:00 UTC, idle for 3 s, 8 KiB`
fn atomic_write(holder: &Value) -> String {
    let inodes: Vec<String> = match &holder["inodes"] {
        Value::Array(all) => all.iter().map(Value::to_string).collect(),
        _ => Vec::new(),
    };
    let idle = units::time(holder["idle_seconds"].as_f64().unwrap_or_default());
    let bytes = match holder["bytes"].as_f64() {
        Some(bytes) => units::bytes(bytes),
        None => "at work".into(),
    };
    format!(
        "inode {}: by process {} (uid {}) since {}, idle for {idle}, {bytes}",
        inodes.join(", "),
        holder["pid"],
        holder["uid"],
        date(&holder["since"]),
    )
}

/// Seconds since 1970 as `2026-11-25 16:40:00 UTC`.
fn date(seconds: &Value) -> String {
    let time = Duration::try_from_secs_f64(seconds.as_f64().unwrap_or_default());
    format!("{} UTC", utc(UNIX_EPOCH + time.unwrap_or_default()))
}

/// `3 times; first 2026-11-25 16:40:00 UTC, block 7: …; last …`
fn failed(errors: &Value) -> String {
    let one = |name: &str| error(&errors[name]);
    match errors["count"].as_u64() {
        None | Some(0) => "none".into(),
        Some(1) => format!("once, {}", one("first")),
        Some(n) => format!("{n} times; first {}; last {}", one("first"), one("last")),
    }
}

/// `2026-11-25 16:40:00 UTC, block 7: Input/output error (os error 5)`
fn error(error: &Value) -> String {
    let time = date(&error["time"]);
    let journal = match error["device"] == "journal" {
        true => ", journal device",
        false => "",
    };
    let block = error["block"].as_u64().map(|n| format!(", block {n}"));
    let errno = error["errno"].as_i64().and_then(|n| n.try_into().ok());
    let what = io::Error::from_raw_os_error(errno.unwrap_or_default());
    format!("{time}{journal}{}: {what}", block.unwrap_or_default())
}

/// `12 times, 3 ms in the mean; p50 2 ms, …`
fn summary(latency: &Value) -> String {
    let number = |name: &str| latency[name].as_f64().unwrap_or_default();
    let count = number("count");
    if count == 0.0 {
        return "never".into();
    }
    let mean = units::time(number("sum") / count);
    let times = if count == 1.0 { "time" } else { "times" };
    let shares = [
        ("p50", "p50"),
        ("p90", "p90"),
        ("p99", "p99"),
        ("p99_9", "p99.9"),
        ("max", "max"),
    ];
    let shares = shares.map(|(name, shown)| format!("{shown} {}", units::time(number(name))));
    format!("{count} {times}, {mean} in the mean; {}", shares.join(", "))
}

/// Replaces numbers whose names state a unit by texts with that unit.
fn with_units(value: Value) -> Value {
    let Value::Object(fields) = value else {
        return value;
    };
    let shown = fields
        .into_iter()
        .map(|(name, value)| match value.as_f64() {
            Some(n) => shown(name, n, value),
            None => (name, with_units(value)),
        });
    Value::Object(shown.collect::<Map<_, _>>())
}

fn shown(name: String, n: f64, value: Value) -> (String, Value) {
    for (unit, seconds) in [("_micros", 1e-6), ("_ms", 1e-3)] {
        if let Some((before, after)) = name.split_once(unit)
            && (after.is_empty() || after.starts_with('_'))
        {
            return (format!("{before}{after}"), units::time(n * seconds).into());
        }
    }
    match name.split('_').any(|word| word == "bytes") {
        true => (name, units::bytes(n).into()),
        false => (name, value),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_that_say_units_lose_them() {
        let shown = with_units(json!({
            "commits": 3, "bytes_logged": 1536, "of_ms": 1500, "kept": "x",
            "journal": { "commit_micros_mean": 250, "words_searched": 7 },
        }));
        let wanted = json!({
            "commits": 3, "bytes_logged": "1.5 KiB", "of": "1.5 s", "kept": "x",
            "journal": { "commit_mean": "250 µs", "words_searched": 7 },
        });
        assert_eq!(shown, wanted);
    }

    #[test]
    fn errors_of_a_kind_are_one_line() {
        let flush = json!({ "time": 951_826_154.9, "device": "journal", "bytes": 0, "errno": 5 });
        let write =
            json!({ "time": 0, "device": "volume", "block": 7, "bytes": 4096, "errno": 28 });
        let shown = readable(json!({ "device": { "errors": {
            "read": { "count": 0 },
            "write": { "count": 1, "first": write, "last": write },
            "flush": { "count": 3, "first": flush, "last": write },
        } } }));
        let shown = &shown["device"]["errors"];
        let write = "1970-01-01 00:00:00 UTC, block 7: No space left on device (os error 28)";
        assert_eq!(shown["read"], "none");
        assert_eq!(shown["write"], format!("once, {write}"));
        let first = "2000-02-29 12:09:14 UTC, journal device: Input/output error (os error 5)";
        let flush = format!("3 times; first {first}; last {write}");
        assert_eq!(shown["flush"], flush);
    }

    #[test]
    fn what_is_frozen_has_a_date() {
        let frozen = json!({ "since": 951_826_154, "seconds": 9, "waiting": 0 });
        let shown = readable(json!({ "frozen": frozen }));
        assert_eq!(shown["frozen"]["since"], "2000-02-29 12:09:14 UTC");
        assert!(readable(json!({ "frozen": null }))["frozen"].is_null());
    }

    #[test]
    fn a_histogram_is_one_line() {
        let one = json!({
            "count": 2, "sum": 0.004, "p50": 0.001, "p90": 0.003, "p99": 0.003, "p99_9": 0.003,
            "max": 0.003, "buckets": [],
        });
        let shown = readable(json!({ "latency": { "sync": one, "read": { "count": 0 } } }));
        let line = "2 times, 2 ms in the mean; p50 1 ms, p90 3 ms, p99 3 ms, p99.9 3 ms, max 3 ms";
        assert_eq!(shown["latency"]["sync"], line);
        assert_eq!(shown["latency"]["read"], "never");
    }
}
