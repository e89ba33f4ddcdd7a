//! Devices with a translation layer, for `stetfs device serve --ftl`.

use std::sync::Arc;

use stetfs::low::BlockDevice;
use stetfs_cli::{Code, Failure, Result};
use stetfs_flash::ftl::{self, Ageing, Ftl, FtlKind, Geometry, PageMap, ShareLimits};
use stetfs_flash::segments::{LogDevice, LogOptions, LogReport};
use stetfs_flash::{PowerCut, Ssd};
use stetfs_fuse::Report;

use crate::args::{DeviceServeArgs, FlashArgs};

/// A log-structured device on flash.
type OnFlash = LogDevice<Arc<Ssd>>;

/// A served device with flash.
pub(crate) struct Flash {
    ssd: Arc<Ssd>,
    log: Option<Arc<OnFlash>>,
    /// Its description.
    name: String,
}

/// The device of the arguments, if it has a translation layer.
pub(crate) fn make(args: &DeviceServeArgs) -> Result<Option<Arc<Flash>>> {
    let Some(kind) = args.flash.ftl else {
        return Ok(None);
    };
    if args.model.is_some_and(|model| model.seek.is_some()) {
        let disk = "a disk has no flash: use --ftl with a model of an SSD, or without a model";
        return Err(Failure::new(Code::Usage, disk));
    }
    let size = args.size.unwrap_or_default();
    let mut layer = layer(kind, size, &args.flash)?;
    if args.flash.aged {
        Ageing::FULL
            .run(&mut *layer, &mut ())
            .map_err(|e| Failure::new(Code::Io, format!("ageing: {e}")))?;
    }
    let ssd = Ssd::new(layer, args.volatile);
    let ssd = Arc::new(match args.model {
        Some(model) => ssd.timed(model),
        None => ssd,
    });
    let options = LogOptions {
        cleaner: args.flash.cleaner,
        ..LogOptions::filling(size)
    };
    let log = args
        .flash
        .layer
        .is_some()
        .then(|| LogDevice::format(Arc::clone(&ssd), options));
    let log = log
        .transpose()
        .map_err(|e| Failure::new(Code::Usage, e.to_string()))?;
    let name = format!(
        "{kind} of {} MiB, {} % spare, erase blocks of {} KiB",
        size >> 20,
        args.flash.spare,
        args.flash.erase_block >> 10
    );
    let log = log.map(Arc::new);
    Ok(Some(Arc::new(Flash { ssd, log, name })))
}

impl Flash {
    /// The device to be served.
    pub(crate) fn device(&self) -> Box<dyn BlockDevice> {
        match &self.log {
            Some(log) => Box::new(Arc::clone(log)),
            None => Box::new(Arc::clone(&self.ssd)),
        }
    }

    /// The device whose cache is lost at a power cut.
    pub(crate) fn power(&self) -> Arc<dyn PowerCut> {
        match &self.log {
            Some(log) => Arc::clone(log) as Arc<dyn PowerCut>,
            None => Arc::clone(&self.ssd) as Arc<dyn PowerCut>,
        }
    }

    /// The counters of the flash.
    pub(crate) fn report(&self) -> stetfs_flash::Report {
        self.ssd.report()
    }

    /// The counters of the log, if there is one.
    pub(crate) fn log_report(&self) -> Option<LogReport> {
        self.log.as_ref().map(|log| log.report())
    }
}

fn layer(kind: FtlKind, size: u64, args: &FlashArgs) -> Result<Box<dyn Ftl>> {
    let geometry = Geometry::new(size, args.erase_block, args.spare)
        .map_err(|e| Failure::new(Code::Usage, e.to_string()))?;
    let limits = ShareLimits {
        pairs: args.share_pairs,
        references: args.share_references,
    };
    Ok(match kind {
        FtlKind::Page => Box::new(PageMap::new(geometry).with_limits(limits)),
        FtlKind::Fast | FtlKind::Bast { .. } => kind.make(geometry),
    })
}

/// The counters and the picture of the flash in the files beside the device.
impl Report for Flash {
    fn counters(&self) -> Vec<(&'static str, String)> {
        let stetfs_flash::Report {
            counters: c,
            waf,
            references,
            wear,
        } = self.ssd.report();
        let whole = [
            ("erases", c.erases),
            ("map_erases", c.map_erases),
            ("pages_written", c.host_writes),
            ("pages_programmed", c.programs),
            ("pages_moved", c.moved),
            ("map_pages", c.map_programs),
            ("collections", c.collections),
            ("merges_full", c.merges.full),
            ("merges_partial", c.merges.partial),
            ("merges_switch", c.merges.switch),
            ("pages_shared", c.host_shares),
            ("references", references),
            ("wear_least", u64::from(wear.least)),
            ("wear_most", u64::from(wear.most)),
        ];
        let whole = whole.map(|(name, value)| (name, value.to_string()));
        let parts = [("wear_mean", wear.mean), ("waf", waf)];
        let parts = parts.map(|(name, value)| (name, format!("{value:.3}")));
        let log = self.log_report().into_iter().flat_map(|l| {
            [
                ("log_appended", l.appended),
                ("log_in_place", l.in_place),
                ("log_moved", l.moved),
                ("log_shared", l.shared),
                ("log_cleaned", l.cleaned),
                ("log_chunks", l.chunks),
                ("log_checkpoints", l.checkpoints),
            ]
        });
        let log = log.map(|(name, value)| (name, value.to_string()));
        whole.into_iter().chain(parts).chain(log).collect()
    }

    fn picture(&self) -> String {
        let report = self.ssd.report();
        let title = format!(
            "{}: {} pages written, {} moved, WAF {:.2}, {} references",
            self.name,
            report.counters.host_writes,
            report.counters.moved,
            report.waf,
            report.references
        );
        ftl::picture(&self.ssd.blocks(), self.ssd.block_pages(), &title)
    }
}
