//! Generated code that a runtime lists for `perf` in `/tmp/perf-PID.map` is unwound and named,
//! without a call of the profiler.

use crate::common::{Read, generated_call, isolated, wait_until};
use crate::sampling::places::Place;
use gekkota::{ProfilerSession, StartParams};

const THREAD: &str = "runtime";
/// Number of samples to see through the generated code.
const SAMPLES: usize = 50;
/// Not part of the stacks.
const LABEL: &str = "working";

static WORKING: Place = Place::new(LABEL);

extern "C" fn works_below_generated_code() {
    WORKING.work();
    std::hint::black_box(());
}

/// A file that is removed even if the test fails.
struct MapFile(String);

impl Drop for MapFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn callee_index(stack: &[String]) -> Option<usize> {
    let is_callee = |name: &String| name.contains("works_below_generated_code (in");
    stack.iter().position(is_callee)
}

/// Returns the stacks of the generated code's callee, without its label.
fn stacks(read: &Read) -> impl Iterator<Item = Vec<String>> {
    let samples = read.samples(THREAD).into_iter();
    let stacks = samples.map(|sample| {
        let names = sample.stack.into_iter().filter(|name| name != LABEL);
        names.collect::<Vec<_>>()
    });
    stacks.filter(|stack| callee_index(stack).is_some())
}

/// Returns whether the stack is complete and has the generated code's name.
fn has_name(stack: &[String]) -> bool {
    let caller = callee_index(stack).and_then(|at| at.checked_sub(1));
    caller.is_some_and(|at| stack[at] == "LazyCompile:~f a.js:1 (in [jit])")
        && stack[0] != "(truncated)"
}

#[test]
fn listed_code_has_its_callers_and_its_name() {
    isolated(|| {
        let (memory, call) = generated_call();
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        // Written while the session runs, as runtimes do.
        let file = MapFile(format!("/tmp/perf-{}.map", std::process::id()));
        let line = format!(
            "not a line\n{:x} {:x} LazyCompile:~f a.js:1\n",
            memory.as_ptr() as usize,
            memory.len()
        );
        std::fs::write(&file.0, line).expect("write");
        let thread = std::thread::spawn(move || {
            gekkota::register_thread(THREAD);
            call(works_below_generated_code);
            std::hint::black_box(());
        });
        // The sampler looks at the file ten times a second.
        WORKING.wait_for_samples(THREAD, SAMPLES);
        wait_until("the generated code has its name", || {
            let text = gekkota::profiler_get_profile().expect("a session runs");
            stacks(&Read::from_text(&text))
                .filter(|stack| has_name(stack))
                .count()
                >= SAMPLES
        });
        WORKING.release();
        thread.join().expect("thread");
        let read = Read::from_profile(&session.finish().expect("profile"));

        let (mut unwound, mut others) = (0, 0);
        for stack in stacks(&read) {
            if has_name(&stack) {
                let at = callee_index(&stack).expect("the callee");
                assert!(
                    stack[at - 2].contains("listed_code_has_its_callers"),
                    "{stack:#?}"
                );
                unwound += 1;
            } else {
                assert!(stack[0] == "(truncated)", "{stack:#?}");
                assert_eq!(unwound, 0, "the name is lost: {stack:#?}");
                others += 1;
            }
        }
        println!("{unwound} samples are unwound through the code, {others} are not");
        assert!(unwound >= SAMPLES, "{unwound}");
    });
}
