//! Reports of wrong arguments.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::advice;
use crate::failure::{Code, Failure};
use crate::options;

/// Reports an error of clap. Help and version are successes; everything else is exit code 1.
pub(crate) fn report(e: &clap::Error, json: bool) -> ExitCode {
    if !e.use_stderr() {
        let _ = e.print();
        return ExitCode::SUCCESS;
    }
    let advised = advice::of(e, std::env::args_os().skip(1));
    match advised.or_else(|| mount_option(e)) {
        Some(failure) => failure.report(json),
        None if json => failure(e).report(true),
        None => {
            let _ = e.print();
            ExitCode::from(Code::Usage as u8)
        }
    }
}

/// Whether JSON output is requested, by arguments that are not all understood.
pub(crate) fn asks_for_json(args: impl IntoIterator<Item = OsString>) -> bool {
    args.into_iter()
        .take_while(|arg| arg != "--")
        .any(|arg| arg == "--json")
}

/// The error of clap, in the form of other failures.
fn failure(e: &clap::Error) -> Failure {
    let text = e.to_string();
    let mut lines = text.lines().map(str::trim).filter(|l| !l.is_empty());
    let message = lines.next().unwrap_or_default();
    let message = message.strip_prefix("error: ").unwrap_or(message);
    let hint: Vec<&str> = lines.collect();
    Failure::new(Code::Usage, message).hint(hint.join("\n"))
}

/// The failure for an option of `-o` that was given as an argument of its own.
fn mount_option(e: &clap::Error) -> Option<Failure> {
    let (ErrorKind::UnknownArgument, Some(ContextValue::String(arg))) =
        (e.kind(), e.get(ContextKind::InvalidArg))
    else {
        return None;
    };
    let name = arg.strip_prefix("--")?.split('=').next()?.replace('-', "_");
    let known = options::names().find(|known| *known == name);
    let meant = known.or_else(|| stetfs::low::nearest(&name, options::names()))?;
    let suggests_other = e
        .get(ContextKind::SuggestedArg)
        .is_some_and(|other| other.to_string() != "--json");
    if known.is_none() && suggests_other {
        return None;
    }
    let message = format!("there is no argument {arg}; {meant} is an option of mount");
    let hint =
        format!("write it as -o {meant}…; `stetfs mount --help` lists the options of a mount");
    Some(Failure::new(Code::Usage, message).hint(hint))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Cli;

    fn wrong(args: &[&str]) -> clap::Error {
        let args = ["stetfs"].iter().chain(args);
        match Cli::<crate::Laboratory>::try_parse_from(args) {
            Err(e) => e,
            Ok(cli) => panic!("{cli:?}"),
        }
    }

    #[test]
    fn options_of_mount_are_known_as_arguments() {
        let said = |args: &[&str]| mount_option(&wrong(args)).map(|f| f.message);
        let journal = |arg| {
            Some(format!(
                "there is no argument {arg}; journal is an option of mount"
            ))
        };
        assert_eq!(
            said(&["mount", "--journal", "ldj", "a", "b"]),
            journal("--journal")
        );
        assert_eq!(
            said(&["mount", "--jounal=ldj", "a", "b"]),
            journal("--jounal")
        );
        assert_eq!(said(&["mount", "--foregroud", "a", "b"]), None);
        assert_eq!(said(&["mount", "--frobnicate", "a", "b"]), None);
    }

    #[test]
    fn what_is_wrong_is_the_message_and_the_rest_the_hint() {
        let failure = failure(&wrong(&["unmount"]));
        assert_eq!(failure.message, "unrecognized subcommand 'unmount'");
        assert!(failure.hint.contains("'umount'"), "{}", failure.hint);
        let args = |of: &[&str]| of.iter().map(OsString::from).collect::<Vec<_>>();
        assert!(asks_for_json(args(&["mount", "--json"])));
        assert!(!asks_for_json(args(&["mount", "--", "--json"])));
    }
}
