//! Commands and options of the usual tools that StetFS does not have, with what to use instead.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::failure::{Code, Failure};

/// Names of commands that users may expect, and what does the same.
const COMMANDS: &[(&[&str], &str)] = &[
    (
        &["copy", "put", "get", "write", "install", "dd"],
        "stetfs cp copies files in and out; stetfs cp - IMAGE:/FILE writes standard input",
    ),
    (
        &["read", "type", "less", "more", "head", "tail"],
        "stetfs cat IMAGE:/FILE prints a file",
    ),
    (
        &["del", "delete", "remove", "unlink"],
        "stetfs rm IMAGE:/FILE removes a file",
    ),
    (
        &["move", "rename", "ren"],
        "stetfs mv IMAGE:/FROM IMAGE:/TO renames a file",
    ),
    (
        &["dir", "list", "ll", "find", "tree", "du"],
        "stetfs ls -lR IMAGE:/DIR lists a tree, with --json for programs",
    ),
    (&["md"], "stetfs mkdir IMAGE:/DIR makes a directory"),
    (
        &["rd"],
        "stetfs rmdir IMAGE:/DIR removes an empty directory",
    ),
    (
        &["symlink", "link"],
        "stetfs ln -s TARGET IMAGE:/LINK makes a symbolic link, without -s another name",
    ),
    (
        &["vi", "vim", "nano", "emacs", "sed"],
        "stetfs edit IMAGE:/FILE starts $VISUAL or $EDITOR",
    ),
    (
        &["create", "creat"],
        "stetfs touch IMAGE:/FILE makes an empty file",
    ),
    (
        &["mknod", "mkfifo"],
        "mknod FILE on the host, then stetfs cp -a FILE IMAGE:/FILE",
    ),
    (
        &["getfacl"],
        "stetfs getfattr -n system.posix_acl_access -e hex IMAGE:/FILE shows the attribute with the ACL",
    ),
    (
        &["setfacl"],
        "stetfs setfattr -n system.posix_acl_access -v 0x… IMAGE:/FILE sets the attribute with the ACL",
    ),
    (
        &["setcap", "getcap"],
        "stetfs setfattr and getfattr have the attribute security.capability",
    ),
    (
        &["chattr", "lsattr"],
        "stetfs cp -a keeps the flags of the source; a mount has chattr(1)",
    ),
    (
        &["mke2fs", "mkfs.ext4", "format"],
        "stetfs mkfs --size SIZE IMAGE makes a volume",
    ),
    (
        &["fsck", "e2fsck", "check"],
        "e2fsck -f IMAGE checks a volume; stetfs recover IMAGE replays its journal",
    ),
    (
        &["tune2fs", "resize2fs", "debugfs"],
        "the tool of e2fsprogs with this name works on the same volume",
    ),
    (&["dumpe2fs"], "stetfs info IMAGE describes a volume"),
    (
        &["fallocate", "resize"],
        "stetfs truncate -s SIZE IMAGE:/FILE sets a size",
    ),
    (
        &["untar", "unpack", "extract"],
        "stetfs tar -x -f ARCHIVE IMAGE:/DIR unpacks an archive",
    ),
    (
        &["pack", "archive", "zip"],
        "stetfs tar -c -f ARCHIVE IMAGE:/DIR packs an archive",
    ),
];

/// Options of the usual tools: the commands of StetFS that get them, the options, and what to use.
const OPTIONS: &[(&[&str], &[&str], &str)] = &[
    (
        &["cp"],
        &["-p", "--preserve"],
        "-a keeps owners, times and attributes",
    ),
    (
        &["cp"],
        &["-f", "--force", "--remove-destination"],
        "files that are there are replaced anyway; -n keeps them",
    ),
    (
        &["cp"],
        &["-d"],
        "-P copies symbolic links themselves; hard links are kept anyway",
    ),
    (&["cp"], &["--sparse", "--reflink"], "holes are kept anyway"),
    (
        &["cp"],
        &["-l", "--link", "-s", "--symbolic-link"],
        "stetfs ln makes links",
    ),
    (
        &["cp", "mv", "rm", "ln"],
        &["-i", "--interactive", "-I"],
        "no command asks; -n of cp and mv keeps what is there",
    ),
    (
        &["cp", "mv", "ln"],
        &["-b", "--backup", "-S", "--suffix"],
        "stetfs mv IMAGE:/FILE IMAGE:/FILE~ keeps a copy of the old file",
    ),
    (
        &["cp", "mv", "rm", "ln", "mkdir", "rmdir", "chown", "chgrp"],
        &["-v", "--verbose", "-c", "--changes"],
        "--json prints how much was done",
    ),
    (
        &["rm"],
        &["-d", "--dir"],
        "stetfs rmdir removes empty directories",
    ),
    (
        &["rm", "chown", "chgrp"],
        &[
            "--preserve-root",
            "--no-preserve-root",
            "--one-file-system",
            "-x",
        ],
        "the root of a volume is never removed, and a volume is one file system",
    ),
    (
        &["chown", "chgrp"],
        &["--reference"],
        "stetfs stat -c '%a %u:%g' IMAGE:/FILE prints what chmod and chown take",
    ),
    (
        &["chown", "chgrp"],
        &["-f", "--silent", "--quiet"],
        "2>/dev/null drops messages",
    ),
    (
        &["chown", "chgrp"],
        &["-L", "-H", "-P", "--dereference"],
        "-R changes symbolic links themselves, and follows none",
    ),
    (&["ls"], &["-n", "--numeric-uid-gid"], "-l shows numbers"),
    (
        &["ls"],
        &["-t", "-S", "-r", "-U", "-X", "-v", "--sort"],
        "names are in the order of their bytes; --json has times and sizes to sort by",
    ),
    (
        &["ls"],
        &["-i", "--inode", "-s", "--size", "-Z"],
        "--json has inodes and blocks; stetfs stat shows one file, stetfs getfattr labels",
    ),
    (
        &["ls"],
        &[
            "-F",
            "--classify",
            "--color",
            "-p",
            "-C",
            "-x",
            "-m",
            "-q",
            "-b",
            "-Q",
        ],
        "-l shows the type; a terminal gets names in quotes where they need them",
    ),
    (
        &["stat"],
        &["--printf"],
        "-c FORMAT prints a line for each file",
    ),
    (
        &["stat"],
        &["-f", "--file-system"],
        "stetfs df and stetfs info show the volume",
    ),
    (
        &["df"],
        &[
            "-k",
            "-m",
            "-B",
            "--block-size",
            "-H",
            "--si",
            "-T",
            "--output",
            "-P",
        ],
        "blocks are of 1024 bytes, -h shows K, M and G; --json has bytes",
    ),
    (
        &["touch"],
        &["--time"],
        "-a is the access time, -m the modification time",
    ),
    (&["truncate"], &["--io-blocks"], "sizes take units: 4K, 1M"),
    (
        &["mkdir"],
        &["-Z", "--context"],
        "stetfs setfattr -n security.selinux sets a label",
    ),
    (
        &["tar"],
        &[
            "-p",
            "--preserve-permissions",
            "--same-permissions",
            "--numeric-owner",
            "--same-owner",
            "--xattrs",
            "--xattrs-include",
            "--acls",
            "--selinux",
            "--sparse",
            "-S",
        ],
        "permissions, owners by number, attributes, ACLs and holes are kept anyway",
    ),
    (
        &["tar"],
        &[
            "-r", "--append", "-u", "--update", "-A", "--delete", "-d", "--diff",
        ],
        "an archive is packed (-c), unpacked (-x) or listed (-t)",
    ),
    (
        &["tar"],
        &["-a", "--auto-compress"],
        "-z, -j, -J and --zstd pack; packed archives are recognized when they are read",
    ),
    (
        &["tar"],
        &["--strip-components", "--transform"],
        "stetfs mv moves what was unpacked",
    ),
    (
        &["setfattr"],
        &["--restore"],
        "stetfs cp -a and stetfs tar keep attributes",
    ),
];

/// The failure for a command or option that others have; `None` for all else.
pub(crate) fn of(e: &clap::Error, args: impl Iterator<Item = OsString>) -> Option<Failure> {
    let context = |kind| match e.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let hint = match e.kind() {
        ErrorKind::InvalidSubcommand => command(context(ContextKind::InvalidSubcommand)?)?,
        ErrorKind::UnknownArgument => {
            let words = args.filter_map(|word| word.into_string().ok());
            let mut words = words.filter(|word| !word.starts_with('-'));
            let option = context(ContextKind::InvalidArg)?;
            option_of(&words.next()?, option.split('=').next().unwrap_or(option))?
        }
        _ => return None,
    };
    let text = e.to_string();
    let first = text.lines().next().unwrap_or_default();
    let message = first.strip_prefix("error: ").unwrap_or(first);
    Some(Failure::new(Code::Usage, message).hint(hint))
}

fn command(name: &str) -> Option<&'static str> {
    let mut found = COMMANDS.iter().filter(|(names, _)| names.contains(&name));
    found.next().map(|(_, hint)| *hint)
}

fn option_of(command: &str, option: &str) -> Option<&'static str> {
    let mut found = OPTIONS
        .iter()
        .filter(|(commands, options, _)| commands.contains(&command) && options.contains(&option));
    found.next().map(|(.., hint)| *hint)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::args::Cli;

    type Program = Cli<crate::Laboratory>;

    /// Names that are listed as missing are missing, and those named instead exist.
    #[test]
    fn the_tables_name_what_is_missing_and_what_is_there() {
        let program = Program::command();
        for (names, hint) in COMMANDS {
            for name in *names {
                assert!(program.find_subcommand(name).is_none(), "{name}");
                let e = Program::try_parse_from(["stetfs", name]).err();
                let said = e.and_then(|e| of(&e, [OsString::from(name)].into_iter()));
                assert_eq!(said.map(|said| said.hint).as_deref(), Some(*hint), "{name}");
            }
            for word in hint
                .split("stetfs ")
                .skip(1)
                .filter_map(|rest| rest.split(' ').next())
            {
                assert!(program.find_subcommand(word).is_some(), "{word}: {hint}");
            }
        }
        for (commands, options, hint) in OPTIONS {
            for name in *commands {
                let command = program.find_subcommand(name);
                assert!(command.is_some(), "{name}");
                for option in *options {
                    let args = ["stetfs", name, option, "a.img:/b", "a.img:/c"];
                    let e = Program::try_parse_from(args).err();
                    let known = e.filter(|e| e.kind() == ErrorKind::UnknownArgument);
                    let args = [OsString::from(name)].into_iter();
                    let said = known.and_then(|e| of(&e, args));
                    let said = said.map(|said| said.hint);
                    assert_eq!(said.as_deref(), Some(*hint), "{name} {option}");
                }
            }
        }
    }
}
