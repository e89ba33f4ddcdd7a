//! Base64 (RFC 4648, section 4), for bytes in formats that hold only text.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The text of `bytes`, with padding.
pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for part in bytes.chunks(3) {
        let mut three = [0; 4];
        three
            .iter_mut()
            .skip(1)
            .zip(part)
            .for_each(|(to, b)| *to = *b);
        let bits = u32::from_be_bytes(three);
        for n in 0..4 {
            let digit = bits >> (18 - 6 * n) & 63;
            match n <= part.len() {
                true => text.push(char::from(DIGITS[digit as usize])),
                false => text.push('='),
            }
        }
    }
    text
}

/// The bytes of a text, with or without padding; `None` if it is not Base64.
pub(super) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let end = text.iter().rposition(|b| *b != b'=').map_or(0, |at| at + 1);
    let digits = text.get(..end)?;
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for part in digits.chunks(4) {
        let mut bits = 0;
        for n in 0..4 {
            let digit = match part.get(n) {
                Some(b) => DIGITS.iter().position(|digit| digit == b)?,
                None => 0,
            };
            bits = bits << 6 | digit as u32;
        }
        let three = bits.to_be_bytes();
        // A single digit holds no whole byte.
        bytes.extend_from_slice(three.get(1..part.len()).filter(|_| part.len() > 1)?);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_the_rfc_come_out() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"foobar", "Zm9vYmFy"),
            (b"\xff\xfe\xfd", "//79"),
        ] {
            assert_eq!(encode(bytes), text);
            assert_eq!(decode(text.as_bytes()).as_deref(), Some(bytes));
            let bare = text.trim_end_matches('=').as_bytes();
            assert_eq!(decode(bare).as_deref(), Some(bytes));
        }
        assert_eq!(decode(b"Z"), None);
        assert_eq!(decode(b"Zg=x"), None);
    }
}
