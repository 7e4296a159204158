//! Shows when an event loop delays its events.
//!
//! ```text
//! cargo run --release --example event_loop [-- FILE]
//! ```
//!
//! Two threads run event loops. Each loop runs many short events and one that takes 200 ms. The
//! first loop reports its events to the profiler. The second loop's events do not mention the
//! profiler; instead, probes watch that loop. In the profile, both threads have a marker “Jank” of
//! about 200 ms, and their stacks show the reason: one thread computes, the other waits for a lock.
//! The first thread has further “Jank” markers, for events that waited behind the slow one.

use std::error::Error;
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use gekkota::event_delay::{AutoProfilerEvent, EventDelayProbe, profiler_watch_event_loop};
use gekkota::{AutoProfilerInit, ProfilerSession, ProfilerTime, StartParams, ThreadGuard};

const SLOW: Duration = Duration::from_millis(200);
const SHORT: Duration = Duration::from_micros(300);

/// An event of the first loop, with the time at which it was queued.
struct Timed {
    queued_at: ProfilerTime,
    work: Duration,
}

/// An event of the second loop. The profiler adds only `Probe` events.
enum Event {
    Compute(Duration),
    UseDatabase,
    Probe(EventDelayProbe),
    Quit,
}

fn main() -> Result<(), Box<dyn Error>> {
    let _profiler = AutoProfilerInit::new();
    let file = std::env::args_os()
        .nth(1)
        .map_or_else(|| "event_loop.profile.json".into(), PathBuf::from);
    let session = ProfilerSession::start(StartParams::default())?;
    let database = Arc::new(Mutex::new(()));

    let (to_first, first_events) = channel();
    let (to_second, second_events) = channel();
    let first = thread::spawn(move || run_first(&first_events));
    let second = {
        let (database, own_sender) = (Arc::clone(&database), to_second.clone());
        thread::spawn(move || run_second(&second_events, own_sender, &database))
    };

    for number in 0..30 {
        let is_slow = number == 10;
        to_first.send(Timed {
            queued_at: ProfilerTime::now(),
            work: if is_slow { SLOW } else { SHORT },
        })?;
        to_second.send(Event::Compute(SHORT))?;
        if number == 20 {
            // The main thread holds the database lock, so the second loop has to wait for it.
            let _locked = database.lock().unwrap_or_else(PoisonError::into_inner);
            to_second.send(Event::UseDatabase)?;
            thread::sleep(SLOW);
        }
        thread::sleep(Duration::from_millis(20));
    }
    drop(to_first);
    to_second.send(Event::Quit)?;
    for event_loop in [first, second] {
        event_loop.join().map_err(|_| "an event loop panicked")?;
    }

    session.finish()?.save(&file)?;
    println!("wrote {}", file.display());
    println!(
        "open it at https://profiler.firefox.com: the markers “Jank” of the threads “instrumented loop” and “watched loop”"
    );
    Ok(())
}

/// Runs a loop that reports each event to the profiler.
fn run_first(events: &Receiver<Timed>) {
    let _registered = ThreadGuard::register("instrumented loop");
    for Timed { queued_at, work } in events {
        let _event = AutoProfilerEvent::queued_at(queued_at);
        compute(work);
    }
}

/// Runs a loop that the profiler watches with probes: each probe is one more event in its queue.
fn run_second(events: &Receiver<Event>, own_sender: Sender<Event>, database: &Mutex<()>) {
    let _registered = ThreadGuard::register("watched loop");
    let _watch = profiler_watch_event_loop(move |probe| {
        // The send fails once the loop has ended. The probe is then dropped, which ends the watch.
        let _ = own_sender.send(Event::Probe(probe));
    });
    for event in events {
        match event {
            Event::Compute(time) => compute(time),
            Event::UseDatabase => drop(database.lock()),
            Event::Probe(probe) => probe.run(),
            Event::Quit => return,
        }
    }
}

#[inline(never)]
fn compute(time: Duration) {
    let end = Instant::now() + time;
    let mut value = 1u64;
    while Instant::now() < end {
        for _ in 0..1000 {
            value = black_box(
                value
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1),
            );
        }
    }
}
