//! Values of options of new volumes, as text.

/// A UUID: 32 hexadecimal digits, in five groups or in one.
///
/// # Errors
/// The end of a sentence that says what the value must be.
pub fn uuid(text: &str) -> Result<[u8; 16], String> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let number = match digits.len() == 32 && digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        true => u128::from_str_radix(&digits, 16).ok(),
        false => None,
    };
    let number = number.ok_or("must be a UUID: 32 hexadecimal digits in five groups")?;
    Ok(number.to_be_bytes())
}

/// A percentage of at most two decimals, in hundredths of a percent, up to 5000.
///
/// # Errors
/// As [`uuid`].
pub fn percent(text: &str) -> Result<u32, String> {
    let wrong = || "must be a percentage from 0 to 50, such as 5 or 0.5".to_owned();
    let (whole, rest) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(rest) || rest.len() > 2 {
        return Err(wrong());
    }
    let whole: u32 = whole.parse().map_err(|_| wrong())?;
    let rest: u32 = format!("{rest:0<2}").parse().map_err(|_| wrong())?;
    let hundredths = whole.saturating_mul(100).saturating_add(rest);
    Some(hundredths).filter(|n| *n <= 5000).ok_or_else(wrong)
}

/// Permissions, octal.
///
/// # Errors
/// As [`uuid`].
pub fn mode(text: &str) -> Result<u16, String> {
    let mode = u16::from_str_radix(text, 8).ok();
    mode.filter(|mode| *mode <= 0o7777)
        .ok_or_else(|| "must be an octal number, such as 755".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read() {
        assert_eq!(percent("5"), Ok(500));
        assert_eq!(percent("0.5"), Ok(50));
        assert_eq!(percent("12.25"), Ok(1225));
        for wrong in ["", "51", "-1", "5%", "1.", ".5", "1.234", "99999999999"] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
        let text = "01234567-89ab-cdef-0123-456789abcdef";
        assert_eq!(uuid(text).map(|u| (u[0], u[15])), Ok((1, 0xef)));
        assert!(uuid("1234").is_err() && uuid(&"+1".repeat(16)).is_err());
        assert_eq!(mode("1777"), Ok(0o1777));
        assert!(mode("8").is_err() && mode("10000").is_err());
    }
}
