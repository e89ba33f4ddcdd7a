//! Flash translation layers: what stands between the pages that a host writes and the flash.
//!
//! A layer is pure mapping: it moves no content and takes no time. It tells each step on the flash
//! to a [`Sink`], in order, so that a simulator can count and time them and a device
//! ([`Ssd`](crate::Ssd)) can move content along.
//!
//! Flash is programmed page by page and erased block by block. Beside its content a page holds a
//! few bytes that say for which logical pages it was programmed, and when (`nand.rs`). Trims and
//! shares have no page of their own and are logged (`maplog.rs`). Both together are what stands
//! when the power goes; the tables are made from them anew ([`Ftl::restart`]).

mod age;
mod checks;
mod counters;
mod fast;
mod geometry;
mod layer;
mod maplog;
mod nand;
mod ops;
mod page;
mod picture;
mod tables;
mod victims;

use std::str::FromStr;

pub use age::Ageing;
pub use counters::{BlockView, Counters, Merges, Role, Wear};
pub use fast::Fast;
pub use geometry::{Geometry, GeometryError, PAGE};
pub use layer::{Ftl, FtlError, ShareLimits, Sharing};
pub use ops::{PhysOp, Sink, Tally};
pub use page::PageMap;
pub use picture::picture;

/// The layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FtlKind {
    /// Any page anywhere ([`PageMap`]).
    Page,
    /// Blocks in place, with log blocks ([`Fast`]).
    Fast,
}

impl FtlKind {
    /// All.
    pub const ALL: [FtlKind; 2] = [FtlKind::Page, FtlKind::Fast];

    /// Such a layer for an erased device.
    pub fn make(self, geometry: Geometry) -> Box<dyn Ftl> {
        match self {
            FtlKind::Page => Box::new(PageMap::new(geometry)),
            FtlKind::Fast => Box::new(Fast::new(geometry)),
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            FtlKind::Page => "page",
            FtlKind::Fast => "fast",
        }
    }
}

/// A name that is no translation layer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no translation layer {0:?}; there are page and fast")]
pub struct UnknownFtl(pub String);

impl FromStr for FtlKind {
    type Err = UnknownFtl;

    fn from_str(text: &str) -> Result<FtlKind, UnknownFtl> {
        FtlKind::ALL
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or_else(|| UnknownFtl(text.to_owned()))
    }
}
