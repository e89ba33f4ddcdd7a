//! The copy of a layer into a volume.

use std::path::Path;

use super::existing::Existing;
use super::layer::{Layer, is_of_overlay};
use super::{Copied, Copy, PART};
use crate::failure::Result;
use crate::files::meter::Meter;
use crate::files::tree::{Entered, Kind, Tree};

impl Layer<'_> {
    /// Copies the content and the attributes of `from`.
    ///
    /// # Errors
    /// The volume is full, or failed; Ctrl-C. Errors of single files of the source are told to the
    /// meter.
    pub(in crate::files) fn apply(self, from: &dyn Tree, meter: &mut Meter) -> Result {
        let (mut copied, mut buf) = (Copied::default(), vec![0; PART]);
        let mut copy = Copy {
            from,
            to: self.to,
            archive: true,
            keeps_modes: true,
            keeps_special: true,
            owner: self.owner,
            to_host: false,
            existing: Existing {
                stays: false,
                stays_if_newer: false,
            },
            follows: false,
            above: Vec::new(),
            copied: &mut copied,
            top: None,
            levels: Vec::new(),
            entered: Entered::default(),
            layer: Some(self),
            buf: &mut buf,
            meter,
        };
        copy.tree(Path::new(""), Path::new(""))?;
        copied.guard(meter)
    }
}

impl Copy<'_> {
    /// Removes what lower layers have at `to`.
    pub(super) fn hide(&self, to: &Path) -> Result {
        match (self.layer, self.to.item(to)?) {
            (Some(layer), Some(_)) => layer.to.remove_all(to),
            _ => Ok(()),
        }
    }

    /// Removes what gives way to the directory `from`: anything but a directory, and what an opaque
    /// directory hides.
    pub(super) fn uncover(&mut self, from: &Path, to: &Path) -> Result {
        let is_dir = self
            .to
            .item(to)?
            .is_some_and(|there| there.kind == Kind::Dir);
        if !is_dir {
            return self.hide(to);
        }
        if !self.layer.is_some_and(|layer| layer.overlay) {
            return Ok(());
        }
        let xattrs = self.meter.troubles.pass(self.from.xattrs(from))?;
        let mut xattrs = xattrs.into_iter().flatten();
        if xattrs.any(|(name, value)| is_of_overlay(&name, "opaque") && value == b"y") {
            for name in self.to.names(to)? {
                self.hide(&to.join(name))?;
            }
        }
        Ok(())
    }
}
