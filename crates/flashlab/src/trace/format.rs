//! The file format of traces (docs/format/trace.md): a header, then about four bytes per request.

use super::request::{MOST_PAGES, Op, Request, Trace, TraceError};

const MAGIC: &[u8; 8] = b"STETTRC1";
/// Bytes of the header: magic number, bytes of a page, zero, number of requests.
const HEAD: usize = 8 + 4 + 4 + 8;

/// Whether a file begins like a trace.
pub(super) fn is_one(file: &[u8]) -> bool {
    file.starts_with(MAGIC)
}

fn put(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn take(from: &mut &[u8]) -> Result<u64, TraceError> {
    let mut n = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = from
            .split_first()
            .ok_or(TraceError::Format("the file is cut off"))?;
        *from = rest;
        let bits = u64::from(byte & 0x7F);
        if bits << shift >> shift != bits {
            break;
        }
        n |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(n);
        }
    }
    Err(TraceError::Format("a number is too long"))
}

/// Maps a difference to an unsigned number that is small if the difference is: 0, -1, 1, -2 become
/// 0, 1, 2, 3.
fn fold(difference: i64) -> u64 {
    (difference << 1 ^ difference >> 63) as u64
}

fn unfold(n: u64) -> i64 {
    (n >> 1) as i64 ^ -((n & 1) as i64)
}

/// Encodes a trace.
pub fn write(trace: &Trace) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD + trace.requests.len() * 5);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&(crate::page::PAGE as u32).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&(trace.requests.len() as u64).to_le_bytes());
    let (mut time, mut end) = (0, 0);
    for request in &trace.requests {
        let pages = u64::from(request.pages.max(1));
        put(
            &mut out,
            (pages - 1) << 1 | u64::from(request.op == Op::Write),
        );
        put(&mut out, fold(request.page.wrapping_sub(end) as i64));
        put(&mut out, fold(request.time.wrapping_sub(time) as i64));
        (time, end) = (request.time, request.page.wrapping_add(pages));
    }
    out
}

/// Decodes a trace.
///
/// # Errors
/// The bytes are no trace, or only a part of one.
pub fn read(file: &[u8]) -> Result<Trace, TraceError> {
    let (head, mut rest) = file
        .split_at_checked(HEAD)
        .ok_or(TraceError::Format("the file is too short"))?;
    if !is_one(head) {
        return Err(TraceError::Format("wrong magic number"));
    }
    let field = |at: usize| {
        let bytes = head.get(at..at + 8).and_then(|b| b.try_into().ok());
        u64::from_le_bytes(bytes.unwrap_or_default())
    };
    if field(8) != crate::page::PAGE {
        return Err(TraceError::Format("unsupported page size"));
    }
    let count = field(16);
    // A request has at least three bytes, so a wrong count allocates no excessive memory.
    let mut requests = Vec::with_capacity(count.min(rest.len() as u64 / 3) as usize);
    let (mut time, mut end) = (0u64, 0u64);
    for _ in 0..count {
        let tag = take(&mut rest)?;
        let pages = u32::try_from((tag >> 1) + 1)
            .map_err(|_| TraceError::Format("a request is too long"))?;
        let op = if tag & 1 == 1 { Op::Write } else { Op::Read };
        let page = end.wrapping_add_signed(unfold(take(&mut rest)?));
        time = time.wrapping_add_signed(unfold(take(&mut rest)?));
        end = page
            .checked_add(u64::from(pages))
            .filter(|end| *end <= MOST_PAGES)
            .ok_or(TraceError::Format("a page number is too large"))?;
        requests.push(Request {
            time,
            op,
            page,
            pages,
        });
    }
    match rest {
        [] => Ok(Trace { requests }),
        _ => Err(TraceError::Format("extra bytes after the end")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut requests = Vec::new();
        for i in 0..10_000 {
            let bits = random.u32(1..40);
            requests.push(Request {
                time: i * 7 + random.u64(..3),
                op: if random.bool() { Op::Read } else { Op::Write },
                page: random.u64(..1 << bits),
                pages: random.u32(1..2000),
            });
        }
        let trace = Trace { requests };
        let file = write(&trace);
        assert!(file.len() < 12 * trace.requests.len());
        assert_eq!(read(&file).unwrap(), trace);
        // Each proper part is refused, and so is a longer file.
        for len in [0, 7, 20, HEAD, HEAD + 5, file.len() - 1] {
            assert!(read(&file[..len]).is_err(), "{len}");
        }
        assert!(read(&[&file[..], &[0]].concat()).is_err());
    }

    #[test]
    fn damaged_files_do_no_harm() {
        let mut random = fastrand::Rng::with_seed(2);
        let requests = (0..50)
            .map(|i| Request {
                time: i,
                op: Op::Write,
                page: i * 1000,
                pages: 3,
            })
            .collect();
        let file = write(&Trace { requests });
        for _ in 0..5000 {
            let mut file = file.clone();
            for _ in 0..3 {
                let at = random.usize(8..file.len());
                file[at] = random.u8(..);
            }
            let _ = read(&file);
        }
        assert!(read(b"STETTRC1\0\x10\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff").is_err());
    }
}
