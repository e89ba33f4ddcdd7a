//! The result of the negotiation with the kernel, for display.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::api::ops::FileSystem;
use crate::helper;
use crate::mount::mounted::Mounted;
use crate::mount::{MountOptions, is_root};
use crate::requests::volume_fs::VolumeFsOptions;
use crate::server::options::{IoUring, ServeOptions};
use crate::session::Session;
use crate::transport::awake::{AwakeStats, AwakeView, LowLatency};
use crate::transport::current::Transport;
use crate::wire::negotiate::{Agreed, Use};

/// The minor protocol version (7.45, Linux 6.18) since which the kernel passes sync(2) and
/// syncfs(2) on for mounts of the type `fuseblk`; for others it never does.
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
    /// Whether the mount has the kernel's type `fuseblk`.
    is_block: bool,
}

/// The options that the mount requested.
#[derive(Clone)]
struct Asked {
    io_uring: IoUring,
    low_latency: LowLatency,
    mount: Vec<&'static str>,
}

/// The current state of the connection.
#[derive(Clone, Debug, Serialize)]
pub struct ConnectionStats {
    /// The protocol version in use.
    pub protocol: String,
    /// The protocol version of the kernel.
    pub kernel_protocol: String,
    /// The transport of requests: `io_uring` or `/dev/fuse`.
    pub transport: &'static str,
    /// The option `-o io_uring=`.
    pub io_uring: &'static str,
    /// The reason why requests do not come by io_uring, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not_io_uring: Option<String>,
    /// Queues: with io_uring one for each possible processor, otherwise one.
    pub queues: u16,
    /// Threads that serve requests.
    pub threads: usize,
    /// Whether sync(2) and syncfs(2) reach the server. If not, they make nothing durable: fsync(2)
    /// and `stetfs sync` do.
    pub passes_sync: bool,
    /// The largest write request, bytes.
    pub max_write: u32,
    /// Number of questions to the helper about callers; `None` without a helper.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub questions: Option<u64>,
    /// The mount's options as far as they change the behaviour of the kernel or of the mount.
    pub mount_options: Vec<&'static str>,
    /// Statistics of keeping processors awake.
    pub low_latency: LowLatencyStats,
    /// Each capability of the protocol that the kernel or the server has: `yes`; `not offered` by
    /// this kernel; `not wanted` here.
    pub capabilities: BTreeMap<&'static str, &'static str>,
    /// Flags of capabilities that the kernel offers and this program does not know by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_capabilities: Option<String>,
}

/// Statistics of keeping processors awake.
#[derive(Clone, Debug, Serialize)]
pub struct LowLatencyStats {
    /// The option `-o low_latency=`.
    pub option: &'static str,
    /// `None` if it is off.
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

    /// Whether the kernel passes sync(2) and syncfs(2) on to the server. If not, they succeed
    /// without making anything durable.
    pub fn passes_sync(&self) -> bool {
        self.is_block && self.agreed.kernel_minor >= SYNC_OF_BLOCK
    }

    /// The current state.
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

/// The options by the names that users know.
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
