//! Asks both servers over HTTP, as clients do.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server that does not answer may hold up a test.
const PATIENCE: Duration = Duration::from_secs(300);
/// Longer than any test.
const LONG: &str = "/debug/pprof/gecko?seconds=250";
const AXUM: &str = env!("CARGO_BIN_EXE_axum_server");
const TINY_HTTP: &str = env!("CARGO_BIN_EXE_tiny_http_server");

/// A server, which ends with this value.
struct Server {
    process: Child,
    address: String,
}

#[derive(Debug)]
struct Reply {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Reply {
    fn header(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().skip(1);
        let mut fields = fields.filter_map(|line| line.split_once(": "));
        fields.find_map(|(field, value)| field.eq_ignore_ascii_case(name).then_some(value))
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns when the session of a profile for the Firefox Profiler began, which tells it apart.
    fn session(&self) -> String {
        let profile: serde_json::Value = serde_json::from_slice(&self.body).expect("JSON");
        profile["meta"]["profilingStartTime"].to_string()
    }
}

impl Server {
    fn start(program: &str, arguments: &[&str]) -> Self {
        let mut process = Command::new(program)
            .args(["--port", "0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        let output = process.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("listening on http://");
        let address = address.unwrap_or_else(|| panic!("{line:?}")).to_owned();
        Self { process, address }
    }

    /// Sends a request, and returns the open connection.
    fn send(&self, target: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        let head = format!(
            "GET {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.address
        );
        stream.write_all(head.as_bytes()).expect("sent");
        stream
    }

    fn get(&self, target: &str) -> Reply {
        let mut answer = Vec::new();
        let mut stream = self.send(target);
        stream.read_to_end(&mut answer).expect("an answer");
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
        let body = answer.split_off(end.expect("a whole head") + 4);
        let head = String::from_utf8(answer).expect("a head in UTF-8");
        let status = head.split(' ').nth(1).expect("a status").parse();
        Reply {
            status: status.expect("a number"),
            head,
            body,
        }
    }

    /// Asks again until the answer is as wanted.
    fn get_until(&self, what: &str, target: &str, is_wanted: impl Fn(&Reply) -> bool) -> Reply {
        let end = Instant::now() + PATIENCE;
        loop {
            let reply = self.get(target);
            if is_wanted(&reply) {
                return reply;
            }
            assert!(
                Instant::now() < end,
                "waited too long until {what}: {}",
                reply.head
            );
        }
    }

    /// Answers orders on a thread, until `body` has returned.
    fn while_busy<T>(&self, body: impl FnOnce() -> T) -> T {
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut number = 0;
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    number += 1;
                    self.get(&format!("/order/{number}"));
                }
            });
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Both servers answer as Go's do.
#[test]
fn answers_have_the_types_and_names_of_go() {
    for program in [AXUM, TINY_HTTP] {
        let server = Server::start(program, &["--threads", "4"]);
        for (target, content_type, disposition) in [
            (
                "profile?seconds=0.1",
                "application/octet-stream",
                Some("attachment; filename=\"profile\""),
            ),
            (
                "wall?seconds=0.1&hz=50",
                "application/octet-stream",
                Some("attachment; filename=\"wall\""),
            ),
            (
                "heap",
                "application/octet-stream",
                Some("attachment; filename=\"heap\""),
            ),
            (
                "gecko?seconds=0.1",
                "application/json",
                Some("attachment; filename=\"profile.json\""),
            ),
            ("flamegraph?seconds=0.1", "image/svg+xml", None),
            ("summary?seconds=0.1", "text/plain; charset=utf-8", None),
            ("threads", "text/plain; charset=utf-8", None),
            ("", "text/html; charset=utf-8", None),
        ] {
            let reply = server.get(&format!("/debug/pprof/{target}"));
            assert_eq!(reply.status, 200, "{program} {target}: {}", reply.text());
            assert_eq!(reply.header("Content-Type"), Some(content_type), "{target}");
            assert_eq!(reply.header("Content-Disposition"), disposition, "{target}");
            assert_eq!(reply.header("X-Content-Type-Options"), Some("nosniff"));
            let is_compressed = reply.body.starts_with(&[0x1f, 0x8b]);
            let is_pprof = content_type == "application/octet-stream";
            assert_eq!(is_compressed, is_pprof, "{target}");
        }
    }
}

#[test]
fn work_of_a_request_has_its_name_in_the_flame_graph() {
    for program in [AXUM, TINY_HTTP] {
        let server = Server::start(program, &["--threads", "4"]);
        server.while_busy(|| {
            let target = "/debug/pprof/flamegraph?seconds=0.5";
            server.get_until("the work is in the flame graph", target, |reply| {
                reply.text().contains("price_basket")
            });
        });
    }
}

#[test]
fn bad_questions_get_words() {
    for program in [AXUM, TINY_HTTP] {
        let server = Server::start(program, &[]);
        for (target, status, words) in [
            (
                "profile?seconds=long",
                400,
                "got \"long\" for \"seconds\", expected a number",
            ),
            ("profile?seconds=1e9", 400, "expected at most 300"),
            ("profile?hz=0", 400, "expected a whole number"),
            ("profile?rate=5", 400, "expected one of the parameters"),
            ("mutex", 404, "expected one of profile, wall"),
        ] {
            let reply = server.get(&format!("/debug/pprof/{target}"));
            assert_eq!(reply.status, status, "{target}");
            assert!(reply.text().contains(words), "{}", reply.text());
        }
    }
}

fn has_answer(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("set");
    stream.peek(&mut [0]).is_ok()
}

/// One worker answers everything, and all clients wait on it at the same time.
#[test]
fn waiting_clients_block_no_worker_and_share_a_session() {
    let server = Server::start(AXUM, &["--threads", "1", "--on-demand"]);
    let mut waiting: Vec<_> = (0..15).map(|_| server.send(LONG)).collect();
    let target = "/debug/pprof/gecko?seconds=0.05";
    let shared = server.get(target).session();
    let order = format!("order 7 costs {}\n", axum_server::price_basket(7));
    assert_eq!(server.get("/order/7").text(), order);
    assert_eq!(
        server.get(target).session(),
        shared,
        "the other clients keep the session"
    );
    waiting.truncate(1);
    assert_eq!(server.get(target).session(), shared, "one client keeps it");
    waiting.clear();
    server.get_until("the last client has stopped the session", target, |reply| {
        reply.session() != shared
    });
}

#[test]
fn clients_beyond_the_limit_are_refused() {
    // Two of three threads may wait for a profile.
    let server = Server::start(TINY_HTTP, &["--threads", "3", "--on-demand"]);
    let waiting = std::cell::RefCell::new([server.send(LONG), server.send(LONG)]);
    let refused = server.get_until("both wait", "/debug/pprof/threads", |reply| {
        // One that came while the list of threads was written was refused.
        for stream in waiting.borrow_mut().iter_mut() {
            if has_answer(stream) {
                *stream = server.send(LONG);
            }
        }
        reply.status == 503
    });
    assert!(
        refused.text().contains("got 2 other clients"),
        "{}",
        refused.text()
    );
    assert_eq!(server.get("/order/1").status, 200);
    drop(waiting);
}
