//! Sizes in the notation of options.

/// Parses a number of bytes, with K, M, G or T for powers of 1024.
///
/// # Errors
/// The end of a sentence that says what the value must be.
pub fn bytes(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 30),
        Some(b't' | b'T') => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    let n: u64 = digits
        .parse()
        .map_err(|_| "must be a size, such as 256M".to_owned())?;
    n.checked_mul(1 << shift)
        .ok_or_else(|| "is too large".to_owned())
}

/// Parses the size of a chunk of the StetFS log before compression, in bytes (`chunk=`).
///
/// # Errors
/// As [`bytes`]; also for sizes that a chunk cannot have.
pub fn chunk(text: &str) -> Result<u32, String> {
    u32::try_from(bytes(text)?)
        .ok()
        .filter(|n| (4096..=16 << 20).contains(n))
        .ok_or_else(|| "must be a size from 4K to 16M".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        assert_eq!(bytes("12"), Ok(12));
        assert_eq!(bytes("3k"), Ok(3 << 10));
        assert_eq!(bytes("2G"), Ok(2 << 30));
        assert_eq!(bytes("1T"), Ok(1 << 40));
        assert_eq!(chunk("64K"), Ok(64 << 10));
        for wrong in ["", "K", "x", "99999999999G", "1é"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
        assert!(chunk("1K").is_err_and(|e| e.contains("4K to 16M")));
    }
}
