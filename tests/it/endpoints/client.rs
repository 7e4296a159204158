//! A client that sends exactly the bytes that a test wants to send, to the server of this process.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::time::Duration;

use crate::common::wait_until;

/// How long a server that does not answer may hold up a test.
const PATIENCE: Duration = Duration::from_secs(300);

/// What the server has answered.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

impl Reply {
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the value of a header.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().skip(1);
        let mut fields = fields.filter_map(|line| line.split_once(": "));
        fields.find_map(|(field, value)| field.eq_ignore_ascii_case(name).then_some(value))
    }
}

/// Returns the folder of the server's thread in `/proc`, if the thread exists.
fn server_thread() -> Option<std::path::PathBuf> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("tasks");
    let mut paths = tasks.filter_map(|task| Some(task.ok()?.path()));
    let is_server = |path: &Path| {
        let name = std::fs::read_to_string(path.join("comm"));
        name.is_ok_and(|name| name == "ProfilerHttp\n")
    };
    paths.find(|path| is_server(path))
}

pub(super) fn has_server() -> bool {
    server_thread().is_some()
}

/// Returns the port at which the server of this process listens.
pub(super) fn port_of_server() -> u16 {
    let mut port = None;
    wait_until("the server listens", || {
        port = find_port();
        port.is_some()
    });
    port.expect("it listens")
}

fn find_port() -> Option<u16> {
    let files = std::fs::read_dir(server_thread()?.join("fd")).ok()?;
    let links = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    let sockets: Vec<String> = links
        .filter_map(|link| {
            Some(
                link.to_str()?
                    .strip_prefix("socket:[")?
                    .strip_suffix(']')?
                    .to_owned(),
            )
        })
        .collect();
    let table = std::fs::read_to_string("/proc/self/net/tcp").ok()?;
    table.lines().skip(1).find_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let is_listening = columns[3] == "0A";
        let is_ours = sockets.iter().any(|socket| socket == columns[9]);
        let (_, port) = columns[1].rsplit_once(':')?;
        (is_listening && is_ours).then(|| u16::from_str_radix(port, 16).ok())?
    })
}

/// Sends bytes, and returns the open connection.
pub(super) fn send(port: u16, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    // The server may have answered and closed before it has read everything.
    let _ = stream.write_all(bytes);
    stream
}

/// Reads an answer to its end. Returns `None` if the server closes without one.
pub(super) fn receive(mut stream: TcpStream) -> Option<Reply> {
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer) {
        assert!(error.kind() == ErrorKind::ConnectionReset, "{error}");
    }
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = String::from_utf8(answer[..end].to_vec()).expect("a head in UTF-8");
    let status = head.split(' ').nth(1).expect("a status");
    Some(Reply {
        status: status.parse().expect("a number"),
        body: answer.split_off(end + 4),
        head,
    })
}

/// Returns a request for this target, with these further lines.
pub(super) fn request(target: &str, headers: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n").into_bytes()
}

/// Asks for a target.
pub(super) fn get(port: u16, target: &str) -> Reply {
    receive(send(port, &request(target, ""))).expect("an answer")
}
