//! The table of options: a row for each option of a volume, with its values, default and help.
//!
//! The command line, the library, the C API and the laboratory read the same rows, so a new option
//! is a row here and its use (decisions/0043). Programs with options of their own add a table of
//! the same form for these. The options of journals come from their parts
//! ([`stetfs_journal::compose`]), and stand beside the rows.

mod place;
mod request;
mod table;
mod text;
mod volume;

pub use place::{PlaceRequest, RegionRequest};
pub use request::VolumeRequest;
pub use table::{Concern, LARGEST, OptionRow, Remount, Value, Word, keep, kept, names, set, split};
pub use volume::{VOLUME_OPTIONS, epoch};
