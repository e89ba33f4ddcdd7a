//! `stetfs stat`: live counters of a mount.

use serde_json::{Value, json};

use super::find_mount;
use crate::args::DirArg;
use crate::control::client::Client;
use crate::failure::{Code, Failure, Result};

/// Asks the server of a mount for its counters.
pub(crate) fn run(args: &DirArg) -> Result<Value> {
    let mount = find_mount(&args.dir)?;
    let mut client = Client::connect(&mount).map_err(|e| {
        Failure::new(
            Code::NotFound,
            format!("the server of {} does not answer: {e}", mount.dir.display()),
        )
        .hint(
            "if it was killed, take the mount down with: stetfs umount DIR; \
                   only the user who mounted it can ask",
        )
    })?;
    let pid = client.pid();
    let mut answer = client.request(&json!({ "op": "stat" }))?;
    answer["pid"] = json!(pid);
    Ok(answer)
}
