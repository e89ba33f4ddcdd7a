//! Servers of network block devices: nbdkit and qemu-nbd, on sockets of their own or on TCP.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use stetfs_testkit::{Image, Scratch, cmd, wait_until};

use crate::common::daemon::{fails, json, ok, stetfs};

/// A server that ends when it is dropped, or this process does.
pub(crate) struct Server {
    child: Child,
    /// Of its default export.
    pub(crate) address: String,
    /// Where it is on TCP.
    pub(crate) port: Option<u16>,
}

impl Server {
    /// Starts a program that listens at `socket`; waits until it does.
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

    /// `nbdkit` with an image on a port of TCP, one that nobody has if none is named.
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

/// `nbdkit` with an image that a shell starts again a moment after it was killed.
///
/// A test that starts it itself may wait for itself: a child has copies of all files of its
/// process until it is what it becomes, and closing one that is being synced waits for the sync,
/// which waits for the server.
pub(crate) struct Restarted {
    shell: Child,
    pid_file: PathBuf,
    /// Of its default export.
    pub(crate) address: String,
}

impl Restarted {
    /// On TCP, or on a socket in `place`.
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

    /// Of the one that runs, when it listens.
    fn pid(&self) -> i32 {
        let read = || std::fs::read_to_string(&self.pid_file).unwrap_or_default();
        wait_until("that the server listens", || read().ends_with('\n'));
        read().trim().parse().unwrap()
    }

    /// Ends the one that runs, as a machine that loses its power, and waits for the next.
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

/// A port of TCP that nobody has.
fn free_port() -> u16 {
    let any = TcpListener::bind("127.0.0.1:0").unwrap();
    any.local_addr().unwrap().port()
}

pub(crate) fn address(socket: &Path) -> String {
    format!("nbd+unix:///?socket={}", socket.display())
}

impl Drop for Server {
    fn drop(&mut self) {
        // As a machine that loses its power: it has no time to end.
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// A place to mount on; taken down when dropped.
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

    /// A path for a socket, or something else, that goes with it.
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

    /// What `stat` says of the server.
    pub(crate) fn network(&self) -> serde_json::Value {
        json(&["stat", self.dir()])["device"]["network"].clone()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if stetfs_testkit::mount::is_mounted(&self.dir) {
            // On failure only: the tests take their mounts down.
            let _ = stetfs(&["umount", self.dir()]);
            stetfs_testkit::mount::detach(&self.dir);
        }
    }
}

/// Certificates for a server named `name`, in a directory: its own authority's, and a client's.
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
