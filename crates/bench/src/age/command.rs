//! The command line of `stetfs bench age`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use stetfs::low::Composition;

use super::{AgeConfig, Kind, PeerSpec, Phase, Report, run};

/// A file system to age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// The kernel's ext4, over a loop device (root).
    Ext4,
    /// StetFS as a library, in this process.
    Library,
    /// A mount of StetFS (root).
    Mount,
}

/// Arguments of `bench age`.
#[derive(Clone, Debug, Args)]
pub struct AgeArgs {
    /// File systems to age. Ratios are relative to the first.
    #[arg(short, long = "peer", value_name = "NAME", default_values = ["ext4", "library", "mount"])]
    peers: Vec<Name>,
    /// Journals of StetFS, as in mount options (`zjournal,groups=core`); with several, one volume
    /// is aged for each.
    #[arg(long = "journal", value_name = "PRESET[,OPTION=VALUE…]")]
    journals: Vec<Composition>,
    /// Size of each image in MiB (2048, or 512 with --quick).
    #[arg(long, value_name = "MIB")]
    image_size: Option<u64>,
    /// Fullness of the volume in each phase, in percent.
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_values = ["80", "95"])]
    full: Vec<f64>,
    /// Days of each phase (60, or 10 with --quick).
    #[arg(long, value_name = "N")]
    days: Option<u32>,
    /// Amount written per day, in percent of the volume.
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0)]
    churn: f64,
    /// Seed of the script.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Run a small volume for a few days, for a first impression.
    #[arg(long)]
    quick: bool,
    /// Write age.txt, age.md, age.json and age.svg into this directory, too.
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl AgeArgs {
    /// Ages and judges; `stetfs` is the program to mount with.
    ///
    /// # Errors
    /// As [`run`]; the report cannot be written.
    pub fn run(&self, stetfs: &Path) -> Result<Report> {
        let days = self.days.unwrap_or(if self.quick { 10 } else { 60 });
        let mib = self
            .image_size
            .unwrap_or(if self.quick { 512 } else { 2048 });
        let report = run(&AgeConfig {
            peers: self
                .peers
                .iter()
                .flat_map(|name| self.specs(*name, stetfs))
                .collect(),
            image_bytes: mib << 20,
            seed: self.seed,
            phases: self
                .full
                .iter()
                .map(|percent| Phase {
                    full: percent / 100.0,
                    days,
                })
                .collect(),
            churn: self.churn / 100.0,
            progress: true,
        })?;
        if let Some(dir) = &self.out {
            report.write(dir).context("writing the report")?;
        }
        Ok(report)
    }

    /// The peers of a name: StetFS with each of the journals.
    fn specs(&self, name: Name, stetfs: &Path) -> Vec<PeerSpec> {
        let (name, kind) = match name {
            Name::Ext4 => ("ext4", Kind::Kernel),
            Name::Library => ("stetfs library", Kind::Library),
            Name::Mount => ("stetfs mount", Kind::Mount(stetfs.to_owned())),
        };
        let spec = |journal: Option<&Composition>| PeerSpec {
            name: match journal {
                Some(journal) => format!("{name} {journal}"),
                None => name.to_owned(),
            },
            kind: kind.clone(),
            journal: journal.cloned().unwrap_or_default(),
        };
        if kind == Kind::Kernel || self.journals.is_empty() {
            return vec![spec(None)];
        }
        self.journals.iter().map(|j| spec(Some(j))).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        args: AgeArgs,
    }

    #[test]
    fn arguments() {
        let parse = |line: &str| Program::try_parse_from(line.split(' ')).map(|p| p.args);
        assert_eq!(parse("x").unwrap().full, [80.0, 95.0]);
        assert_eq!(parse("x --full 50,60,70").unwrap().full, [50.0, 60.0, 70.0]);
        assert!(parse("x -p nothing").is_err());
        assert!(parse("x --journal nothing").is_err());
        let names = |line: &str| {
            let args = parse(line).unwrap();
            let specs = args
                .peers
                .iter()
                .flat_map(|p| args.specs(*p, Path::new("")));
            specs.map(|spec| spec.name).collect::<Vec<_>>()
        };
        let plain = ["ext4", "stetfs library", "stetfs mount"];
        assert_eq!(names("x"), plain);
        assert_eq!(
            names("x -p ext4 -p library --journal data --journal zjournal,groups=core"),
            [
                "ext4",
                "stetfs library data",
                "stetfs library zjournal,groups=core"
            ]
        );
        let refused = |line: &str| {
            let none = Path::new("none");
            parse(line).unwrap().run(none).unwrap_err().to_string()
        };
        assert!(refused("x --full 100").contains("full"));
        assert!(refused("x --churn 0").contains("above 0"));
    }
}
