//! What was agreed on with the kernel, to be shown.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::awake::{AwakeStats, AwakeView, LowLatency};
use crate::helper;
use crate::mount::{MountOptions, is_root};
use crate::mounted::Mounted;
use crate::ops::FileSystem;
use crate::serve_options::{IoUring, ServeOptions};
use crate::volume_fs::VolumeFsOptions;
use crate::wire::{Agreed, Session, Transport, Use};

/// Of mounts of the type `fuseblk` the kernel passes sync(2) and syncfs(2) on since Linux 6.18,
/// which speaks 7.45; of others it does not.
const SYNC_OF_BLOCK: u32 = 45;

/// The connection of a mount.
#[derive(Clone)]
pub struct Connection {
    agreed: Agreed,
    transport: Arc<Transport>,
    threads: usize,
    awake: AwakeView,
    no_uring: Option<String>,
    asked: Asked,
    /// The type of the mount, for the kernel's `fuseblk`.
    is_block: bool,
}

/// What the options of the mount asked for.
#[derive(Clone)]
struct Asked {
    io_uring: IoUring,
    low_latency: LowLatency,
    mount: Vec<&'static str>,
}

/// The connection, as of now.
#[derive(Clone, Debug, Serialize)]
pub struct ConnectionStats {
    /// The protocol's version that is spoken.
    pub protocol: String,
    /// The one that the kernel speaks.
    pub kernel_protocol: String,
    /// How requests come: `io_uring` or `/dev/fuse`.
    pub transport: &'static str,
    /// `-o io_uring=`.
    pub io_uring: &'static str,
    /// Why requests do not come by io_uring, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not_io_uring: Option<String>,
    /// Queues: one for each processor there could be by io_uring, else one.
    pub queues: u16,
    /// Threads that serve requests.
    pub threads: usize,
    /// Whether sync(2) and syncfs(2) reach the server. Where they do not they make nothing
    /// durable: fsync(2) and `stetfs sync` do.
    pub passes_sync: bool,
    /// The largest write request, bytes.
    pub max_write: u32,
    /// What the helper was asked about callers; nothing where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub questions: Option<u64>,
    /// What the kernel was told at the mount, and what of the mount's options changes what it
    /// does.
    pub mount_options: Vec<&'static str>,
    /// Keeping processors awake.
    pub low_latency: LowLatencyStats,
    /// Each capability of the protocol that kernel or server have: `yes`; `not offered` by this
    /// kernel; `not wanted` here.
    pub capabilities: BTreeMap<&'static str, &'static str>,
    /// Flags of capabilities that the kernel offers and this program has no names for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_capabilities: Option<String>,
}

/// Keeping processors awake.
#[derive(Clone, Debug, Serialize)]
pub struct LowLatencyStats {
    /// `-o low_latency=`.
    pub option: &'static str,
    /// Nothing where it is off.
    #[serde(flatten)]
    pub awake: Option<AwakeStats>,
}

impl Connection {
    pub(crate) fn new<F: FileSystem>(
        session: &Session<F>,
        options: &ServeOptions,
        awake: AwakeView,
        no_uring: Option<String>,
        mounted: Option<&Mounted>,
    ) -> Connection {
        Connection {
            agreed: session.agreed(),
            transport: Arc::clone(session.transport()),
            threads: options.n_threads(),
            awake,
            no_uring,
            asked: Asked {
                io_uring: options.io_uring,
                low_latency: options.low_latency,
                mount: mount_options(&options.mount, &options.volume),
            },
            is_block: mounted.is_some_and(|m| m.entry().fstype.starts_with("fuseblk")),
        }
    }

    /// Whether the kernel passes sync(2) and syncfs(2) on to the server. Where it does not they
    /// succeed, and nothing is durable by them.
    pub fn passes_sync(&self) -> bool {
        self.is_block && self.agreed.kernel_minor >= SYNC_OF_BLOCK
    }

    /// As it is now.
    pub fn stats(&self) -> ConnectionStats {
        let queues = self.transport.queues();
        let by_ring = queues > 0;
        let why_not = || {
            let not_offered = || "the kernel does not offer it".to_owned();
            self.transport
                .refused()
                .or_else(|| self.no_uring.clone())
                .unwrap_or_else(not_offered)
        };
        ConnectionStats {
            protocol: format!("7.{}", self.agreed.minor),
            kernel_protocol: format!("7.{}", self.agreed.kernel_minor),
            transport: if by_ring { "io_uring" } else { "/dev/fuse" },
            io_uring: match self.asked.io_uring {
                IoUring::Auto => "auto",
                IoUring::On => "on",
                IoUring::Off => "off",
            },
            why_not_io_uring: (!by_ring).then(why_not),
            queues: queues.max(1),
            threads: self.transport.threads(self.threads),
            passes_sync: self.passes_sync(),
            max_write: self.agreed.max_write,
            questions: helper::ours().map(|helper| helper.questions()),
            mount_options: self.asked.mount.clone(),
            low_latency: LowLatencyStats {
                option: match self.asked.low_latency {
                    LowLatency::Auto => "auto",
                    LowLatency::On => "on",
                    LowLatency::Off => "off",
                },
                awake: self.awake.stats(),
            },
            capabilities: self
                .agreed
                .capabilities()
                .map(|(name, used)| {
                    let used = match used {
                        Use::Yes => "yes",
                        Use::NotOffered => "not offered",
                        Use::NotWanted => "not wanted",
                    };
                    (name, used)
                })
                .collect(),
            unknown_capabilities: match self.agreed.unknown() {
                0 => None,
                flags => Some(format!("{flags:#x}")),
            },
        }
    }
}

/// The options by the names they have for users.
fn mount_options(mount: &MountOptions, volume: &VolumeFsOptions) -> Vec<&'static str> {
    let all = [
        (mount.read_only, "ro"),
        (!mount.read_only, "rw"),
        (mount.judged, "default_permissions"),
        (mount.allow_other, "allow_other"),
        (mount.nosuid || !is_root(), "nosuid"),
        (mount.nodev || !is_root(), "nodev"),
        (mount.noexec, "noexec"),
        (mount.nosymfollow, "nosymfollow"),
        (mount.sync, "sync"),
        (mount.dirsync, "dirsync"),
        (mount.noatime, "noatime"),
        (mount.nodiratime, "nodiratime"),
        (mount.strictatime, "strictatime"),
        (volume.direct_io, "direct_io"),
        (volume.writeback_cache, "writeback_cache"),
        (volume.atomic, "atomic"),
        (volume.idmap, "idmap"),
        (volume.noxattr, "noxattr"),
        (volume.fakeroot, "fakeroot"),
    ];
    all.into_iter()
        .filter_map(|(on, name)| on.then_some(name))
        .collect()
}
