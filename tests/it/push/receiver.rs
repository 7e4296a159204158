//! A server that takes profiles as Pyroscope does, and checks each rule of the requests.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::push::pprof::Profile;

/// A request that the server has read.
#[derive(Clone, Debug)]
pub(super) struct Pushed {
    pub(super) query: BTreeMap<String, String>,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) path: String,
    pub(super) profile: Profile,
}

/// What the server does with a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reply {
    /// Stores a profile with 200, and answers.
    Status(u16),
    /// Stores the profile, and ends the connection without an answer.
    StoreAndClose,
    /// Answers never.
    Hang,
}

/// Decides by the number of the request, from 0 on.
pub(super) type Decide = fn(usize) -> Reply;

pub(super) const ALWAYS_OK: Decide = |_| Reply::Status(200);

#[derive(Default)]
struct Shared {
    pushed: Mutex<Vec<Pushed>>,
    /// What a request has done wrong.
    faults: Mutex<Vec<String>>,
    requests: std::sync::atomic::AtomicUsize,
    is_killed: AtomicBool,
}

pub(super) struct Receiver {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Receiver {
    pub(super) fn start(decide: Decide) -> Self {
        Self::listen("127.0.0.1:0".parse().expect("an address"), decide)
    }

    fn listen(address: SocketAddr, decide: Decide) -> Self {
        let listener = TcpListener::bind(address).expect("the address is free");
        listener.set_nonblocking(true).expect("set");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::spawn(move || serve(&listener, &of_thread, decide));
        Self {
            address,
            shared,
            thread: Some(thread),
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns what was stored, and panics if a request broke a rule.
    pub(super) fn pushed(&self) -> Vec<Pushed> {
        let faults = self.shared.faults.lock().expect("no panic").clone();
        assert!(faults.is_empty(), "{faults:?}");
        self.shared.pushed.lock().expect("no panic").clone()
    }

    /// Returns the number of requests that have arrived whole.
    pub(super) fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::SeqCst)
    }

    /// Ends all connections, and refuses further ones. Returns what was stored.
    pub(super) fn kill(mut self) -> (SocketAddr, Vec<Pushed>) {
        self.end();
        (self.address, self.pushed())
    }

    pub(super) fn restart(address: SocketAddr, decide: Decide) -> Self {
        Self::listen(address, decide)
    }

    fn end(&mut self) {
        self.shared.is_killed.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no panic");
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.end();
    }
}

const STEP: Duration = Duration::from_millis(2);

fn serve(listener: &TcpListener, shared: &Arc<Shared>, decide: Decide) {
    let mut connections = Vec::new();
    while !shared.is_killed.load(Ordering::SeqCst) {
        match listener.accept() {
            Ok((stream, _)) => {
                let of_thread = Arc::clone(shared);
                let copy = stream.try_clone().expect("a copy");
                let answering = std::thread::spawn(move || answer(stream, &of_thread, decide));
                connections.push((copy, answering));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(STEP),
            Err(error) => panic!("cannot accept: {error}"),
        }
    }
    for (stream, answering) in connections {
        let _ = stream.shutdown(Shutdown::Both);
        answering.join().expect("no panic");
    }
}

fn answer(mut stream: TcpStream, shared: &Shared, decide: Decide) {
    stream.set_nonblocking(false).expect("set");
    let Some((head, body)) = read_request(&mut stream) else {
        return;
    };
    let pushed = match parse(&head, &body) {
        Ok(pushed) => pushed,
        Err(fault) => return shared.faults.lock().expect("no panic").push(fault),
    };
    let number = shared.requests.fetch_add(1, Ordering::SeqCst);
    // Under the lock, so that what is stored and answered is what the caller of `kill` gets.
    let mut store = shared.pushed.lock().expect("no panic");
    if shared.is_killed.load(Ordering::SeqCst) {
        return;
    }
    match decide(number) {
        Reply::Status(status) => {
            let answer =
                format!("HTTP/1.1 {status} Words\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n");
            let is_answered = stream.write_all(answer.as_bytes()).is_ok();
            if status == 200 && is_answered {
                store.push(pushed);
            }
        }
        Reply::StoreAndClose => store.push(pushed),
        Reply::Hang => {
            drop(store);
            while !shared.is_killed.load(Ordering::SeqCst) {
                std::thread::sleep(STEP);
            }
        }
    }
    // The client closes the connection, which loses no byte of the answer.
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.read(&mut [0; 64]);
}

/// Returns `None` if the connection ends before the request is whole.
fn read_request(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut part = [0; 8192];
    loop {
        let length = stream.read(&mut part).ok().filter(|length| *length > 0)?;
        bytes.extend_from_slice(&part[..length]);
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8(bytes[..end].to_vec()).expect("UTF-8");
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("Content-Length: "));
        let length: usize = length.expect("a length").parse().expect("a number");
        let body = &bytes[end + 4..];
        assert!(body.len() <= length, "no byte after the body");
        if body.len() == length {
            return Some((head, body.to_vec()));
        }
    }
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        if *first == b'%' {
            let code = std::str::from_utf8(&after[..2]).expect("a code");
            bytes.push(u8::from_str_radix(code, 16).expect("digits"));
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).expect("UTF-8")
}

fn parse(head: &str, body: &[u8]) -> Result<Pushed, String> {
    let bad = |what: &str| format!("{what}: {head}");
    let mut lines = head.lines();
    let line = lines.next().unwrap_or("");
    let target = line
        .strip_prefix("POST ")
        .and_then(|line| line.strip_suffix(" HTTP/1.1"));
    let (path, query) = target
        .and_then(|target| target.split_once('?'))
        .ok_or(bad("no target"))?;
    let pairs = query.split('&').map(|pair| {
        let (key, value) = pair.split_once('=').ok_or(bad("no value"))?;
        Ok((key.to_owned(), decoded(value)))
    });
    let query = pairs.collect::<Result<BTreeMap<_, _>, String>>()?;
    let headers: BTreeMap<_, _> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let kind = headers.get("content-type").ok_or(bad("no type"))?;
    let boundary = kind
        .strip_prefix("multipart/form-data; boundary=")
        .ok_or(bad("no form"))?;
    let mut parts = parts(body, boundary).ok_or(bad("a bad form"))?;
    let config = parts.remove("sample_type_config").ok_or(bad("no config"))?;
    let profile = Profile::read(&parts.remove("profile").ok_or(bad("no profile"))?);
    if !parts.is_empty() {
        return Err(bad("another part"));
    }
    let config: serde_json::Value =
        serde_json::from_slice(&config).map_err(|error| error.to_string())?;
    for (name, _) in profile.values() {
        if config[name]["aggregation"] != "sum" || !config[name]["units"].is_string() {
            return Err(bad(&format!("no config of {name}")));
        }
    }
    let pushed = Pushed {
        path: path.to_owned(),
        query,
        headers,
        profile,
    };
    let (from, until) = pushed.times();
    let profile = &pushed.profile;
    let (start, duration) = (profile.time_nanos as u64, profile.duration_nanos as u64);
    if (start, start + duration) != (from, until) || from >= until {
        return Err(bad("times that differ from the profile's"));
    }
    let rate = (1e9 / profile.period as f64).round().max(1.0).to_string();
    let is_told = pushed.query["format"] == "pprof"
        && pushed.query["spyName"] == "gekkota"
        && pushed.query["sampleRate"] == rate
        && pushed.id().len() == 32;
    is_told.then_some(pushed).ok_or(bad("a bad query"))
}

/// Splits a form into its parts, by name.
fn parts(body: &[u8], boundary: &str) -> Option<BTreeMap<String, Vec<u8>>> {
    let find = |bytes: &[u8], text: &str| {
        let text = text.as_bytes();
        bytes.windows(text.len()).position(|window| window == text)
    };
    let (first, next) = (format!("--{boundary}\r\n"), format!("\r\n--{boundary}"));
    let mut parts = BTreeMap::new();
    let mut rest = body.strip_prefix(first.as_bytes())?;
    loop {
        let head = find(rest, "\r\n\r\n")?;
        let words = std::str::from_utf8(&rest[..head]).ok()?;
        let name = words.split_once("form-data; name=\"")?.1.split_once('"')?.0;
        let content = &rest[head + 4..];
        let end = find(content, &next)?;
        parts.insert(name.to_owned(), content[..end].to_vec());
        rest = &content[end + next.len()..];
        if rest == b"--\r\n" {
            return Some(parts);
        }
        rest = rest.strip_prefix(b"\r\n")?;
    }
}

impl Pushed {
    /// Returns the start and the end, in ns since 1970.
    pub(super) fn times(&self) -> (u64, u64) {
        let number = |key: &str| self.query[key].parse().expect("a number");
        (number("from"), number("until"))
    }

    pub(super) fn id(&self) -> &str {
        self.headers
            .get("idempotency-key")
            .map_or("", String::as_str)
    }
}

/// Panics unless each profile begins where the one before ends, and none is there twice.
pub(super) fn assert_joined(pushed: &[Pushed]) {
    let mut times: Vec<_> = pushed.iter().map(Pushed::times).collect();
    times.sort_unstable();
    for pair in times.windows(2) {
        assert_eq!(pair[0].1, pair[1].0, "{times:?}");
    }
}
