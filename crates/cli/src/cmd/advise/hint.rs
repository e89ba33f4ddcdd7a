//! Hints: obstacles that `stetfs advise` found, with the commands that remove them.

use serde::Serialize;

/// An obstacle or a remark, with the command for it.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Hint {
    /// The obstacle.
    pub(super) what: String,
    /// The command that removes it; `None` for a remark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) command: Option<String>,
}

impl Hint {
    pub(super) fn new(what: impl Into<String>) -> Hint {
        Hint {
            what: what.into(),
            command: None,
        }
    }

    pub(super) fn by(self, command: impl Into<String>) -> Hint {
        Hint {
            command: Some(command.into()),
            ..self
        }
    }
}
