//! `-o remount`: change a mount in place.

use std::path::Path;

use super::find_mount;
use crate::failure::{Code, Failure, Result};
use crate::options::Options;

/// Changes the mount at `dir`.
pub(crate) fn run(dir: &Path, _options: &Options) -> Result {
    let mount = find_mount(dir)?;
    Err(Failure::new(
        Code::Usage,
        format!("{} cannot be remounted", mount.dir.display()),
    )
    .hint("unmount it, and mount it with the new options"))
}
