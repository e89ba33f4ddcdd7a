//! Something to do, or to know.

use serde::Serialize;

/// Something to do, or to know.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Hint {
    /// What stands in the way.
    pub(super) what: String,
    /// The command that changes it; none where there is only something to know.
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
