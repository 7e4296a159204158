//! CPU time is counted where it was used: a thread that works in bursts samples itself, and a
//! thread that cannot be interrupted says why.

use std::io::{Read as _, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::sys::signal::SigSet;

use crate::common::{
    Read, isolated, registered_threads_only, thread_cpu, use_processors, wait_until, work,
    work_for_cpu,
};
use crate::sampling::places::{Place, is_in};
use gekkota::{
    AutoProfilerLabel, Profile, ProfilerSession, gecko_profiler_category, profiler_pause_sampling,
};

const THREAD: &str = "works in bursts";
/// Number of samples to see.
const SAMPLES: usize = 100;
/// Maximum CPU time that a profile may lack, relative to the thread's own reading of its clock.
const TOLERANCE: Duration = Duration::from_millis(2);

static WORKING: Place = Place::new("working");

#[inline(never)]
fn works() {
    // The profile of a running session has no names.
    let _label = AutoProfilerLabel::new("burst", gecko_profiler_category!(Other));
    work_for_cpu(Duration::from_micros(400));
    std::hint::black_box(1);
}

/// Returns the CPU time of a function with its callees, and that of the thread, by the reader that
/// charges CPU time to stacks that ran.
fn cpu_of(profile: &Profile, function: &str) -> (Duration, Duration) {
    let threads = profile.summarize();
    let thread = threads.iter().find(|thread| thread.name == THREAD);
    let thread = thread.expect("the thread");
    let found = (thread.functions.iter()).filter(|found| found.name.contains(function));
    (found.map(|found| found.total_time).sum(), thread.cpu)
}

#[test]
fn bursts_have_their_cpu_time_and_not_the_sleeps() {
    isolated(|| {
        let session = ProfilerSession::start(registered_threads_only()).expect("start");
        let thread = std::thread::spawn(|| {
            gekkota::register_thread(THREAD);
            let begin = thread_cpu();
            WORKING.repeat(|| {
                works();
                std::thread::sleep(Duration::from_millis(2));
            });
            let used = thread_cpu() - begin;
            gekkota::unregister_thread();
            used
        });
        WORKING.wait_for_thread();
        wait_until("the thread has samples of its work", || {
            let samples = Read::of_running().samples(THREAD);
            samples
                .iter()
                .filter(|sample| is_in(sample, "burst"))
                .count()
                >= SAMPLES
        });
        WORKING.release();
        let used = thread.join().expect("thread");
        let profile = session.finish().expect("profile");
        let read = Read::from_profile(&profile);
        let (worked, cpu) = cpu_of(&profile, "own_clock::works");
        let (events, refused) = (
            read.count("threads_with_events"),
            read.count("refused_events"),
        );
        println!(
            "{worked:?} of {cpu:?}, {used:?} by the clock; {events} events, {refused} refused"
        );
        assert!(events > 0 || refused > 0);
        assert!(worked.as_secs_f64() >= 0.8 * cpu.as_secs_f64());
        assert!(cpu + TOLERANCE >= used, "the sum is the clock's");
    });
}

/// Records a thread that hands a byte to another one and back, again and again. Returns how many
/// events were started.
fn events_of_a_thread_that_hands_over() -> u64 {
    let session = ProfilerSession::start(registered_threads_only()).expect("start");
    let (mut near, mut far) = UnixStream::pair().expect("sockets");
    let answers = std::thread::spawn(move || {
        let mut byte = [0];
        while far.read_exact(&mut byte).is_ok() && far.write_all(&byte).is_ok() {}
    });
    let asks = std::thread::spawn(move || {
        gekkota::register_thread(THREAD);
        let (begin, mut byte) = (thread_cpu(), [0]);
        while thread_cpu() - begin < Duration::from_millis(300) {
            near.write_all(&byte).expect("the other thread reads");
            let answer = near.read_exact(&mut byte);
            answer.expect("the other thread answers");
        }
        thread_cpu() - begin
    });
    let used = asks.join().expect("thread");
    answers.join().expect("thread");
    let profile = session.finish().expect("profile");
    let (_, cpu) = cpu_of(&profile, "own_clock");
    assert!(cpu + TOLERANCE >= used, "{cpu:?} of {used:?}");
    Read::from_profile(&profile).count("threads_with_events")
}

#[test]
fn thread_that_sleeps_after_each_few_microseconds_has_no_event() {
    isolated(|| {
        // The CPU time of a step contains what a virtual machine's host takes. So one may be long.
        let mut events = (0..5).map(|_| events_of_a_thread_that_hands_over());
        assert!(events.any(|events| events == 0));
    });
}

#[test]
fn captures_without_a_slot_count_with_those_that_have_one() {
    isolated(|| {
        // Between two ticks, the event interrupts the thread more often than it has slots.
        let params = registered_threads_only().max_cpu_percent(0.5);
        let session = ProfilerSession::start(params).expect("start");
        let thread = std::thread::spawn(|| {
            gekkota::register_thread(THREAD);
            let begin = thread_cpu();
            for _ in 0..40 {
                {
                    let _label = AutoProfilerLabel::new("burst", gecko_profiler_category!(Other));
                    work_for_cpu(Duration::from_millis(20));
                }
                std::thread::sleep(Duration::from_millis(30));
            }
            thread_cpu() - begin
        });
        let used = thread.join().expect("thread");
        let read = Read::from_profile(&session.finish().expect("profile"));
        if read.count("refused_events") > 0 {
            println!("!!! SKIPPED: the kernel refuses events");
            return;
        }
        let samples = read.samples(THREAD);
        let working = samples.iter().filter(|sample| is_in(sample, "burst"));
        let (working, skipped) = (working.count() as u128, read.count("skipped_ticks"));
        println!("{working} samples of {used:?}, {skipped} ticks left out");
        assert!(skipped > 0);
        assert!(working >= used.as_millis() / 2, "one each millisecond");
    });
}

#[test]
fn profile_has_the_cpu_time_since_the_last_tick_if_ticks_are_left_out() {
    isolated(|| {
        // After a tick, the sampler sleeps for hundreds of milliseconds.
        let params = registered_threads_only().max_cpu_percent(0.01);
        let session = ProfilerSession::start(params).expect("start");
        wait_until("ticks are left out", || {
            Read::of_running().count("skipped_ticks") > 0
        });
        let (send, used) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            gekkota::register_thread(THREAD);
            let begin = thread_cpu();
            work_for_cpu(Duration::from_millis(30));
            send.send(thread_cpu() - begin).expect("a receiver");
            // The thread is still there when the profile is taken.
            std::thread::park();
        });
        let used = used.recv().expect("the thread's clock");
        let profile = session.finish().expect("profile");
        thread.thread().unpark();
        thread.join().expect("thread");
        let (_, cpu) = cpu_of(&profile, "");
        assert!(cpu + Duration::from_micros(50) >= used, "{cpu:?}, {used:?}");
    });
}

#[test]
fn thread_that_blocks_the_signal_says_so_while_it_runs() {
    isolated(|| {
        let session = ProfilerSession::start(registered_threads_only()).expect("start");
        let thread = std::thread::spawn(|| {
            SigSet::all().thread_block().expect("a mask");
            gekkota::register_thread(THREAD);
            let begin = thread_cpu();
            WORKING.repeat(|| {
                works();
                std::thread::sleep(Duration::from_millis(2));
            });
            thread_cpu() - begin
        });
        let reason = "(no stack: the thread blocks SIGURG)";
        WORKING.wait_for_thread();
        wait_until("the thread has samples that say why", || {
            let samples = Read::of_running().samples(THREAD);
            samples
                .iter()
                .filter(|sample| is_in(sample, reason))
                .count()
                >= SAMPLES
        });
        WORKING.release();
        let used = thread.join().expect("thread");
        let profile = session.finish().expect("profile");
        let (blocked, cpu) = cpu_of(&profile, reason);
        println!("{blocked:?} of {cpu:?}, {used:?} by the clock");
        assert!(blocked.as_secs_f64() >= 0.8 * cpu.as_secs_f64());
        let report = profile.summary().to_string();
        assert!(
            report.contains("the threads works in bursts block SIGURG"),
            "{report}"
        );
    });
}

extern "C" fn foreign_handler(_: libc::c_int) {}

#[test]
fn thread_says_that_a_foreign_handler_replaced_the_profilers() {
    isolated(|| {
        let session = ProfilerSession::start(registered_threads_only()).expect("start");
        let handler = foreign_handler as extern "C" fn(_) as libc::sighandler_t;
        // The session's last, so that it finds no other signal that is free.
        for signal in [libc::SIGSTKFLT, libc::SIGPROF, libc::SIGURG] {
            // SAFETY: the handler has the signature that `signal` requires.
            let before = unsafe { libc::signal(signal, handler) };
            assert_ne!(before, libc::SIG_ERR);
        }
        let thread = std::thread::spawn(|| {
            gekkota::register_thread(THREAD);
            // Long enough for a warning, however busy the machine is.
            work_for_cpu(Duration::from_millis(20));
            WORKING.work();
        });
        let reason = "(no stack: the handler of SIGURG was replaced)";
        WORKING.wait_for_thread();
        wait_until("the thread has samples that say why", || {
            let samples = Read::of_running().samples(THREAD);
            samples
                .iter()
                .filter(|sample| is_in(sample, reason))
                .count()
                >= SAMPLES
        });
        WORKING.release();
        thread.join().expect("thread");
        let report = session.finish().expect("profile").summary().to_string();
        assert!(report.contains("another handler of SIGURG"), "{report}");
    });
}

/// Two threads that share a processor wait for it half of the time.
#[test]
fn wait_for_a_processor_is_no_cpu_time() {
    isolated(|| {
        use_processors(1);
        let session = ProfilerSession::start(registered_threads_only()).expect("start");
        let spawn = |name| {
            std::thread::spawn(move || {
                gekkota::register_thread(name);
                WORKING.repeat(|| _ = work(1_000_000));
            })
        };
        let threads = [spawn(THREAD), spawn("competes")];
        let idle_rows = || {
            let read = Read::of_running();
            let Some(thread) = read
                .threads()
                .iter()
                .find(|thread| thread["name"] == THREAD)
            else {
                return 0;
            };
            let frames = thread["frameTable"]["data"].as_array().expect("frames");
            // The sixth subcategory of the first category.
            let waits = |frame: &&serde_json::Value| frame[6] == 0 && frame[7] == 5;
            frames.iter().filter(waits).count()
        };
        wait_until("a sample shows the wait", || idle_rows() > 0);
        WORKING.release();
        WORKING.release();
        for thread in threads {
            thread.join().expect("thread");
        }
        session.finish().expect("profile");
    });
}

#[test]
fn cpu_time_in_a_pause_is_charged_to_nobody_if_the_session_ends_in_it() {
    isolated(|| {
        gekkota::register_thread(THREAD);
        let session = ProfilerSession::start(registered_threads_only()).expect("start");
        let before = Duration::from_millis(10);
        work_for_cpu(before);
        profiler_pause_sampling();
        let used = thread_cpu();
        work_for_cpu(10 * before);
        let profile = session.finish().expect("a profile");
        let (_, cpu) = cpu_of(&profile, "");
        println!("{cpu:?} of the {used:?} before the pause");
        assert!(cpu <= used + before, "{cpu:?}");
    });
}
