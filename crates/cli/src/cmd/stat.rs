//! `stetfs stat`: live counters of a mount.

use serde_json::{Value, json};

use super::{connect, find_mount};
use crate::args::DirArg;
use crate::failure::Result;

/// Asks the server of a mount for its counters.
pub(crate) fn run(args: &DirArg) -> Result<Value> {
    let mount = find_mount(&args.dir)?;
    let mut client = connect(&mount)?;
    let pid = client.pid();
    let mut answer = client.request(&json!({ "op": "stat" }))?;
    answer["pid"] = json!(pid);
    Ok(answer)
}
