//! Generated machine code, in memory that belongs to no library, is unwound by its frame pointers
//! and named.

use crate::common::{self, Read, generated_call, isolated, one_loop};
use crate::sampling::places::Place;
use gekkota::jit::profiler_register_code_range;
use gekkota::{ProfilerSession, StartParams};

/// Number of samples to see of each thread.
const SAMPLES: usize = 50;
/// Not part of the chains.
const LABEL: &str = "working";

static WORKING: Place = Place::new(LABEL);

extern "C" fn works_below_generated_code() {
    WORKING.work();
    std::hint::black_box(());
}

#[inline(never)]
fn calls_generated_code(call: common::CallThrough) {
    call(works_below_generated_code);
    std::hint::black_box(());
}

/// Returns the generated code's caller and its own frame, in each sample of its callee, and whether
/// the stack is truncated.
fn chains(read: &Read, thread: &str) -> Vec<(Vec<String>, bool)> {
    let mut chains = Vec::new();
    for sample in read.samples(thread) {
        let names: Vec<_> = sample
            .stack
            .iter()
            .filter(|name| *name != LABEL)
            .map(|name| name.replace("it::unwinding::generated_code::", ""))
            .collect();
        let Some(at) = names
            .iter()
            .position(|name| name.starts_with("works_below_generated_code (in"))
        else {
            continue;
        };
        chains.push((
            names[at.saturating_sub(2)..at].to_vec(),
            names[0] == "(truncated)",
        ));
    }
    assert!(chains.len() >= SAMPLES, "{} samples", chains.len());
    chains
}

#[test]
fn registered_generated_code_has_its_callers_and_its_name() {
    isolated(|| {
        let (memory, call) = generated_call();
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let run = |name: &'static str| {
            let thread = std::thread::spawn(move || {
                gekkota::register_thread(name);
                calls_generated_code(call);
            });
            WORKING.release_after(name, SAMPLES);
            thread.join().expect("thread");
            // The sampler has read what the thread captured, while the names are as they were.
            one_loop();
        };
        let range = profiler_register_code_range(memory.as_ptr(), memory.len(), "made (by a test)");
        run("registered");
        let while_registered = session.snapshot().expect("active");
        drop(range);
        run("unregistered");
        let newer = profiler_register_code_range(memory.as_ptr(), memory.len(), "made anew");
        run("anew");
        drop(newer);
        let read = Read::from_profile(&session.finish().expect("profile"));

        let here = |chain: &[String]| chain[0].starts_with("calls_generated_code (in it-");
        for (chain, truncated) in chains(&Read::from_profile(&while_registered), "registered") {
            assert!(!truncated && here(&chain), "{chain:?}");
            assert_eq!(chain[1], "made (by a test) (in [jit])");
        }
        // All samples at an address have its newest name, even after the range was unregistered.
        for thread in ["registered", "anew"] {
            for (chain, truncated) in chains(&read, thread) {
                assert!(!truncated && here(&chain), "{chain:?}");
                assert_eq!(chain[1], "made anew (in [jit])");
            }
        }
        for (chain, truncated) in chains(&read, "unregistered") {
            assert!(
                truncated,
                "the code is unknown, so no frame follows it: {chain:?}"
            );
            assert!(
                !chain
                    .iter()
                    .any(|name| name.contains("calls_generated_code")),
                "{chain:?}"
            );
        }
    });
}

#[test]
fn names_of_unregistered_code_beyond_their_share_are_lost_and_counted() {
    const RANGES: u64 = 10_000;
    isolated(|| {
        // All unregistered code may take 16 KiB.
        let params = StartParams::default().capacity_bytes(256 << 10);
        let session = ProfilerSession::start(params).expect("start");
        for number in 0..RANGES {
            let start = std::ptr::without_provenance(0x10_0000 + 256 * number as usize);
            drop(profiler_register_code_range(start, 200, "a function"));
        }
        let lost = |read: &Read| read.0["meta"]["losses"]["lost_code_names"].as_u64();
        let read = Read::from_profile(&session.snapshot().expect("active"));
        assert!(
            lost(&read).is_some_and(|lost| (RANGES - 200..RANGES).contains(&lost)),
            "{:?}",
            lost(&read)
        );
        drop(session);
        // The names of another session are not its loss.
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let read = Read::from_profile(&session.finish().expect("profile"));
        assert_eq!(lost(&read), Some(0));
    });
}
