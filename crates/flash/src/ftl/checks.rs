//! Consistency checks of a layer's tables after its steps, in debug builds.

use super::Ftl;

/// A layer is checked after it has done as many page steps as this fraction of its pages. So the
/// checks take only a constant factor more time than the steps. A small device is checked after
/// each step.
const PART: u64 = 256;

/// Page steps since the last check.
#[derive(Clone, Default)]
pub(super) struct Checks {
    pages: u64,
}

/// A layer that counts its steps.
pub(super) trait Checked: Ftl {
    /// The count; `None` while the tables need not agree with the flash.
    fn checks(&mut self) -> Option<&mut Checks>;
}

impl Checks {
    /// Counts a step of this many pages, and checks the tables if it is time.
    ///
    /// # Panics
    /// The tables are inconsistent.
    pub(super) fn after(layer: &mut impl Checked, pages: u64) {
        if !cfg!(debug_assertions) {
            return;
        }
        let due = u64::from(layer.geometry().pages()) / PART;
        let Some(checks) = layer.checks() else {
            return;
        };
        checks.pages += pages;
        if checks.pages >= due {
            checks.pages = 0;
            if let Err(wrong) = layer.check() {
                panic!("{wrong}");
            }
        }
    }
}
