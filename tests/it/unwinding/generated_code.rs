//! Machine code that the program made, in memory that belongs to no library, is followed by its frame pointers and named.

use std::time::Duration;

use crate::common::{self, Read, generated_call, isolated, work_for_cpu};
use gekkota::jit::profiler_register_code_range;
use gekkota::{ProfilerSession, StartParams};

extern "C" fn works_below_generated_code() {
    work_for_cpu(Duration::from_millis(300));
    std::hint::black_box(());
}

#[inline(never)]
fn calls_generated_code(call: common::CallThrough) {
    call(works_below_generated_code);
    std::hint::black_box(());
}

/// The frames from the caller of the generated code on, less what the callee calls.
fn chains(read: &Read, thread: &str) -> Vec<(Vec<String>, bool)> {
    let mut chains = Vec::new();
    for sample in read.samples(thread) {
        let names: Vec<_> = sample
            .stack
            .iter()
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
    assert!(chains.len() > 50, "{} samples", chains.len());
    chains
}

#[test]
fn generated_code_has_its_callers_and_its_name_while_it_is_registered() {
    isolated(|| {
        let (memory, call) = generated_call();
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let run = |name: &'static str| {
            std::thread::spawn(move || {
                gekkota::register_thread(name);
                calls_generated_code(call);
            })
            .join()
            .expect("thread");
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
        // The newest name of an address is that of all samples in it, also when its range is gone.
        for thread in ["registered", "anew"] {
            for (chain, truncated) in chains(&read, thread) {
                assert!(!truncated && here(&chain), "{chain:?}");
                assert_eq!(chain[1], "made anew (in [jit])");
            }
        }
        for (chain, truncated) in chains(&read, "unregistered") {
            assert!(
                truncated,
                "nobody vouches for the code, so no frame is made up: {chain:?}"
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
