//! Where one library takes the place of another, nobody's time is shown under the other's name: not what was captured of
//! the first and unwound when the second was there already, and not what was sampled long before.
#![cfg(all(has_profiler, target_arch = "x86_64"))]

mod common;

#[path = "accuracy/c_code.rs"]
#[allow(dead_code, reason = "this test uses its part of it")]
mod c_code;

use std::path::Path;
use std::time::Duration;

use common::{Read, work_for};
use gekkota::{ProfilerSession, StartParams};

/// The same code under another name, at the same place.
const SOURCE: &str = "
__attribute__((noinline)) unsigned long NAME(unsigned long rounds) {
    volatile unsigned long value = rounds;
    while (rounds-- > 0) value = value * 31 + rounds;
    return value;
}
unsigned long enter(unsigned long rounds) { return NAME(rounds) + 1; }
";
/// What was captured on a tick is unwound on the next: within this, the library is gone.
const INTERVAL: Duration = Duration::from_millis(40);
const ROUNDS: usize = 12;

/// Loads it, has it work for about two intervals, and unloads it; gives where it was.
fn load_and_work(path: &Path, rounds: u64) -> usize {
    let library = c_code::Library::load(path);
    library.function("enter")(rounds);
    let place = library.address("enter") as usize;
    library.close();
    place
}

/// Loads it and has it do nothing.
fn load_and_wait(path: &Path) -> usize {
    let library = c_code::Library::load(path);
    work_for(INTERVAL * 3 / 2);
    let place = library.address("enter") as usize;
    library.close();
    place
}

#[test]
fn a_librarys_time_is_never_shown_as_that_of_the_one_that_took_its_place() {
    let folder = c_code::Folder::new();
    let compile = |name: &str| {
        let defined = format!("-DNAME={name}");
        c_code::compile(&folder, name, SOURCE, &["-O1", &defined])
    };
    let (works, idles) = (compile("does_the_work"), compile("does_no_work"));
    // How long it takes on this machine.
    let begin = std::time::Instant::now();
    load_and_work(&works, 10_000_000);
    let in_two_intervals =
        (10_000_000.0 * 2.0 * INTERVAL.as_secs_f64() / begin.elapsed().as_secs_f64()) as u64;

    let session = ProfilerSession::start(StartParams::default().interval(INTERVAL)).expect("start");
    let thread = std::thread::spawn(move || {
        gekkota::register_thread("swaps");
        let swap = |_| {
            let place = load_and_work(&works, in_two_intervals);
            (place == load_and_wait(&idles)) as usize
        };
        (0..ROUNDS).map(swap).sum::<usize>()
    });
    let same_place = thread.join().expect("thread");
    let read = Read::from_profile(&session.finish().expect("profile"));
    assert!(same_place > 0, "the loader never put the second where the first was");

    let samples = read.samples("swaps");
    let of = |name: &str| {
        samples.iter().filter(|sample| sample.stack.iter().any(|frame| frame.contains(name))).count()
    };
    let cut = samples.iter().filter(|sample| sample.stack[0] == "(truncated)").count();
    println!(
        "{same_place} of {ROUNDS} swaps in place: {} samples, {} in the first library, {} in the second, {cut} cut",
        samples.len(),
        of("libdoes_the_work.so"),
        of("does_no_work"),
    );
    assert_eq!(of("does_no_work"), 0, "{samples:?}");
    assert!(of("libdoes_the_work.so+0x") > 0, "{samples:?}");
    // The last capture of every turn.
    assert!(cut >= same_place / 2, "{cut} were captured of one and unwound beside the other: {samples:?}");
}
