//! Readers of other trace formats with one request per line.

use clap::ValueEnum;

use super::request::{Op, Request, Trace, TraceError};
use crate::page::PAGE;

/// Bytes of a sector.
const SECTOR: u64 = 512;

/// The format of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Dialect {
    /// Seconds, `R` or `W`, page of 4096 bytes, and the number of pages if more than one; separated
    /// by commas.
    Csv,
    /// MSR Cambridge (SNIA): Timestamp, Hostname, DiskNumber, Type, Offset, Size, ResponseTime,
    /// separated by commas; offset and size in bytes, time in 100 ns.
    Msr,
    /// Text of blkparse, also at SNIA: the queue events (Q), in sectors of 512 bytes.
    Blkparse,
    /// FIU (SNIA): time in ns, pid, process, sector of 512 bytes, sectors, W or R, major, minor,
    /// hash; separated by blanks.
    Fiu,
}

/// A request in bytes.
struct Bytes {
    micros: u64,
    op: Op,
    offset: u64,
    len: u64,
}

impl Dialect {
    fn name(self) -> &'static str {
        match self {
            Dialect::Csv => "csv",
            Dialect::Msr => "msr",
            Dialect::Blkparse => "blkparse",
            Dialect::Fiu => "fiu",
        }
    }

    /// Reads the trace in a text. Pages that a request touches in part count as whole. Times begin
    /// at 0. Empty lines, comments (`#`) and a heading are skipped, and so are other lines of
    /// blkparse.
    ///
    /// # Errors
    /// A line that is no request.
    pub fn read(self, text: &[u8]) -> Result<Trace, TraceError> {
        let mut requests = Vec::new();
        let mut first = None;
        for (i, line) in text.split(|b| *b == b'\n').enumerate() {
            let line = String::from_utf8_lossy(line);
            let line = line.trim();
            let heading = i == 0 && line.starts_with(|c: char| c.is_alphabetic());
            if line.is_empty() || line.starts_with('#') || heading {
                continue;
            }
            let found = match self {
                Dialect::Csv => csv(line).map(Some),
                Dialect::Msr => msr(line).map(Some),
                Dialect::Blkparse => Some(blkparse(line)),
                Dialect::Fiu => fiu(line).map(Some),
            };
            let request = found.and_then(|bytes| match bytes {
                Some(bytes) => pages(&bytes, *first.get_or_insert(bytes.micros)).map(Some),
                None => Some(None),
            });
            match request {
                Some(request) => requests.extend(request),
                None => {
                    return Err(TraceError::Line {
                        line: i + 1,
                        text: line.chars().take(80).collect(),
                        dialect: self.name(),
                    });
                }
            }
        }
        Ok(Trace { requests })
    }
}

fn pages(bytes: &Bytes, first: u64) -> Option<Request> {
    let time = bytes.micros.saturating_sub(first);
    Request::of_bytes(time, bytes.op, bytes.offset, bytes.len)
}

fn op(text: &str) -> Option<Op> {
    match text.as_bytes().first()? {
        b'r' | b'R' => Some(Op::Read),
        b'w' | b'W' => Some(Op::Write),
        _ => None,
    }
}

/// Converts seconds with a fraction to microseconds, exactly.
fn micros(seconds: &str) -> Option<u64> {
    let (whole, part) = seconds.split_once('.').unwrap_or((seconds, "0"));
    let digits: String = part.chars().chain("000000".chars()).take(6).collect();
    whole
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000_000)?
        .checked_add(digits.parse().ok()?)
}

fn csv(line: &str) -> Option<Bytes> {
    let mut fields = line.split(',').map(str::trim);
    let (time, kind, page) = (fields.next()?, fields.next()?, fields.next()?);
    let pages: u64 = fields.next().map_or(Some(1), |n| n.parse().ok())?;
    Some(Bytes {
        micros: micros(time)?,
        op: op(kind)?,
        offset: page.parse::<u64>().ok()?.checked_mul(PAGE)?,
        len: pages.checked_mul(PAGE)?,
    })
}

fn msr(line: &str) -> Option<Bytes> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let &[time, _, _, kind, offset, len, ..] = &fields[..] else {
        return None;
    };
    Some(Bytes {
        micros: time.parse::<u64>().ok()? / 10,
        op: op(kind)?,
        offset: offset.parse().ok()?,
        len: len.parse().ok()?,
    })
}

/// Parses a line such as `8,0 1 17 0.000123456 1234 Q WS 1234567 + 8 [process]`; other events and
/// totals give `None`.
fn blkparse(line: &str) -> Option<Bytes> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let &[_, _, _, time, _, "Q", kind, sector, "+", sectors, ..] = &fields[..] else {
        return None;
    };
    let kind = kind.trim_start_matches('F');
    Some(Bytes {
        micros: micros(time)?,
        op: op(kind)?,
        offset: sector.parse::<u64>().ok()?.checked_mul(SECTOR)?,
        len: sectors.parse::<u64>().ok()?.checked_mul(SECTOR)?,
    })
}

fn fiu(line: &str) -> Option<Bytes> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let &[time, _, _, sector, sectors, kind, ..] = &fields[..] else {
        return None;
    };
    Some(Bytes {
        micros: time.parse::<u64>().ok()? / 1000,
        op: op(kind)?,
        offset: sector.parse::<u64>().ok()?.checked_mul(SECTOR)?,
        len: sectors.parse::<u64>().ok()?.checked_mul(SECTOR)?,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read(dialect: Dialect, text: &str) -> Vec<(u64, Op, u64, u32)> {
        let trace = dialect.read(text.as_bytes()).unwrap();
        let fields = |r: &Request| (r.time, r.op, r.page, r.pages);
        trace.requests.iter().map(fields).collect()
    }

    #[test]
    fn csv() {
        let text = "time,op,block\n# ours\n1.5,R,7\n1.500002,w,9,3\n\n";
        let expected = [(0, Op::Read, 7, 1), (2, Op::Write, 9, 3)];
        assert_eq!(read(Dialect::Csv, text), expected);
    }

    #[test]
    fn msr() {
        let text = "128166372003061629,hm,0,Read,383496192,32768,413\n128166372016382155,hm,0,Write,2822144,512,1\n";
        let expected = [(0, Op::Read, 93627, 8), (1_332_053, Op::Write, 689, 1)];
        assert_eq!(read(Dialect::Msr, text), expected);
    }

    #[test]
    fn blkparse() {
        let text = "\
  8,0    1        1     0.000000000   697  Q  WS 223490 + 8 [kjournald]
  8,0    1        2     0.000001829   697  G  WS 223490 + 8 [kjournald]
  8,0    3       20     0.100000000   700  Q   R 16 + 16 [x]
  8,0    3       21     0.100000000   700  Q FWS 0 + 8 [x]
CPU0 (8,0):
 Reads Queued:           1,        8KiB
";
        let expected = [
            (0, Op::Write, 27936, 2),
            (100_000, Op::Read, 2, 2),
            (100_000, Op::Write, 0, 1),
        ];
        assert_eq!(read(Dialect::Blkparse, text), expected);
    }

    #[test]
    fn fiu() {
        let text = "89967404941253 4253 nfsd 508498768 8 W 6 0 2da1b2c3\n89967405941253 1 x 8 16 R 6 0 00\n";
        let expected = [(0, Op::Write, 63_562_346, 1), (1000, Op::Read, 1, 2)];
        assert_eq!(read(Dialect::Fiu, text), expected);
    }

    #[test]
    fn nonsense_is_told_with_its_line() {
        let wrong = [
            "1,R,2\n1,X,3\n",
            "1,R,2\n1,R\n",
            "1,R,2\n1,R,99999999999999999999\n",
        ];
        for text in wrong {
            let error = Dialect::Csv.read(text.as_bytes()).unwrap_err();
            assert!(error.to_string().starts_with("line 2: "), "{error}");
        }
        assert!(Dialect::Msr.read(b"1,2,3\n").is_err());
        assert!(Dialect::Fiu.read(b"1 2 3\n").is_err());
        // Numbers beyond the largest page are refused, and do not wrap around.
        assert!(Dialect::Csv.read(b"0,W,4503599627370495,99\n").is_err());
    }
}
