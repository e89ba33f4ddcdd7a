//! The client's end of the control socket.

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};
use serde_json::{Value, json};
use stetfs_fuse::mountinfo::MountEntry;

use super::dir::Dir;
use crate::failure::{Code, Failure, Result};

/// A connection to the server of a mount.
pub struct Client {
    stream: BufReader<UnixStream>,
    /// The server's process, to wait for its end.
    server: Option<(Pid, OwnedFd)>,
}

impl Client {
    /// Connects to the server of `mount`.
    ///
    /// # Errors
    /// No server listens; `PermissionDenied` if the directory or the listening process is not this
    /// user's own.
    pub(crate) fn connect(mount: &MountEntry) -> io::Result<Client> {
        let stream = Dir::open()?.connect(&super::socket(&mount.dev))?;
        let pid = rustix::net::sockopt::socket_peercred(&stream)?.pid;
        let server = rustix::process::pidfd_open(pid, PidfdFlags::empty())
            .ok()
            .map(|fd| (pid, fd));
        Ok(Client {
            stream: BufReader::new(stream),
            server,
        })
    }

    /// The server's process id.
    pub(crate) fn pid(&self) -> Option<i32> {
        self.server
            .as_ref()
            .map(|(pid, _)| pid.as_raw_nonzero().get())
    }

    /// Whether the server has ended.
    pub(crate) fn has_ended(&self) -> bool {
        let now = Some(&rustix::time::Timespec::default());
        self.server.as_ref().is_some_and(|(_, pidfd)| {
            let mut poll = [PollFd::new(pidfd, PollFlags::IN)];
            matches!(rustix::event::poll(&mut poll, now), Ok(1))
        })
    }

    /// Waits for `time` at most, until `also` can be read, or until the server speaks without being
    /// asked, which means that it ends. Returns whether it ends.
    ///
    /// # Errors
    /// The errors of poll(2).
    pub fn rest(&self, also: &impl AsFd, time: Duration) -> io::Result<bool> {
        self.hears(Some(also.as_fd()), time)
    }

    fn hears(&self, also: Option<BorrowedFd<'_>>, time: Duration) -> io::Result<bool> {
        if !self.stream.buffer().is_empty() {
            return Ok(true);
        }
        let time = Timespec::try_from(time).map_err(io::Error::other)?;
        let fds = [Some(self.stream.get_ref().as_fd()), also];
        let mut poll: Vec<_> = fds
            .iter()
            .flatten()
            .map(|fd| PollFd::new(fd, PollFlags::IN))
            .collect();
        match rustix::event::poll(&mut poll, Some(&time)) {
            Ok(_) => Ok(!poll[0].revents().is_empty()),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// As [`request`](Self::request), for a mount that may end meanwhile: then there is no answer.
    ///
    /// # Errors
    /// The server's, also those of a volume that could not be closed; or the server was killed.
    pub fn request_or_end(&mut self, request: &Value) -> Result<Option<Value>> {
        let is_end = |answer: &Value| answer["closed"] == true;
        match self.request(request) {
            Ok(answer) => Ok((!is_end(&answer)).then_some(answer)),
            // The volume is being closed, or the server sent its last line before it could read the
            // request.
            Err(failure) if failure.code == Code::NotFound => match self.line() {
                Ok(Some(last)) if is_end(&last) => Ok(None),
                Ok(Some(last)) => Err(Failure::from_json(&last).unwrap_or(failure)),
                _ => Err(failure),
            },
            Err(failure) => Err(failure),
        }
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// The server's; or the server does not answer.
    pub fn request(&mut self, request: &Value) -> Result<Value> {
        let lost = |e: io::Error| {
            use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
            // A server that was just killed may still accept a connection.
            let gone = matches!(e.kind(), BrokenPipe | ConnectionReset | UnexpectedEof);
            Failure::new(
                if gone { Code::NotFound } else { Code::Io },
                format!("the server of the mount does not answer: {e}"),
            )
            .hint("if it was killed, unmount it with: stetfs umount DIR")
        };
        let mut line = request.to_string();
        line.push('\n');
        self.stream
            .get_mut()
            .write_all(line.as_bytes())
            .map_err(lost)?;
        match self.line().map_err(lost)? {
            Some(answer) => Failure::from_json(&answer).map_or(Ok(answer), Err),
            None => Err(lost(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    fn line(&mut self) -> io::Result<Option<Value>> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        Ok(Some(serde_json::from_str(&line)?))
    }

    /// Waits until the server has closed the volume and ended, however long that takes. To be
    /// called after the request `watch`, when the mount was taken down. Returns false if the server
    /// does not begin to close within `patience`: it still has a mount.
    ///
    /// # Errors
    /// The server's, of a volume that could not be closed; or the server ended without closing it.
    pub(crate) fn wait_closed(mut self, patience: Duration) -> Result<bool> {
        const STEP: Duration = Duration::from_millis(500);
        let begin = Instant::now();
        let last = loop {
            match self.hears(None, STEP) {
                Ok(true) => break self.line().unwrap_or(None),
                Ok(false) => {}
                Err(_) => break None,
            }
            // A server that closes its volume answers with an error, and its last line follows.
            match self.request_or_end(&json!({ "op": "stat" })) {
                Ok(Some(_)) if begin.elapsed() < patience => {}
                Ok(Some(_)) => return Ok(false),
                Ok(None) => break Some(json!({ "closed": true })),
                Err(failure) if failure.code == Code::NotFound => break None,
                Err(failure) => break Some(failure.to_json()),
            }
        };
        if let Some((_, pidfd)) = &self.server {
            let mut poll = [PollFd::new(pidfd, PollFlags::IN)];
            while rustix::event::poll(&mut poll, None) == Err(rustix::io::Errno::INTR) {}
        }
        match last {
            Some(answer) => Failure::from_json(&answer).map_or(Ok(true), Err),
            None => Err(Failure::new(
                Code::Io,
                "the server ended without closing the volume; what was not synced may be lost",
            )
            .hint("the next mount replays the journal, or: stetfs recover VOLUME")),
        }
    }
}
