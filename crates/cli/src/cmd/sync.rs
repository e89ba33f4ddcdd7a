//! `stetfs sync`: make all changes of a mounted volume durable, also where the kernel does not pass
//! syncfs(2) on to its server.

use std::sync::mpsc;
use std::time::Instant;

use serde_json::{Value, json};
use stetfs::low::Volume;

use super::freeze::write_back;
use super::{connect, find_mount};
use crate::args::FreezeArgs;
use crate::failure::{Code, Failure, Result};
use crate::print;

/// Makes all changes of the volume mounted at a directory durable.
pub(crate) fn run(args: &FreezeArgs, as_json: bool) -> Result {
    let mount = find_mount(&args.dir)?;
    let mut client = connect(&mount)?;
    // The kernel's dirty pages come to the server first.
    write_back(&mount.dir)?;
    let mut answer = client.request(&json!({ "op": "sync" }))?;
    answer["dir"] = json!(mount.dir.display().to_string());
    if as_json {
        print::value(&answer, true);
    }
    Ok(())
}

/// The server's answer: success when everything is durable, else the error. Lost data is reported
/// once.
pub(crate) fn answer(volume: &Volume) -> Result<Value> {
    let begun = Instant::now();
    let (told, answer) = mpsc::channel();
    volume
        .fs()
        .sync_all(Box::new(move |synced| drop(told.send(synced))));
    let ended = |_| Failure::new(Code::Io, "the volume was closed before it was synced");
    answer.recv().map_err(ended)??;
    let seconds = begun.elapsed().as_secs_f64();
    let path = volume.path().display().to_string();
    Ok(json!({ "synced": true, "volume": path, "seconds": seconds }))
}
