//! A client that sends exactly the bytes that a test wants to send.

use std::fmt::{self, Debug, Formatter};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

/// How long a server that does not answer may hold up a test.
const PATIENCE: Duration = Duration::from_secs(120);

/// One request. `Host` and `Connection` are added.
pub(crate) struct Request<'text> {
    pub(crate) method: &'text str,
    pub(crate) path: &'text str,
    /// `None` for a request without this header.
    pub(crate) host: Option<&'text str>,
    pub(crate) headers: &'text [(&'text str, &'text str)],
    pub(crate) body: &'text [u8],
}

pub(crate) struct Response {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Debug for Response {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let body: String = String::from_utf8_lossy(&self.body)
            .chars()
            .take(200)
            .collect();
        write!(f, "{}, {} bytes: {body}", self.head, self.body.len())
    }
}

impl Response {
    /// Returns the value of a header, whose name is in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().skip(1);
        let mut fields = fields.filter_map(|line| line.split_once(": "));
        fields.find_map(|(field, value)| (field.to_lowercase() == name).then_some(value))
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Sends the request to this port, and reads until the server closes the connection.
pub(crate) fn send(port: u16, request: &Request<'_>) -> Response {
    let Request { method, path, .. } = request;
    let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    let host = request.host.map(|host| ("Host", host));
    for (name, value) in host.iter().chain(request.headers) {
        head += &format!("{name}: {value}\r\n");
    }
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream
        .write_all(format!("{head}\r\n").as_bytes())
        .expect("sent");
    // The server may refuse the request and close the connection before it has read the whole body.
    let _ = stream.write_all(request.body);
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    assert!(
        read.is_ok() || !answer.is_empty(),
        "{method} {path}: {read:?}"
    );
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("{method} {path}: got no whole head"));
    let head = String::from_utf8(answer[..end].to_vec()).expect("a head in UTF-8");
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    Response {
        status: status.expect("a status"),
        head,
        body: answer[end + 4..].to_vec(),
    }
}
