//! Devices with a translation layer, for `stetfs device serve --ftl`.

use std::sync::Arc;

use stetfs_flash::Ssd;
use stetfs_flash::ftl::{self, Ageing, Ftl, FtlKind, Geometry, PageMap, ShareLimits};
use stetfs_fuse::Report;

use crate::args::{DeviceServeArgs, FlashArgs};
use crate::failure::{Code, Failure, Result};

/// The device that the arguments ask for, if it is one with a translation layer.
pub(crate) fn make(args: &DeviceServeArgs) -> Result<Option<Arc<Ssd>>> {
    let Some(kind) = args.flash.ftl else {
        return Ok(None);
    };
    if args.model.is_some_and(|model| model.seek.is_some()) {
        let disk = "a disk has no flash: --ftl goes with a model of an SSD, or none";
        return Err(Failure::new(Code::Usage, disk));
    }
    let mut layer = layer(kind, args.size.unwrap_or_default(), &args.flash)?;
    if args.flash.aged {
        Ageing::FULL
            .run(&mut *layer, &mut ())
            .map_err(|e| Failure::new(Code::Io, format!("ageing: {e}")))?;
    }
    let ssd = Ssd::new(layer, args.volatile);
    Ok(Some(Arc::new(match args.model {
        Some(model) => ssd.timed(model),
        None => ssd,
    })))
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
        FtlKind::Fast => kind.make(geometry),
    })
}

/// What the files beside the device show of its flash.
pub(crate) struct FlashReport {
    pub(crate) ssd: Arc<Ssd>,
    /// What it is, in words.
    pub(crate) name: String,
}

impl Report for FlashReport {
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
        whole.into_iter().chain(parts).collect()
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
