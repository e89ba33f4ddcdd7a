//! The command line of `stetfs bench compare`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;

use super::{
    Beside, CompareConfig, KernelFs, Oltp, PeerSpec, Peers, PeersConfig, Postmark, Report, Sizes,
    Target, Workload, run,
};

/// Arguments of `bench compare`.
#[derive(Clone, Debug, Args)]
pub struct CompareArgs {
    /// Mounted directories with their names in the report. Ratios are relative to the first.
    #[arg(value_name = "NAME=DIR", value_parser = target, required_unless_present = "setup")]
    targets: Vec<(String, PathBuf)>,
    /// Compare StetFS with the kernel's ext4 on new images, each behind a loop device (needs root).
    /// Everything is taken down again.
    #[arg(long, conflicts_with = "targets")]
    setup: bool,
    /// With --setup: StetFS mounts to compare, each given by its mount options, e.g.
    /// `journal=data`.
    #[arg(long = "stetfs", value_name = "OPTIONS", default_values = ["journal=ordered,io_uring=off", "journal=ordered,io_uring=on", "journal=data,io_uring=off"])]
    stetfs: Vec<String>,
    /// With --setup: mount all of --stetfs with this program, too, e.g. with an older `stetfs`.
    #[arg(long, value_name = "PROGRAM", requires = "setup")]
    old: Option<PathBuf>,
    /// With --setup: before a workload mounts again (steady, stream), wait until the kernel of a
    /// virtual machine has given its free memory back to the host, as it does with time.
    #[arg(long, requires = "setup")]
    untouched: bool,
    /// With --setup: kernel mounts to compare with (ordered, journal and writeback are ext4's).
    /// Ratios are relative to the first.
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "ordered,journal"
    )]
    kernel: Vec<KernelFs>,
    /// With --setup: size of each image in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 2048)]
    image_size: u64,
    /// With --setup: size of the journals in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 128)]
    journal_size: u32,
    /// With --setup: put each image on a simulated device (sata-ssd, nvme-ssd or disk) in memory
    /// instead of a file.
    #[arg(long, value_name = "NAME", requires = "setup")]
    model: Option<stetfs_flash::Model>,
    /// With --setup: make each image a file on an XFS of its own, which can share blocks
    /// (reflinks); StetFS opens the file, the kernel's ext4 a loop device over it.
    #[arg(long, requires = "setup", conflicts_with = "model")]
    xfs: bool,
    /// Run only these workloads.
    #[arg(short, long = "workload", value_name = "NAME", value_delimiter = ',', value_parser = workload, long_help = workload_help())]
    workloads: Vec<Workload>,
    /// Run the workloads beside a writer without syncs, once for each of these rates in MB/s; 0:
    /// alone. The writer appends, and empties its file when that is long; with `500-in-place` it
    /// overwrites the file instead.
    #[arg(long, value_name = "MB/S", value_delimiter = ',', default_value = "0")]
    beside: Vec<Beside>,
    /// Rounds of each workload on each target (5, or 3 with --quick).
    #[arg(short, long)]
    rounds: Option<u32>,
    /// Do less work per round, for a first impression in about a minute.
    #[arg(long)]
    quick: bool,
    /// Synced writes per round, in each of the two latency workloads.
    #[arg(long, value_name = "N")]
    syncs: Option<u32>,
    /// Files per thread and round, in the workloads on names.
    #[arg(long, value_name = "N")]
    names: Option<u32>,
    /// MiB that are written and read per round.
    #[arg(long, value_name = "MIB")]
    stream_size: Option<u64>,
    /// Files of the cloned repository.
    #[arg(long, value_name = "N")]
    git_files: Option<u32>,
    /// SQLite transactions per round.
    #[arg(long, value_name = "N")]
    transactions: Option<u32>,
    /// Seconds per round, in the workloads of server profiles and on PostgreSQL.
    #[arg(long, value_name = "SECONDS")]
    profile_seconds: Option<u32>,
    /// Initial files of PostMark's pool.
    #[arg(long, value_name = "N")]
    postmark_files: Option<u32>,
    /// PostMark transactions per round.
    #[arg(long, value_name = "N")]
    postmark_transactions: Option<u32>,
    /// Sizes of PostMark's files in bytes, e.g. 500-10000.
    #[arg(long, value_name = "LEAST-MOST", value_parser = range)]
    postmark_sizes: Option<(usize, usize)>,
    /// Concurrent clients of PostgreSQL.
    #[arg(long, value_name = "N")]
    clients: Option<u32>,
    /// pgbench's scale factor, in units of 100 000 accounts, about 15 MB.
    #[arg(long, value_name = "N")]
    scale: Option<u32>,
    /// MiB of the copied tree.
    #[arg(long, value_name = "MIB")]
    copy_size: Option<u64>,
    /// Path of the sqlite3 program.
    #[arg(long, value_name = "PROGRAM", default_value = "sqlite3")]
    sqlite3: PathBuf,
    /// Write compare.txt, compare.md, compare.json and compare.svg into this directory, too.
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
}

fn target(text: &str) -> std::result::Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, dir)) if !name.is_empty() && !dir.is_empty() => {
            Ok((name.to_owned(), dir.into()))
        }
        _ => Err("give a name and a directory, e.g. ext4=/mnt/a".to_owned()),
    }
}

fn range(text: &str) -> std::result::Result<(usize, usize), String> {
    let ends = text.split_once('-');
    ends.and_then(|(least, most)| Some((least.parse().ok()?, most.parse().ok()?)))
        .ok_or_else(|| "give the smallest and the largest, e.g. 500-10000".to_owned())
}

fn workload(text: &str) -> std::result::Result<Workload, String> {
    Workload::from_name(text).ok_or_else(|| format!("the workloads are {}", names()))
}

fn names() -> String {
    Workload::ALL.map(Workload::name).join(", ")
}

fn workload_help() -> String {
    format!("Run only these workloads: {}", names())
}

impl CompareArgs {
    /// Measures; `stetfs` is the program that --setup mounts with.
    pub fn run(&self, stetfs: &Path) -> Result<Report> {
        let report = if self.setup {
            let presets = self.stetfs.iter().flat_map(|options| {
                let name = options.trim_start_matches("journal=");
                let programs = self.old.iter().map(Some).chain([None]);
                programs.map(move |program| PeerSpec {
                    name: format!("stetfs {name}{}", program.map_or("", |_| " (old)")),
                    options: options.clone(),
                    program: program.cloned(),
                    ..PeerSpec::default()
                })
            });
            let config = PeersConfig {
                image_bytes: self.image_size << 20,
                journal_mib: self.journal_size,
                model: self.model,
                xfs: self.xfs,
                untouched: self.untouched,
                kernel: self.kernel.iter().copied().map(PeerSpec::from).collect(),
                ..PeersConfig::new(Some(stetfs.to_owned()), presets.collect())
            };
            Peers::compare(&config, |c| self.tune(c))?
        } else {
            if self.targets.is_empty() {
                bail!("give directories to compare (NAME=DIR …), or --setup");
            }
            let targets = self
                .targets
                .iter()
                .map(|(name, dir)| Target::new(name, dir))
                .collect();
            run(&mut self.tune(CompareConfig::new(targets)))?
        };
        if let Some(dir) = &self.out {
            report.write(dir).context("writing the report")?;
        }
        Ok(report)
    }

    fn tune(&self, mut config: CompareConfig) -> CompareConfig {
        if self.quick {
            config = config.quick();
        }
        if !self.workloads.is_empty() {
            config.workloads.clone_from(&self.workloads);
        }
        config.beside.clone_from(&self.beside);
        config.rounds = self.rounds.unwrap_or(config.rounds);
        let sizes = config.sizes;
        let (least, most) = self
            .postmark_sizes
            .unwrap_or((sizes.postmark.least, sizes.postmark.most));
        config.sizes = Sizes {
            syncs: self.syncs.unwrap_or(sizes.syncs),
            names: self.names.unwrap_or(sizes.names),
            stream_bytes: self.stream_size.map_or(sizes.stream_bytes, |mib| mib << 20),
            git_files: self.git_files.unwrap_or(sizes.git_files),
            transactions: self.transactions.unwrap_or(sizes.transactions),
            profile_seconds: self.profile_seconds.unwrap_or(sizes.profile_seconds),
            postmark: Postmark {
                files: self.postmark_files.unwrap_or(sizes.postmark.files),
                transactions: self
                    .postmark_transactions
                    .unwrap_or(sizes.postmark.transactions),
                least,
                most,
                ..sizes.postmark
            },
            oltp: Oltp {
                clients: self.clients.unwrap_or(sizes.oltp.clients),
                scale: self.scale.unwrap_or(sizes.oltp.scale),
                seconds: self.profile_seconds.unwrap_or(sizes.oltp.seconds),
            },
            copy_bytes: self.copy_size.map_or(sizes.copy_bytes, |mib| mib << 20),
            ..sizes
        };
        config.sqlite3.clone_from(&self.sqlite3);
        config
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::Parser;

    use super::super::Format;
    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        args: CompareArgs,
    }

    fn parse(line: &str) -> std::result::Result<CompareArgs, clap::Error> {
        Program::try_parse_from(line.split(' ')).map(|p| p.args)
    }

    #[test]
    fn arguments() {
        let dir = tempfile::tempdir().unwrap();
        let line = format!(
            "x a={} --quick -w names-1 --names 7 -r 2",
            dir.path().display()
        );
        let report = parse(&line).unwrap().run(Path::new("none")).unwrap();
        assert_eq!(
            (report.rounds, report.targets.as_slice()),
            (2, ["a".to_owned()].as_slice())
        );
        assert_eq!(report.metrics.len(), 3);
        assert!(parse("x nodir").is_err());
        assert!(parse("x a=/ --setup").is_err());
        assert!(
            parse("x a=/ -w nothing")
                .unwrap_err()
                .to_string()
                .contains("append-fsync")
        );
        assert!(parse("x").is_err());
        let refused = |more: &str| {
            let args = parse(&format!("x a={} {more}", dir.path().display()));
            args.map_or_else(
                |e| e.to_string(),
                |args| args.run(Path::new("none")).unwrap_err().to_string(),
            )
        };
        assert!(refused("--postmark-sizes many").contains("500-10000"));
        assert!(refused("--postmark-sizes 9-8").contains("larger than"));
        assert!(
            parse("x --setup --kernel ntfs")
                .unwrap_err()
                .to_string()
                .contains("fast-commit")
        );
        let kernel = parse("x --setup --kernel xfs,fast-commit").unwrap().kernel;
        let kernel: Vec<PeerSpec> = kernel.into_iter().map(PeerSpec::from).collect();
        assert_eq!(
            (kernel[0].format, kernel[1].format),
            (Format::Xfs, Format::FastCommit)
        );
        assert!(refused("--clients 0").contains("clients"));
        assert!(refused("--copy-size 0").contains("1 MiB"));
    }
}
