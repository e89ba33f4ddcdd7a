//! `stetfs quota`.

use serde_json::json;
use stetfs::low::{FsError, QuotaIdInfo, QuotaLimits};

use crate::args::QuotaArgs;
use crate::failure::{Code, Failure, Result};
use crate::print;

/// Shows usage and limits, or sets limits.
pub(crate) fn run(args: &QuotaArgs, json: bool) -> Result {
    let source = args.volume.source()?;
    if let Some((kind, id)) = args.set {
        let kib = |bytes: Option<u64>| bytes.unwrap_or(0).div_ceil(1024);
        let limits = QuotaLimits {
            space_hard: kib(args.space),
            space_soft: kib(args.space_soft),
            inodes_hard: args.inodes.unwrap_or(0),
            inodes_soft: args.inodes_soft.unwrap_or(0),
        };
        return match stetfs::low::set_quota(&source, kind, id, limits) {
            Err(e) if e.errno() == libc::ESRCH => Err(Failure::new(
                Code::Usage,
                format!("the volume has no {} quota", kind.name()),
            )
            .hint("`tune2fs -Q usrquota,grpquota,prjquota` adds it to an unmounted volume")),
            other => Ok(other?),
        };
    }
    let quota = stetfs::low::quota(&source).map_err(|e| match e {
        FsError::Errno(libc::EROFS) => {
            let volume = source.path.display();
            let message = format!("{volume} has a journal to be replayed, which may change usage");
            Failure::new(Code::Volume, message).hint(format!("first: stetfs recover {volume}"))
        }
        e => e.into(),
    })?;
    if json {
        print::value(&json!(quota), true);
        return Ok(());
    }
    if quota.kinds.is_empty() {
        println!("{}: no quota", quota.volume);
    }
    for kind in quota.kinds {
        println!(
            "{:>10} {:>14} {:>14} {:>14} {:>9} {:>9} {:>9}",
            kind.kind, "bytes", "soft", "hard", "inodes", "soft", "hard"
        );
        for e in kind.entries {
            println!("{}", line(&e));
        }
    }
    Ok(())
}

fn line(e: &QuotaIdInfo) -> String {
    let limit = |n: u64| match n {
        0 => "-".to_owned(),
        n => n.to_string(),
    };
    format!(
        "{:>10} {:>14} {:>14} {:>14} {:>9} {:>9} {:>9}",
        e.id,
        e.space,
        limit(e.space_soft),
        limit(e.space_hard),
        e.inodes,
        limit(e.inodes_soft),
        limit(e.inodes_hard)
    )
}
