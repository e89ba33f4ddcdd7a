//! Loads on many simulated cores, in virtual time: how StetFS scales on machines that are not here.
//!
//! The code that runs is that of the library; its threads run one at a time, in the order of
//! virtual time, and the device is a model (decisions/0046). Without the cargo feature `virtual`
//! the locks know no virtual time, and the command only says how to build it.

mod args;
mod report;
#[cfg(feature = "virtual")]
mod run;

use anyhow::Result;
use stetfs::low::Composition;

pub use args::{Load, ScaleArgs};
pub use report::{Compared, Row, ScaleReport, WaitedFor};

impl ScaleArgs {
    /// Runs all loads.
    ///
    /// # Errors
    /// This program has no virtual time; a journal that does not exist; mke2fs fails; the load
    /// fails or comes to a standstill.
    pub fn run(&self) -> Result<ScaleReport> {
        let journals = self.journals.iter().map(|text| {
            let text = text.strip_prefix("journal=").unwrap_or(text);
            Ok((text.to_owned(), text.parse()?))
        });
        self.with(&journals.collect::<Result<Vec<_>>>()?)
    }

    #[cfg(feature = "virtual")]
    fn with(&self, journals: &[(String, Composition)]) -> Result<ScaleReport> {
        run::all(self, journals)
    }

    #[cfg(not(feature = "virtual"))]
    fn with(&self, _: &[(String, Composition)]) -> Result<ScaleReport> {
        anyhow::bail!(
            "this program has no virtual time; one that has it is built by\n  \
             cargo build --release -p stetfs-lab --features virtual --target-dir target/virtual"
        )
    }
}
