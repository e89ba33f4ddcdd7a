//! Workloads on a mount over a recorded device.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use stetfs::low::{DataMode, MemDevice};
use stetfs_block::Log;
use stetfs_testkit::loopdev::{LoopDev, LoopOptions};
use stetfs_testkit::mount::KernelMount;
use stetfs_testkit::stet::StetMount;

use super::posix::{self, PosixSession};
use super::programs::{Program, Step, program};
use super::served::Served;
use super::system::System;
use crate::marks::{ACKED, BEGUN};
use crate::volume::DIRS;
use crate::workload::{Script, cases};

/// The stetfs program that mounts.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Binary {
    /// Program to mount with [default: this one].
    #[arg(
        long,
        value_name = "PROGRAM",
        default_value = "/proc/self/exe",
        hide_default_value = true
    )]
    stetfs: PathBuf,
}

impl Binary {
    /// The absolute path of the program; a child would resolve /proc/self to itself.
    pub(crate) fn path(&self) -> Result<PathBuf> {
        self.stetfs.canonicalize().context("the stetfs program")
    }
}

/// The work on the mount: a script or a program.
pub(super) enum Task {
    Script(Box<Script>),
    Program(Program),
}

impl Task {
    pub(super) fn of(name: &str, seed: u64) -> Result<Task> {
        if let Some(program) = program(name) {
            return Ok(Task::Program(program));
        }
        let mut all = cases(name, seed)?;
        ensure!(
            all.len() == 1 && all[0].scripts.len() == 1,
            "{name} has several cases or threads: name a workload with one of each, or a program"
        );
        let ops = all.swap_remove(0).scripts.swap_remove(0);
        // The model's states do not depend on the data mode here.
        Ok(Task::Script(Box::new(Script::of(
            ops,
            4096,
            DataMode::Journal,
        ))))
    }

    fn run(&self, dir: &Path, mark: &mut dyn FnMut(Step)) -> Result<()> {
        match self {
            Task::Program(program) => {
                (program.run)(dir, mark).with_context(|| format!("running {}", program.name))
            }
            Task::Script(script) => {
                let mut session = PosixSession::new(dir);
                for (i, op) in script.ops.iter().enumerate() {
                    mark(Step::Begun(i + 1));
                    session
                        .run(op)
                        .with_context(|| format!("operation {}, {op}", i + 1))?;
                    mark(Step::Acked(i + 1));
                }
                Ok(())
            }
        }
    }
}

/// A mounted volume; `binary` is the stetfs program.
pub(super) enum Mounted {
    Kernel(KernelMount),
    Stetfs(StetMount),
}

impl Mounted {
    pub(super) fn new(system: &System, device: &Path, binary: &Path) -> Result<Mounted> {
        Ok(match system {
            System::Kernel { fstype, options } => {
                let device = LoopDev::attach(device, LoopOptions::default())?;
                Mounted::Kernel(KernelMount::new(device, fstype, options)?)
            }
            System::Stetfs(preset) => Mounted::Stetfs(StetMount::new(
                binary,
                device,
                &format!("journal={preset}"),
                Some(Duration::from_secs(300)),
            )?),
        })
    }

    fn path(&self) -> PathBuf {
        match self {
            Mounted::Kernel(m) => m.path().into(),
            Mounted::Stetfs(m) => m.path().into(),
        }
    }

    pub(super) fn umount(self) -> Result<()> {
        match self {
            Mounted::Kernel(m) => m.umount(),
            Mounted::Stetfs(m) => m.umount(),
        }
    }
}

/// The label of the mark at which the work begins.
pub(super) const START: &str = "start";

pub(super) fn record(system: &System, task: &Task, base: &MemDevice, binary: &Path) -> Result<Log> {
    Served::record(base, |file, device| {
        let mounted = Mounted::new(system, file, binary)?;
        let dir = mounted.path().join(DIRS[0]);
        posix::make_dir(&dir)?;
        posix::sync_fs(&mounted.path())?;
        device.mark(START, 0);
        let result = task.run(&dir, &mut |step| match step {
            Step::Begun(n) => device.mark(BEGUN, n as u64),
            Step::Acked(n) => device.mark(ACKED, n as u64),
        });
        mounted.umount().and(result)
    })
}
