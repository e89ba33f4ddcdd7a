//! The size of a simulated flash device.

/// Bytes of a page, the unit of reads, programs and the mapping.
pub const PAGE: u64 = 4096;

/// Fewest erase blocks beyond the capacity: two that are being filled, one to move pages into, and
/// one so that some block always has a dead page.
const LEAST_SPARE: u64 = 4;

/// Pages and erase blocks of a device. Logical pages are those that it offers, physical pages those
/// that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Geometry {
    /// Pages that the device offers.
    pub logical_pages: u32,
    /// Pages of an erase block.
    pub block_pages: u32,
    /// Erase blocks.
    pub blocks: u32,
}

/// The reason why a geometry is impossible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// The capacity is no positive multiple of a page.
    #[error("the device size {0} is not a multiple of the page size, 4096 bytes, or is 0")]
    Capacity(u64),
    /// The size of an erase block is no multiple of a page, or less than two pages.
    #[error(
        "the erase block size {0} is not a multiple of the page size, 4096 bytes, or is below two \
         pages"
    )]
    EraseBlock(u64),
    /// The device has more pages than the simulation can number.
    #[error("a device of {0} bytes has more pages than the simulation can number")]
    TooLarge(u64),
}

impl Geometry {
    /// A device that offers `capacity` bytes in erase blocks of `erase_block` bytes. It has at
    /// least `spare` percent more blocks than the capacity takes (15 in the paper), and at least
    /// four more.
    ///
    /// # Errors
    /// A size is no multiple of a page, or there are too many pages.
    pub fn new(capacity: u64, erase_block: u64, spare: u32) -> Result<Geometry, GeometryError> {
        if capacity == 0 || !capacity.is_multiple_of(PAGE) {
            return Err(GeometryError::Capacity(capacity));
        }
        if erase_block < 2 * PAGE || !erase_block.is_multiple_of(PAGE) {
            return Err(GeometryError::EraseBlock(erase_block));
        }
        let (pages, block_pages) = (capacity / PAGE, erase_block / PAGE);
        let needed = pages.div_ceil(block_pages);
        let spare = (needed * u64::from(spare)).div_ceil(100).max(LEAST_SPARE);
        let blocks = needed + spare;
        // The highest number is reserved for "no page".
        if blocks.saturating_mul(block_pages) >= u64::from(u32::MAX) {
            return Err(GeometryError::TooLarge(capacity));
        }
        Ok(Geometry {
            logical_pages: pages as u32,
            block_pages: block_pages as u32,
            blocks: blocks as u32,
        })
    }

    /// Number of physical pages.
    pub fn pages(&self) -> u32 {
        self.blocks * self.block_pages
    }

    /// Number of erase blocks that all logical pages fill.
    pub fn logical_blocks(&self) -> u32 {
        self.logical_pages.div_ceil(self.block_pages)
    }

    /// Number of erase blocks beyond those.
    pub fn spare_blocks(&self) -> u32 {
        self.blocks - self.logical_blocks()
    }

    /// The erase block of a physical page.
    pub fn block_of(&self, page: u32) -> u32 {
        // Merges ask several times for each page that they move, and a shift is quicker.
        match self.block_pages.is_power_of_two() {
            true => page >> self.block_pages.trailing_zeros(),
            false => page / self.block_pages,
        }
    }

    /// The first page of a block.
    pub fn first_page(&self, block: u32) -> u32 {
        block * self.block_pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paper_has_4096_blocks_and_15_percent() -> Result<(), GeometryError> {
        let paper = Geometry::new(16 << 30, 4 << 20, 15)?;
        assert_eq!((paper.logical_blocks(), paper.block_pages), (4096, 1024));
        assert_eq!(paper.spare_blocks(), 615);
        let ssd = Geometry::new(16 << 30, 24 << 20, 15)?;
        assert_eq!(ssd.block_pages, 6144);
        assert_eq!(Geometry::new(8 * PAGE, 2 * PAGE, 0)?.spare_blocks(), 4);
        Ok(())
    }

    #[test]
    fn sizes_are_checked() {
        assert_eq!(
            Geometry::new(0, 1 << 20, 15),
            Err(GeometryError::Capacity(0))
        );
        assert_eq!(
            Geometry::new(5000, 1 << 20, 15),
            Err(GeometryError::Capacity(5000))
        );
        assert_eq!(
            Geometry::new(1 << 20, 4096, 15),
            Err(GeometryError::EraseBlock(4096))
        );
        assert_eq!(
            Geometry::new(1 << 44, 1 << 20, 15),
            Err(GeometryError::TooLarge(1 << 44))
        );
    }
}
