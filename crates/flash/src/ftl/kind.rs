//! The kinds of layers, by name.

use std::fmt;
use std::str::FromStr;

use super::{Bast, Fast, Ftl, Geometry, PageMap};

/// The kinds of layers. Their names are `page`, `fast` and `bast`; `bast,logs=8` is BAST with eight
/// log blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FtlKind {
    /// Page-level mapping ([`PageMap`]).
    Page,
    /// Block-level mapping with log blocks for all logical blocks ([`Fast`]).
    Fast,
    /// Block-level mapping with log blocks for one logical block each ([`Bast`]).
    Bast {
        /// Number of log blocks, at least one.
        logs: u32,
    },
}

impl FtlKind {
    /// All kinds, with the usual number of log blocks.
    pub const ALL: [FtlKind; 3] = [
        FtlKind::Page,
        FtlKind::Fast,
        FtlKind::Bast { logs: Bast::LOGS },
    ];

    /// A layer of this kind for an erased device.
    pub fn make(self, geometry: Geometry) -> Box<dyn Ftl> {
        match self {
            FtlKind::Page => Box::new(PageMap::new(geometry)),
            FtlKind::Fast => Box::new(Fast::new(geometry)),
            FtlKind::Bast { logs } => Box::new(Bast::new(geometry, logs)),
        }
    }
}

impl fmt::Display for FtlKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FtlKind::Page => f.write_str("page"),
            FtlKind::Fast => f.write_str("fast"),
            FtlKind::Bast { logs } => write!(f, "bast,logs={logs}"),
        }
    }
}

impl serde::Serialize for FtlKind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// An error: there is no translation layer of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no translation layer {0:?}; there are page, fast and bast, or bast,logs=N")]
pub struct UnknownFtl(pub String);

impl FromStr for FtlKind {
    type Err = UnknownFtl;

    fn from_str(text: &str) -> Result<FtlKind, UnknownFtl> {
        let logs = text.strip_prefix("bast,logs=").map(str::parse);
        match (text, logs) {
            ("page", _) => Ok(FtlKind::Page),
            ("fast", _) => Ok(FtlKind::Fast),
            ("bast", _) => Ok(FtlKind::Bast { logs: Bast::LOGS }),
            (_, Some(Ok(logs))) if logs > 0 => Ok(FtlKind::Bast { logs }),
            _ => Err(UnknownFtl(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_kind() {
        for kind in FtlKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert_eq!("bast".parse(), Ok(FtlKind::Bast { logs: 4 }));
        assert_eq!("bast,logs=1".parse(), Ok(FtlKind::Bast { logs: 1 }));
        for name in [
            "block",
            "bast,logs=0",
            "bast,logs=",
            "bast,4",
            "fast,logs=4",
        ] {
            assert_eq!(name.parse::<FtlKind>(), Err(UnknownFtl(name.into())));
        }
    }
}
