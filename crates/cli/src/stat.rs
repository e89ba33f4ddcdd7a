//! The counters of a volume being served.

use serde_json::{Value, json};
use stetfs::{BlockDevice, Volume};

/// All counters, for `stetfs stat`.
pub(crate) fn counters(volume: &Volume) -> Value {
    let device = volume.device().stats();
    json!({
        "volume": volume.path().display().to_string(),
        "journal": volume.preset().name(),
        "device": format!("{device:?}"),
    })
}
