//! Options read into a request: the rows of the table, and what the parts of journals register.

use stetfs_journal::compose::{check_option, is_option, option_names};

use super::request::VolumeRequest;
use super::table::{self, Concern, misfit};
use super::volume::VOLUME_OPTIONS;

impl VolumeRequest {
    /// Every concern of the options of a volume.
    pub const ALL: &[Concern] = &[Concern::Place, Concern::Use, Concern::FileSystem];

    /// The names of all options that concern one of `of`. Options of journals concern the file
    /// system.
    pub fn names(of: &[Concern]) -> impl Iterator<Item = &'static str> {
        let rows = VOLUME_OPTIONS
            .iter()
            .filter(|row| of.contains(&row.concern));
        let of_rows = rows.flat_map(|row| row.words).map(|(name, _)| *name);
        let of_journals = option_names().filter(|_| of.contains(&Concern::FileSystem));
        of_rows.chain(of_journals)
    }

    /// Sets an option that concerns one of `of`; `None` if there is none of this name. Whether the
    /// options of a journal go together is seen when all are known.
    ///
    /// # Errors
    /// A value that cannot be; a sentence.
    pub fn set(
        &mut self,
        of: &[Concern],
        name: &str,
        value: Option<&str>,
    ) -> Option<Result<(), String>> {
        match (table::find(VOLUME_OPTIONS, name, value), value) {
            (Some((row, _)), _) if of.contains(&row.concern) => {
                table::set(VOLUME_OPTIONS, self, name, value)
            }
            (_, Some(value)) if of.contains(&Concern::FileSystem) && is_option(name) => {
                let checked = check_option(name, value).map_err(|bad| bad.0);
                Some(checked.map(|()| self.journal.push((name.to_owned(), value.to_owned()))))
            }
            _ => VolumeRequest::names(of)
                .any(|known| known == name)
                .then(|| Err(misfit(name, value))),
        }
    }

    /// Takes the options that a volume has of its own: those of a request count more, whose `data=`
    /// is set beside the volume's.
    ///
    /// # Errors
    /// An option that there is not, or a wrong value; a sentence.
    pub fn set_own(&mut self, own: &[&str]) -> Result<(), String> {
        for option in own {
            match table::split(option) {
                ("data", Some(value)) => self.volume_data = Some(value.to_owned()),
                (name, value) => {
                    let done = self.set(VolumeRequest::ALL, name, value);
                    done.unwrap_or_else(|| Err(format!("there is no option {option:?}")))?;
                }
            }
        }
        Ok(())
    }
}
