//! The feature `contextswitches`: markers that tell a wait for a processor from a sleep.

use std::sync::Barrier;
use std::sync::mpsc::channel;
use std::time::Duration;

use gekkota::{
    Features, Profile, ProfilerSession, StartParams, profiler_pause, profiler_resume,
    register_thread,
};
use serde_json::Value;

use crate::common::{
    Read, in_forked_child, isolated, one_loop, use_processors, wait_until, work_for_cpu,
};

const TYPE: &str = "ContextSwitches";
const CPU_TIME: Duration = Duration::from_millis(150);
/// In this time, the sampler reads more threads than these tests have.
const FIRST_READINGS: Duration = Duration::from_millis(50);

/// What the markers of a thread say, in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Sums {
    ran: u64,
    waited: u64,
    slept: u64,
    voluntary: u64,
    involuntary: u64,
}

/// A marker: its start and end in ms, and its data.
type Switches = (f64, f64, Value);

fn params() -> StartParams {
    let params = StartParams::default();
    let features = params.features | Features::CONTEXT_SWITCHES;
    params.features(features)
}

/// Runs `body` on a thread of this name that the session knows and has read once. Returns the profile
/// that is taken while the thread waits, and the thread's voluntary switches by then.
fn record(name: &'static str, body: impl FnOnce() + Send) -> (Profile, u64) {
    let session = ProfilerSession::start(params()).expect("start");
    std::thread::scope(|scope| {
        let (done, is_done) = channel();
        let (begin, begins) = channel::<()>();
        let (end, ends) = channel::<()>();
        let worker = scope.spawn(move || {
            register_thread(name);
            done.send(()).expect("the test waits");
            let _ = begins.recv();
            body();
            done.send(()).expect("the test waits");
            let _ = ends.recv();
            own_voluntary_switches()
        });
        is_done.recv().expect("it has registered");
        until_read();
        drop(begin);
        is_done.recv().expect("it has worked");
        one_loop();
        one_loop();
        let profile = session.finish().expect("a profile");
        drop(end);
        (profile, worker.join().expect("a thread"))
    })
}

/// Returns when the sampler has read all threads that it knows.
fn until_read() {
    one_loop();
    std::thread::sleep(FIRST_READINGS);
    one_loop();
    one_loop();
}

fn own_voluntary_switches() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("a file");
    let mut lines = status.lines();
    let value = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    value.expect("a count").trim().parse().expect("a number")
}

fn markers_of(read: &Read, thread: &str) -> Vec<Switches> {
    let markers = read.markers(thread).into_iter();
    markers
        .filter(|(.., data)| data["type"] == TYPE)
        .map(|(name, start, end, phase, _, data)| {
            assert_eq!((name.as_str(), phase), ("Context switches", 1));
            (start, end.expect("an end"), data)
        })
        .collect()
}

/// Adds the markers up, and checks that they do not overlap and that their times fill them.
fn sums(markers: &[Switches]) -> Sums {
    let mut sums = Sums::default();
    let mut last_end = 0.0;
    for (start, end, data) in markers {
        let number = |key: &str| {
            let number = data[key].as_u64();
            number.unwrap_or_else(|| panic!("{key} of {data}"))
        };
        let ns = |key: &str| {
            let ms = data[key].as_f64();
            let ms = ms.unwrap_or_else(|| panic!("{key} of {data}"));
            (ms * 1e6).round() as u64
        };
        let (ran, waited, slept) = (ns("ran"), ns("waited"), ns("slept"));
        assert!(*start >= last_end && end >= start, "{start} {end}");
        last_end = *end;
        let length = (end - start) * 1e6;
        let sum = (ran + waited + slept) as f64;
        // The files are read some microseconds after the clock.
        assert!(
            sum >= length - 2.0 && sum <= length + 1e6,
            "{sum} ns in {length} ns"
        );
        sums.ran += ran;
        sums.waited += waited;
        sums.slept += slept;
        sums.voluntary += number("voluntary");
        sums.involuntary += number("involuntary");
    }
    sums
}

#[test]
fn thread_that_sleeps_has_voluntary_switches_and_time_asleep() {
    isolated(|| {
        const SLEEPS: u64 = 30;
        let (profile, switches) = record("sleeper", || {
            for _ in 0..SLEEPS {
                std::thread::sleep(Duration::from_millis(5));
                work_for_cpu(Duration::from_micros(100));
            }
        });
        let read = Read::from_profile(&profile);
        let sums = sums(&markers_of(&read, "sleeper"));
        assert!(
            sums.voluntary >= SLEEPS && sums.voluntary <= switches,
            "{sums:?}, {switches}"
        );
        // On a busy machine, a sleep may seem to be part of a long rest, which is in no marker.
        assert!(sums.slept > 0, "{sums:?}");
        assert!(sums.ran >= SLEEPS * 100_000, "{sums:?}");

        let schemas = read.0["meta"]["markerSchema"].as_array().expect("schemas");
        let schema = schemas
            .iter()
            .find(|schema| schema["name"] == TYPE)
            .expect("a schema");
        assert_eq!(schema["graphs"][0]["key"], "waited");
        let summaries = profile.summarize();
        let summary = summaries
            .iter()
            .find(|thread| thread.name == "sleeper")
            .expect("a thread");
        assert_eq!(summary.voluntary_switches, Some(sums.voluntary));
        assert_eq!(summary.involuntary_switches, Some(sums.involuntary));
        let waited = summary.waited_for_processor.expect("a time");
        assert_eq!(waited.as_nanos() as u64, sums.waited);
        let text = format!("{:#}", profile.summary());
        assert!(
            text.contains("  queued  ") && !text.contains("Context switches"),
            "{text}"
        );
    });
}

#[test]
fn threads_that_share_a_processor_wait_for_it() {
    isolated(|| {
        use_processors(1);
        let session = ProfilerSession::start(params()).expect("start");
        let (begin, end) = (Barrier::new(3), Barrier::new(3));
        let (registered, has_registered) = channel();
        let profile = std::thread::scope(|scope| {
            for name in ["first", "second"] {
                let (begin, end, registered) = (&begin, &end, registered.clone());
                scope.spawn(move || {
                    register_thread(name);
                    registered.send(()).expect("the test waits");
                    begin.wait();
                    work_for_cpu(CPU_TIME);
                    registered.send(()).expect("the test waits");
                    end.wait();
                });
            }
            let both = || has_registered.iter().take(2).count();
            assert_eq!(both(), 2);
            until_read();
            begin.wait();
            assert_eq!(both(), 2);
            one_loop();
            one_loop();
            let profile = session.finish().expect("a profile");
            end.wait();
            profile
        });
        let read = Read::from_profile(&profile);
        let [first, second] = ["first", "second"].map(|name| sums(&markers_of(&read, name)));
        // In whatever order they ran: while one of them ran, the other one waited, unless it was done.
        let [waited, ran] = [first.waited + second.waited, CPU_TIME.as_nanos() as u64];
        assert!(waited >= ran * 9 / 10, "{first:?} {second:?}");
        assert!(first.ran >= ran * 9 / 10 && second.ran >= ran * 9 / 10);
        assert!(
            first.involuntary + second.involuntary > 0,
            "{first:?} {second:?}"
        );
    });
}

#[test]
fn pause_is_in_no_marker() {
    isolated(|| {
        let (profile, _) = record("busy", || {
            work_for_cpu(CPU_TIME);
            one_loop();
            one_loop();
            profiler_pause();
            work_for_cpu(CPU_TIME);
            profiler_resume();
            until_read();
            work_for_cpu(CPU_TIME);
        });
        let read = Read::from_profile(&profile);
        let pause = &read.0["pausedRanges"][0];
        let [begin, end] = ["startTime", "endTime"].map(|key| pause[key].as_f64().expect("a time"));
        let middle = (begin + end) / 2.0;
        let markers = markers_of(&read, "busy");
        assert!(markers.iter().any(|marker| marker.0 >= end));
        assert!(markers.iter().any(|marker| marker.1 <= middle));
        let is_around = |marker: &&Switches| marker.0 <= middle && marker.1 >= middle;
        assert_eq!(markers.iter().find(is_around), None);
    });
}

#[test]
fn session_without_the_feature_has_no_such_markers() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let worker = std::thread::spawn(|| {
            register_thread("busy");
            work_for_cpu(CPU_TIME);
        });
        worker.join().expect("a thread");
        let profile = session.finish().expect("a profile");
        let read = Read::from_profile(&profile);
        assert_eq!(markers_of(&read, "busy"), []);
        assert!(!format!("{:#}", profile.summary()).contains("queued"));
        let summaries = profile.summarize();
        let summary = summaries
            .iter()
            .find(|thread| thread.name == "busy")
            .expect("a thread");
        assert_eq!(
            (summary.waited_for_processor, summary.voluntary_switches),
            (None, None)
        );
    });
}

fn record_in_a_namespace() -> String {
    let session = ProfilerSession::start(params()).expect("start");
    register_thread("main");
    wait_until("the log says it", || {
        work_for_cpu(Duration::from_millis(5));
        let read = Read::of_running();
        read.logged_events()
            .contains(&"the kernel hides the context switches of threads")
    });
    let read = Read::from_profile(&session.finish().expect("a profile"));
    let reasons = read.logged_events().into_iter();
    let reasons = reasons.filter(|event| event.contains("context switches"));
    assert_eq!(reasons.count(), 1);
    read.count("threads_without_switches").to_string()
}

/// `/proc` is that of the namespace outside, so it does not have the threads by their numbers.
#[test]
fn hidden_switches_are_reported_once() {
    isolated(
        || match nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWPID) {
            Ok(()) => {
                let hidden = in_forked_child(record_in_a_namespace);
                let hidden: u64 = hidden.parse().unwrap_or_else(|_| panic!("{hidden}"));
                assert!(hidden > 0);
            }
            Err(error) => println!("!!! SKIPPED: no PID namespace: {error}"),
        },
    );
}
