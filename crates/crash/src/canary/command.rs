//! The subcommand `stetfs crash canaries`.

use anyhow::{Error, Result, ensure};
use clap::Args;
use serde_json::json;

use super::{Bounds, Caught, Fault, Trial, all, find, try_fault};
use crate::answer::Answer;
use crate::stress::command::this_program;

/// Arguments of `crash canaries`.
#[derive(Clone, Debug, Args)]
pub struct CanariesArgs {
    /// Faults to plant [default: all].
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// List the faults.
    #[arg(long)]
    list: bool,
    /// Seed of all random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Time to search for each fault in each setting, in seconds.
    #[arg(long, value_name = "N", default_value_t = 30.0)]
    seconds: f64,
    /// Most crash states to try, or stress rounds to run.
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    states: u64,
    /// Run each setting without its fault, and check that nothing is found.
    #[arg(long)]
    sound: bool,
}

impl CanariesArgs {
    fn faults(&self) -> Result<Vec<&'static Fault>> {
        if self.names.is_empty() {
            return Ok(all().collect());
        }
        self.names
            .iter()
            .map(|name| find(name).map_err(Error::msg))
            .collect()
    }

    pub(crate) fn run(&self) -> Result<Answer> {
        ensure!(
            self.seconds.is_finite() && self.seconds > 0.0,
            "--seconds must be above 0"
        );
        let faults = self.faults()?;
        if self.list {
            return list(&faults);
        }
        let bounds = Bounds {
            seed: self.seed,
            seconds: self.seconds,
            states: self.states,
            sound: self.sound,
            brisk: false,
        };
        let mut rows: Vec<Caught> = Vec::new();
        eprintln!("{}", heading());
        for fault in &faults {
            let mut told = |c: &Caught| eprintln!("{}", line(c, self.sound));
            rows.extend(try_fault(fault, bounds, &this_program, &mut told)?);
        }
        let by_tests = |fault: &&&Fault| fault.trials.iter().all(|trial| trial.test().is_some());
        let by_tests = faults.iter().filter(by_tests).count();
        let is_wrong = |c: &&Caught| c.caught == self.sound;
        let wrong: Vec<&Caught> = rows.iter().filter(is_wrong).collect();
        let mut text = format!(
            "{} faults in {} settings: {}\n",
            faults.len(),
            rows.len(),
            match (wrong.len(), self.sound) {
                _ if rows.is_empty() => "nothing was run".into(),
                (0, false) => "all are found".into(),
                (0, true) => "nothing is found without them".into(),
                (n, false) => format!("{n} are not found"),
                (n, true) => format!("{n} find something without the fault"),
            }
        );
        if by_tests > 0 {
            text.push_str(&format!("{by_tests} are left to tests (--list)\n"));
        }
        let missing = faults.iter().flat_map(|fault| fault.trials);
        for journal in missing.filter_map(Trial::missing) {
            text.push_str(&format!(
                "one setting is left out: `{journal}` is not in this program (build it with \
                 --features {journal})\n"
            ));
        }
        for c in &wrong {
            text.push_str(&format!(
                "{}, {}, {}: {}\n",
                c.canary, c.journal, c.work, c.finding
            ));
        }
        let broken = !wrong.is_empty();
        let mut answer = Answer::new(text, &rows)?;
        answer.broken = broken;
        Ok(answer)
    }
}

fn heading() -> String {
    format!(
        "{:24} {:26} {:14} {:>8} {:>8} {:>6}",
        "canary", "journal", "workload", "states", "images", "s"
    )
}

fn line(c: &Caught, sound: bool) -> String {
    let said = match (c.caught, sound) {
        (true, _) => c.finding.as_str(),
        (false, true) => "sound",
        (false, false) => "NOT FOUND",
    };
    let said: String = said
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(120)
        .collect();
    format!(
        "{:24} {:26} {:14} {:>8} {:>8} {:>6.1}  {said}",
        c.canary, c.journal, c.work, c.states, c.distinct, c.seconds
    )
}

fn list(faults: &[&Fault]) -> Result<Answer> {
    let mut text = String::new();
    let mut rows = Vec::new();
    for fault in faults {
        text.push_str(&format!(
            "{:24} {} ({})\n",
            fault.name, fault.what, fault.from
        ));
        let settings: Vec<String> = fault.trials.iter().flat_map(settings).collect();
        rows.push(json!({
            "canary": fault.name,
            "what": fault.what,
            "from": fault.from.to_string(),
            "settings": settings,
        }));
    }
    text.push_str(&format!("{} faults\n", faults.len()));
    Answer::new(text, rows)
}

fn settings(trial: &Trial) -> Vec<String> {
    let what = match trial {
        Trial::Lab(lab) => format!(
            "{}, blocks of {}{}",
            lab.work(),
            lab.shape.block,
            match lab.shape.region {
                Some(_) => ", a region",
                None => "",
            }
        ),
        Trial::Stress(stress) => format!("stress, {:?}", stress.end).to_lowercase(),
        Trial::Suite(file, name) => return vec![format!("the test {name} in crates/{file}")],
        Trial::Model(model, name) => return vec![format!("the model {model}: {name}")],
    };
    let of = |journal| format!("{journal}, {what}");
    trial.journals().into_iter().map(of).collect()
}
