//! The command `stetfs bench scale`.

use anyhow::Result;
use stetfs::low::Composition;

use super::args::ScaleArgs;
use super::report::ScaleReport;

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
        super::run::all(self, journals)
    }

    #[cfg(not(feature = "virtual"))]
    fn with(&self, _: &[(String, Composition)]) -> Result<ScaleReport> {
        anyhow::bail!(
            "this program has no virtual time; one that has it is built by\n  \
             cargo build --release -p stetfs-lab --features virtual --target-dir target/virtual"
        )
    }
}
