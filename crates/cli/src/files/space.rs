//! `df`: the space of volumes.

use serde_json::{Value, json};

use super::args::DfArgs;
use super::size::human;
use super::troubles::Troubles;
use super::volumes::{Use, open};
use crate::failure::{Code, Result};

/// The numbers of a line: all, used, available.
struct Line {
    name: String,
    all: u64,
    used: u64,
    available: u64,
}

impl Line {
    /// The used part of what users can have, percent, rounded up.
    fn percent(&self) -> String {
        let most = u128::from(self.used) + u128::from(self.available);
        match most {
            0 => "-".to_owned(),
            most => format!("{}%", (u128::from(self.used) * 100).div_ceil(most)),
        }
    }
}

/// Runs `stetfs df`.
pub(super) fn run(args: &DfArgs, json: bool) -> Result<Code> {
    let mut troubles = Troubles::default();
    let mut lines = Vec::new();
    let mut listed: Vec<Value> = Vec::new();
    for image in &args.images {
        let space = open(image, Use::Read, &args.opening).and_then(|volume| {
            let space = volume.space();
            volume.close()?;
            Ok(space)
        });
        let space = match args.images.len() {
            1 => Some(space?),
            _ => troubles.pass(space)?,
        };
        let Some(space) = space else {
            continue;
        };
        let name = image.display().to_string();
        let used = space.total.saturating_sub(space.free);
        let files_used = space.files.saturating_sub(space.files_free);
        listed.push(json!({
            "volume": name,
            "total": space.total,
            "used": used,
            "free": space.free,
            "available": space.available,
            "inodes": space.files,
            "inodes_used": files_used,
            "inodes_free": space.files_free,
        }));
        lines.push(match args.inodes {
            true => Line {
                name,
                all: space.files,
                used: files_used,
                available: space.files_free,
            },
            false => Line {
                name,
                all: space.total,
                used,
                available: space.available,
            },
        });
    }
    match json {
        true => outln!(
            "{}",
            json!({ "volumes": listed, "errors": troubles.to_json() })
        ),
        false => print(args, &lines),
    }
    troubles.end("shown", json)
}

fn print(args: &DfArgs, lines: &[Line]) {
    let number = |n: u64| match (args.human_readable, args.inodes) {
        (true, _) => human(n),
        (false, true) => n.to_string(),
        (false, false) => n.div_ceil(1024).to_string(),
    };
    let heads = match (args.inodes, args.human_readable) {
        (true, _) => ["Volume", "Inodes", "IUsed", "IFree", "IUse%"],
        (false, true) => ["Volume", "Size", "Used", "Avail", "Use%"],
        (false, false) => ["Volume", "1K-blocks", "Used", "Available", "Use%"],
    };
    let mut rows = vec![heads.map(str::to_owned)];
    rows.extend(lines.iter().map(|line| {
        let numbers = [line.all, line.used, line.available].map(number);
        let [all, used, available] = numbers;
        [line.name.clone(), all, used, available, line.percent()]
    }));
    let width = |at: usize| {
        rows.iter()
            .map(|row| row[at].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: [usize; 5] = std::array::from_fn(width);
    for row in &rows {
        let name = format!("{:<1$}", row[0], widths[0]);
        let numbers = row.iter().zip(widths).skip(1);
        let numbers = numbers.map(|(text, width)| format!(" {text:>width$}"));
        outln!("{name}{}", numbers.collect::<String>());
    }
}
