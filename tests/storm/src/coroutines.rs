//! Switches stacks: coroutines that work between switches, each on its own stack.

use corosensei::{Coroutine, CoroutineResult};

use crate::crew::Context;
use crate::tally;
use crate::work::{mix, mix_deep};

const STEPS: u64 = 60;
const AT_ONCE: u64 = 6;

/// A coroutine and its number of steps.
struct RunningCoroutine {
    coroutine: Coroutine<u64, u64, f64>,
    seed: u64,
    step: u64,
}

fn start(seed: u64) -> RunningCoroutine {
    let coroutine = Coroutine::new(move |yielder, mut input: u64| {
        // These values stay on this stack, and in registers, across switches.
        let mut sum = 0.0;
        for step in 0..STEPS {
            assert_eq!(input, seed ^ step, "the input of a coroutine was corrupted");
            sum += (step as f64).sqrt();
            input = yielder.suspend(mix_deep(seed, 10_000 + step, step % 20));
        }
        sum
    });
    RunningCoroutine {
        coroutine,
        seed,
        step: 0,
    }
}

/// Switches to the coroutine and back. Returns false when it has ended.
fn resume(running: &mut RunningCoroutine) -> bool {
    let RunningCoroutine {
        coroutine,
        seed,
        step,
    } = running;
    let result = coroutine.resume(*seed ^ *step);
    tally::COROUTINE_SWITCHES.add(2);
    match result {
        CoroutineResult::Yield(value) => {
            assert_eq!(
                value,
                mix_deep(*seed, 10_000 + *step, *step % 20),
                "a coroutine returned a wrong result"
            );
            *step += 1;
            true
        }
        CoroutineResult::Return(sum) => {
            assert_eq!(*step, STEPS, "a coroutine ended early");
            let expected: f64 = (0..STEPS)
                .map(|step| (step as f64).sqrt())
                .fold(0.0, |sum, root| sum + root);
            assert_eq!(sum, expected, "the sum of a coroutine was corrupted");
            false
        }
    }
}

pub fn coroutine_worker(context: &mut Context) {
    let mut running: Vec<RunningCoroutine> =
        (0..AT_ONCE).map(|_| start(context.random.next())).collect();
    while context.goes_on() {
        for place in &mut running {
            if !resume(place) {
                *place = start(context.random.next());
            }
        }
        mix(context.random.next(), 100_000);
    }
    // Dropping the coroutines unwinds the unfinished ones.
}
