//! The source of a partition table: a trait, so that this crate needs no I/O.

/// The source of a partition table.
pub trait Disk {
    /// The error of a read.
    type Error;

    /// Size in bytes.
    fn size(&self) -> u64;

    /// Bytes of a sector, the unit of an MBR.
    fn sector(&self) -> u32;

    /// Fills `buf` from byte `at` on. The range lies inside the disk.
    ///
    /// # Errors
    /// The disk's.
    fn read(&self, at: u64, buf: &mut [u8]) -> Result<(), Self::Error>;

    /// Reads `len` bytes from byte `at` on; `None` if they are not on the disk.
    ///
    /// # Errors
    /// The disk's.
    fn bytes(&self, at: u64, len: usize) -> Result<Option<Vec<u8>>, Self::Error> {
        match at.checked_add(len as u64) {
            Some(end) if end <= self.size() => {
                let mut buf = vec![0; len];
                self.read(at, &mut buf)?;
                Ok(Some(buf))
            }
            _ => Ok(None),
        }
    }
}

/// A disk made of a size, a sector size and a function that reads.
#[derive(Clone, Copy, Debug)]
pub struct ReadBy<F> {
    /// Size in bytes.
    pub size: u64,
    /// Bytes of a sector.
    pub sector: u32,
    /// [`Disk::read`].
    pub read: F,
}

impl<E, F: Fn(u64, &mut [u8]) -> Result<(), E>> Disk for ReadBy<F> {
    type Error = E;

    fn size(&self) -> u64 {
        self.size
    }

    fn sector(&self) -> u32 {
        self.sector
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<(), E> {
        (self.read)(at, buf)
    }
}

/// Bytes in memory, with sectors of 512.
impl Disk for &[u8] {
    type Error = std::convert::Infallible;

    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn sector(&self) -> u32 {
        512
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<(), Self::Error> {
        let there = usize::try_from(at).ok().and_then(|at| self.get(at..));
        // Bytes outside read as nothing: `buf` stays.
        for (to, from) in buf.iter_mut().zip(there.unwrap_or_default()) {
            *to = *from;
        }
        Ok(())
    }
}
