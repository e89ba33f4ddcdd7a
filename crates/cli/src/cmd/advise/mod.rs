//! `stetfs advise`: how a volume is best mounted for a program, and what of the volume and the
//! machine is in the way.
//!
//! What it says of speed was measured (`docs/speed.md`, `docs/schemes`); it measures nothing
//! itself.

mod machine;
mod uses;
mod volume;

use std::path::Path;

use serde::Serialize;
use serde_json::json;

pub(crate) use uses::Use;

use super::{connect, find_mount};
use crate::args::AdviseArgs;
use crate::failure::Result;
use crate::print;

/// Something to do, or to know.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Hint {
    /// What stands in the way.
    what: String,
    /// The command that changes it; none where there is only something to know.
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
}

impl Hint {
    fn new(what: impl Into<String>) -> Hint {
        Hint {
            what: what.into(),
            command: None,
        }
    }

    fn by(self, command: impl Into<String>) -> Hint {
        Hint {
            command: Some(command.into()),
            ..self
        }
    }
}

/// `stetfs advise`.
pub(crate) fn run(args: &AdviseArgs, json: bool) -> Result {
    let at = &args.volume.volume;
    let (name, now, mut hints) = if at.is_dir() {
        (at.display().to_string(), Some(preset_of(at)?), Vec::new())
    } else {
        let info = stetfs::low::info(&args.volume.source()?)?;
        let hints = volume::hints(&info);
        (info.volume, None, hints)
    };
    hints.extend(machine::hints(at));
    let advice = args.program.advice();
    if json {
        let value = json!({
            "volume": name,
            "for": args.program,
            "options": advice.options,
            "because": advice.because,
            "program": advice.program,
            "mounted_with": now,
            "hints": hints,
        });
        print::value(&value, true);
        return Ok(());
    }
    println!("mount it with  -o {}", advice.options);
    println!("because        {}", advice.because);
    if let Some(program) = advice.program {
        println!("then           {program}");
    }
    if let Some(now) = now {
        println!("it has now     journal={now}");
    }
    for hint in &hints {
        println!("note           {}", hint.what);
        if let Some(command) = &hint.command {
            println!("               {command}");
        }
    }
    Ok(())
}

/// The preset that a mount has.
fn preset_of(dir: &Path) -> Result<String> {
    let mut client = connect(&find_mount(dir)?)?;
    let stat = client.request(&json!({ "op": "stat" }))?;
    let preset = stat.pointer("/journal/preset");
    Ok(preset.and_then(|p| p.as_str()).unwrap_or("none").to_owned())
}
