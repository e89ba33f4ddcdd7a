//! The server's end of the control socket.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use stetfs_fuse::Entrance;

use super::dir::check_peer;
use crate::failure::{Code, Failure};

/// The function that answers requests other than `watch`.
pub(crate) type Handler = dyn Fn(&Value) -> Result<Value, Failure> + Send + Sync;

/// Most connections at a time; more are refused.
const MAX_CONNECTIONS: usize = 64;
/// Most connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// Longest request line, bytes.
const MAX_LINE: u64 = 64 << 10;

#[derive(Default)]
struct Connections {
    streams: HashMap<u64, UnixStream>,
    next: u64,
    closed: bool,
}

/// A listening control socket; removed when dropped.
pub(crate) struct Control {
    /// The socket's name, for the helper that removes it.
    name: String,
    connections: Arc<Mutex<Connections>>,
}

fn lock(connections: &Mutex<Connections>) -> std::sync::MutexGuard<'_, Connections> {
    connections.lock().unwrap_or_else(PoisonError::into_inner)
}

fn send(mut stream: &UnixStream, value: &Value) -> io::Result<()> {
    let mut line = value.to_string();
    line.push('\n');
    stream.write_all(line.as_bytes())
}

impl Control {
    /// Listens at the socket that [`super::bind`] made.
    pub(crate) fn listen(entrance: Entrance, handler: Arc<Handler>) -> io::Result<Control> {
        // Clients see the process that called `listen` as the peer: this one.
        rustix::net::listen(&entrance.socket, BACKLOG)?;
        let listener = UnixListener::from(entrance.socket);
        let control = Control {
            name: entrance.name,
            connections: Arc::default(),
        };
        let connections = Arc::clone(&control.connections);
        std::thread::Builder::new()
            .name("control".into())
            .spawn(move || {
                // The thread ends with the process.
                for stream in listener.incoming().flatten() {
                    if let Err(e) = accept(stream, &connections, &handler) {
                        tracing::debug!("control connection: {e}");
                    }
                }
            })?;
        Ok(control)
    }

    /// Tells all connected clients how closing the volume went, and accepts no more.
    pub(crate) fn closed(self, result: &Result<(), Failure>) {
        let message = match result {
            Ok(()) => serde_json::json!({ "closed": true }),
            Err(failure) => failure.to_json(),
        };
        let mut connections = lock(&self.connections);
        connections.closed = true;
        for stream in connections.streams.values() {
            if let Err(e) = send(stream, &message) {
                tracing::debug!("control connection: {e}");
            }
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // Without a helper this process has the privileges to remove the socket itself.
        if !stetfs_fuse::hush() {
            super::remove(&self.name);
        }
    }
}

fn accept(
    stream: UnixStream,
    connections: &Arc<Mutex<Connections>>,
    handler: &Arc<Handler>,
) -> io::Result<()> {
    check_peer(&stream)?;
    // A client that does not read must not keep the server from ending.
    stream.set_write_timeout(Some(Duration::from_secs(5)))?;
    let id = {
        let mut all = lock(connections);
        if all.closed || all.streams.len() >= MAX_CONNECTIONS {
            return Ok(());
        }
        let id = all.next;
        all.next += 1;
        all.streams.insert(id, stream.try_clone()?);
        id
    };
    let (connections, handler) = (Arc::clone(connections), Arc::clone(handler));
    std::thread::Builder::new()
        .name("control".into())
        .spawn(move || {
            serve(&stream, &connections, handler.as_ref());
            lock(&connections).streams.remove(&id);
        })?;
    Ok(())
}

/// Answers requests until the client hangs up.
fn serve(stream: &UnixStream, connections: &Mutex<Connections>, handler: &Handler) {
    let mut lines = BufReader::new(stream);
    loop {
        let mut line = String::new();
        match io::Read::take(&mut lines, MAX_LINE).read_line(&mut line) {
            Ok(n) if n > 0 && line.ends_with('\n') => {}
            _ => return,
        }
        let answer = match serde_json::from_str::<Value>(&line) {
            Ok(request) if request["op"] == "watch" => serde_json::json!({ "watching": true }),
            Ok(request) => handler(&request).unwrap_or_else(|failure| failure.to_json()),
            Err(e) => Failure::new(Code::Usage, format!("not a request: {e}")).to_json(),
        };
        // The lock keeps the last line of `closed` the last.
        let connections = lock(connections);
        if connections.closed || send(stream, &answer).is_err() {
            return;
        }
    }
}
