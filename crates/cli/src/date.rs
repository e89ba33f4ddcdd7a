//! Dates and times for people.

use std::time::{SystemTime, UNIX_EPOCH};

/// Date and time in UTC, to the second.
pub fn utc(time: SystemTime) -> String {
    let seconds = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
        Err(before) => {
            let d = before.duration();
            let whole = i64::try_from(d.as_secs()).unwrap_or(i64::MAX);
            -whole - i64::from(d.subsec_nanos() > 0)
        }
    };
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// Year, month and day of a day, counted from 1970-01-01, in the Gregorian calendar.
fn date(days: i64) -> (i64, i64, i64) {
    // Years are counted from March, so that they end with the leap day; 400 of them have 146097
    // days.
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day = days.rem_euclid(146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

/// Days from 1970-01-01 to a day of the Gregorian calendar; `None` if there is no such day.
pub(crate) fn days_until(year: i64, month: i64, day: i64) -> Option<i64> {
    let in_range = (0..=9999).contains(&year) && (1..=12).contains(&month);
    if !in_range {
        return None;
    }
    let (year_of_march, month_of_march) = match month > 2 {
        true => (year, month - 3),
        false => (year - 1, month + 9),
    };
    let era = year_of_march.div_euclid(400);
    let in_era = year_of_march.rem_euclid(400);
    let days = in_era * 365 + in_era / 4 - in_era / 100 + (153 * month_of_march + 2) / 5 + day - 1;
    let days = era * 146_097 + days - 719_468;
    (date(days) == (year, month, day)).then_some(days)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let after = |s| utc(UNIX_EPOCH + Duration::from_secs(s));
        assert_eq!(after(0), "1970-01-01 00:00:00");
        assert_eq!(after(951_826_154), "2000-02-29 12:09:14");
        assert_eq!(after(1_709_164_800), "2024-02-29 00:00:00");
        assert_eq!(after(4_107_542_399), "2100-02-28 23:59:59");
        assert_eq!(after(4_107_542_400), "2100-03-01 00:00:00");
        let before = UNIX_EPOCH - Duration::from_millis(1500);
        assert_eq!(utc(before), "1969-12-31 23:59:58");
        for days in (-700_000..2_900_000).step_by(7) {
            let (year, month, day) = date(days);
            let known = (0..=9999).contains(&year).then_some(days);
            assert_eq!(days_until(year, month, day), known);
        }
        assert_eq!(days_until(2023, 2, 29), None);
        assert_eq!(days_until(2023, 4, 31), None);
        assert_eq!(days_until(2023, 0, 1), None);
    }
}
