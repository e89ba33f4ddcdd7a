//! The names of files that are told while an archive is packed or unpacked.

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;

use crate::failure::Result;
use crate::files::failed::output;
use crate::files::quoted::quoted;

/// The names that are told while the command works (`-v`).
pub(super) struct Told {
    pub(super) is_on: bool,
    pub(super) to_stderr: bool,
}

impl Told {
    /// Tells a name.
    ///
    /// # Errors
    /// The output cannot be written.
    pub(super) fn name(&mut self, name: &OsStr) -> Result {
        if !self.is_on {
            return Ok(());
        }
        let line = |terminal: bool| match terminal {
            true => quoted(name.as_bytes()).into_bytes(),
            false => name.as_bytes().to_vec(),
        };
        let written = match self.to_stderr {
            true => write_line(&mut io::stderr(), &line(io::stderr().is_terminal())),
            false => write_line(&mut io::stdout(), &line(io::stdout().is_terminal())),
        };
        written.or_else(output)
    }
}

fn write_line(to: &mut dyn Write, line: &[u8]) -> io::Result<()> {
    to.write_all(line)?;
    to.write_all(b"\n")
}
