//! Layers of a block-level map and log blocks: what they have in common as an [`Ftl`].

use super::blockmap::BlockMap;
use super::checks::{Checked, Checks};
use super::layer::bounds;
use super::{BlockView, Counters, Ftl, FtlError, Geometry, Role, Sink};

/// A layer that adds log blocks to a block-level map: the parts in which such layers differ.
pub(super) trait Logged: Clone + Send + Sync + 'static {
    /// The map, the flash and the counters.
    fn map(&self) -> &BlockMap;

    /// The same, to change them.
    fn map_mut(&mut self) -> &mut BlockMap;

    /// Writes one page, which is within the capacity.
    fn write_page(&mut self, lpn: u32, ops: &mut dyn Sink);

    /// Erases blocks of a logical block that a trim left without live pages.
    fn trimmed(&mut self, owner: u32, ops: &mut dyn Sink);

    /// The log blocks with their roles.
    fn logs(&self) -> Vec<(u32, Role)>;

    /// Finds the roles of all blocks after a restart.
    fn find_roles(&mut self, ops: &mut dyn Sink);

    /// Checks the log blocks, and the map with them.
    ///
    /// # Errors
    /// The contradiction.
    fn check_logs(&self) -> Result<(), String>;
}

impl<L: Logged> Checked for L {
    fn checks(&mut self) -> Option<&mut Checks> {
        let map = self.map_mut();
        map.nand.has_power().then_some(&mut map.checks)
    }
}

impl<L: Logged> Ftl for L {
    fn duplicate(&self) -> Box<dyn Ftl> {
        Box::new(self.clone())
    }

    fn geometry(&self) -> Geometry {
        self.map().nand.geometry
    }

    fn read(&mut self, lpn: u64, n: u64, ops: &mut dyn Sink) -> Result<(), FtlError> {
        let map = self.map_mut();
        map.tables.host_read(lpn, n, &mut map.nand.counters, ops)
    }

    fn write(&mut self, lpn: u64, n: u64, ops: &mut dyn Sink) -> Result<(), FtlError> {
        bounds(lpn, n, self.capacity())?;
        self.map_mut().nand.counters.host_writes += n;
        (lpn as u32..(lpn + n) as u32).for_each(|lpn| self.write_page(lpn, ops));
        Checks::after(self, n);
        Ok(())
    }

    fn trim(&mut self, lpn: u64, n: u64, ops: &mut dyn Sink) -> Result<(), FtlError> {
        for owner in self.map_mut().trim(lpn, n, ops)? {
            self.trimmed(owner, ops);
        }
        Checks::after(self, n);
        Ok(())
    }

    fn flush(&mut self, ops: &mut dyn Sink) {
        self.map_mut().flush(ops);
    }

    fn lookup(&self, lpn: u64) -> Option<u32> {
        self.map().tables.lookup(lpn)
    }

    fn counters(&self) -> Counters {
        self.map().nand.counters
    }

    fn blocks(&self) -> Vec<BlockView> {
        self.map().views(self.logs().into_iter())
    }

    fn restart(&mut self, ops: &mut dyn Sink) {
        self.find_roles(ops);
    }

    fn cut_after(&mut self, steps: u64) {
        self.map_mut().nand.cut_after(steps);
    }

    fn check(&self) -> Result<(), String> {
        self.check_logs()
    }
}
