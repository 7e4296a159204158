//! Gecko's form of unregistered threads: markers of the main thread.

use std::sync::mpsc;
use std::thread::Builder;

use crate::common::{Read, isolated, one_loop, wait_until, work};
use gekkota::{Features, ProfilerSession, StartParams};

#[test]
fn cpu_use_and_end_of_an_unregistered_thread_are_markers_of_the_main_thread() {
    isolated(|| {
        let params = StartParams::default();
        let features = params.features | Features::UNREGISTERED_THREADS;
        // The markers' track is that of the main thread, which has registered only in a program
        // whose main thread starts the profiler.
        let session = ProfilerSession::start(params.features(features)).expect("start");
        let (ends, end) = mpsc::channel::<()>();
        let body = move || {
            while end.try_recv() == Err(mpsc::TryRecvError::Empty) {
                work(1000);
            }
            nix::unistd::gettid().as_raw()
        };
        let thread = Builder::new()
            .name("runs".to_owned())
            .spawn(body)
            .expect("a thread");
        let markers_of = |kind: &str| {
            let read = Read::of_running();
            let markers = read.markers("GeckoMain").into_iter();
            let runs = markers.filter(|marker| marker.0.ends_with(" runs"));
            runs.filter(|marker| marker.5["type"] == kind)
                .collect::<Vec<_>>()
        };
        wait_until("the thread's CPU time is marked", || {
            one_loop();
            markers_of("UnregisteredThreadCPU").len() >= 5
        });
        drop(ends);
        let id = thread.join().expect("no panic");
        wait_until("the thread's end is marked", || {
            one_loop();
            !markers_of("UnregisteredThreadLifetime").is_empty()
        });
        let ended = &markers_of("UnregisteredThreadLifetime")[0];
        assert_eq!(ended.0, format!("tid {id} runs"));
        assert_eq!(ended.5["End Event"], "Thread disappeared");
        for (name, start, end, _, _, data) in markers_of("UnregisteredThreadCPU") {
            assert_eq!(name, ended.0);
            assert!(end.is_some_and(|end| end > start));
            assert!(data["CPU Time"].as_f64() > Some(0.0) && data["Thread Id"] == id);
        }
        drop(session);
    });
}
