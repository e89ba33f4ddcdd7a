//! Sizes as truncate(1) reads them, and sizes for people.

use std::str::FromStr;

/// The relation of a size to the size that a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Exactly,
    More,
    Less,
    AtMost,
    AtLeast,
    RoundDown,
    RoundUp,
}

/// A change of a file's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SizeChange {
    relation: Relation,
    /// Bytes.
    bytes: u64,
}

impl FromStr for SizeChange {
    type Err = String;

    fn from_str(text: &str) -> Result<SizeChange, String> {
        let relation = match text.as_bytes().first() {
            Some(b'+') => Relation::More,
            Some(b'-') => Relation::Less,
            Some(b'<') => Relation::AtMost,
            Some(b'>') => Relation::AtLeast,
            Some(b'/') => Relation::RoundDown,
            Some(b'%') => Relation::RoundUp,
            _ => Relation::Exactly,
        };
        let number = match relation {
            Relation::Exactly => text,
            _ => text.get(1..).unwrap_or_default(),
        };
        let bytes = bytes(number)?;
        let rounds = matches!(relation, Relation::RoundDown | Relation::RoundUp);
        match bytes {
            0 if rounds => Err("cannot round to multiples of 0".to_owned()),
            _ => Ok(SizeChange { relation, bytes }),
        }
    }
}

/// Bytes of a number with a unit: `K` or `KiB` for 1024, `KB` for 1000, and so on.
fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, unit) = text.split_at(digits);
    let wrong = || "must be a size, such as 10M, +4096 or %1K".to_owned();
    let (letter, step) = match unit.as_bytes() {
        [] => (None, 1),
        [letter] | [letter, b'i', b'B'] => (Some(letter), 1024),
        [letter, b'B'] => (Some(letter), 1000),
        _ => return Err(wrong()),
    };
    let power = match letter {
        None => 0,
        Some(letter) => {
            let at = b"KMGTPE"
                .iter()
                .position(|unit| *unit == letter.to_ascii_uppercase());
            at.and_then(|at| u32::try_from(at + 1).ok())
                .ok_or_else(wrong)?
        }
    };
    let n = match (digits, letter) {
        ("", Some(_)) => 1,
        _ => digits.parse().map_err(|_| wrong())?,
    };
    let unit = u64::checked_pow(step, power);
    unit.and_then(|unit| unit.checked_mul(n))
        .ok_or_else(|| "is too large".to_owned())
}

impl SizeChange {
    /// The size that a file of `size` bytes gets; `None` if it is too large for a number.
    pub(crate) fn apply(self, size: u64) -> Option<u64> {
        let bytes = self.bytes;
        match self.relation {
            Relation::Exactly => Some(bytes),
            Relation::More => size.checked_add(bytes),
            Relation::Less => Some(size.saturating_sub(bytes)),
            Relation::AtMost => Some(size.min(bytes)),
            Relation::AtLeast => Some(size.max(bytes)),
            Relation::RoundDown => Some(size - size.checked_rem(bytes)?),
            Relation::RoundUp => size.checked_next_multiple_of(bytes),
        }
    }

    /// Whether the change needs to know the size that is there.
    pub(crate) fn is_relative(self) -> bool {
        self.relation != Relation::Exactly
    }
}

/// A size as `ls -h` and `df -h` show it: powers of 1024, rounded up, with one digit behind the
/// point below 10.
pub(super) fn human(bytes: u64) -> String {
    if bytes < 1024 {
        return bytes.to_string();
    }
    let (mut unit, mut letter) = (1024_u128, 0);
    let bytes = u128::from(bytes);
    loop {
        let name = char::from(*b"KMGTPE".get(letter).unwrap_or(&b'E'));
        let tenths = (bytes * 10).div_ceil(unit);
        if tenths < 100 {
            return format!("{}.{}{name}", tenths / 10, tenths % 10);
        }
        let whole = bytes.div_ceil(unit);
        if whole < 1024 || letter >= 5 {
            return format!("{whole}{name}");
        }
        (unit, letter) = (unit * 1024, letter + 1);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_truncate() {
        for (text, of, becomes) in [
            ("10", 3, 10),
            ("2K", 3, 2048),
            ("2KiB", 3, 2048),
            ("2KB", 3, 2000),
            ("M", 3, 1 << 20),
            ("+5", 3, 8),
            ("-5", 3, 0),
            ("-2", 3, 1),
            ("<2", 3, 2),
            (">2", 3, 3),
            ("/4", 11, 8),
            ("%4", 9, 12),
        ] {
            let change: SizeChange = text.parse().unwrap();
            assert_eq!(change.apply(of), Some(becomes), "{text} of {of}");
        }
        for wrong in [
            "",
            "x",
            "1Q",
            "+",
            "/0",
            "99E99",
            "99999999999999999999",
            "1KBB",
        ] {
            assert!(wrong.parse::<SizeChange>().is_err(), "{wrong}");
        }
        let most: SizeChange = "+15E".parse().unwrap();
        assert_eq!(most.apply(u64::MAX), None);
    }

    #[test]
    fn sizes_are_shown_as_ls_shows_them() {
        for (bytes, shown) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10 * 1024 - 1, "10K"),
            (10 * 1024, "10K"),
            (1023 * 1024 + 1, "1.0M"),
            (1 << 30, "1.0G"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(human(bytes), shown, "{bytes}");
        }
    }
}
