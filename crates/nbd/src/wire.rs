//! Numbers and structures of the protocol; all big-endian.

/// The first magic number from a server.
pub(crate) const NBDMAGIC: u64 = 0x4e42_444d_4147_4943;
/// The second magic number, which also begins each option.
pub(crate) const IHAVEOPT: u64 = 0x4948_4156_454f_5054;
pub(crate) const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
pub(crate) const REQUEST: u32 = 0x2560_9513;
pub(crate) const SIMPLE_REPLY: u32 = 0x6744_6698;
pub(crate) const STRUCTURED_REPLY: u32 = 0x668e_33ef;

/// Handshake flags, the server's and the client's.
pub(crate) const FIXED_NEWSTYLE: u16 = 1 << 0;
pub(crate) const NO_ZEROES: u16 = 1 << 1;

pub(crate) mod option {
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const STARTTLS: u32 = 5;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
}

pub(crate) mod reply {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const INFO: u32 = 3;
    const ERROR: u32 = 1 << 31;
    pub(crate) const UNSUPPORTED: u32 = ERROR + 1;
    pub(crate) const POLICY: u32 = ERROR + 2;
    pub(crate) const TLS_REQUIRED: u32 = ERROR + 5;
    pub(crate) const UNKNOWN: u32 = ERROR + 6;
    pub(crate) const SHUTDOWN: u32 = ERROR + 7;
}

pub(crate) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// Flags of an export.
pub(crate) mod can {
    pub(crate) const READ_ONLY: u16 = 1 << 1;
    pub(crate) const FLUSH: u16 = 1 << 2;
    pub(crate) const FUA: u16 = 1 << 3;
    pub(crate) const TRIM: u16 = 1 << 5;
    pub(crate) const WRITE_ZEROES: u16 = 1 << 6;
    pub(crate) const MULTI_CONN: u16 = 1 << 8;
}

/// Types of chunks of a structured reply.
pub(crate) mod chunk {
    /// Flag: this is the last chunk of the reply.
    pub(crate) const DONE: u16 = 1;
    pub(crate) const NONE: u16 = 0;
    pub(crate) const OFFSET_DATA: u16 = 1;
    pub(crate) const OFFSET_HOLE: u16 = 2;
    /// All types from here on are errors.
    pub(crate) const ERROR: u16 = 1 << 15;
}

/// The error of a server that is shutting down.
pub(crate) const ESHUTDOWN: u32 = 108;

/// The request types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Command {
    Read = 0,
    Write = 1,
    Disconnect = 2,
    Flush = 3,
    Trim = 4,
    WriteZeroes = 6,
}

/// A request, without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) command: Command,
    pub(crate) fua: bool,
    /// First byte.
    pub(crate) offset: u64,
    /// Number of bytes.
    pub(crate) len: u32,
}

impl Request {
    /// The 28 bytes of its header; replies carry `cookie`.
    pub(crate) fn header(&self, cookie: u64) -> [u8; 28] {
        let mut bytes = [0; 28];
        bytes[0..4].copy_from_slice(&REQUEST.to_be_bytes());
        bytes[4..6].copy_from_slice(&u16::from(self.fua).to_be_bytes());
        bytes[6..8].copy_from_slice(&(self.command as u16).to_be_bytes());
        bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }
}

/// The 16 bits at byte `at` of a message that was read whole.
pub(crate) fn be16(bytes: &[u8], at: usize) -> u16 {
    be64(bytes, at, 2) as u16
}

/// The 32 bits; see [`be16`].
pub(crate) fn be32(bytes: &[u8], at: usize) -> u32 {
    be64(bytes, at, 4) as u32
}

/// The `n` bytes at byte `at` as a number; missing bytes count as zero.
pub(crate) fn be64(bytes: &[u8], at: usize, n: usize) -> u64 {
    let there = bytes.iter().skip(at).take(n);
    there.fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_28_bytes() {
        let request = Request {
            command: Command::WriteZeroes,
            fua: true,
            offset: 0x0102_0304_0506_0708,
            len: 0x1000,
        };
        let bytes = request.header(7);
        assert_eq!(be32(&bytes, 0), REQUEST);
        assert_eq!(bytes[4..8], [0, 1, 0, 6]);
        assert_eq!(be64(&bytes, 8, 8), 7);
        assert_eq!(be64(&bytes, 16, 8), request.offset);
        assert_eq!(be32(&bytes, 24), request.len);
        assert_eq!(be64(&[1], 4, 8), 0);
    }
}
