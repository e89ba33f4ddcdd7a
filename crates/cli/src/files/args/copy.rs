//! The arguments of `cp` and `tar`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgGroup, Args};

use super::shared::{Destination, Opening, PLACE, owner};
use crate::failure::{Code, Failure, Result};
use crate::files::place::Place;

const CP: &str = "\
Directories are copied with all that is in them: into DEST if that is a directory, else as DEST. Of a
source that ends in /. what is in it is copied, not itself, and with -T a directory is copied over
DEST; - is standard input. Holes, hard links within
the command, symbolic links, modes, pipes and devices are kept; with -a also owners, times and extended
attributes. A file that is there is replaced; one in a volume keeps its owner, mode and attributes unless
-a is given. A device, pipe or socket is not replaced by a file, nor is a symbolic link that is named as
DEST. Without -L nothing goes through a symbolic link below SOURCE, and never below DEST.

A SOURCE that is a symbolic link is followed, and a pipe or device of the host is read, unless -r or -a is
given: then they are copied themselves. Trouble with one file is told, and the others are copied.

To the host only -a brings set-user-id and set-group-id bits, and these only together with the owner, and
devices. Without, modes are as cp -r makes them. What is left out is counted and said. Other users of a volume must not have it open: it is refused if it is mounted.";

/// Arguments of `cp`.
#[derive(Debug, Args)]
#[command(after_help = format!("{CP}\n\n{PLACE}"))]
pub(crate) struct CpArgs {
    /// Keep owners, times, extended attributes and flags (chattr); copy links as links.
    #[arg(short, long)]
    pub(crate) archive: bool,
    /// Leave out everything with power: set-user-id, set-group-id and sticky bits of files,
    /// devices, the attributes security.* and trusted.*, and the flags immutable and append only.
    #[arg(long)]
    pub(crate) no_special: bool,
    /// Copy named links and pipes themselves. (Directories are always copied with their contents.)
    #[arg(short, long, visible_short_alias = 'R')]
    pub(crate) recursive: bool,
    /// Follow all symbolic links of the sources: named ones and those below.
    #[arg(short = 'L', long, overrides_with_all = ["no_dereference", "follow_named"])]
    pub(crate) dereference: bool,
    /// Copy symbolic links themselves, also named ones.
    #[arg(short = 'P', long, overrides_with_all = ["dereference", "follow_named"])]
    pub(crate) no_dereference: bool,
    /// Follow named symbolic links, also with -r and -a.
    #[arg(short = 'H', overrides_with_all = ["dereference", "no_dereference"])]
    pub(crate) follow_named: bool,
    /// Leave existing files as they are.
    #[arg(short, long)]
    pub(crate) no_clobber: bool,
    /// Replace existing files only if they are older than the source.
    #[arg(short, long)]
    pub(crate) update: bool,
    #[command(flatten)]
    pub(crate) dest: Destination,
    /// Owner of the copies: UID:GID.
    #[arg(long, value_name = "UID:GID", value_parser = owner)]
    pub(crate) owner: Option<(u32, u32)>,
    #[command(flatten)]
    pub(crate) opening: Opening,
    /// The sources, and the target.
    #[arg(required = true, num_args = 1.., value_names = ["SOURCE", "DEST"])]
    pub(crate) places: Vec<Place>,
}

impl CpArgs {
    /// The sources and the target.
    ///
    /// # Errors
    /// There is no target.
    pub(crate) fn sources_and_target(&self) -> Result<(&[Place], Place)> {
        let usage = "stetfs cp SOURCE IMAGE:/DEST";
        self.dest.split(&self.places, Place::clone, "target", usage)
    }

    /// Whether a named symbolic link is followed, as cp(1) decides it.
    pub(crate) fn follows_named(&self) -> bool {
        let chosen = self.dereference || self.follow_named;
        chosen || !(self.no_dereference || self.archive || self.recursive)
    }
}

const TAR: &str = "\
Without -C one IMAGE:/PATH is given: the directory that is packed, with names that begin with ./, or in
which the archive is unpacked. With -C IMAGE:/DIR the operands are names in that directory. Behind -t, and
behind the directory of -x, operands are names of the archive: these, and what is below them, are listed or
unpacked. Compressed archives are recognized when they are read. Compression is that of the programs gzip,
bzip2, xz and zstd. The directory lost+found of a volume's root is not packed unless --lost-found is given.
In a PATTERN * and ? stand for any text, with slashes, and [..] for one of several characters; it excludes
names that it matches from their beginning or behind a slash, with all that is below them.";

/// Arguments of `tar`.
#[derive(Debug, Args)]
#[command(after_help = format!("{TAR}\n\n{PLACE}"))]
#[command(group(ArgGroup::new("action").required(true).args(["create", "extract", "list"])))]
#[command(group(ArgGroup::new("packing").args(["gzip", "bzip2", "xz", "zstd"])))]
pub(crate) struct TarArgs {
    /// Pack the content of the directory.
    #[arg(short = 'c', long)]
    pub(crate) create: bool,
    /// Unpack into the directory.
    #[arg(short = 'x', long)]
    pub(crate) extract: bool,
    /// List the archive. This needs no volume.
    #[arg(short = 't', long)]
    pub(crate) list: bool,
    /// The archive; - or nothing is standard input or output.
    #[arg(short, long, value_name = "ARCHIVE")]
    pub(crate) file: Option<PathBuf>,
    /// Compress with gzip, or unpack what it has packed.
    #[arg(short = 'z', long)]
    pub(crate) gzip: bool,
    /// The same with bzip2.
    #[arg(short = 'j', long)]
    pub(crate) bzip2: bool,
    /// The same with xz.
    #[arg(short = 'J', long)]
    pub(crate) xz: bool,
    /// The same with zstd.
    #[arg(long)]
    pub(crate) zstd: bool,
    /// Print the names of files as they are packed or unpacked, on standard error where the archive
    /// or JSON is on standard output; with -t print type, mode, owner, size and time (UTC), too.
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// The directory in a volume in which names are looked for, or unpacked.
    #[arg(short = 'C', long, value_name = "IMAGE:/DIR", conflicts_with = "list")]
    pub(crate) directory: Option<Place>,
    /// Leave out files whose names match.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<OsString>,
    /// Pack the directory lost+found, too.
    #[arg(long, requires = "create")]
    pub(crate) lost_found: bool,
    /// Owner of all files: UID:GID.
    #[arg(long, value_name = "UID:GID", value_parser = owner)]
    pub(crate) owner: Option<(u32, u32)>,
    /// Unpack a layer of an OCI image: .wh.NAME removes NAME, and .wh..wh..opq removes what its
    /// directory had before.
    #[arg(long, requires = "extract")]
    pub(crate) whiteouts: bool,
    #[command(flatten)]
    pub(crate) opening: Opening,
    /// A directory in a volume, IMAGE:/PATH, unless -C or -t is given; names.
    #[arg(value_name = "IMAGE:/PATH|NAME")]
    pub(crate) words: Vec<OsString>,
}

impl TarArgs {
    /// The directory in a volume, and the names.
    ///
    /// # Errors
    /// There is no such directory.
    pub(crate) fn place_and_names(&self) -> Result<(Place, &[OsString])> {
        match (&self.directory, self.words.split_first()) {
            (Some(place), _) => Ok((place.clone(), &self.words)),
            (None, Some((word, names))) if names.is_empty() || self.extract => {
                Ok((Place::from(word.as_os_str()), names))
            }
            (None, Some(_)) => {
                let message = "one place is packed";
                Err(Failure::new(Code::Usage, message)
                    .hint("name several with -C: stetfs tar -c -C IMAGE:/DIR NAME…"))
            }
            (None, None) => {
                let message = "the directory in a volume is missing";
                Err(Failure::new(Code::Usage, message)
                    .hint("write IMAGE:/PATH, such as disk.img:/etc"))
            }
        }
    }
}
