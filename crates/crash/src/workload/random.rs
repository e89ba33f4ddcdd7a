//! Random operations that must succeed.

use super::model::{Kind, State};
use super::op::{Op, held_path};

/// Makes operations that must succeed.
pub struct Generator {
    rng: fastrand::Rng,
    key: u64,
}

/// Files stay below this size, bytes.
const FILE_MAX: u64 = 60_000;
/// So many files are held open.
const HELD: usize = 8;
/// The tree stays near this many entries.
const ENTRIES: usize = 40;

impl Generator {
    /// The same seed gives the same operations.
    pub fn new(seed: u64) -> Generator {
        Generator {
            rng: fastrand::Rng::with_seed(seed),
            key: seed << 32,
        }
    }

    fn key(&mut self) -> u64 {
        self.key += 1;
        self.key
    }

    fn pick<'a>(&mut self, from: &[&'a String]) -> Option<&'a String> {
        self.rng.choice(from).copied()
    }

    /// A path that is not taken. Some names are long, so that directories soon need several blocks.
    fn new_path(&mut self, state: &State, dirs: &[&String]) -> String {
        loop {
            let n = self.rng.u32(0..1000);
            let name = if self.rng.u8(0..3) == 0 {
                format!("n{n}{}", "-long".repeat(20))
            } else {
                format!("n{n}")
            };
            let path = match self.pick(dirs) {
                Some(dir) if self.rng.u8(0..3) > 0 && dir.matches('/').count() < 3 => {
                    format!("{dir}/{name}")
                }
                _ => name,
            };
            if state.find(&path).is_none() {
                return path;
            }
        }
    }

    /// Somewhere in a file of `size` bytes, or near behind it; often at a block's edge.
    fn offset(&mut self, size: u64) -> u64 {
        let any = self.rng.u64(0..=(size + 3000).min(FILE_MAX));
        match self.rng.u8(0..4) {
            0 => size,
            1 => any / 4096 * 4096,
            2 => any / 1024 * 1024,
            _ => any,
        }
    }

    /// The next operation.
    pub fn next(&mut self, state: &State) -> Op {
        loop {
            if let Some(op) = self.candidate(state) {
                return op;
            }
        }
    }

    /// Now and then the sync of a file.
    pub fn synced(&mut self, state: &State) -> Option<Op> {
        let paths = state.paths();
        let file = |id| matches!(state.nodes[id].kind, Kind::File(_));
        let files: Vec<&String> = paths
            .iter()
            .filter(|(_, id)| file(id))
            .map(|(p, _)| p)
            .collect();
        (self.rng.u8(0..3) == 0).then_some(())?;
        Some(Op::Fsync {
            path: self.pick(&files)?.clone(),
        })
    }

    /// A sync of what was just changed; seldom of everything, for that also brings home what others
    /// lost.
    pub fn sync_of(&mut self, path: String) -> Op {
        match self.rng.u8(0..200) {
            0 => Op::SyncAll,
            1..40 => Op::Fdatasync { path },
            _ => Op::Fsync { path },
        }
    }

    fn candidate(&mut self, state: &State) -> Option<Op> {
        let paths = state.paths();
        let of = |kind: fn(&Kind) -> bool| -> Vec<&String> {
            paths
                .iter()
                .filter(|(_, id)| kind(&state.nodes[id].kind))
                .map(|(p, _)| p)
                .collect()
        };
        let files = of(|k| matches!(k, Kind::File(_)));
        let dirs = of(|k| matches!(k, Kind::Dir(_)));
        let empty = of(|k| matches!(k, Kind::Dir(e) if e.is_empty()));
        // Mostly those that have a name.
        let held: Vec<String> = state.held.keys().map(|n| held_path(*n)).collect();
        let mut content = files.clone();
        if self.rng.u8(0..5) == 0 && !held.is_empty() {
            content = held.iter().collect();
        }
        let others = of(|k| !matches!(k, Kind::Dir(_)));
        let any: Vec<&String> = paths.iter().map(|(p, _)| p).collect();
        let room = paths.len() < ENTRIES;
        let hold = held.len() < HELD;
        let op = match self.rng.u8(0..109) {
            0..12 if room => {
                let path = self.new_path(state, &dirs);
                Op::Create {
                    path,
                    mode: *self.rng.choice(&[0o644, 0o600, 0o755])?,
                }
            }
            12..17 if room => Op::Mkdir {
                path: self.new_path(state, &dirs),
                mode: 0o755,
            },
            17..21 if room => {
                let target = "t".repeat(*self.rng.choice(&[5, 59, 60, 200, 900])?);
                Op::Symlink {
                    path: self.new_path(state, &dirs),
                    target,
                }
            }
            21..45 => {
                let path = self.pick(&content)?.clone();
                let size = state.node(&path)?.content()?.data.len() as u64;
                let offset = self.offset(size);
                let len = match self.rng.u8(0..3) {
                    0 => self.rng.usize(1..600),
                    1 => self.rng.usize(1..5) * 4096,
                    _ => self.rng.usize(1..20_000),
                };
                (offset + len as u64 <= FILE_MAX).then(|| Op::Write {
                    path,
                    offset,
                    len,
                    key: self.key(),
                })?
            }
            45..50 => {
                let path = self.pick(&content)?.clone();
                let size = state.node(&path)?.content()?.data.len() as u64;
                Op::Truncate {
                    size: self.offset(size),
                    path,
                }
            }
            50..53 => {
                let path = self.pick(&content)?.clone();
                let size = state.node(&path)?.content()?.data.len() as u64;
                let len = self.rng.u64(1..12_000);
                let offset = self.rng.u64(0..=size);
                match self.rng.u8(0..3) {
                    0 => Op::Punch { path, offset, len },
                    1 => Op::Zero {
                        path,
                        offset,
                        len,
                        keep: self.rng.bool(),
                    },
                    _ => Op::Allocate {
                        path,
                        offset,
                        len,
                        keep: self.rng.bool(),
                    },
                }
            }
            53..57 => Op::Unlink {
                path: self.pick(&others)?.clone(),
            },
            57..58 if hold => Op::HoldUnlink {
                path: self.pick(&files)?.clone(),
                held: state.free_number(),
            },
            58..61 => Op::Rmdir {
                path: self.pick(&empty)?.clone(),
            },
            61..64 if room => Op::Link {
                from: self.pick(&others)?.clone(),
                to: self.new_path(state, &dirs),
            },
            64..69 => self.rename(state, &any, &dirs)?,
            69..71 => {
                let (a, b) = (self.pick(&any)?.clone(), self.pick(&any)?.clone());
                let below = |a: &str, b: &str| a.starts_with(&format!("{b}/"));
                let free = state.find(&a) != state.find(&b) && !below(&a, &b) && !below(&b, &a);
                free.then_some(Op::Exchange { a, b })?
            }
            71..73 => {
                let path = self.pick(&content)?.clone();
                Op::Chmod {
                    path,
                    mode: *self.rng.choice(&[0o640, 0o444, 0o700])?,
                }
            }
            73..75 => {
                let path = self.pick(&any)?.clone();
                Op::Chown {
                    path,
                    uid: self.rng.u32(0..100_000),
                    gid: self.rng.u32(0..10),
                }
            }
            75..79 => {
                let path = self.pick(&content)?.clone();
                let name = format!("user.{}", self.rng.choice(&["a", "bb", "ccc"])?);
                let len = *self.rng.choice(&[0, 10, 40, 300])?;
                Op::SetXattr {
                    path,
                    name,
                    key: self.key(),
                    len,
                }
            }
            79..81 => {
                let path = self.pick(&content)?.clone();
                let name = state.node(&path)?.xattrs.keys().next()?.clone();
                Op::RemoveXattr { path, name }
            }
            81..90 => Op::Fsync {
                path: self.pick(&content)?.clone(),
            },
            90..94 => Op::Fdatasync {
                path: self.pick(&content)?.clone(),
            },
            94..97 => Op::Fsync {
                path: self.pick(&dirs).cloned().unwrap_or_default(),
            },
            97..98 => Op::SyncAll,
            100..102 if hold => Op::Tmpfile {
                held: state.free_number(),
                mode: 0o600,
            },
            102..104 if hold => Op::Hold {
                path: self.pick(&files)?.clone(),
                held: state.free_number(),
            },
            104..105 if room => {
                let op = Op::Link {
                    from: self.rng.choice(&held)?.clone(),
                    to: self.new_path(state, &dirs),
                };
                state.allows(&op).ok().map(|()| op)?
            }
            105..106 => Op::Close {
                held: *self
                    .rng
                    .choice(&state.held.keys().collect::<Vec<_>>())
                    .copied()?,
            },
            106..109 => {
                let path = self.pick(&content)?.clone();
                let size = state.node(&path)?.content()?.data.len() as u64;
                let offset = self.rng.u64(0..size.max(1));
                let op = Op::MapWrite {
                    len: self.rng.usize(1..=4096 - (offset % 4096) as usize),
                    path,
                    offset,
                    key: self.key(),
                };
                state.allows(&op).ok().map(|()| op)?
            }
            _ => return None,
        };
        Some(op)
    }

    fn rename(&mut self, state: &State, any: &[&String], dirs: &[&String]) -> Option<Op> {
        let from = self.pick(any)?.clone();
        let to = if self.rng.bool() {
            self.new_path(state, dirs)
        } else {
            self.pick(any)?.clone()
        };
        let into_itself =
            to.starts_with(&format!("{from}/")) || from.starts_with(&format!("{to}/"));
        let fits = match (state.node(&from), state.node(&to)) {
            (Some(_), None) => true,
            (Some(a), Some(b)) if state.find(&from) != state.find(&to) => {
                a.is_dir() == b.is_dir() && !matches!(&b.kind, Kind::Dir(e) if !e.is_empty())
            }
            _ => false,
        };
        (fits && !into_itself).then_some(Op::Rename { from, to })
    }
}
