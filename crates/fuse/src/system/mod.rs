//! The operating system: system calls, processes, and passing descriptors between them.

pub(crate) mod apart;
pub(crate) mod inherited;
pub(crate) mod passing;
pub(crate) mod sys;
