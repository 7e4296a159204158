//! Runs event loops: events within events, ended in the wrong order or not at all; probes that are answered, thrown away, or met
//! by a panic.

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use gekkota::ProfilerTime;
use gekkota::event_delay::{
    AutoProfilerEvent, EventDelayProbe, EventLoopWatch, profiler_watch_event_loop,
};

use crate::crew::Context;
use crate::tally;
use crate::work::mix;

/// The kind of workers whose samples tell of an event loop; nobody else's may.
pub const KIND: &str = "loop";

/// An event is said to have waited for so long at most.
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

/// Ended out of order, and one not at all; the outer one takes them all with it.
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
                "an event computed wrongly"
            );
            mix_up();
        }
        // The loop waits for what is next.
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
