//! `stetfs quota`: for a mount through its server, else on the volume itself.

use std::path::Path;

use serde_json::{Value, json};
use stetfs::low::{FsError, QuotaKind, QuotaLimits, Volume};

use super::{connect, find_mount};
use crate::args::QuotaArgs;
use crate::failure::{Code, Failure, Result};
use crate::{ids, print};

/// Shows usage and limits, or sets limits.
pub(crate) fn run(args: &QuotaArgs, json: bool) -> Result {
    let at = &args.volume.volume;
    let mounted = at.is_dir();
    if mounted && !args.volume.options.is_empty() {
        let message = format!(
            "{} is not an image: -o names the place of a volume in an image",
            at.display()
        );
        return Err(Failure::new(Code::Usage, message).hint("leave -o out for a mount"));
    }
    if let Some((kind, id)) = args.set {
        let limits = limits(args);
        return match mounted {
            true => ask(
                at,
                &json!({ "op": "quota", "set": said(kind, id, &limits) }),
            )
            .map(drop),
            false => {
                let set = stetfs::low::set_quota(&args.volume.source()?, kind, id, limits);
                set.map_err(|e| not_set(kind, e))
            }
        };
    }
    let mut quota = match mounted {
        true => ask(at, &json!({ "op": "quota" }))?,
        false => of_volume(args)?,
    };
    let kinds = quota["kinds"].as_array_mut();
    kinds.into_iter().flatten().for_each(name);
    if json {
        print::value(&quota, true);
        return Ok(());
    }
    let kinds = quota["kinds"].as_array().map(Vec::as_slice);
    let kinds = kinds.unwrap_or_default();
    if kinds.is_empty() {
        let volume = quota["volume"].as_str().unwrap_or_default();
        outln!("{volume}: no quota");
    }
    for kind in kinds {
        let name = kind["kind"].as_str().unwrap_or_default();
        outln!(
            "{name:>10} {:>14} {:>14} {:>14} {:>9} {:>9} {:>9}",
            "bytes",
            "soft",
            "hard",
            "inodes",
            "soft",
            "hard"
        );
        for e in kind["entries"].as_array().into_iter().flatten() {
            outln!("{}", line(e));
        }
    }
    Ok(())
}

fn limits(args: &QuotaArgs) -> QuotaLimits {
    let kib = |bytes: Option<u64>| bytes.unwrap_or(0).div_ceil(1024);
    QuotaLimits {
        space_hard: kib(args.space),
        space_soft: kib(args.space_soft),
        inodes_hard: args.inodes.unwrap_or(0),
        inodes_soft: args.inodes_soft.unwrap_or(0),
    }
}

fn not_set(kind: QuotaKind, e: FsError) -> Failure {
    match e.errno() {
        libc::ESRCH => {
            let message = format!("the volume has no {} quota", kind.name());
            Failure::new(Code::Usage, message)
                .hint("`tune2fs -Q usrquota,grpquota,prjquota` adds it to an unmounted volume")
        }
        _ => e.into(),
    }
}

/// Usage and limits of a volume that is not mounted.
fn of_volume(args: &QuotaArgs) -> Result<Value> {
    let source = args.volume.source()?;
    let quota = stetfs::low::quota(&source).map_err(|e| match e {
        FsError::Errno(libc::EROFS) => {
            let volume = source.path.display();
            let message = format!("{volume} has a journal to be replayed, which may change usage");
            Failure::new(Code::Volume, message).hint(format!("first: stetfs recover {volume}"))
        }
        e => e.into(),
    })?;
    Ok(json!(quota))
}

/// The answer of a mount's server to a request.
fn ask(dir: &Path, request: &Value) -> Result<Value> {
    connect(&find_mount(dir)?)?.request(request)
}

/// The fields of a request that sets limits; space is in KiB.
fn said(kind: QuotaKind, id: u32, limits: &QuotaLimits) -> Value {
    json!({
        "kind": kind.name(),
        "id": id,
        "space_hard": limits.space_hard,
        "space_soft": limits.space_soft,
        "inodes_hard": limits.inodes_hard,
        "inodes_soft": limits.inodes_soft,
    })
}

/// Answers a quota request, in the server.
pub(crate) fn answer(volume: &Volume, request: &Value) -> Result<Value> {
    let Some(set) = request.get("set") else {
        return Ok(json!(volume.quota()?));
    };
    let number = |name: &str| set[name].as_u64();
    let kind = QuotaKind::ALL
        .into_iter()
        .find(|kind| set["kind"] == kind.name());
    let id = number("id").and_then(|id| u32::try_from(id).ok());
    let (Some(kind), Some(id)) = (kind, id) else {
        return Err(Failure::new(
            Code::Usage,
            format!("limits without a valid kind and id: {set}"),
        ));
    };
    let limits = QuotaLimits {
        space_hard: number("space_hard").unwrap_or_default(),
        space_soft: number("space_soft").unwrap_or_default(),
        inodes_hard: number("inodes_hard").unwrap_or_default(),
        inodes_soft: number("inodes_soft").unwrap_or_default(),
    };
    let set = volume.set_quota(kind, id, limits);
    set.map_err(|e| not_set(kind, e))?;
    Ok(json!({ "set": true }))
}

/// Adds to the ids of a kind their names on this system.
fn name(kind: &mut Value) {
    let names = ids::names(kind["kind"].as_str().unwrap_or_default());
    for entry in kind["entries"].as_array_mut().into_iter().flatten() {
        let id = entry["id"].as_u64().and_then(|id| u32::try_from(id).ok());
        if let Some(name) = id.and_then(|id| names.get(&id)) {
            entry["name"] = json!(name);
        }
    }
}

fn line(e: &Value) -> String {
    let number = |name: &str| e[name].as_u64().unwrap_or_default();
    let limit = |name: &str| match number(name) {
        0 => "-".to_owned(),
        n => n.to_string(),
    };
    let who = e["name"].as_str().map(str::to_owned);
    format!(
        "{:>10} {:>14} {:>14} {:>14} {:>9} {:>9} {:>9}",
        who.unwrap_or_else(|| number("id").to_string()),
        number("space"),
        limit("space_soft"),
        limit("space_hard"),
        number("inodes"),
        limit("inodes_soft"),
        limit("inodes_hard")
    )
}
