//! `stetfs device`: simulated devices.

mod fault;
mod ssd;

use std::sync::Arc;
use std::thread;

use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use stetfs::low::{BlockDevice, FileDevice, MemDevice};
use stetfs_cli::{Code, Failure, Result, outln, print_value};
use stetfs_flash::{Timed, failing};
use stetfs_fuse::{Control, DeviceFs, MountOptions, Report, Service};

use self::fault::Switch;
use self::ssd::Flash;
use crate::args::{Device, DeviceServeArgs};

/// Requests that may wait while others are processed.
const WAITING: usize = 4;
/// Requests processed at the same time without a model.
const CHANNELS: usize = 8;

/// Runs a command of `stetfs device`.
pub(crate) fn run(command: &Device, json: bool) -> Result {
    match command {
        Device::Serve(args) => serve(args, json),
        Device::Fault(args) => fault::fault(args, json),
    }
}

/// Serves a device until it is unmounted, also by SIGINT and SIGTERM, and prints its counters.
fn serve(args: &DeviceServeArgs, json: bool) -> Result {
    // Registered before the mount stands, so that no signal leaves it behind.
    let mut signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|e| Failure::new(Code::System, format!("no signals: {e}")))?;
    let flash = ssd::make(args)?;
    let inner = match &flash {
        Some(flash) => flash.device(),
        None => content(args)?,
    };
    // A device with flash has its cache inside.
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
    // In JSON the answer is one object, printed at the end.
    match json {
        true => eprintln!("{told}"),
        false => outln!("{told}"),
    }
    let mounted = service.mounted().clone();
    // If one unmount fails, the next signal tries again.
    thread::spawn(move || {
        for _ in signals.forever() {
            // A user of the device that waits for a request could not close it.
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
        print_value(&said, true);
    } else {
        say(&*device, flash.as_deref());
    }
    Ok(())
}

/// The counters of the device, as JSON.
fn counted(device: &dyn BlockDevice, flash: Option<&Flash>) -> Value {
    let s = device.stats();
    json!({
        "reads": s.reads, "bytes_read": s.bytes_read, "writes": s.writes,
        "bytes_written": s.bytes_written, "flushes": s.flushes, "shares": s.shares,
        "flash": flash.map(Flash::report), "log": flash.and_then(Flash::log_report),
    })
}

/// Prints the counters of the device.
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

/// The device to be served, without its faults.
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
