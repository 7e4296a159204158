//! Clients that ask the program for profiles.

#[cfg(feature = "http")]
mod client;
#[cfg(feature = "http")]
mod server;
#[cfg(feature = "http")]
mod soak;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use crate::common::{Busy, Read, isolated, wait_until};
use gekkota::endpoints::{
    Endpoint, EndpointError, EndpointLimits, Question, answer, answer_async, flamegraph_svg, gecko,
    pprof_heap, set_endpoint_limits, summary_text, threads_text,
};
use gekkota::profile::{Format, SnapshotOptions};
use gekkota::{
    Features, StartParams, profiler_is_active, profiler_start, profiler_stop, register_thread,
};

const SHORT: Duration = Duration::from_millis(40);
/// Longer than any test: only an end of the wait from outside ends it.
const LONG: Duration = Duration::from_secs(250);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls a future until it is ready.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(result) => return result,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("UTF-8")
}

#[test]
fn each_text_has_the_busy_function() {
    isolated(|| {
        let _busy = Busy::start();
        // One sample is certain only after some time.
        let mut svg = String::new();
        wait_until("the flame graph has the function", || {
            svg = text(flamegraph_svg(SHORT, 500).expect("a flame graph"));
            svg.contains("busy_function")
        });
        assert!(
            svg.contains("<svg") && svg.contains(" of CPU time"),
            "{svg}"
        );
        wait_until("the summary has the function", || {
            text(summary_text(SHORT, 500).expect("a summary")).contains("busy_function")
        });
        wait_until("the profile has the function", || {
            text(gecko(SHORT, 500).expect("a profile")).contains("busy_function")
        });
        assert!(!profiler_is_active(), "the last client has left");
    });
}

#[test]
fn stacks_of_running_and_of_waiting_threads_are_listed() {
    isolated(|| {
        let _busy = Busy::start();
        let (stay, stays) = std::sync::mpsc::channel::<()>();
        let waiting = std::thread::Builder::new().name("waiting thread".to_owned());
        let waiting = waiting.spawn(move || stays.recv()).expect("a thread");
        wait_until("both threads have a stack", || {
            let list = text(threads_text().expect("the threads"));
            let of = |name: &str| {
                let found = list.split("\n\n").find(|thread| thread.contains(name));
                found.unwrap_or("").to_owned()
            };
            of("\"busy thread\": running").contains("busy_function")
                && of("\"waiting thread\": waiting").contains("recv")
        });
        drop(stay);
        let _ = waiting.join();
    });
}

#[test]
fn clients_share_a_session_and_the_last_one_stops_it() {
    isolated(|| {
        let question = Question::new(Endpoint::Gecko).duration(LONG);
        let mut context = Context::from_waker(Waker::noop());
        let mut one = Box::pin(question.ask_async());
        let mut other = Box::pin(question.ask_async());
        assert!(one.as_mut().poll(&mut context).is_pending());
        wait_until("the first client has started a session", profiler_is_active);
        assert!(other.as_mut().poll(&mut context).is_pending());
        // A third one joins and leaves.
        let short = question.duration(SHORT).hz(7);
        assert!(block_on(short.ask_async()).is_ok());
        assert!(profiler_is_active());
        drop(one);
        assert!(block_on(short.ask_async()).is_ok());
        assert!(profiler_is_active(), "one client is left");
        drop(other);
        wait_until("the last client has stopped the session", || {
            !profiler_is_active()
        });
    });
}

#[test]
fn client_that_joins_while_the_last_one_leaves_gets_a_profile() {
    isolated(|| {
        let ask = || {
            for _ in 0..25 {
                summary_text(Duration::ZERO, 500).expect("a summary");
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(ask);
            }
        });
        assert!(!profiler_is_active());
    });
}

#[test]
fn session_that_the_application_wants_goes_on_when_the_last_client_leaves() {
    isolated(|| {
        // As the client starts it, so that none of the two replaces the session of the other.
        let params = || {
            let interval = Duration::from_millis(2);
            let params = StartParams::default().interval(interval);
            params.features(Features::default())
        };
        for _ in 0..25 {
            std::thread::scope(|scope| {
                scope.spawn(|| summary_text(Duration::ZERO, 500).expect("a summary"));
                gekkota::profiler_ensure_started(params()).expect("a session");
            });
            assert!(profiler_is_active());
            gekkota::profiler_stop();
        }
    });
}

#[test]
fn running_session_is_used_and_goes_on() {
    isolated(|| {
        register_thread("caller");
        let params = StartParams::default().interval(Duration::from_millis(2));
        profiler_start(params).expect("start");
        wait_until("there are samples", || {
            Read::of_running().samples("caller").len() > 2
        });
        let first = |read: &Read| read.samples("caller")[0].time_ms;
        let before = Read::of_running();
        let answer = answer("/debug/pprof/gecko?seconds=0.05&hz=17");
        assert_eq!(answer.status, 200, "{}", text(answer.body));
        assert_eq!(answer.content_type, "application/json");
        let headers = answer.headers();
        let file = headers
            .iter()
            .find(|(name, _)| *name == "Content-Disposition");
        assert!(file.expect("a file name").1.contains("profile.json"));
        let read = Read(serde_json::from_slice(&answer.body).expect("JSON"));
        assert_eq!(
            read.0["meta"]["interval"], 2.0,
            "the session keeps its rate"
        );
        let after = Read::of_running();
        assert_eq!(first(&after), first(&before), "the session keeps its data");
        assert_ne!(first(&read), first(&before), "the client gets its own time");
        profiler_stop();
    });
}

#[test]
fn session_that_ends_early_is_an_error() {
    isolated(|| {
        let question = Question::new(Endpoint::Summary).duration(LONG);
        let mut future = Box::pin(question.ask_async());
        let mut context = Context::from_waker(Waker::noop());
        assert!(future.as_mut().poll(&mut context).is_pending());
        wait_until("the client has started a session", profiler_is_active);
        profiler_stop();
        let result = block_on(future);
        assert!(matches!(&result, Err(EndpointError::Ended)), "{result:?}");
    });
}

#[test]
fn clients_beyond_the_limits_are_refused() {
    isolated(|| {
        let limits = EndpointLimits::default()
            .max_clients(1)
            .max_hz(200)
            .max_duration(Duration::from_secs(260));
        set_endpoint_limits(limits);
        let mut context = Context::from_waker(Waker::noop());
        let mut only = Box::pin(Question::new(Endpoint::Summary).duration(LONG).ask_async());
        assert!(only.as_mut().poll(&mut context).is_pending());
        let busy = block_on(answer_async("/threads"));
        assert_eq!(busy.status, 503);
        assert!(text(busy.body).contains("got 1 other clients"));
        drop(only);
        wait_until("the place is free again", || {
            answer("threads").status == 200
        });
        let refused = answer("profile?seconds=261");
        assert_eq!(refused.status, 400);
        assert_eq!(
            text(refused.body),
            "cannot answer: got \"261\" for \"seconds\", expected at most 260\n"
        );
        assert_eq!(answer("profile?hz=201").status, 400);
    });
}

#[test]
fn answers_without_a_profile_say_why() {
    isolated(|| {
        let index = answer("/debug/pprof/");
        assert_eq!(
            (index.status, index.content_type),
            (200, "text/html; charset=utf-8")
        );
        assert!(text(index.body).contains("<a href=\"flamegraph?seconds=10\">"));
        let unknown = block_on(answer_async("/debug/pprof/mutex"));
        assert_eq!(unknown.status, 404);
        let heap = answer("heap");
        assert_eq!(heap.status, 501);
        let words = text(heap.body);
        match cfg!(feature = "protobuf") {
            true => {
                assert!(words.contains("nativeallocations"), "{words}");
                assert!(matches!(pprof_heap(), Err(EndpointError::NoHeap)));
            }
            false => assert!(words.contains("`protobuf`"), "{words}"),
        }
    });
}

/// Without the feature, the answer names it.
#[test]
fn pprof_is_compressed() {
    isolated(|| {
        let answer = answer("profile?seconds=0.02");
        match cfg!(feature = "protobuf") {
            true => {
                assert_eq!(answer.status, 200);
                assert_eq!(answer.body[..2], [0x1f, 0x8b]);
            }
            false => {
                assert_eq!(answer.status, 501);
                assert!(text(answer.body).contains("`protobuf`"));
            }
        }
    });
}

/// Readers divide by the range of a profile.
#[test]
fn range_of_a_profile_begins_where_its_data_does() {
    isolated(|| {
        register_thread("caller");
        let session = gekkota::ProfilerSession::start(StartParams::default()).expect("start");
        wait_until("there are samples", || {
            Read::of_running().samples("caller").len() > 2
        });
        let since = gekkota::ProfilerTime::now();
        wait_until("there are later ones", || {
            Read::of_running().samples("caller").len() > 5
        });
        let profile = session.snapshot().expect("a session");
        let start_of = |options: &SnapshotOptions| {
            let mut bytes = Vec::new();
            profile
                .write_with(Format::Processed, &mut bytes, options)
                .expect("a vector");
            let read: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
            let time = |name: &str| read["meta"][name].as_f64().expect("a time");
            (time("profilingStartTime"), time("profilingEndTime"))
        };
        let (start, end) = start_of(&SnapshotOptions::default());
        let (later_start, same_end) = start_of(&SnapshotOptions::default().since(since));
        assert!(start < later_start && later_start < end);
        assert_eq!(same_end, end);
    });
}
