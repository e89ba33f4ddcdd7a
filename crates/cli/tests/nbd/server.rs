//! Servers of network block devices for tests: nbdkit and qemu-nbd, on sockets or on TCP.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use stetfs_testkit::{Image, Scratch, cmd, wait_until};

use crate::common::daemon::{fails, json, ok, stetfs};

/// A server that ends when it is dropped, or when this process ends.
pub(crate) struct Server {
    child: Child,
    /// The address of its default export.
    pub(crate) address: String,
    /// Its port on TCP.
    pub(crate) port: Option<u16>,
}

impl Server {
    /// Starts a program that listens at `socket`, and waits until it does.
    fn start(program: &str, args: &[&str], socket: &Path) -> Server {
        let _ = std::fs::remove_file(socket);
        let mut command = cmd::tied(program, libc::SIGKILL);
        command.args(args).stdin(Stdio::null());
        let child = command.spawn().unwrap();
        let server = Server {
            child,
            address: address(socket),
            port: None,
        };
        wait_until("that the server listens", || {
            std::os::unix::net::UnixStream::connect(socket).is_ok()
        });
        server
    }

    /// `nbdkit` with these arguments (filters, plugin and its parameters).
    pub(crate) fn nbdkit(socket: &Path, args: &[&str]) -> Server {
        let place = ["-f", "-U", socket.to_str().unwrap()];
        Server::start("nbdkit", &[&place, args].concat(), socket)
    }

    /// `nbdkit` with an image, and filters before and parameters behind.
    pub(crate) fn of(socket: &Path, image: &Image, filters: &[&str], how: &[&str]) -> Server {
        let image = image.path().to_str().unwrap();
        Server::nbdkit(socket, &[filters, &["file", image], how].concat())
    }

    /// `qemu-nbd` with these arguments, for four connections.
    pub(crate) fn qemu(socket: &Path, args: &[&str]) -> Server {
        let place = ["-t", "-e", "4", "-k", socket.to_str().unwrap()];
        Server::start("qemu-nbd", &[&place, args].concat(), socket)
    }

    /// `nbdkit` with an image on a TCP port, a free one if none is given.
    pub(crate) fn tcp(image: &Image, port: Option<u16>, args: &[&str]) -> Server {
        Server::tcp_at("127.0.0.1", image, port, args)
    }

    /// The same at one of this machine's addresses.
    pub(crate) fn tcp_at(at: &str, image: &Image, port: Option<u16>, args: &[&str]) -> Server {
        let port = port.unwrap_or_else(free_port);
        let mut command = cmd::tied("nbdkit", libc::SIGKILL);
        command.args(["-f", "-i", at, "-p", &port.to_string()]);
        command.args(args).arg("file").arg(image.path());
        let server = Server {
            child: command.spawn().unwrap(),
            address: format!("nbd://localhost:{port}/"),
            port: Some(port),
        };
        wait_until("that the server listens", || {
            std::net::TcpStream::connect((at, port)).is_ok()
        });
        server
    }
}

/// `nbdkit` with an image, which a shell restarts a moment after it was killed.
///
/// A test that restarts it itself may block itself: a child has copies of all its parent's files
/// until it executes its program, and closing a file that is being synced waits for the sync, which
/// waits for the server.
pub(crate) struct Restarted {
    shell: Child,
    pid_file: PathBuf,
    /// The address of its default export.
    pub(crate) address: String,
}

impl Restarted {
    /// Listens on TCP, or on a socket in `place`.
    pub(crate) fn new(place: &Place, image: &Image, tcp: bool) -> Restarted {
        let (socket, pid_file) = (place.beside("s"), place.beside("pid"));
        let port = free_port();
        let (at, address) = match tcp {
            true => (
                format!("-i 127.0.0.1 -p {port}"),
                format!("nbd://localhost:{port}/"),
            ),
            false => (format!("-U {}", socket.display()), address(&socket)),
        };
        let again = format!(
            "while :; do rm -f {}; nbdkit --exit-with-parent -f -P {} {at} file {}; sleep .1; done",
            socket.display(),
            pid_file.display(),
            image.path().display()
        );
        let mut command = cmd::tied("sh", libc::SIGKILL);
        command.args(["-c", &again]).stdin(Stdio::null());
        let shell = command.spawn().unwrap();
        let server = Restarted {
            shell,
            pid_file,
            address,
        };
        server.pid();
        server
    }

    /// The process id of the running server, when it listens.
    fn pid(&self) -> i32 {
        let read = || std::fs::read_to_string(&self.pid_file).unwrap_or_default();
        wait_until("that the server listens", || read().ends_with('\n'));
        read().trim().parse().unwrap()
    }

    /// Kills the running server, as a power loss would, and waits for the next.
    pub(crate) fn kill(&self) {
        let pid = self.pid();
        std::fs::remove_file(&self.pid_file).unwrap();
        let pid = Pid::from_raw(pid).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        self.pid();
    }
}

impl Drop for Restarted {
    fn drop(&mut self) {
        self.shell.kill().unwrap();
        self.shell.wait().unwrap();
    }
}

/// A free TCP port, below those that the kernel gives to connections and to other programs' tests:
/// it stays free while a server restarts.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let drawn = std::process::id() * 16 + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = u16::try_from(11_000 + drawn % 21_000).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

pub(crate) fn address(socket: &Path) -> String {
    format!("nbd+unix:///?socket={}", socket.display())
}

impl Drop for Server {
    fn drop(&mut self) {
        // As a power loss: it has no time to shut down.
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// A directory to mount on; taken down when dropped.
pub(crate) struct Place {
    scratch: Scratch,
    dir: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Place {
        let scratch = Scratch::new("nbd").unwrap();
        let dir = scratch.path().join("fs");
        std::fs::create_dir(&dir).unwrap();
        Place { scratch, dir }
    }

    /// A path for a socket or another file, removed together with it.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    pub(crate) fn dir(&self) -> &str {
        self.dir.to_str().unwrap()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn mount(&self, address: &str, options: &str) {
        ok(&["mount", "-o", options, address, self.dir()]);
    }

    pub(crate) fn umount(&self) {
        ok(&["umount", self.dir()]);
    }

    pub(crate) fn refuses(&self, address: &str, options: &str, code: i32, words: &[&str]) {
        fails(&["mount", "-o", options, address, self.dir()], code, words);
    }

    /// The network section of `stat`.
    pub(crate) fn network(&self) -> serde_json::Value {
        json(&["stat", self.dir()])["device"]["network"].clone()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if stetfs_testkit::mount::is_mounted(&self.dir) {
            // Needed after a failure only: the tests take their mounts down.
            let _ = stetfs(&["umount", self.dir()]);
            stetfs_testkit::mount::detach(&self.dir);
        }
    }
}

/// Certificates for a server named `name`, in a directory: the certificates of its authority, and
/// of a client.
pub(crate) fn certificates(dir: &Path, name: &str) {
    std::fs::create_dir(dir).unwrap();
    let openssl = |args: &str| {
        let mut command = Command::new("openssl");
        cmd::run(command.args(args.split(' ')).current_dir(dir)).unwrap();
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout";
    openssl(&format!(
        "req -x509 {key} ca-key.pem -out ca-cert.pem -subj /CN=ca -days 2"
    ));
    std::fs::write(dir.join("names"), format!("subjectAltName=DNS:{name}\n")).unwrap();
    for who in ["server", "client"] {
        openssl(&format!(
            "req {key} {who}-key.pem -out {who}.csr -subj /CN={who}"
        ));
        openssl(&format!(
            "x509 -req -in {who}.csr -CA ca-cert.pem -CAkey ca-key.pem -CAcreateserial -days 2 -extfile names -out {who}-cert.pem"
        ));
    }
}
