//! Causes that the profiler itself notices: janks, signals, CPU time.

use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::Duration;

use gekkota::dump::{DumpError, profiler_set_dumps};
use gekkota::event_delay::{AutoProfilerEvent, profiler_watch_event_loop};
use gekkota::{
    AutoProfilerInit, ControlSignals, ProfilerTime, profiler_control_by_signals, profiler_shutdown,
    register_thread,
};

use super::{Folder, dumped, name, read, settings, start, texts};
use crate::common::controlled::{
    HOSTS_CALLS, action_of, hosts_handler_address, raise, set_handler,
};
use crate::common::{Read, in_forked_child, isolated, isolated_with, wait_until, work};

const LIMIT: Duration = Duration::from_millis(60);

/// Returns the longest event delay in the thread's samples, in ms.
fn longest_delay(read: &Read, thread: &str) -> f64 {
    let samples = read.samples(thread).into_iter();
    let delays = samples.filter_map(|sample| sample.event_delay_ms);
    delays.fold(0.0, f64::max)
}

/// Returns the texts of the markers of dumps on all threads: those of a dump that no thread caused are
/// on the main thread's, once the sampler has found that.
fn texts_of_dumps(read: &Read) -> Vec<String> {
    let threads = read.threads().iter();
    let names = threads.map(|thread| thread["name"].as_str().expect("a name"));
    names.flat_map(|name| texts(read, name, "Dump")).collect()
}

/// Waits until the running session has a sample of the thread with a delay of the limit.
fn wait_for_delay(thread: &str) {
    let limit_ms = LIMIT.as_secs_f64() * 1e3;
    wait_until("the delay is sampled", || {
        longest_delay(&Read::of_running(), thread) >= limit_ms
    });
}

#[test]
fn jank_of_an_event_causes_a_dump_while_it_lasts() {
    isolated(|| {
        let folder = Folder::new();
        let session = start();
        // The loop waits for its dump inside the event.
        let queued_at = ProfilerTime::now();
        let event = AutoProfilerEvent::queued_at(queued_at);
        wait_for_delay("test");
        profiler_set_dumps(Some(settings(&folder).on_jank_longer_than(LIMIT))).expect("a thread");
        let dumps = folder.wait_for(1);
        assert!(
            name(&dumps[0]).contains("Z_1_jank-test-handled-no-new-event-for-"),
            "{dumps:?}"
        );
        let dump = read(&dumps[0]);
        assert!(texts(&dump, "test", "Dump")[0].starts_with("jank: test handled"));
        assert!(longest_delay(&dump, "test") >= LIMIT.as_secs_f64() * 1e3);
        drop(event);
        // An event that waited behind the slow one belongs to the same jank.
        drop(AutoProfilerEvent::queued_at(queued_at));
        assert!(name(&dumped(LIMIT, "by hand")).contains("Z_2_by-hand."));
        drop(session);
    });
}

#[test]
fn jank_that_has_ended_causes_a_dump_of_all_of_it() {
    isolated(|| {
        let folder = Folder::new();
        let session = start();
        let queued_at = ProfilerTime::now();
        wait_until("the limit passes", || {
            ProfilerTime::now().duration_since(queued_at) > LIMIT
        });
        let settings = settings(&folder).last(Duration::ZERO);
        profiler_set_dumps(Some(settings.on_jank_longer_than(LIMIT))).expect("a thread");
        // The thread that watches sees it, or else this thread at its end.
        drop(AutoProfilerEvent::queued_at(queued_at));
        let dumps = folder.wait_for(1);
        let dump = read(&dumps[0]);
        assert_eq!(texts(&dump, "test", "Dump").len(), 1);
        let begin = dump.0["meta"]["profilingStartTime"].as_f64();
        let marker = dump.markers("test").into_iter().find(|row| row.0 == "Dump");
        let length = marker.expect("a marker").1 - begin.expect("a time");
        assert!(length >= LIMIT.as_secs_f64() * 1e3, "{length}");
        drop(session);
    });
}

#[test]
fn jank_of_a_watched_loop_causes_a_dump_on_its_track() {
    isolated(|| {
        let folder = Folder::new();
        let session = start();
        let (posts, probes) = channel();
        let (ends, end) = channel::<()>();
        let (begins, begun) = channel();
        let watched = std::thread::spawn(move || {
            register_thread("watched");
            let watch = profiler_watch_event_loop(move |probe| {
                let _ = posts.send(probe);
            });
            begins.send(()).expect("the test waits");
            // Probes wait until the test has its dump.
            end.recv().expect("the test lives");
            probes.into_iter().next().expect("a probe").run();
            drop(watch);
        });
        begun.recv().expect("the loop begins");
        wait_for_delay("watched");
        profiler_set_dumps(Some(settings(&folder).on_jank_longer_than(LIMIT))).expect("a thread");
        let dumps = folder.wait_for(1);
        let dump = read(&dumps[0]);
        assert_eq!(texts(&dump, "watched", "Dump").len(), 1);
        assert!(longest_delay(&dump, "watched") >= LIMIT.as_secs_f64() * 1e3);
        ends.send(()).expect("the loop waits");
        watched.join().expect("the loop ends");
        assert!(name(&dumped(LIMIT, "by hand")).contains("Z_2_by-hand."));
        drop(session);
    });
}

#[test]
fn signal_causes_a_dump_and_reaches_the_hosts_handler() {
    isolated(|| {
        let folder = Folder::new();
        set_handler(libc::SIGUSR1, hosts_handler_address());
        profiler_set_dumps(Some(settings(&folder).on_signal(libc::SIGUSR1))).expect("a signal");
        let session = start();
        raise(libc::SIGUSR1);
        let dumps = folder.wait_for(1);
        assert!(
            name(&dumps[0]).contains("Z_1_the-signal-SIGUSR1."),
            "{dumps:?}"
        );
        assert_eq!(texts_of_dumps(&read(&dumps[0])), ["the signal SIGUSR1"]);
        assert_eq!(HOSTS_CALLS.load(Ordering::Relaxed), 1);
        profiler_set_dumps(Some(settings(&folder))).expect("no signal");
        assert_eq!(action_of(libc::SIGUSR1), hosts_handler_address());
        raise(libc::SIGUSR1);
        assert_eq!(HOSTS_CALLS.load(Ordering::Relaxed), 2);
        assert!(name(&dumped(LIMIT, "by hand")).contains("Z_2_by-hand."));
        drop(session);
    });
}

#[test]
fn signal_for_dumps_differs_from_those_of_the_control() {
    isolated(|| {
        let folder = Folder::new();
        let on = |signal| profiler_set_dumps(Some(settings(&folder).on_signal(signal)));
        profiler_control_by_signals(ControlSignals::new()).expect("two signals");
        match on(libc::SIGUSR2) {
            Err(DumpError::BadValue { setting, value, .. }) => {
                assert_eq!(setting, "on_signal");
                assert_eq!(value, "SIGUSR2, which starts or stops the profiler");
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(on(libc::SIGSEGV), Err(DumpError::BadValue { .. })));
        on(libc::SIGALRM).expect("a free signal");
        let taken = ControlSignals::new().start_signal(libc::SIGALRM);
        assert!(profiler_control_by_signals(taken).is_err());
        // One thread serves both signals: the first one starts the session, the second one dumps.
        raise(libc::SIGUSR1);
        wait_until("the session runs", gekkota::profiler_is_active);
        register_thread("test");
        raise(libc::SIGALRM);
        folder.wait_for(1);
        // Control by signals still works without the signal for dumps.
        profiler_set_dumps(None).expect("no signal");
        profiler_control_by_signals(ControlSignals::new().folder(&folder.0)).expect("two signals");
        raise(libc::SIGUSR2);
        wait_until("the session has stopped", || !gekkota::profiler_is_active());
    });
}

#[test]
fn signal_has_no_effect_after_shutdown_and_in_the_child_of_a_fork() {
    isolated(|| {
        let folder = Folder::new();
        profiler_set_dumps(Some(settings(&folder).on_signal(libc::SIGALRM))).expect("a signal");
        let session = start();
        let childs = in_forked_child(|| {
            raise(libc::SIGALRM);
            let session = start();
            // The settings are inherited, and the signal can be taken again.
            profiler_set_dumps(Some(settings(&folder).on_signal(libc::SIGALRM))).expect("a signal");
            raise(libc::SIGALRM);
            let dumps = folder.wait_for(1);
            drop(session);
            name(&dumps[0]).to_owned()
        });
        assert!(childs.contains("_the-signal-SIGALRM."), "{childs}");
        drop(session);
        profiler_shutdown();
        // Without a previous handler, the profiler's stays, and does nothing.
        let session = start();
        raise(libc::SIGALRM);
        profiler_set_dumps(Some(settings(&folder))).expect("no signal");
        dumped(LIMIT, "by hand");
        let names: Vec<_> = folder
            .dumps()
            .iter()
            .map(|dump| name(dump).to_owned())
            .collect();
        assert_eq!(names.len(), 2, "{names:?}");
        assert!(
            names.iter().any(|name| name.contains("_by-hand.")),
            "{names:?}"
        );
        drop(session);
    });
}

#[test]
fn variable_names_the_signal_for_dumps() {
    let variables = [
        ("MOZ_PROFILER_DUMP_SIGNAL", "alrm"),
        ("MOZ_UPLOAD_DIR", "/nonexistent/gekkota"),
    ];
    isolated_with(&variables, || {
        let profiler = AutoProfilerInit::new();
        let session = start();
        let handler = action_of(libc::SIGALRM);
        assert!(handler > libc::SIG_IGN, "it is taken");
        // The dump fails, because the folder of the variable does not exist.
        raise(libc::SIGALRM);
        // Dumps that the program sets replace those of the variable.
        let folder = Folder::new();
        profiler_set_dumps(Some(settings(&folder))).expect("no signal");
        dumped(LIMIT, "by hand");
        assert_eq!(folder.dumps().len(), 1);
        drop((session, profiler));
    });
}

#[test]
fn cpu_time_above_its_limit_causes_one_dump_with_a_marker() {
    isolated(|| {
        let folder = Folder::new();
        let session = start();
        // Each second of work is above this share.
        let settings = settings(&folder).on_cpu_above(1e-9);
        profiler_set_dumps(Some(settings)).expect("a thread");
        wait_until("the dump is there", || {
            work(100_000);
            !folder.dumps().is_empty()
        });
        let dumps = folder.dumps();
        assert!(
            name(&dumps[0]).contains("Z_1_the-process-used-"),
            "{dumps:?}"
        );
        let dump = read(&dumps[0]);
        let markers = texts_of_dumps(&dump);
        assert!(
            matches!(&markers[..], [only] if only.starts_with("the process used ")),
            "{markers:?}"
        );
        drop(session);
    });
}

#[test]
fn last_of_many_calls_at_a_moment_holds_as_a_whole() {
    isolated(|| {
        let folder = Folder::new();
        let session = start();
        let signals = [libc::SIGALRM, libc::SIGVTALRM, libc::SIGIO];
        std::thread::scope(|scope| {
            for signal in signals {
                let settings = settings(&folder);
                scope.spawn(move || {
                    for _ in 0..50 {
                        let settings = settings.clone().on_signal(signal);
                        profiler_set_dumps(Some(settings)).expect("a signal");
                    }
                });
            }
        });
        // All three have a handler, but only the signal of the call that holds causes a dump.
        signals.into_iter().for_each(raise);
        folder.wait_for(1);
        dumped(LIMIT, "by hand");
        assert_eq!(folder.dumps().len(), 2);
        drop(session);
    });
}
