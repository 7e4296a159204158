//! The program under test, as a process.

use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::client::{Request, Response, send};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_view");

pub(crate) struct Server {
    pub(crate) process: Child,
    /// Kept open, as a terminal does.
    _stdout: BufReader<ChildStdout>,
    /// The link without the end of its line.
    pub(crate) link: String,
    pub(crate) port: u16,
    pub(crate) token: String,
}

impl Server {
    pub(crate) fn start(profile: &Path) -> Self {
        Self::start_with(profile, &[])
    }

    pub(crate) fn start_with(profile: &Path, options: &[&str]) -> Self {
        let mut command = Command::new(PROGRAM);
        command.arg(profile).args(options);
        Self::of(command)
    }

    pub(crate) fn of(mut command: Command) -> Self {
        command.stdout(Stdio::piped());
        let mut process = command.spawn().expect("the program starts");
        let mut stdout = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut link = String::new();
        stdout.read_line(&mut link).expect("a line");
        let link = link.trim_end().to_owned();
        let (_, base) = link.split_once("symbolServer=").expect("a symbol server");
        let base = decode(base);
        let base = base
            .strip_prefix("http://127.0.0.1:")
            .expect("this machine");
        let (port, token) = base.split_once('/').expect("a token");
        Self {
            port: port.parse().expect("a port"),
            token: token.to_owned(),
            process,
            _stdout: stdout,
            link,
        }
    }

    pub(crate) fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns the path below the token.
    pub(crate) fn path(&self, name: &str) -> String {
        format!("/{}/{name}", self.token)
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        self.send("GET", path, &[], b"")
    }

    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Response {
        let host = self.host();
        let request = Request {
            method,
            path,
            host: Some(&host),
            headers,
            body,
        };
        send(self.port, &request)
    }

    /// Asks the symbol server, as the Firefox Profiler does.
    pub(crate) fn query(&self, name: &str, query: &Value) -> Value {
        let body = query.to_string();
        let length = body.len().to_string();
        let headers = [("Content-Length", &length[..])];
        let answer = self.send("POST", &self.path(name), &headers, body.as_bytes());
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.header("content-type"), Some("application/json"));
        answer.json()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Decodes the percent signs of a link.
pub(crate) fn decode(text: &str) -> String {
    let mut parts = text.split('%');
    let mut decoded = parts.next().expect("a first part").to_owned();
    for part in parts {
        let (code, rest) = part.split_at(2);
        let byte = u8::from_str_radix(code, 16).expect("two digits");
        write!(decoded, "{}{rest}", char::from(byte)).expect("written");
    }
    decoded
}
