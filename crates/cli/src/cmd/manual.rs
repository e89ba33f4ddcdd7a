//! Manual pages: one for `stetfs` and one for each of its commands, which includes the subcommands.

use std::fs;
use std::io;
use std::path::Path;

use clap::Command;
use clap_mangen::Man;

/// A part of a page, as `clap_mangen` renders it.
type Section = fn(&Man, &mut dyn io::Write) -> io::Result<()>;

/// Writes `stetfs.1`, `stetfs-mount.1` and so on, for the commands of this program, into an
/// existing directory.
///
/// # Errors
/// A page cannot be written.
pub(crate) fn write(
    command: &Command,
    is_here: impl Fn(&str) -> bool,
    dir: &Path,
) -> io::Result<()> {
    fs::write(dir.join("stetfs.1"), page(command, overview)?)?;
    for below in shown(command).filter(|below| is_here(below.get_name())) {
        let page = page(below, whole)?;
        fs::write(dir.join(format!("{}.1", full_name(below))), page)?;
    }
    Ok(())
}

/// The subcommands of `command` that the manual shows.
fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command
        .get_subcommands()
        .filter(|c| !c.is_hide_set() && c.get_name() != "help")
}

/// The full name of a command, such as `stetfs-crash-run`.
fn full_name(command: &Command) -> &str {
    command
        .get_display_name()
        .unwrap_or_else(|| command.get_name())
}

fn page(command: &Command, body: fn(&Command) -> io::Result<String>) -> io::Result<String> {
    let man = Man::new(command.clone())
        .title(full_name(command).to_uppercase())
        .source(concat!("StetFS ", env!("CARGO_PKG_VERSION")))
        .manual("StetFS manual");
    let mut text = rendered(&man, &[Man::render_title, Man::render_name_section])?;
    text.push_str(&body(command)?);
    text.push_str(".SH SEE ALSO\n");
    text.push_str(match command.get_name() {
        "stetfs" => ".BR mount (8),\n.BR e2fsck (8),\n.BR mke2fs (8),\n.BR ext4 (5)\n",
        _ => ".BR stetfs (1)\n",
    });
    Ok(text)
}

/// The first page: the list of commands, with the page of each.
fn overview(command: &Command) -> io::Result<String> {
    let man = Man::new(command.clone());
    let mut text = synopsis(command) + &rendered(&man, &[Man::render_description_section])?;
    text.push_str(".SH COMMANDS\n");
    for below in shown(command) {
        let about = below.get_about().map(ToString::to_string);
        text.push_str(&format!(
            ".TP\n.BR {} (1)\n{}.\n",
            escaped(full_name(below)),
            escaped(&about.unwrap_or_default())
        ));
    }
    text.push_str(&options_and_notes(command, &man)?);
    Ok(text)
}

/// The page of a command, with each subcommand under its own heading.
fn whole(command: &Command) -> io::Result<String> {
    let man = Man::new(command.clone());
    let mut text = synopsis(command) + &rendered(&man, &[Man::render_description_section])?;
    if command.has_subcommands() {
        below(command, &mut text)?;
        return Ok(text);
    }
    text.push_str(&options_and_notes(command, &man)?);
    Ok(text)
}

fn below(command: &Command, text: &mut String) -> io::Result<()> {
    for command in shown(command) {
        if command.has_subcommands() {
            below(command, text)?;
            continue;
        }
        let name = full_name(command).replace('-', " ").to_uppercase();
        text.push_str(&format!(".SH \"{name}\"\n"));
        let man = Man::new(command.clone());
        let part = rendered(&man, &[Man::render_description_section])?
            + &synopsis(command)
            + &options_and_notes(command, &man)?;
        let part = part.replacen(".SH DESCRIPTION\n", "", 1);
        text.push_str(&part.replace("\n.SH ", "\n.SS "));
    }
    Ok(())
}

/// The synopsis. Possible values of options are left to the options themselves.
fn synopsis(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    format!(".SH SYNOPSIS\n{}\n", escaped(usage))
}

fn options_and_notes(command: &Command, man: &Man) -> io::Result<String> {
    let mut text = String::new();
    if command.get_arguments().any(|a| !a.is_hide_set()) {
        text.push_str(&rendered(man, &[Man::render_options_section])?);
    }
    if command.get_after_long_help().is_some() || command.get_after_help().is_some() {
        let notes = rendered(man, &[Man::render_extra_section])?;
        text.push_str(&notes.replacen(".SH EXTRA", ".SH NOTES", 1));
    }
    Ok(lists(&text))
}

fn rendered(man: &Man, sections: &[Section]) -> io::Result<String> {
    let mut bytes = Vec::new();
    for section in sections {
        section(man, &mut bytes)?;
    }
    // Each section begins with the same roff definitions, which are cut off.
    let text = String::from_utf8(bytes).map_err(io::Error::other)?;
    let (mut out, mut defined) = (String::new(), false);
    for line in text.lines() {
        if line.starts_with(".ie ") || line.starts_with(".el ") {
            if defined {
                continue;
            }
            defined = line.starts_with(".el ");
        }
        out.push_str(line);
        out.push('\n');
    }
    Ok(out)
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

/// Turns help in two hand-made columns (name, meaning) into roff lists, which fill lines of any
/// width.
fn lists(roff: &str) -> String {
    let mut out = String::new();
    let (mut in_list, mut in_option) = (false, false);
    for line in roff.lines() {
        if line.starts_with(".TP") || line.starts_with(".SH") {
            in_option = line.starts_with(".TP");
        }
        let bare = line.trim_start_matches(' ');
        let indent = line.len() - bare.len();
        let item = (1..=4).contains(&indent);
        if in_list && indent == 0 && !bare.is_empty() {
            out.push_str(".RE\n");
            if !bare.starts_with('.') {
                out.push_str(if in_option { ".IP\n" } else { ".PP\n" });
            }
            in_list = false;
        }
        if item && !in_list {
            out.push_str(".RS\n");
            in_list = true;
        }
        match (item, in_list) {
            (true, _) => {
                let (name, says) = bare.split_once("  ").unwrap_or((bare, ""));
                out.push_str(&format!(".TP 4\n\\fB{name}\\fR\n"));
                let says = says.trim_start();
                if !says.is_empty() {
                    out.push_str(says);
                    out.push('\n');
                }
            }
            // A value of an option, with its meaning.
            (false, true) if bare.split(' ').next().is_some_and(|w| w.ends_with(':')) => {
                out.push_str(".br\n");
                out.push_str(bare);
                out.push('\n');
            }
            (false, true) if bare.is_empty() => {}
            _ => {
                out.push_str(bare);
                out.push('\n');
            }
        }
    }
    if in_list {
        out.push_str(".RE\n");
    }
    out
}
