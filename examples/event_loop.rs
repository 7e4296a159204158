//! Shows when an event loop keeps its events waiting.
//!
//! ```text
//! cargo run --release --example event_loop [-- FILE]
//! ```
//!
//! Two threads have event loops, of which each runs one event that takes 200 ms among many short ones. The first tells the
//! profiler of its events; the second knows nothing of it, and is watched by probes. In the profile both have a marker
//! “Jank” of about that length, and their stacks tell why: one computes, the other waits for a lock. The first has some more,
//! of events that had to wait behind the slow one.

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

/// The first loop's events carry the time at which they were queued.
struct Timed {
    queued_at: ProfilerTime,
    work: Duration,
}

/// The second loop's are as they always were, and there is one more.
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
            // Somebody else uses the database just now.
            let _used = database.lock().unwrap_or_else(PoisonError::into_inner);
            to_second.send(Event::UseDatabase)?;
            thread::sleep(SLOW);
        }
        thread::sleep(Duration::from_millis(20));
    }
    drop(to_first);
    to_second.send(Event::Quit)?;
    for event_loop in [first, second] {
        event_loop.join().map_err(|_| "a loop has panicked")?;
    }

    session.finish()?.save(&file)?;
    println!("wrote {}", file.display());
    println!(
        "open it at https://profiler.firefox.com: the markers “Jank” of the threads “telling loop” and “watched loop”"
    );
    Ok(())
}

/// A loop that tells the profiler of its events.
fn run_first(events: &Receiver<Timed>) {
    let _registered = ThreadGuard::register("telling loop");
    for Timed { queued_at, work } in events {
        let _event = AutoProfilerEvent::queued_at(queued_at);
        compute(work);
    }
}

/// A loop that hands probes on to itself.
fn run_second(events: &Receiver<Event>, own_sender: Sender<Event>, database: &Mutex<()>) {
    let _registered = ThreadGuard::register("watched loop");
    let _watch = profiler_watch_event_loop(move |probe| {
        // Once the loop has ended it comes back, and is dropped: the watch is over then.
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
