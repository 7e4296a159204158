//! A reader outside of the process finds the contexts of its threads. It uses only what
//! OpenTelemetry's proposals 4719 and 4947 say.
//!
//! The reader knows the process's id. It finds the variable in the program's dynamic symbols, stops
//! a thread, and follows the variable to the thread's record in the process's memory.

mod reader;

use std::io::{Read, Write};
use std::path::Path;
use std::pin::pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Waker};

use gekkota::context::{ProfilerContext, in_context};
use gekkota::register_thread;

use crate::common::controlled::{Controlled, obey, own_role};
use crate::common::moving_task::wait;

use reader::{Record, label, process_context, record_of};

const TRACE: u128 = 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210;
const SPAN: u64 = 0x1122_3344_5566_7788;

fn outer() -> ProfilerContext {
    let ids = ProfilerContext::new()
        .with_trace_id(TRACE)
        .with_span_id(SPAN);
    ids.with_label("route", "/ä").with_label("tenant", "x")
}

/// Has another value of one label, a new key, and no span.
fn inner() -> ProfilerContext {
    let outer = ProfilerContext::current().with_span_id(0);
    outer.with_label("tenant", "y").with_label("region", "")
}

fn other_ids() -> ProfilerContext {
    ProfilerContext::new().with_trace_id(1).with_span_id(2)
}

fn with_ids(trace: u128, span: u64, labels: &[(&str, &str)]) -> Option<Record> {
    Some(Record {
        trace: trace.to_be_bytes(),
        span: span.to_be_bytes(),
        labels: labels
            .iter()
            .map(|(key, value)| label(key, value))
            .collect(),
    })
}

/// A thread of the child. It follows orders, and answers each.
struct Worker {
    orders: Sender<String>,
    answers: Receiver<String>,
    tid: String,
}

impl Worker {
    fn start() -> Self {
        let (orders, to_follow) = channel();
        let (to_answer, answers) = channel();
        std::thread::spawn(move || work(&to_follow, &to_answer));
        let tid = answers.recv().expect("the thread begins");
        Self {
            orders,
            answers,
            tid,
        }
    }

    fn ask(&self, order: &str) -> String {
        self.orders
            .send(order.to_owned())
            .expect("the thread lives");
        self.answers.recv().expect("the thread answers")
    }
}

fn work(orders: &Receiver<String>, answers: &Sender<String>) {
    register_thread("worker");
    let answer = |text: &str| answers.send(text.to_owned()).expect("the test lives");
    // SAFETY: the call accesses no memory of the process.
    let tid = unsafe { libc::gettid() };
    answer(&tid.to_string());
    let pause = || {
        answer("in the poll");
        orders.recv().expect("an order");
    };
    let mut future = pin!(in_context(outer(), async {
        pause();
        wait().await;
        pause();
    }));
    let mut guards = Vec::new();
    while let Ok(order) = orders.recv() {
        match order.as_str() {
            "outer" => guards.push(outer().enter()),
            "inner" => guards.push(inner().enter()),
            "other ids" => guards.push(other_ids().enter()),
            "nothing" => guards.push(ProfilerContext::new().enter()),
            "leave" => drop(guards.pop()),
            "poll" => {
                let mut context = Context::from_waker(Waker::noop());
                let polled = future.as_mut().poll(&mut context);
                answer(if polled == Poll::Ready(()) {
                    "ready"
                } else {
                    "pending"
                });
                continue;
            }
            "fork" => {
                answer(&fork_and_wait(orders, answers));
                continue;
            }
            _ => panic!("unknown order {order}"),
        }
        answer("done");
    }
}

/// Forks a child, which enters a context, and waits until the child has entered it. Answers with the
/// child's id, and lets the child end after the next order.
fn fork_and_wait(orders: &Receiver<String>, answers: &Sender<String>) -> String {
    let (mut from_child, mut to_parent) = std::io::pipe().expect("a pipe");
    let (mut from_parent, mut to_child) = std::io::pipe().expect("a pipe");
    // SAFETY: glibc lets the child of a program with threads call any function.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop((from_child, to_child));
        let _context = inner().enter();
        let told = to_parent.write_all(b"!").is_ok();
        let _ = from_parent.read(&mut [0]);
        // SAFETY: ends the process.
        unsafe { libc::_exit(i32::from(!told)) };
    }
    assert!(child > 0, "cannot fork");
    drop(to_parent);
    from_child
        .read_exact(&mut [0])
        .expect("the child is in its context");
    answers.send(child.to_string()).expect("the test lives");
    orders.recv().expect("an order");
    to_child.write_all(b"!").expect("the child waits");
    // SAFETY: the call writes to no memory of the process.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    "ended".to_owned()
}

fn obey_with_workers() {
    let mut workers = Vec::new();
    obey(|order, argument| match order {
        "start" => {
            workers.push(Worker::start());
            workers.last().expect("the new one").tid.clone()
        }
        number => workers[number.parse::<usize>().expect("a number")].ask(argument),
    });
}

struct Outside {
    child: Controlled,
    process: i32,
    threads: Vec<i32>,
}

impl Outside {
    fn start(test: &str, role: &str, threads: usize) -> Self {
        let test = format!("contexts::outside::{test}");
        let mut child = Controlled::start(&test, role, Path::new("/"), &[]);
        let thread = |_| child.ask("start").parse().expect("an id");
        let threads = (0..threads).map(thread).collect();
        let process = child.child.id() as i32;
        Self {
            child,
            process,
            threads,
        }
    }

    fn ask(&mut self, thread: usize, order: &str) -> String {
        self.child.ask(&format!("{thread}: {order}"))
    }

    /// Returns the context of a thread, as the reader sees it.
    fn context(&self, thread: usize) -> Option<Record> {
        record_of(self.process, self.threads[thread])
    }
}

#[test]
fn reader_sees_the_context_of_each_thread_across_enter_leave_and_await() {
    if own_role().is_some() {
        return obey_with_workers();
    }
    let test = "reader_sees_the_context_of_each_thread_across_enter_leave_and_await";
    let mut outside = Outside::start(test, "shares", 3);
    assert_eq!(
        process_context(outside.process),
        None,
        "before the first context"
    );

    outside.ask(0, "outer");
    outside.ask(1, "other ids");
    let whole = with_ids(TRACE, SPAN, &[("route", "/ä"), ("tenant", "x")]);
    assert_eq!(outside.context(0), whole);
    assert_eq!(outside.context(1), with_ids(1, 2, &[]));
    assert_eq!(outside.context(2), None);
    let first = process_context(outside.process).expect("a context");
    assert_eq!(first.schema, "tlsdesc_v1_dev");
    assert_eq!(first.keys, ["route", "tenant"]);

    outside.ask(0, "inner");
    // A context without a span shows no trace.
    let labels = [("route", "/ä"), ("tenant", "y"), ("region", "")];
    assert_eq!(outside.context(0), with_ids(0, 0, &labels));
    let second = process_context(outside.process).expect("a context");
    assert_eq!(second.keys, ["route", "tenant", "region"]);
    assert!(second.published_at > first.published_at);

    outside.ask(0, "nothing");
    assert_eq!(outside.context(0), None);
    outside.ask(0, "leave");
    assert_eq!(outside.context(0), with_ids(0, 0, &labels));
    outside.ask(0, "leave");
    assert_eq!(outside.context(0), whole);
    outside.ask(0, "leave");
    assert_eq!(outside.context(0), None);
    assert_eq!(outside.context(1), with_ids(1, 2, &[]), "untouched");

    assert_eq!(outside.ask(2, "poll"), "in the poll");
    assert_eq!(outside.context(2), whole);
    assert_eq!(outside.ask(2, "go on"), "pending");
    assert_eq!(outside.context(2), None);
    assert_eq!(outside.ask(2, "poll"), "in the poll");
    assert_eq!(outside.context(2), whole);
    assert_eq!(outside.ask(2, "go on"), "ready");
    assert_eq!(outside.context(2), None);
    outside.child.end();
}

#[test]
fn child_of_a_fork_publishes_keys_of_its_own() {
    if own_role().is_some() {
        return obey_with_workers();
    }
    let mut outside = Outside::start("child_of_a_fork_publishes_keys_of_its_own", "forks", 1);
    outside.ask(0, "outer");
    let forked: i32 = outside.ask(0, "fork").parse().expect("an id");
    let labels = [("route", "/ä"), ("tenant", "y"), ("region", "")];
    assert_eq!(record_of(forked, forked), with_ids(0, 0, &labels));
    let of_parent = process_context(outside.process).expect("a context");
    assert_eq!(of_parent.keys, ["route", "tenant"]);
    assert_eq!(outside.ask(0, "go on"), "ended");
    outside.child.end();
}

#[test]
fn context_of_an_sdk_is_left_alone() {
    if own_role().is_some() {
        // SAFETY: the mapping is new, is never unmapped, and has the size of the file.
        unsafe {
            let file = libc::memfd_create(c"OTEL_CTX".as_ptr(), libc::MFD_CLOEXEC);
            assert_eq!(libc::ftruncate(file, 4096), 0);
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let start = libc::mmap(
                std::ptr::null_mut(),
                4096,
                access,
                libc::MAP_PRIVATE,
                file,
                0,
            );
            assert_ne!(start, libc::MAP_FAILED);
            start.cast::<[u8; 8]>().write(*b"OTEL_CTX");
            libc::close(file);
        }
        return obey_with_workers();
    }
    let mut outside = Outside::start("context_of_an_sdk_is_left_alone", "has an SDK", 1);
    outside.ask(0, "outer");
    assert_eq!(reader::context_mappings(outside.process).len(), 1);
    assert!(!reader::has_record(outside.process, outside.threads[0]));
    outside.child.end();
}

#[test]
fn limit_for_the_size_of_files_does_not_end_the_program() {
    if own_role().is_some() {
        let limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: the call only reads the local.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
        return obey_with_workers();
    }
    let test = "limit_for_the_size_of_files_does_not_end_the_program";
    let mut outside = Outside::start(test, "writes no file", 1);
    outside.ask(0, "outer");
    let whole = with_ids(TRACE, SPAN, &[("route", "/ä"), ("tenant", "x")]);
    // Memory without a file has a name only if the kernel was built with such names.
    let expected = match reader::context_mappings(outside.process).len() {
        0 => None,
        _ => whole,
    };
    assert_eq!(outside.context(0), expected);
    outside.child.end();
}
