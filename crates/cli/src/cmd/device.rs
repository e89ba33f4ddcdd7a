//! `stetfs device`: simulated devices.

use std::sync::Arc;
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use stetfs::{BlockDevice, FileDevice, MemDevice};
use stetfs_flash::Timed;
use stetfs_fuse::{DeviceFs, MountOptions, Service};

use crate::args::DeviceServeArgs;
use crate::failure::{Code, Failure, Result};

/// Serves a device until it is unmounted, as SIGINT and SIGTERM have it, and says what it did.
pub(crate) fn serve(args: &DeviceServeArgs, json: bool) -> Result {
    match (&args.image, args.size) {
        (Some(path), _) => {
            let device = FileDevice::open(path, stetfs::DeviceOptions::default())
                .map_err(stetfs::FsError::from)?;
            serve_on(device, args, json)
        }
        (None, size) => serve_on(MemDevice::new(size.unwrap_or_default()), args, json),
    }
}

fn serve_on<D: BlockDevice + 'static>(inner: D, args: &DeviceServeArgs, json: bool) -> Result {
    // Before the mount stands, so that none is left behind.
    let mut signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|e| Failure::new(Code::System, format!("no signals: {e}")))?;
    let device = Arc::new(Timed::new(inner, args.model));
    let source = MountOptions::new(args.model.name);
    let fs = Arc::new(DeviceFs::new(Arc::clone(&device)));
    // As many requests at once as the device could work on, and some that wait.
    let service = Service::start(fs, &args.dir, &source, args.model.channels + 4)?;
    let disk = service.dir().join("disk");
    let told = if json {
        format!(
            "{}",
            serde_json::json!({ "model": args.model, "disk": disk })
        )
    } else {
        format!(
            "{}: {} ({} MiB); end it with Ctrl-C",
            args.model,
            disk.display(),
            device.size() >> 20
        )
    };
    println!("{told}");
    let mounted = service.mounted().clone();
    // One that fails is no reason not to try again at the next.
    thread::spawn(move || {
        for _ in signals.forever() {
            if let Err(e) = mounted.unmount() {
                tracing::error!("{e}");
            }
        }
    });
    service.wait()?;
    let s = device.stats();
    if json {
        println!(
            "{}",
            serde_json::json!({
                "reads": s.reads, "bytes_read": s.bytes_read, "writes": s.writes,
                "bytes_written": s.bytes_written, "flushes": s.flushes,
            })
        );
    } else {
        println!(
            "{} reads of {} MiB, {} writes of {} MiB, {} flushes",
            s.reads,
            s.bytes_read >> 20,
            s.writes,
            s.bytes_written >> 20,
            s.flushes
        );
    }
    Ok(())
}
