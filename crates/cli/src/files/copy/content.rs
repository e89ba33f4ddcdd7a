//! The content of copies.

use std::ops::Range;

use super::{Copy, PART};
use crate::failure::Result;
use crate::files::tree::{Content, Sink};

impl Copy<'_> {
    /// Copies content. An unreadable part is reported; the copy holds what comes before it.
    pub(super) fn content(
        &mut self,
        source: &dyn Content,
        runs: Vec<Range<u64>>,
        size: u64,
        sink: &dyn Sink,
    ) -> Result {
        let ends_with_hole = runs.last().is_some_and(Range::is_empty);
        // There may be data beyond the size: in a file of /proc, a pipe, or a file that grows.
        let behind = std::iter::once(size..u64::MAX);
        for data in runs.into_iter().chain(behind) {
            let mut at = data.start;
            while at < data.end {
                let most = usize::try_from(data.end - at).unwrap_or(PART).min(PART);
                let part = self.buf.get_mut(..most).unwrap_or_default();
                let Some(n) = self.meter.troubles.pass(source.read_at(part, at))? else {
                    return Ok(());
                };
                if n == 0 {
                    // The end of the data, or of a file that was truncated meanwhile.
                    return match at == size && ends_with_hole {
                        true => sink.set_len(size),
                        false => Ok(()),
                    };
                }
                sink.write_at(part.get(..n).unwrap_or_default(), at)?;
                at += n as u64;
                self.meter.bytes(n as u64)?;
            }
        }
        Ok(())
    }
}
