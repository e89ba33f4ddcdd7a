//! Times as `touch` reads them and `stat` shows them. They are UTC unless they say otherwise.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::date::{days_until, utc};

const FORMS: &str = "must be YYYY-MM-DD, YYYY-MM-DDTHH:MM[:SS], each with Z or +HH:MM behind it, \
    @SECONDS, or now";

/// Reads a date of `touch -d`.
///
/// # Errors
/// The end of a sentence that says what the date must be.
pub(super) fn date(text: &str) -> Result<SystemTime, String> {
    let wrong = || FORMS.to_owned();
    let text = text.trim();
    if text == "now" {
        return Ok(SystemTime::now());
    }
    if let Some(seconds) = text.strip_prefix('@') {
        let (sign, digits) = match seconds.strip_prefix('-') {
            Some(digits) => (-1, digits),
            None => (1, seconds),
        };
        let (whole, nanos) = fraction(digits).ok_or_else(wrong)?;
        let whole: i64 = whole.parse().map_err(|_| wrong())?;
        return match sign < 0 {
            true => UNIX_EPOCH.checked_sub(Duration::new(whole.unsigned_abs(), nanos)),
            false => UNIX_EPOCH.checked_add(Duration::new(whole.unsigned_abs(), nanos)),
        }
        .ok_or_else(wrong);
    }
    let (day, rest) = text.split_at_checked(10).ok_or_else(wrong)?;
    let mut numbers = day.split('-');
    let mut next = |len| digits(numbers.next()?, len);
    let day = (|| days_until(next(4)?, next(2)?, next(2)?))().ok_or_else(wrong)?;
    let (time, zone) = zone(rest.strip_prefix(['T', ' ']).unwrap_or(rest)).ok_or_else(wrong)?;
    let (second, nanos) = match time {
        "" => (0, 0),
        time => time_of_day(time).ok_or_else(wrong)?,
    };
    at(day * 86_400 + second - zone, nanos).ok_or_else(wrong)
}

/// Reads a stamp of `touch -t`: `[[CC]YY]MMDDhhmm[.ss]`.
///
/// # Errors
/// The end of a sentence that says what the stamp must be.
pub(super) fn stamp(text: &str) -> Result<SystemTime, String> {
    let read = || {
        let (whole, second) = text.split_once('.').unwrap_or((text, "00"));
        let year = match whole.len() {
            8 => utc(SystemTime::now()).get(..4)?.parse().ok()?,
            10 => match digits(whole.get(..2)?, 2)? {
                year @ 69.. => 1900 + year,
                year => 2000 + year,
            },
            12 => digits(whole.get(..4)?, 4)?,
            _ => return None,
        };
        let rest = whole.get(whole.len() - 8..)?;
        let part = |at: usize| digits(rest.get(at..at + 2)?, 2);
        let day = days_until(year, part(0)?, part(2)?)?;
        let (hour, minute, second) = (part(4)?, part(6)?, digits(second, 2)?);
        let in_day = hour <= 23 && minute <= 59 && second <= 60;
        at(day * 86_400 + hour * 3600 + minute * 60 + second, 0).filter(|_| in_day)
    };
    read().ok_or_else(|| "must be [[CC]YY]MMDDhhmm[.ss], such as 202601311200".to_owned())
}

/// The number of exactly `len` digits.
fn digits(text: &str, len: usize) -> Option<i64> {
    let is_number = text.len() == len && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// Splits seconds at the point; the fraction as nanoseconds.
fn fraction(text: &str) -> Option<(&str, u32)> {
    let (whole, fraction) = text.split_once(['.', ',']).unwrap_or((text, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let nanos = format!("{fraction:0<9}");
    Some((whole, nanos.get(..9)?.parse().ok()?))
}

/// Splits off the time zone, in seconds east of UTC.
fn zone(text: &str) -> Option<(&str, i64)> {
    if let Some(time) = text
        .strip_suffix(['Z', 'z'])
        .or_else(|| text.strip_suffix(" UTC"))
    {
        return Some((time, 0));
    }
    let Some(at) = text.rfind(['+', '-']) else {
        return Some((text, 0));
    };
    let (time, said) = text.split_at(at);
    let (sign, said) = said.split_at(1);
    let said = said.replace(':', "");
    let (hours, minutes) = match said.len() {
        2 => (digits(&said, 2)?, 0),
        _ => (digits(said.get(..2)?, 2)?, digits(said.get(2..)?, 2)?),
    };
    let seconds = hours * 3600 + minutes * 60;
    Some((
        time.trim_end(),
        if sign == "-" { -seconds } else { seconds },
    ))
}

/// Seconds and nanoseconds since midnight.
fn time_of_day(text: &str) -> Option<(i64, u32)> {
    let mut parts = text.splitn(3, ':');
    let hour = digits(parts.next()?, 2).filter(|n| *n <= 23)?;
    let minute = digits(parts.next()?, 2).filter(|n| *n <= 59)?;
    let (second, nanos) = match parts.next() {
        Some(second) => fraction(second)?,
        None => ("00", 0),
    };
    let second = digits(second, 2).filter(|n| *n <= 60)?;
    Some((hour * 3600 + minute * 60 + second, nanos))
}

/// A time by seconds since 1970 and the nanoseconds behind them.
fn at(seconds: i64, nanos: u32) -> Option<SystemTime> {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let time = match seconds < 0 {
        true => UNIX_EPOCH.checked_sub(whole),
        false => UNIX_EPOCH.checked_add(whole),
    };
    time?.checked_add(Duration::from_nanos(nanos.into()))
}

/// Seconds since 1970, rounded down, and the nanoseconds behind them.
pub(super) fn parts(time: SystemTime) -> (i64, u32) {
    let seconds = |d: Duration| i64::try_from(d.as_secs()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (seconds(after), after.subsec_nanos()),
        Err(before) => match before.duration() {
            d if d.subsec_nanos() == 0 => (-seconds(d), 0),
            d => (-seconds(d) - 1, 1_000_000_000 - d.subsec_nanos()),
        },
    }
}

/// A time as stat(1) shows it where the clock is UTC.
pub(super) fn shown(time: SystemTime) -> String {
    format!("{}.{:09} +0000", utc(time), parts(time).1)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read() {
        for (text, seconds, nanos) in [
            ("1970-01-01", 0, 0),
            ("2000-02-29T12:09:14", 951_826_154, 0),
            ("2000-02-29 12:09:14.25Z", 951_826_154, 250_000_000),
            ("2000-02-29T14:09:14+02:00", 951_826_154, 0),
            ("2000-02-29 07:09 -0500", 951_826_140, 0),
            ("2000-02-29 12:09 UTC", 951_826_140, 0),
            ("1969-12-31 23:59:58.5", -2, 500_000_000),
            ("@1700000000.000000001", 1_700_000_000, 1),
            ("@-1.5", -2, 500_000_000),
        ] {
            assert_eq!(parts(date(text).unwrap()), (seconds, nanos), "{text}");
        }
        for wrong in [
            "",
            "yesterday",
            "2000-13-01",
            "2001-02-29",
            "2000-01-01T25:00",
            "@x",
            "@",
            "2000-1-1",
            "2000-01-01T1200",
            "@99999999999999999999",
        ] {
            assert!(date(wrong).is_err(), "{wrong}");
        }
        for (text, seconds) in [
            ("200002291209.14", 951_826_154),
            ("0002291209.14", 951_826_154),
            ("7001010000", 0),
        ] {
            assert_eq!(parts(stamp(text).unwrap()), (seconds, 0), "{text}");
        }
        assert!(parts(stamp("01010000").unwrap()).0 > 1_700_000_000);
        for wrong in [
            "",
            "1",
            "20000229120",
            "200002301209",
            "200002292409",
            "x00002291209",
        ] {
            assert!(stamp(wrong).is_err(), "{wrong}");
        }
        let time = date("2000-02-29T12:09:14.5Z").unwrap();
        assert_eq!(shown(time), "2000-02-29 12:09:14.500000000 +0000");
    }
}
