//! Captures backtraces of the standard library, which unwinds in the same process as the sampler.

use std::backtrace::Backtrace;
use std::hint::black_box;

use crate::crew::Context;
use crate::gate;
use crate::tally;

#[inline(never)]
fn capture_from(depth: u64) -> Backtrace {
    if depth == 0 {
        return Backtrace::force_capture();
    }
    let backtrace = capture_from(depth - 1);
    black_box(&backtrace);
    backtrace
}

pub fn backtrace_worker(context: &mut Context) {
    let mut taken = 0u64;
    while context.goes_on() {
        let backtrace = capture_from(context.random.below(60));
        tally::BACKTRACES.one();
        taken += 1;
        // A backtrace with names costs a thousand times as much.
        if taken % 500 == 1 {
            let name = || gate::without_profiling_forks(|| backtrace.to_string());
            let text = gate::with_descriptors(name);
            assert!(
                text.contains("backtrace_worker"),
                "a backtrace without its root:\n{text}"
            );
            tally::BACKTRACES_NAMED.one();
        }
    }
}
