//! Looks at a layer's tables after its steps, in debug builds.

use super::Ftl;

/// A layer is looked at as a whole when it has done as many pages as this part of its own: the
/// looks cost no more than so many times the steps themselves. A small device is looked at after
/// each.
const PART: u64 = 256;

/// Steps since the last look.
#[derive(Clone, Default)]
pub(super) struct Checks {
    pages: u64,
}

/// A layer that counts its steps.
pub(super) trait Checked: Ftl {
    /// The count; nothing while its tables need not agree with the flash.
    fn checks(&mut self) -> Option<&mut Checks>;
}

impl Checks {
    /// After a step of so many pages.
    ///
    /// # Panics
    /// Something is wrong with the tables.
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
