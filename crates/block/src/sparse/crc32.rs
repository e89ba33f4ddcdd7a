//! CRC-32 as zlib has it: of what a sparse image holds.

/// By byte.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 {
                crc >> 1 ^ 0xedb8_8320
            } else {
                crc >> 1
            };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// The checksum of what `crc` is of, and `bytes` behind it; it begins with 0.
pub(super) fn update(crc: u32, bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!crc, |crc, byte| {
        let at = usize::from(crc as u8 ^ byte);
        TABLE.get(at).copied().unwrap_or_default() ^ crc >> 8
    })
}

#[test]
fn it_is_the_usual_one() {
    assert_eq!(update(0, b"123456789"), 0xcbf4_3926);
    assert_eq!(update(update(0, b"12345"), b"6789"), 0xcbf4_3926);
}
