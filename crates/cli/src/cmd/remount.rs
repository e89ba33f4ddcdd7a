//! `-o remount`: change a mount in place.

use std::path::Path;

use serde_json::{Value, json};

use super::{connect, find_mount};
use crate::failure::Result;

/// Changes the options of the mount at `dir` to `options`; options that it does not name stay.
/// Returns a warning of the named options that a remount cannot change.
pub(crate) fn run(dir: &Path, options: &str) -> Result<Option<String>> {
    let mount = find_mount(dir)?;
    let answer = connect(&mount)?.request(&json!({ "op": "remount", "options": options }))?;
    let kept = answer["kept"].as_array().into_iter().flatten();
    let kept: Vec<&str> = kept.filter_map(Value::as_str).collect();
    Ok((!kept.is_empty()).then(|| {
        format!(
            "a remount does not change {}: unmount it and mount it again for that",
            kept.join(", ")
        )
    }))
}
