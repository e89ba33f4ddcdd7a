//! What a table is read from.

/// What a table is read from.
pub trait Disk {
    /// Why it cannot be read.
    type Error;

    /// Bytes in all.
    fn size(&self) -> u64;

    /// Bytes of a sector, in which an MBR counts.
    fn sector(&self) -> u32;

    /// Fills `buf` from byte `at` on, which lies inside with all of it.
    ///
    /// # Errors
    /// The disk's.
    fn read(&self, at: u64, buf: &mut [u8]) -> Result<(), Self::Error>;

    /// The bytes of a place; `None` if it is not on the disk.
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

/// What has its size, its sectors and a way to read it.
#[derive(Clone, Copy, Debug)]
pub struct ReadBy<F> {
    /// Bytes in all.
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
        // What lies outside is nobody's to read.
        for (to, from) in buf.iter_mut().zip(there.unwrap_or_default()) {
            *to = *from;
        }
        Ok(())
    }
}
