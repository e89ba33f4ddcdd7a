//! The amount of work of the workloads.

use anyhow::{Result, ensure};

/// The amount of work of each workload. All counts are per round and target.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Synced writes in the latency workloads.
    pub syncs: u32,
    /// Size of the overwritten file, bytes.
    pub overwrite_bytes: u64,
    /// Files per thread in the create, rename and unlink workload.
    pub names: u32,
    /// Number of `stat` calls.
    pub stats: u32,
    /// Bytes of the sequential workload.
    pub stream_bytes: u64,
    /// Files of the cloned repository.
    pub git_files: u32,
    /// SQLite transactions.
    pub transactions: u32,
    /// Time of a server profile, seconds.
    pub profile_seconds: u32,
    /// Numbers of threads, one after the other, for workloads with several threads.
    pub threads: &'static [u32],
    /// Files of the mail server.
    pub mail_files: u64,
    /// Files of one page each that all threads together make; `None`: as many as `names`.
    pub made_files: Option<u32>,
    /// Files of the file server.
    pub server_files: u64,
    /// PostMark: small files that are created and deleted.
    pub postmark: Postmark,
    /// PostgreSQL with pgbench.
    pub oltp: Oltp,
    /// Bytes of the copied tree: four fifths in 4 files, the rest in 64.
    pub copy_bytes: u64,
}

/// The parameters of PostMark.
#[derive(Clone, Copy, Debug)]
pub struct Postmark {
    /// Initial number of files in the pool.
    pub files: u32,
    /// Number of directories that they are spread over.
    pub directories: u32,
    /// Number of transactions: each reads or appends to a file, and creates or deletes one.
    pub transactions: u32,
    /// Size in bytes of the smallest file.
    pub least: usize,
    /// Size in bytes of the largest file; appends stop there, too.
    pub most: usize,
}

/// The parameters of pgbench.
#[derive(Clone, Copy, Debug)]
pub struct Oltp {
    /// Number of concurrent clients.
    pub clients: u32,
    /// pgbench's scale factor, in units of 100 000 accounts, about 15 MB.
    pub scale: u32,
    /// Time in seconds: long enough for several checkpoints of the server; the number in a shorter
    /// round would be a matter of chance.
    pub seconds: u32,
}

/// Largest allowed size of PostMark's files, bytes: one buffer holds twice that.
const MOST: usize = 64 << 20;

impl Sizes {
    /// Time of a server profile: at least a second.
    pub(crate) fn profile_time(&self) -> std::time::Duration {
        std::time::Duration::from_secs(self.profile_seconds.max(1).into())
    }

    /// Sizes for steady medians.
    pub fn normal() -> Self {
        Self {
            syncs: 1_000,
            overwrite_bytes: 32 << 20,
            names: 4_000,
            stats: 100_000,
            stream_bytes: 256 << 20,
            git_files: 3_000,
            transactions: 500,
            profile_seconds: 4,
            threads: &[1, 2, 4],
            mail_files: 1_000,
            made_files: None,
            server_files: 2_000,
            postmark: Postmark {
                files: 5_000,
                directories: 100,
                transactions: 20_000,
                least: 500,
                most: 10_000,
            },
            oltp: Oltp {
                clients: 8,
                scale: 10,
                seconds: 12,
            },
            copy_bytes: 320 << 20,
        }
    }

    /// Sizes for a first impression, in seconds.
    pub fn quick() -> Self {
        let normal = Self::normal();
        Self {
            syncs: 150,
            overwrite_bytes: 8 << 20,
            names: 500,
            stats: 10_000,
            stream_bytes: 48 << 20,
            git_files: 500,
            transactions: 80,
            profile_seconds: 1,
            threads: normal.threads,
            mail_files: normal.mail_files,
            made_files: normal.made_files,
            server_files: 500,
            postmark: Postmark {
                files: 1_000,
                directories: 20,
                transactions: 4_000,
                ..normal.postmark
            },
            oltp: Oltp {
                scale: 2,
                seconds: 2,
                ..normal.oltp
            },
            copy_bytes: 40 << 20,
        }
    }

    /// Checks that the sizes are usable.
    pub(super) fn check(&self) -> Result<()> {
        let mix = &self.postmark;
        ensure!(
            mix.least <= mix.most,
            "PostMark's smallest file ({} bytes) is larger than its largest ({} bytes)",
            mix.least,
            mix.most
        );
        ensure!(
            (1..=MOST).contains(&mix.most),
            "PostMark's largest file must have 1 byte to {} MiB, not {} bytes",
            MOST >> 20,
            mix.most
        );
        ensure!(
            mix.files > 0 && mix.directories > 0 && mix.transactions > 0,
            "PostMark needs a file, a directory and a transaction"
        );
        ensure!(
            (1..=1_000).contains(&self.oltp.clients),
            "pgbench takes 1 to 1000 clients here, not {}",
            self.oltp.clients
        );
        ensure!(
            (1..=10_000).contains(&self.oltp.scale),
            "pgbench takes a scale of 1 to 10000 here, not {}",
            self.oltp.scale
        );
        ensure!(
            self.threads.iter().all(|n| (1..=1_000).contains(n)),
            "1 to 1000 threads can work, not {:?}",
            self.threads
        );
        ensure!(self.oltp.seconds > 0, "pgbench needs a second at least");
        ensure!(
            self.copy_bytes >= 1 << 20,
            "the tree to copy must have 1 MiB at least"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(change: impl FnOnce(&mut Sizes)) -> String {
        let mut sizes = Sizes::quick();
        change(&mut sizes);
        sizes
            .check()
            .map_or_else(|e| e.to_string(), |()| "fine".into())
    }

    #[test]
    fn what_cannot_be_done_is_explained() {
        assert_eq!(refusal(|_| {}), "fine");
        assert!(refusal(|s| s.postmark.least = 20_000).contains("20000 bytes"));
        assert!(refusal(|s| s.postmark.most = 1 << 40).contains("64 MiB"));
        assert!(refusal(|s| s.postmark.directories = 0).contains("directory"));
        assert!(refusal(|s| s.oltp.clients = 0).contains("1 to 1000 clients"));
        assert!(refusal(|s| s.threads = &[2, 0]).contains("1 to 1000 threads"));
        assert!(refusal(|s| s.oltp.scale = 0).contains("scale"));
        assert!(refusal(|s| s.oltp.seconds = 0).contains("second"));
        assert!(refusal(|s| s.copy_bytes = 7).contains("1 MiB"));
    }
}
