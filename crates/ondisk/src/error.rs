//! The one error type of this crate: it separates corrupt from unsupported.

/// A byte layout that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OnDiskError {
    /// The bytes contradict the format: the volume needs repair.
    #[error("corrupt {what}: {detail}")]
    Corrupt {
        /// The structure, by its name in the ext4 documentation.
        what: &'static str,
        /// The fault, with the values found.
        detail: String,
    },
    /// The bytes are well-formed but use a feature that StetFS does not know: it needs an upgrade.
    #[error("unsupported: {feature}")]
    Unsupported {
        /// The feature or version.
        feature: String,
    },
}

/// Result of a decoder or checked encoder.
pub type Result<T> = core::result::Result<T, OnDiskError>;

/// Builds an [`OnDiskError::Corrupt`]: `corrupt!("extent header", "magic {:#x}", m)`.
macro_rules! corrupt {
    ($what:expr, $($arg:tt)*) => {
        $crate::error::OnDiskError::Corrupt { what: $what, detail: format!($($arg)*) }
    };
}
pub(crate) use corrupt;
