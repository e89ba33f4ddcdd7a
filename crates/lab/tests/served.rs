//! A device served by `stetfs device serve`.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use stetfs_testkit::{Scratch, mount, wait_until};

use crate::common::daemon::{BINARY, json};

/// A served device; ended when dropped.
pub(crate) struct Served {
    server: Child,
    pub(crate) dir: PathBuf,
    _scratch: Scratch,
}

impl Served {
    pub(crate) fn new(args: &[&str]) -> Served {
        let scratch = Scratch::new("device").unwrap();
        let dir = scratch.path().join("dev");
        std::fs::create_dir(&dir).unwrap();
        let mut server = Command::new(BINARY)
            .args(["--json", "device", "serve"])
            .args(args)
            .arg(&dir)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_until("the device", || {
            assert!(server.try_wait().unwrap().is_none(), "the server ended");
            dir.join("disk").exists()
        });
        Served {
            server,
            dir,
            _scratch: scratch,
        }
    }

    pub(crate) fn disk(&self) -> PathBuf {
        self.dir.join("disk")
    }

    /// Sends words to its switch.
    #[track_caller]
    pub(crate) fn fault(&self, words: &[&str]) -> Vec<String> {
        let dir = self.dir.to_str().unwrap();
        let set = json(&[&["device", "fault", dir], words].concat());
        let set = set["set"].as_array().unwrap().iter();
        set.map(|word| word.as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn counter(&self, name: &str) -> u64 {
        let text = std::fs::read_to_string(self.dir.join("stats")).unwrap();
        let line = text.lines().find_map(|l| l.strip_prefix(name)).unwrap();
        line.trim().parse().unwrap()
    }

    /// Sends Ctrl-C.
    pub(crate) fn interrupt(&self) {
        let pid = rustix::process::Pid::from_child(&self.server);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    }

    /// Ends it; returns its final output.
    pub(crate) fn end(self) -> Value {
        self.interrupt();
        self.ended()
    }

    pub(crate) fn ended(mut self) -> Value {
        let mut said = String::new();
        let out = self.server.stdout.as_mut().unwrap();
        out.read_to_string(&mut said).unwrap();
        let status = self.server.wait().unwrap();
        assert!(status.success(), "{status}: {said}");
        assert!(!mount::is_mounted(&self.dir));
        let said: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(said["disk"].as_str(), self.disk().to_str());
        said
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if mount::is_mounted(&self.dir) {
            // Needed after a failure only.
            let _ = self.server.kill();
            let _ = self.server.wait();
            mount::detach(&self.dir);
        }
    }
}
