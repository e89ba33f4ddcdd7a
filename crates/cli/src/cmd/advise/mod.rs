//! `stetfs advise`: the recommended mount options of a program, and the obstacles in the volume and
//! the machine.
//!
//! Statements about speed were measured (`docs/speed.md`, `docs/schemes`); the command measures
//! nothing.

mod atomic;
mod hint;
mod machine;
mod uses;
mod volume;

use std::path::Path;

use serde_json::{Value, json};

use hint::Hint;
pub(crate) use uses::Use;

use super::{connect, find_mount};
use crate::args::AdviseArgs;
use crate::failure::Result;
use crate::print;

/// `stetfs advise`.
pub(crate) fn run(args: &AdviseArgs, json: bool) -> Result {
    let at = &args.volume.volume;
    let Found {
        name,
        now,
        mut hints,
        atomic,
    } = Found::at(args)?;
    hints.extend(machine::hints(at));
    let advice = args.program.advice();
    let or = atomic.filter(|_| args.program == Use::Sqlite);
    if json {
        let value = json!({
            "volume": name,
            "for": args.program,
            "options": advice.options,
            "because": advice.because,
            "program": advice.program,
            "or": or,
            "mounted_with": now,
            "hints": hints,
        });
        print::value(&value, true);
        return Ok(());
    }
    outln!("mount it with  -o {}", advice.options);
    outln!("because        {}", advice.because);
    if let Some(program) = advice.program {
        outln!("then           {program}");
    }
    if let Some(or) = or {
        outln!("or with        -o {}", or.options);
        outln!("if             {}", or.condition);
        outln!("               {}", or.command);
        outln!("because        {}", or.because);
        for cost in &or.costs {
            outln!("costs          {cost}");
        }
    }
    if let Some(now) = now {
        outln!("it has now     journal={now}");
    }
    for hint in &hints {
        outln!("note           {}", hint.what);
        if let Some(command) = &hint.command {
            outln!("               {command}");
        }
    }
    Ok(())
}

/// The findings about a volume or a mount.
struct Found {
    name: String,
    /// The preset of the mount.
    now: Option<String>,
    hints: Vec<Hint>,
    /// Options for atomic writes, where they are possible and not in use.
    atomic: Option<atomic::Alternative>,
}

impl Found {
    fn at(args: &AdviseArgs) -> Result<Found> {
        let at = &args.volume.volume;
        if !at.is_dir() {
            let info = stetfs::low::info(&args.volume.source()?)?;
            return Ok(Found {
                hints: volume::hints(&info),
                atomic: atomic::of_volume(&info),
                name: info.volume,
                now: None,
            });
        }
        let stat = stat(at)?;
        let preset = stat.pointer("/journal/preset").and_then(Value::as_str);
        Ok(Found {
            name: at.display().to_string(),
            now: Some(preset.unwrap_or("none").to_owned()),
            hints: Vec::new(),
            atomic: atomic::of_mount(&stat),
        })
    }
}

/// The answer of the mount's server to `stat`.
fn stat(dir: &Path) -> Result<Value> {
    connect(&find_mount(dir)?)?.request(&json!({ "op": "stat" }))
}
