//! Runs event loops. Events are nested, end in the wrong order or never end. Probes are answered,
//! dropped or cause a panic.

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use gekkota::ProfilerTime;
use gekkota::event_delay::{
    AutoProfilerEvent, EventDelayProbe, EventLoopWatch, profiler_watch_event_loop,
};

use crate::crew::Context;
use crate::tally;
use crate::work::mix;

/// The only kind of worker whose samples may have event delays.
pub const KIND: &str = "loop";

/// Maximum reported wait of an event, in µs.
const MOST_QUEUED_US: u64 = 5000;

#[inline(never)]
fn nest(depth: u64, random: &mut crate::random::Random) -> u64 {
    let waited_us = random.below(MOST_QUEUED_US) as f64;
    let _event = AutoProfilerEvent::queued_at(ProfilerTime::now().subtract_microseconds(waited_us));
    tally::EVENTS.one();
    if depth == 0 {
        mix(7, 20_000)
    } else {
        nest(depth - 1, random) ^ depth
    }
}

/// Ends events out of order, and one never. The end of the outer event ends all of them.
fn mix_up() {
    let _outer = AutoProfilerEvent::new();
    let first = AutoProfilerEvent::new();
    let second = AutoProfilerEvent::new();
    drop(first);
    drop(second);
    std::mem::forget(AutoProfilerEvent::new());
    tally::EVENTS.add(4);
    mix(9, 20_000);
}

fn watch(sender: &Sender<EventDelayProbe>, panics: bool) -> EventLoopWatch {
    let sender = sender.clone();
    profiler_watch_event_loop(move |probe| {
        if panics {
            crate::panics::throw();
        }
        let _ = sender.send(probe);
    })
}

pub fn loop_worker(context: &mut Context) {
    let (sender, probes) = channel();
    let mut watches = vec![watch(&sender, false)];
    while context.goes_on() {
        for _ in 0..10 {
            let depth = context.random.below(12);
            let expected = (1..=depth).fold(mix(7, 20_000), |value, depth| value ^ depth);
            assert_eq!(
                nest(depth, &mut context.random),
                expected,
                "an event returned a wrong result"
            );
            mix_up();
        }
        // The loop waits for the next probe.
        if let Ok(probe) = probes.recv_timeout(Duration::from_millis(1)) {
            tally::PROBES.one();
            if context.random.once_in(8) {
                drop(probe)
            } else {
                probe.run()
            }
        }
        if context.random.once_in(8) {
            watches.truncate(context.random.below(3) as usize);
            watches.push(watch(&sender, context.random.once_in(4)));
        }
    }
}
