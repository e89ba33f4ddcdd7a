//! `stetfs device fault`: the faults of a served device.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use stetfs::low::{BlockDevice, FsError};
use stetfs_cli::{Code, Failure, Result, outln};
use stetfs_flash::{Effect, Failing, Order, Place, Plan, PowerCut, Word};
use stetfs_fuse::{Control, Gate};

use crate::args::DeviceFaultArgs;

/// The file `control` beside a served device: orders written to it set the device's faults.
pub(crate) struct Switch {
    device: Arc<Failing<Box<dyn BlockDevice>>>,
    /// The device below, if it has a cache of its own.
    power: Option<Arc<dyn PowerCut>>,
    gate: Gate,
    /// The current faults. Locked while an order is carried out, so that orders come one after the
    /// other.
    plan: Mutex<Plan>,
}

impl Switch {
    pub(crate) fn new(
        device: Arc<Failing<Box<dyn BlockDevice>>>,
        power: Option<Arc<dyn PowerCut>>,
    ) -> Switch {
        Switch {
            device,
            power,
            gate: Gate::default(),
            plan: Mutex::default(),
        }
    }

    /// The device whose cache is lost at a power cut.
    fn power(&self) -> &dyn PowerCut {
        match &self.power {
            Some(power) => &**power,
            None => self.device.inner(),
        }
    }

    fn carry_out(&self, order: Order) -> std::result::Result<(), FsError> {
        let mut plan = self.plan.lock();
        let suspended = order.suspend.unwrap_or(self.gate.is_closed());
        if order.power_cut.is_some() && !self.power().has_cache() {
            return Err(FsError::Errno(libc::EOPNOTSUPP));
        }
        // The gate is closed, and running requests have ended: no request sees half of the order.
        self.gate.close();
        let mut new = order.plan;
        let mut result = Ok(());
        if let Some(kept) = order.power_cut {
            result = self.power().cut_power(kept);
            new = Some(Plan {
                places: vec![Place {
                    effect: Effect::ErrorAll,
                    sectors: None,
                }],
                intervals: None,
            });
        }
        if let Some(new) = new {
            self.device.set(new.faults());
            *plan = new;
        }
        if !suspended {
            self.gate.open();
        }
        result.map_err(|e| {
            tracing::error!("cannot drop the writes that a power cut loses: {e}");
            FsError::Errno(libc::EIO)
        })
    }
}

impl Control for Switch {
    fn show(&self) -> String {
        let mut words = self.plan.lock().words();
        if self.gate.is_closed() {
            words.push(Word::Suspend);
        }
        words.iter().map(|word| format!("{word}\n")).collect()
    }

    fn order(&self, text: &str) -> std::result::Result<(), FsError> {
        let order = text.parse::<Order>().map_err(|e| {
            tracing::warn!("{e}");
            FsError::Errno(libc::EINVAL)
        })?;
        self.carry_out(order)
    }

    fn gate(&self) -> &Gate {
        &self.gate
    }
}

/// Sends an order to a served device, or shows its faults.
pub(crate) fn fault(args: &DeviceFaultArgs, json: bool) -> Result {
    let path = args.dir.join("control");
    let failed = |e: std::io::Error| explain(&path, &e);
    if !args.words.is_empty() {
        let words: Vec<String> = args.words.iter().map(Word::to_string).collect();
        // The file is not created where no device is served.
        let opened = File::options().write(true).open(&path);
        let written = opened.and_then(|mut control| control.write_all(words.join(" ").as_bytes()));
        written.map_err(failed)?;
    }
    let set = std::fs::read_to_string(&path).map_err(failed)?;
    let words: Vec<&str> = set.lines().collect();
    if json {
        outln!("{}", serde_json::json!({ "set": words }));
    } else if args.words.is_empty() {
        outln!("{}", words.join(" "));
    }
    Ok(())
}

fn explain(path: &Path, e: &std::io::Error) -> Failure {
    match e.raw_os_error() {
        Some(libc::ENOENT) => Failure::new(
            Code::NotFound,
            format!("no device is served at {}", path.display()),
        )
        .hint("serve one with: stetfs device serve"),
        Some(libc::EOPNOTSUPP) => Failure::new(Code::Usage, "this device has no cache to lose")
            .hint("serve it with --volatile"),
        _ => Failure::new(Code::Io, format!("{}: {e}", path.display())),
    }
}
