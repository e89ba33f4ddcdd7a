//! Shaking hands: fixed newstyle, TLS, structured replies, and the export.

use std::io::{self, Read};
use std::time::Duration;

use crate::error::{Result, Trouble};
use crate::patience::Deadline;
use crate::stream::Stream;
use crate::tls::Tls;
use crate::wire::{self, be16, be32, be64, can, info, option, reply};

/// Bytes of a reply to an option at most; nobody has more to say.
const REPLY_MAX: u32 = 1 << 16;
/// Descriptions of an export at most: the protocol knows five, and there may be others.
const INFOS_MAX: usize = 32;
/// How long it may take at most.
const SHAKE: Duration = Duration::from_secs(20);

/// An export, as the server describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Export {
    /// Bytes.
    pub(crate) size: u64,
    flags: u16,
    /// Requests lie at multiples of it, in bytes; a power of two.
    pub(crate) min_block: u32,
    /// Bytes of a request at most.
    pub(crate) max_block: u32,
    /// Replies come in chunks.
    pub(crate) is_structured: bool,
}

impl Export {
    fn is_read_only(&self) -> bool {
        self.flags & can::READ_ONLY != 0
    }

    /// Whether what is written can be made durable.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.is_read_only() {
            return Err(Trouble::Errno(rustix::io::Errno::ROFS.raw_os_error()));
        }
        match self.flags & can::FLUSH {
            0 => Err(Trouble::refused(
                "its export cannot be flushed, so nothing would be durable when it was synced; read it with -o ro,noload",
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

    /// A flush by one connection covers what was written by others.
    pub(crate) fn is_for_many(&self) -> bool {
        self.flags & can::MULTI_CONN != 0
    }
}

/// A new connection, and how long it may take until it is one that works.
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
    /// Reads so many bytes.
    fn take_bytes<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.stream.send(bytes, false, &mut self.until)?)
    }

    /// Asks for an option.
    fn ask(&mut self, option: u32, data: &[u8]) -> Result<()> {
        let mut message = Vec::with_capacity(16 + data.len());
        message.extend(wire::IHAVEOPT.to_be_bytes());
        message.extend(option.to_be_bytes());
        message.extend((data.len() as u32).to_be_bytes());
        message.extend(data);
        self.send(&message)
    }

    /// The next reply to an option: its type, and what it says.
    fn answer(&mut self, option: u32) -> Result<(u32, Vec<u8>)> {
        let head: [u8; 20] = self.take_bytes()?;
        if be64(&head, 0, 8) != wire::OPTION_REPLY || be32(&head, 8) != option {
            return Err(Trouble::nonsense("its reply to an option is none"));
        }
        let len = be32(&head, 16);
        if len > REPLY_MAX {
            return Err(Trouble::nonsense(format!(
                "a reply of {len} bytes to an option"
            )));
        }
        let mut data = vec![0; len as usize];
        self.read_exact(&mut data)?;
        Ok((be32(&head, 12), data))
    }
}

/// What a server that says no means.
fn refusal(kind: u32, said: &[u8], export: &str) -> Trouble {
    let what = match kind {
        reply::UNKNOWN if export.is_empty() => {
            "it has no default export; name one behind the last slash".into()
        }
        reply::UNKNOWN => format!("it has no export named {export}"),
        reply::TLS_REQUIRED => "it wants TLS: write nbds:// and tls-certificates=".into(),
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

/// Shakes hands over a new connection, and gets the export's description. It may take as long as
/// `patience`, or [`SHAKE`].
///
/// # Errors
/// `Lost` where the connection is, or where this is no NBD server; `Refused` with what it says.
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
        return Err(Trouble::refused("what listens there is no NBD server"));
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
                    "it has no TLS: write nbd:// if that is meant",
                ));
            }
        }
        let failed = |e| Trouble::refused(format!("no TLS with it: {e}"));
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

/// Asks for the export.
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
                return Err(Trouble::nonsense("descriptions of the export without end"));
            }
            reply::INFO => infos += 1,
            _ => {
                // It need not hang up by itself.
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
    let (size, flags) = described.ok_or_else(|| Trouble::nonsense("an export without a size"))?;
    let (min_block, max_block) = blocks;
    if !min_block.is_power_of_two() || min_block > 1 << 16 || max_block < min_block {
        return Err(Trouble::nonsense(format!(
            "blocks of {min_block} to {max_block} bytes"
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
