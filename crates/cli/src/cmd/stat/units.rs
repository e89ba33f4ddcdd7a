//! Numbers with units, for people.

/// A time: `12 µs`, `3.4 ms`, `1.25 s`.
pub(super) fn time(seconds: f64) -> String {
    match seconds {
        s if s < 0.000_999_5 => format!("{} µs", three(s * 1e6)),
        s if s < 0.999_5 => format!("{} ms", three(s * 1e3)),
        s => format!("{} s", three(s)),
    }
}

/// Bytes: `512 B`, `1.5 MiB`.
pub(super) fn bytes(n: f64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if n < 1023.5 {
        return format!("{} B", three(n));
    }
    let mut scaled = n / 1024.0;
    let mut unit = "";
    for (i, name) in units.into_iter().enumerate() {
        unit = name;
        if scaled < 1023.5 || i + 1 == units.len() {
            break;
        }
        scaled /= 1024.0;
    }
    format!("{} {unit}", three(scaled))
}

/// A number with three significant digits, or fewer if it has fewer.
pub(super) fn three(n: f64) -> String {
    let text = match n {
        n if n >= 99.95 => format!("{n:.0}"),
        n if n >= 9.995 => format!("{n:.1}"),
        n => format!("{n:.2}"),
    };
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_have_units_and_three_digits() {
        let times = [0.0, 0.000_000_5, 0.000_012_34, 0.001, 0.123_4, 0.9999, 75.0];
        let said = ["0 µs", "0.5 µs", "12.3 µs", "1 ms", "123 ms", "1 s", "75 s"];
        assert_eq!(times.map(time), said);
        let sizes = [0.0, 512.0, 1024.0, 1_572_864.0, 1_048_575.0, 3e18];
        let said = ["0 B", "512 B", "1 KiB", "1.5 MiB", "1 MiB", "2665 PiB"];
        assert_eq!(sizes.map(bytes), said);
    }
}
