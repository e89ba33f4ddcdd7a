//! The handshake: fixed newstyle, TLS, structured replies, and the choice of the export.

use std::io::{self, Read};
use std::time::Duration;

use rustix::event::PollFlags;

use crate::error::{Result, Trouble};
use crate::patience::Deadline;
use crate::stream::Stream;
use crate::tls::Tls;
use crate::wire::{self, be16, be32, be64, can, info, option, reply};

/// Maximum length of a reply to an option in bytes; real replies are shorter.
const REPLY_MAX: u32 = 1 << 16;
/// Maximum number of descriptions of an export: the protocol has five, and may get others.
const INFOS_MAX: usize = 32;
/// Time limit for the handshake.
const SHAKE: Duration = Duration::from_secs(20);

/// An export, as the server describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Export {
    /// Size in bytes.
    pub(crate) size: u64,
    flags: u16,
    /// Alignment of requests in bytes; a power of two.
    pub(crate) min_block: u32,
    /// Maximum length of a request in bytes.
    pub(crate) max_block: u32,
    /// Whether replies come in chunks (structured replies).
    pub(crate) is_structured: bool,
}

impl Export {
    fn is_read_only(&self) -> bool {
        self.flags & can::READ_ONLY != 0
    }

    /// Checks that the export takes writes and can make them durable.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.is_read_only() {
            return Err(Trouble::Errno(rustix::io::Errno::ROFS.raw_os_error()));
        }
        match self.flags & can::FLUSH {
            0 => Err(Trouble::refused(
                "the export has no flush, so fsync could not make data durable; read it with -o \
                 ro,noload",
            )),
            _ => Ok(()),
        }
    }

    pub(crate) fn can_fua(&self) -> bool {
        self.flags & can::FUA != 0
    }

    pub(crate) fn can_trim(&self) -> bool {
        self.flags & can::TRIM != 0
    }

    pub(crate) fn can_write_zeroes(&self) -> bool {
        self.flags & can::WRITE_ZEROES != 0
    }

    /// Whether a flush on one connection covers writes of the others.
    pub(crate) fn is_for_many(&self) -> bool {
        self.flags & can::MULTI_CONN != 0
    }
}

/// A connection during the handshake, and the deadline for it.
struct Shaking<'a> {
    stream: &'a mut Stream,
    until: Deadline,
}

impl Read for Shaking<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.stream.receive(buf, &mut self.until)
    }
}

impl Shaking<'_> {
    /// Reads `N` bytes.
    fn take_bytes<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let stream = &self.stream;
        let mut wait = |_, left| stream.wait(PollFlags::OUT, left).map(drop);
        Ok(stream.send(bytes, false, &mut self.until, &mut wait)?)
    }

    /// Sends an option.
    fn ask(&mut self, option: u32, data: &[u8]) -> Result<()> {
        let mut message = Vec::with_capacity(16 + data.len());
        message.extend(wire::IHAVEOPT.to_be_bytes());
        message.extend(option.to_be_bytes());
        message.extend((data.len() as u32).to_be_bytes());
        message.extend(data);
        self.send(&message)
    }

    /// Receives the next reply to an option: its type and its data.
    fn answer(&mut self, option: u32) -> Result<(u32, Vec<u8>)> {
        let head: [u8; 20] = self.take_bytes()?;
        if be64(&head, 0, 8) != wire::OPTION_REPLY || be32(&head, 8) != option {
            return Err(Trouble::nonsense("its reply to an option is invalid"));
        }
        let len = be32(&head, 16);
        if len > REPLY_MAX {
            return Err(Trouble::nonsense(format!(
                "its reply to an option has {len} bytes, too many"
            )));
        }
        let mut data = vec![0; len as usize];
        self.read_exact(&mut data)?;
        Ok((be32(&head, 12), data))
    }
}

/// The error for an option that the server refuses.
fn refusal(kind: u32, said: &[u8], export: &str) -> Trouble {
    let what = match kind {
        reply::UNKNOWN if export.is_empty() => {
            "it has no default export; name one after the last slash".into()
        }
        reply::UNKNOWN => format!("it has no export named {export}"),
        reply::TLS_REQUIRED => {
            "the server requires TLS: use nbds:// and tls-certificates=DIRECTORY".into()
        }
        reply::POLICY => "it does not let this client in".into(),
        reply::SHUTDOWN => "it is shutting down".into(),
        reply::UNSUPPORTED => "it is too old: it has no NBD_OPT_GO".into(),
        _ => format!("it refuses the export (error {:#x})", kind),
    };
    let said: String = String::from_utf8_lossy(said).chars().take(200).collect();
    match said.trim() {
        "" => Trouble::refused(what),
        said => Trouble::refused(format!("{what} ({said})")),
    }
}

/// Runs the handshake on a new connection, and gets the export's description. The time limit is
/// `patience` or [`SHAKE`].
///
/// # Errors
/// `Lost` if the connection is lost or the peer is no NBD server; `Refused` with the server's
/// reason.
pub(crate) fn shake(
    stream: &mut Stream,
    tls: Option<&Tls>,
    export: &str,
    patience: Duration,
) -> Result<Export> {
    let mut shaking = Shaking {
        stream,
        until: Deadline::after(patience.min(SHAKE)),
    };
    let head: [u8; 18] = shaking.take_bytes()?;
    if be64(&head, 0, 8) != wire::NBDMAGIC {
        return Err(Trouble::refused(
            "the program that listens there is not an NBD server",
        ));
    }
    let flags = be16(&head, 16);
    if be64(&head, 8, 8) != wire::IHAVEOPT || flags & wire::FIXED_NEWSTYLE == 0 {
        return Err(Trouble::refused(
            "it is too old: it has no fixed newstyle handshake",
        ));
    }
    let ours = u32::from(flags & (wire::FIXED_NEWSTYLE | wire::NO_ZEROES));
    shaking.send(&ours.to_be_bytes())?;
    if let Some(tls) = tls {
        shaking.ask(option::STARTTLS, &[])?;
        match shaking.answer(option::STARTTLS)? {
            (reply::ACK, _) => {}
            _ => {
                return Err(Trouble::refused(
                    "it does not support TLS: use nbd:// to connect without encryption",
                ));
            }
        }
        let failed = |e| Trouble::refused(format!("TLS failed: {e}"));
        let until = &mut shaking.until;
        shaking.stream.encrypt(tls, until).map_err(failed)?;
    }
    shaking.ask(option::STRUCTURED_REPLY, &[])?;
    let (kind, _) = shaking.answer(option::STRUCTURED_REPLY)?;
    if kind == reply::TLS_REQUIRED {
        return Err(refusal(kind, &[], export));
    }
    go(&mut shaking, export, kind == reply::ACK)
}

/// Asks for the export (NBD_OPT_GO).
fn go(shaking: &mut Shaking<'_>, export: &str, is_structured: bool) -> Result<Export> {
    let mut asked = Vec::new();
    asked.extend((export.len() as u32).to_be_bytes());
    asked.extend(export.as_bytes());
    asked.extend(1u16.to_be_bytes());
    asked.extend(info::BLOCK_SIZE.to_be_bytes());
    shaking.ask(option::GO, &asked)?;
    let (mut described, mut blocks) = (None, (1, 32 << 20));
    let mut infos = 0;
    loop {
        let (kind, data) = shaking.answer(option::GO)?;
        match kind {
            reply::ACK => break,
            reply::INFO if infos == INFOS_MAX => {
                return Err(Trouble::nonsense("it describes the export too often"));
            }
            reply::INFO => infos += 1,
            _ => {
                // Errors do not matter: the server need not hang up by itself.
                let _ = shaking.ask(option::ABORT, &[]);
                return Err(refusal(kind, &data, export));
            }
        }
        match be16(&data, 0) {
            info::EXPORT if data.len() >= 12 => {
                described = Some((be64(&data, 2, 8), be16(&data, 10)));
            }
            info::BLOCK_SIZE if data.len() >= 14 => {
                blocks = (be32(&data, 2), be32(&data, 10));
            }
            _ => {}
        }
    }
    let (size, flags) =
        described.ok_or_else(|| Trouble::nonsense("it sent no size of the export"))?;
    let (min_block, max_block) = blocks;
    if !min_block.is_power_of_two() || min_block > 1 << 16 || max_block < min_block {
        return Err(Trouble::nonsense(format!(
            "its block sizes are invalid: {min_block} to {max_block} bytes"
        )));
    }
    Ok(Export {
        size,
        flags,
        min_block,
        max_block: max_block.min(32 << 20) / min_block * min_block,
        is_structured,
    })
}
