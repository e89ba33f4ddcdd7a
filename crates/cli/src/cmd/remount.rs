//! `-o remount`: change a mount in place.

use std::path::Path;

use serde_json::json;

use super::{connect, find_mount};
use crate::failure::Result;

/// Gives the mount at `dir` other options; those that `options` does not name stay.
pub(crate) fn run(dir: &Path, options: &str) -> Result {
    let mount = find_mount(dir)?;
    connect(&mount)?
        .request(&json!({ "op": "remount", "options": options }))
        .map(drop)
}
