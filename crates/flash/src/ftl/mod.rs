//! Flash translation layers: the mapping of the host's logical pages to physical pages of the
//! flash.
//!
//! A layer is pure mapping: it moves no content and takes no time. It reports each step on the
//! flash to a [`Sink`], in order. A simulator counts and times the steps; a device
//! ([`Ssd`](crate::Ssd)) moves content by them.
//!
//! Flash is programmed page by page and erased block by block. Beside its content a page has a few
//! spare bytes, which hold its logical pages and a stamp (`nand.rs`). Trims and shares program no
//! page, so they are logged (`maplog.rs`). Pages and log survive a power cut; the tables are
//! rebuilt from them ([`Ftl::restart`]).

mod age;
mod bast;
mod blockmap;
mod checks;
mod counters;
mod fast;
mod geometry;
mod kind;
mod layer;
mod logged;
mod maplog;
mod nand;
mod ops;
mod page;
mod picture;
mod tables;
mod victims;

pub use age::Ageing;
pub use bast::Bast;
pub use counters::{BlockView, Counters, Merges, Role, Wear};
pub use fast::Fast;
pub use geometry::{Geometry, GeometryError, PAGE};
pub use kind::{FtlKind, UnknownFtl};
pub use layer::{Ftl, FtlError, ShareLimits, Sharing};
pub use ops::{PhysOp, Sink, Tally};
pub use page::PageMap;
pub use picture::picture;
