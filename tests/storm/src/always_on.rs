//! What a server has on all the time: it is asked over HTTP, pushes to a store, dumps its last
//! seconds, and labels its threads with the request that they serve. `STORM_ALWAYS_ON=1` adds it to
//! the storm.

use std::hint::black_box;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::DirBuilderExt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use gekkota::Profile;
use gekkota::context::ProfilerContext;
use gekkota::dump::{DumpError, DumpSettings, profiler_dump, profiler_set_dumps};
use gekkota::push::{PushError, PushSettings, Pusher, profiler_push};

use crate::crew::{Context, Post};
use crate::roster::{Role, role};
use crate::tally::Tally;
use crate::work::mix;
use crate::{folder, gate, saver, store, tally};

const VARIABLE: &str = "STORM_ALWAYS_ON";
/// The variable with the address at which the profiler's server listens.
pub const SERVER_VARIABLE: &str = "MOZ_PROFILER_HTTP";
/// Longer than the watchdog waits for a client to make progress.
const PATIENCE: Duration = Duration::from_secs(120);
const DUMPS: &str = "dumps";
const QUEUE: &str = "queue";
const DUMPED: Duration = Duration::from_millis(500);

static ROLES: &[Role] = &[
    role("ask", 3, ask_worker, "::ask_worker"),
    role("dump", 1, dump_worker, "::dump_worker"),
    role("request", 3, request_worker, "::request_worker"),
];

struct AlwaysOn {
    server: SocketAddr,
    store: SocketAddr,
}

static PARTS: OnceLock<AlwaysOn> = OnceLock::new();

/// Prepares the parts if they are asked for, while the process has one thread. The profiler's server
/// begins with `profiler_init`.
pub fn prepare() -> Result<(), String> {
    if std::env::var_os(VARIABLE).is_none_or(|value| value != "1") {
        return Ok(());
    }
    for name in [DUMPS, QUEUE] {
        let path = folder::path().join(name);
        let mut builder = std::fs::DirBuilder::new();
        // The folder of a queue must be private.
        let created = builder.mode(0o700).create(&path);
        created.map_err(|error| format!("{}: {error}", path.display()))?;
    }
    // The store is bound first, so that it does not get the server's port.
    let store = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let server = free.and_then(|listener| listener.local_addr());
    let server = server.map_err(|error| format!("no free port: {error}"))?;
    // SAFETY: the process has one thread.
    unsafe { std::env::set_var(SERVER_VARIABLE, server.to_string()) };
    let store = store.and_then(store::start);
    let store = store.map_err(|error| format!("cannot start the store: {error}"))?;
    let _ = PARTS.set(AlwaysOn { server, store });
    let settings = DumpSettings::in_folder(folder::path().join(DUMPS))
        .last(DUMPED)
        .min_interval(Duration::from_millis(200))
        .max_files(20)
        .on_interval_longer_than(Duration::from_millis(20))
        .on_memory_above(64 << 20)
        .on_panic();
    profiler_set_dumps(Some(settings)).map_err(|error| error.to_string())
}

pub fn is_on() -> bool {
    PARTS.get().is_some()
}

fn parts() -> &'static AlwaysOn {
    PARTS.get().expect("the roles exist only with the parts")
}

/// Returns the workers of this part of the storm.
pub fn roles() -> &'static [Role] {
    if is_on() { ROLES } else { &[] }
}

/// Starts to push.
pub fn push(post: &Post) -> Pusher {
    let settings = PushSettings::pyroscope(format!("http://{}", parts().store))
        .interval(Duration::from_millis(300))
        .queue_folder(folder::path().join(QUEUE))
        .queue_bytes(4 << 20);
    let begin = Instant::now();
    loop {
        match gate::with_descriptors(|| profiler_push(settings.clone())) {
            Ok(pusher) => return pusher,
            // The sender of the pusher before may still wait for an answer.
            Err(PushError::Queue { .. }) if begin.elapsed() < PATIENCE => {
                tally::PUSHERS_AGAIN.one();
                post.beat();
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Ends the pushing, and adds its counts to those of the storm.
pub fn end_push(pusher: Pusher) {
    let counts = pusher.stop();
    tally::PUSHED.add(counts.sent);
    tally::PUSHES_RETRIED.add(counts.retried);
    assert_eq!(counts.refused, 0, "the store refuses nothing");
}

/// Returns what was never seen, although it should have been.
pub fn problems() -> Vec<String> {
    if !is_on() {
        return Vec::new();
    }
    let expected: [&Tally; 6] = [
        &tally::ANSWERS,
        &tally::ANSWERS_CHECKED,
        &tally::DUMPS_READ,
        &tally::PUSHED,
        &tally::STORED,
        &tally::REQUESTS,
    ];
    let missing = expected.iter().filter(|tally| tally.value() == 0);
    missing
        .map(|tally| format!("no {}", tally.name()))
        .collect()
}

/// Asks the server for anything, and leaves some answers unread.
fn ask_worker(context: &mut Context) {
    const NAMES: [&str; 8] = [
        "profile",
        "wall",
        "heap",
        "gecko",
        "flamegraph",
        "summary",
        "threads",
        "",
    ];
    while context.goes_on() {
        std::thread::sleep(Duration::from_millis(20 + context.random.below(300)));
        let name = NAMES[context.random.below(NAMES.len() as u64) as usize];
        let hundredths = 1 + context.random.below(30);
        let hz = 1 + context.random.below(1_000);
        let target = format!("/debug/pprof/{name}?seconds=0.{hundredths:02}&hz={hz}");
        let connected = gate::with_descriptors(|| TcpStream::connect(parts().server));
        let mut stream = connected.unwrap_or_else(|error| panic!("cannot connect: {error}"));
        stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
        let request = format!("GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        if stream.write_all(request.as_bytes()).is_ok() && !context.random.once_in(4) {
            read_answer(stream, name);
        }
    }
    // Keeps this function on the stack during the calls.
    black_box(context);
}

/// Reads an answer. Another session may have replaced the one that was asked for, the server may have
/// had no descriptor, and may have too many clients.
fn read_answer(mut stream: TcpStream, name: &str) {
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer) {
        assert!(
            error.kind() == ErrorKind::ConnectionReset,
            "{name}: {error}"
        );
    }
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else {
        tally::UNANSWERED_CLIENTS.one();
        return;
    };
    let head = String::from_utf8_lossy(&answer[..end]);
    let status = head.split(' ').nth(1).unwrap_or_default();
    match status {
        "200" => tally::ANSWERS.one(),
        "409" | "500" | "501" | "503" => tally::ANSWERS_REFUSED.one(),
        _ => panic!("{name}: {head}"),
    }
    if status == "200" && name == "gecko" {
        let checked = saver::check(&answer[end + 4..]);
        checked.unwrap_or_else(|problem| panic!("the answer to {name}: {problem}"));
        tally::ANSWERS_CHECKED.one();
    }
}

/// Dumps, and reads and removes the dumps that there are.
fn dump_worker(context: &mut Context) {
    while context.goes_on() {
        std::thread::sleep(Duration::from_millis(20 + context.random.below(200)));
        match profiler_dump(DUMPED, "the storm") {
            Ok(_) => tally::DUMPS_BEGUN.one(),
            Err(DumpError::Inactive | DumpError::TooSoon { .. } | DumpError::Busy) => {}
            Err(error) => panic!("cannot dump: {error}"),
        }
        gate::with_descriptors(read_dumps);
    }
    // Keeps this function on the stack during the calls.
    black_box(context);
}

fn read_dumps() {
    let entries = std::fs::read_dir(folder::path().join(DUMPS)).expect("the folder");
    for entry in entries.flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let name = name.to_string_lossy();
        // A file that is being written has another name, and the text is for people.
        if !name.starts_with("dump_") || name.ends_with(".txt") {
            continue;
        }
        match Profile::read(&path) {
            Ok(_) => {}
            // The profiler has removed it, because there are too many.
            Err(_) if !path.exists() => continue,
            Err(error) => panic!("{name}: {error}"),
        }
        let _ = std::fs::remove_file(path);
        tally::DUMPS_READ.one();
    }
}

/// Serves a request, and smaller ones for it.
#[inline(never)]
fn serve(number: u64, depth: u64) -> u64 {
    const ROUTES: [&str; 3] = ["/", "/items", "/ä"];
    let route = ROUTES[(number % 3) as usize];
    let (trace, span) = (u128::from(number) << 64 | 1, number + depth + 1);
    gekkota::profiler_context!(trace_id = trace, span_id = span, "route" = route);
    let worked = mix(number, 100_000);
    let below = match depth {
        0 => 0,
        _ => serve(number, depth - 1),
    };
    let current = ProfilerContext::current();
    let found = (current.trace_id(), current.span_id());
    assert_eq!(found, (trace, span), "the context of a request");
    worked ^ below
}

fn request_worker(context: &mut Context) {
    while context.goes_on() {
        black_box(serve(context.random.next() >> 8, context.random.below(4)));
        assert!(ProfilerContext::current().is_empty(), "no request");
        tally::REQUESTS.one();
    }
    // Keeps this function on the stack during the calls.
    black_box(context);
}
