//! Finds a partition by number, UUID or name.

use std::fmt;

use super::table::{Partition, Partitions};

/// The error of finding a partition. The text is a sentence without a subject, which is the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoPartition {
    why: String,
    /// Whether no partition has that name. Otherwise several have it, or the one that has it is
    /// unusable.
    pub is_missing: bool,
}

impl NoPartition {
    fn unusable(why: String) -> NoPartition {
        NoPartition {
            why,
            is_missing: false,
        }
    }
}

impl fmt::Display for NoPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl Partitions {
    /// Finds a partition by number, else by a UUID or a name of the partition or of the ext4 volume
    /// in it.
    ///
    /// # Errors
    /// No partition matches, several do, or the one that does is unusable.
    pub fn named(&self, name: &str) -> Result<&Partition, NoPartition> {
        let number: Option<u32> = name.parse().ok();
        let by_number = self.all.iter().find(|p| Some(p.number) == number);
        let found = match by_number {
            Some(one) => vec![one],
            None => self.all.iter().filter(|p| p.is_called(name)).collect(),
        };
        match found[..] {
            [one] => usable(one),
            [] => Err(NoPartition {
                why: format!("no partition {name}: {self}"),
                is_missing: true,
            }),
            [..] => {
                let numbers = found.iter().map(|p| p.number.to_string());
                let numbers = numbers.collect::<Vec<_>>().join(" and ");
                let why =
                    format!("more than one partition {name}: say which by its number, {numbers}");
                Err(NoPartition::unusable(why))
            }
        }
    }
}

impl Partition {
    fn is_called(&self, name: &str) -> bool {
        if name.is_empty() {
            return false;
        }
        let of_volume = self.ext4.as_ref();
        self.name == name
            || self.uuid.eq_ignore_ascii_case(name)
            || of_volume.is_some_and(|v| v.label == name || v.uuid.eq_ignore_ascii_case(name))
    }
}

fn usable(partition: &Partition) -> Result<&Partition, NoPartition> {
    let number = partition.number;
    if partition.extended {
        return Err(NoPartition::unusable(format!(
            "partition {number}, which is an extended one: volumes are in the logical ones in it, from 5 on"
        )));
    }
    match &partition.fault {
        Some(fault) => Err(NoPartition::unusable(format!(
            "partition {number}, but {fault}"
        ))),
        None => Ok(partition),
    }
}
