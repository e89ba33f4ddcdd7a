//! Recordings of the requests that programs make of a mount: the server's end of `stetfs flash
//! trace record`.

use serde_json::{Value, json};
use stetfs::low::{Asked, Volume};

use crate::failure::{Code, Failure, Result};

/// Begins a recording, or returns the events since the last request.
pub(crate) fn answer(volume: &Volume, request: &Value) -> Result<Value> {
    let none = || Failure::new(Code::System, "there is nothing to record here");
    let tap = volume.fs().tap().ok_or_else(none)?;
    let Some(id) = request["id"].as_u64() else {
        let busy = || {
            Failure::new(Code::InUse, "another process records this mount already")
                .hint("end that recording first (Ctrl-C)")
        };
        return Ok(json!({ "id": tap.begin().ok_or_else(busy)? }));
    };
    let Some(taken) = tap.take(id, request["end"] == true) else {
        return Ok(json!({ "gone": true }));
    };
    let rows = |all: &[Asked]| {
        let row = |a: &Asked| json!([a.micros, u8::from(a.write), a.offset, a.len]);
        Value::Array(all.iter().map(row).collect())
    };
    Ok(json!({
        "above": rows(&taken.above),
        "below": rows(&taken.below),
        "lost": taken.lost,
        "more": taken.more,
    }))
}
