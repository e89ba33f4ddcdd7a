//! `stetfs certify`: a page that states the promises of a volume, as it is mounted, and the trials
//! of them. It answers the question "how would the administrator know that it is safe?".
//!
//! * `subject`: the volume or mount, and its journal;
//! * `below`: the device and file system below it;
//! * `costs`: the time of writes and syncs;
//! * `sqlite`: processes that share memory;
//! * `page`: the certificate as text and HTML.
//!
//! Crashes and device errors are tried by the crash lab (`stetfs_crash::certify`).

mod below;
mod costs;
mod page;
mod sqlite;
mod subject;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use stetfs_cli::{Code, Failure, Result, VERSION, out, outln, utc};
use stetfs_crash::certify::{self, Cuts};

use crate::args::CertifyArgs;
use page::{Page, Section};
use subject::Subject;

/// The share of the time for measuring costs.
const COSTS: f64 = 0.2;

/// Runs `stetfs certify`. With an objection the exit code is that of a broken promise.
pub(crate) fn run(args: &CertifyArgs, json: bool) -> Result<Code> {
    let subject = Subject::of(args)?;
    let mut objections = subject.objections.clone();
    let mut sections = vec![subject.section()];
    let (volume, is_device) = (&subject.volume, subject.is_device);
    sections.push(below::section(volume, is_device, &mut objections));
    sections.push(subject.whole_writes());
    step("measuring writes and syncs");
    sections.push(costs(&subject, args, &mut objections));
    step("failing a device");
    sections.push(errors(&subject, &mut objections)?);
    step("cutting the power");
    sections.push(cuts(&subject, args, &mut objections)?);
    if let Some(dir) = &subject.mounted {
        step("several processes of SQLite");
        let tried = Scratch::in_dir(dir).map(|at| sqlite::section(&at.0, &mut objections));
        sections.extend(tried.ok());
    }
    let page = Page {
        of: subject.name,
        date: utc(SystemTime::now()),
        version: VERSION.into(),
        objections,
        sections,
    };
    if let Some(path) = &args.html {
        std::fs::write(path, page.html()).map_err(|e| {
            let message = format!("cannot write {}: {e}", path.display());
            Failure::new(Code::Usage, message)
        })?;
    }
    match json {
        true => outln!("{}", serde_json::to_value(&page).unwrap_or_default()),
        false => out!("{}", page.text()),
    }
    Ok(match page.objections.is_empty() {
        true => Code::Done,
        false => Code::Broken,
    })
}

/// Announces the next step.
fn step(what: &str) {
    eprintln!("certify: {what}");
}

fn lab(e: &anyhow::Error) -> Failure {
    Failure::new(Code::System, format!("{e:#}"))
}

/// A directory for the trials; removed with its content when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn in_dir(dir: &Path) -> std::io::Result<Scratch> {
        let path = dir.join(format!(".stetfs-certify-{}", std::process::id()));
        std::fs::create_dir(&path).map(|()| Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!("{} stays: {e}", self.0.display());
        }
    }
}

/// Measures in the mount; for an image, in a new volume beside it.
fn costs(subject: &Subject, args: &CertifyArgs, objections: &mut Vec<String>) -> Section {
    let how = match subject.mounted {
        Some(_) => "measured in a directory of the mount, which was removed",
        None => {
            "measured by the library in a new volume beside the image, without FUSE; it was removed"
        }
    };
    let mut section = Section::new("What a sync costs", how);
    let time = Duration::from_secs_f64(args.seconds * COSTS);
    let done = match &subject.mounted {
        Some(dir) => on_mount(subject, dir, time, &mut section, objections),
        None => beside(subject, time, &mut section),
    };
    if let Err(why) = done {
        section.row("not measured", why);
    }
    section
}

fn on_mount(
    subject: &Subject,
    dir: &Path,
    time: Duration,
    section: &mut Section,
    objections: &mut Vec<String>,
) -> std::result::Result<(), String> {
    let before = subject.flushes();
    let scratch = Scratch::in_dir(dir).map_err(|e| e.to_string())?;
    let measured = costs::measure(&costs::Dir(&scratch.0), time, section);
    measured.map_err(|e| e.to_string())?;
    if let (Some(before), Some(after)) = (before, subject.flushes()) {
        let flushes = after.saturating_sub(before);
        section.row("flushes of the device meanwhile", flushes.to_string());
        if flushes == 0 {
            objections.push(
                "syncs sent the device no flush: it is mounted with nobarrier, or each write was \
                 durable without a flush (FUA)"
                    .into(),
            );
        }
    }
    Ok(())
}

fn beside(
    subject: &Subject,
    time: Duration,
    section: &mut Section,
) -> std::result::Result<(), String> {
    const SIZE: u64 = 128 << 20;
    let dir = match subject.volume.parent() {
        _ if subject.is_device => {
            return Err(
                "a device has no directory for a test volume: mount it and certify the mount"
                    .into(),
            );
        }
        Some(dir) if dir.as_os_str().is_empty() => Path::new("."),
        Some(dir) => dir,
        None => return Err("the image has no directory for a test volume".into()),
    };
    let scratch = Scratch::in_dir(dir).map_err(|e| e.to_string())?;
    let image = scratch.0.join("image");
    let file = std::fs::File::create(&image).map_err(|e| e.to_string())?;
    file.set_len(SIZE).map_err(|e| e.to_string())?;
    let block = subject.block.to_string();
    stetfs_crash::volume::mke2fs(&image, &["-b", &block]).map_err(|e| format!("{e:#}"))?;
    let options = stetfs::MountOptions::from(subject.options.clone());
    let volume = stetfs::Volume::open(&image, &options).map_err(|e| e.to_string())?;
    let measured = costs::measure(&volume, time, section);
    measured.map_err(|e| e.to_string())?;
    volume.close().map_err(|e| e.to_string())
}

/// The results of syncs when the device fails.
fn errors(subject: &Subject, objections: &mut Vec<String>) -> Result<Section> {
    let mut section = Section::new(
        "When the device fails",
        "tried on a new volume on a device in memory: a file is overwritten and synced while the device \
         fails; then the device works again, and the volume is opened anew",
    );
    for found in certify::device_errors(&subject.spec, subject.block).map_err(|e| lab(&e))? {
        if found.lied {
            objections.push(format!("{}: what a sync acknowledged is lost", found.fault));
        }
        section.row(
            found.fault,
            format!(
                "the sync says: {}\nthe next: {}\nthe volume then takes {}\nthe file has {}",
                found.sync,
                found.next_sync,
                if found.read_only {
                    "no changes"
                } else {
                    "changes"
                },
                found.after
            ),
        );
    }
    Ok(section)
}

/// The effects of power cuts.
fn cuts(subject: &Subject, args: &CertifyArgs, objections: &mut Vec<String>) -> Result<Section> {
    let seconds = args.seconds * (1.0 - COSTS);
    let try_on = |base: Option<&stetfs_crash::volume::Base>| {
        certify::power_cuts(base, &subject.spec, subject.block, seconds, args.seed)
    };
    let copy = subject.copy().and_then(|base| {
        let found = try_on(Some(&base));
        found.map_err(|e| format!("on the copy a workload failed: {e:#}"))
    });
    let (on, found) = match copy {
        Ok(found) => ("a copy of the volume, in memory".into(), found),
        Err(why) => (
            format!("a new, small volume with its size of blocks, in memory, for {why}"),
            try_on(None).map_err(|e| lab(&e))?,
        ),
    };
    let how = format!("tried on {on}, with journal {}", subject.spec);
    let mut section = Section::new("When the power is cut", how);
    for Cuts {
        workload,
        about,
        states,
        judged,
        broken,
        fscks,
        recovery_cuts,
        first,
    } in found
    {
        let lost = match (states, broken) {
            (0, _) => "not tried: there was no time for it".to_owned(),
            (_, 0) => "nothing that was promised was lost".to_owned(),
            (_, n) => format!("{n} broke a promise"),
        };
        section.row(
            workload.clone(),
            format!(
                "{about}\n{states} states, {judged} different images judged, {fscks} by e2fsck too, \
                 {recovery_cuts} cuts in recoveries\n{lost}"
            ),
        );
        if broken > 0 {
            let first = first.unwrap_or_default();
            let first = first.lines().take(3).collect::<Vec<_>>().join("; ");
            objections.push(format!(
                "{broken} of {states} power cuts under {workload} broke a promise: {first}"
            ));
        }
    }
    section.row(
        "the like, for longer",
        format!(
            "stetfs crash run --journal {} --seed {}",
            subject.spec, args.seed
        ),
    );
    Ok(section)
}
