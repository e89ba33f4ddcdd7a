//! `stetfs device`: simulated devices.

use std::sync::Arc;
use std::thread;

use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use stetfs::low::{BlockDevice, FileDevice, MemDevice};
use stetfs_flash::{Timed, failing};
use stetfs_fuse::{Control, DeviceFs, MountOptions, Report, Service};

use super::fault::Switch;
use super::ssd::{self, Flash};
use crate::args::DeviceServeArgs;
use crate::failure::{Code, Failure, Result};
use crate::print;

/// Requests that wait while others are worked on.
const WAITING: usize = 4;
/// Requests worked on at once, where no model says.
const CHANNELS: usize = 8;

/// Serves a device until it is unmounted, as SIGINT and SIGTERM have it, and says what it did.
pub(crate) fn serve(args: &DeviceServeArgs, json: bool) -> Result {
    // Before the mount stands, so that none is left behind.
    let mut signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|e| Failure::new(Code::System, format!("no signals: {e}")))?;
    let flash = ssd::make(args)?;
    let inner = match &flash {
        Some(flash) => flash.device(),
        None => content(args)?,
    };
    // One with flash has its cache inside.
    let device = Arc::new(failing(inner, args.volatile && flash.is_none()));
    let power = flash.as_ref().map(|flash| flash.power());
    let switch = Arc::new(Switch::new(Arc::clone(&device), power));
    let name = args.model.map_or("plain", |model| model.name);
    let mut fs =
        DeviceFs::new(Arc::clone(&device)).with_control(Arc::clone(&switch) as Arc<dyn Control>);
    if let Some(flash) = &flash {
        fs = fs.with_report(Arc::clone(flash) as Arc<dyn Report>);
    }
    let channels = args.model.map_or(CHANNELS, |model| model.channels);
    let service = Service::start(
        Arc::new(fs),
        &args.dir,
        &MountOptions::new(name),
        channels + WAITING,
    )?;
    let disk = service.dir().join("disk");
    let told = format!(
        "{name}: {} ({} MiB); end it with Ctrl-C",
        disk.display(),
        device.size() >> 20
    );
    // The answer in JSON is one object, and comes at the end.
    match json {
        true => eprintln!("{told}"),
        false => outln!("{told}"),
    }
    let mounted = service.mounted().clone();
    // One that fails is no reason not to try again at the next.
    thread::spawn(move || {
        for _ in signals.forever() {
            // Whoever waits for the device could not let go of it.
            switch.gate().open();
            if let Err(e) = mounted.unmount() {
                tracing::error!("{e}");
            }
        }
    });
    service.wait()?;
    if json {
        let mut said = json!({
            "model": args.model, "ftl": args.flash.ftl, "disk": disk.display().to_string(),
        });
        let did = counted(&*device, flash.as_deref());
        if let (Some(said), Value::Object(did)) = (said.as_object_mut(), did) {
            said.extend(did);
        }
        print::value(&said, true);
    } else {
        say(&*device, flash.as_deref());
    }
    Ok(())
}

/// What the device did.
fn counted(device: &dyn BlockDevice, flash: Option<&Flash>) -> Value {
    let s = device.stats();
    json!({
        "reads": s.reads, "bytes_read": s.bytes_read, "writes": s.writes,
        "bytes_written": s.bytes_written, "flushes": s.flushes, "shares": s.shares,
        "flash": flash.map(Flash::report), "log": flash.and_then(Flash::log_report),
    })
}

/// Says what the device did.
fn say(device: &dyn BlockDevice, flash: Option<&Flash>) {
    let s = device.stats();
    let log = flash.and_then(Flash::log_report);
    let flash = flash.map(Flash::report);
    outln!(
        "{} reads of {} MiB, {} writes of {} MiB, {} flushes",
        s.reads,
        s.bytes_read >> 20,
        s.writes,
        s.bytes_written >> 20,
        s.flushes
    );
    if let Some(flash) = flash {
        outln!(
            "{} blocks erased, {} pages moved, WAF {:.2}, {} references",
            flash.counters.erases,
            flash.counters.moved,
            flash.waf,
            flash.references
        );
    }
    if let Some(log) = log {
        outln!(
            "log: {} blocks appended, {} in place, {} moved ({} shared) from {} segments",
            log.appended,
            log.in_place,
            log.moved,
            log.shared,
            log.cleaned
        );
    }
}

/// What is served, without its faults.
fn content(args: &DeviceServeArgs) -> Result<Box<dyn BlockDevice>> {
    let plain: Box<dyn BlockDevice> = match &args.image {
        Some(path) => Box::new(
            FileDevice::open(path, stetfs::low::DeviceOptions::default())
                .map_err(stetfs::low::FsError::from)?,
        ),
        None => Box::new(MemDevice::new(args.size.unwrap_or_default())),
    };
    Ok(match args.model {
        Some(model) => Box::new(Timed::new(plain, model)),
        None => plain,
    })
}
