//! The options that say where a volume and its region are.

use std::path::PathBuf;

use super::super::part::Part;
use super::super::region::RegionFile;

/// The part of an image or a device, as options say it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlaceRequest {
    /// The first byte.
    pub offset: Option<u64>,
    /// Bytes.
    pub size: Option<u64>,
    /// A number, UUID or name of a partition.
    pub partition: Option<String>,
}

impl PlaceRequest {
    /// The part.
    ///
    /// # Errors
    /// The options contradict each other; a sentence.
    pub fn part(&self) -> Result<Part, String> {
        match (self.offset, self.size, &self.partition) {
            (None, None, None) => Ok(Part::Whole),
            (None, None, Some(name)) => Ok(Part::Partition(name.clone())),
            (offset, size, None) => Ok(Part::Range {
                offset: offset.unwrap_or(0),
                size,
            }),
            _ => Err(
                "partition= names the place of the volume, and so do offset= and size=: use one or \
                 the other"
                    .into(),
            ),
        }
    }
}

impl From<Part> for PlaceRequest {
    fn from(part: Part) -> PlaceRequest {
        match part {
            Part::Whole => PlaceRequest::default(),
            Part::Range { offset, size } => PlaceRequest {
                offset: Some(offset),
                size,
                partition: None,
            },
            Part::Partition(name) => PlaceRequest {
                partition: Some(name),
                ..PlaceRequest::default()
            },
        }
    }
}

/// The file for records of synced files, or a part of one, as options say it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegionRequest {
    /// The file.
    pub path: Option<PathBuf>,
    /// The first byte.
    pub offset: Option<u64>,
    /// Bytes.
    pub size: Option<u64>,
}

impl RegionRequest {
    /// The file and its part, if options name one.
    ///
    /// # Errors
    /// The options name a part of no file; a sentence.
    pub fn region(&self) -> Result<Option<RegionFile>, String> {
        match (self.path.clone(), self.offset, self.size) {
            (None, None, None) => Ok(None),
            (None, ..) => Err(
                "nvm_offset= and nvm_size= say which part of a file: name it with nvm=PATH".into(),
            ),
            (Some(path), offset, size) => Ok(Some(RegionFile {
                offset: offset.unwrap_or(0),
                size,
                path,
            })),
        }
    }
}

impl From<RegionFile> for RegionRequest {
    fn from(region: RegionFile) -> RegionRequest {
        RegionRequest {
            path: Some(region.path),
            offset: Some(region.offset),
            size: region.size,
        }
    }
}
