//! In code without frame pointers, every stack is the exact chain of calls from the thread's start.

use crate::common::{Read, isolated, wait_until, work};
use crate::sampling::places::{Place, is_in};
use gekkota::{AutoProfilerLabel, ProfilerSession, StartParams, gecko_profiler_category};

macro_rules! chain {
    ($($name:ident -> $next:ident,)+) => {
        $(
            #[inline(never)]
            fn $name(rounds: u64) -> u64 {
                // Work before and after the call, so that samples fall into every function of the
                // chain.
                let before = work(rounds);
                let below = $next(rounds.wrapping_add(before & 1));
                before ^ below ^ work(rounds)
            }
        )+
        const CHAIN: &[&str] = &[$(stringify!($name)),+, "f30"];
    };
}

chain! {
    f01 -> f02, f02 -> f03, f03 -> f04, f04 -> f05, f05 -> f06, f06 -> f07, f07 -> f08, f08 -> f09, f09 -> f10,
    f10 -> f11, f11 -> f12, f12 -> f13, f13 -> f14, f14 -> f15, f15 -> f16, f16 -> f17, f17 -> f18, f18 -> f19,
    f19 -> f20, f20 -> f21, f21 -> f22, f22 -> f23, f23 -> f24, f24 -> f25, f25 -> f26, f26 -> f27, f27 -> f28,
    f28 -> f29, f29 -> f30,
}

/// Label of the last function.
const END: &str = "the end of the chain";

#[inline(never)]
fn f30(rounds: u64) -> u64 {
    let _label = AutoProfilerLabel::new(END, gecko_profiler_category!(Other));
    work(20 * rounds)
}

/// The functions of the chain in a stack, as numbers.
fn links(stack: &[String]) -> Vec<usize> {
    let link = |frame: &String| {
        CHAIN
            .iter()
            .position(|name| frame.contains(&format!("::{name} (in ")))
    };
    stack.iter().filter_map(link).collect()
}

const THREAD: &str = "chain";
/// Number of samples to see in the chain, and at its end.
const SAMPLES: usize = 200;
const SAMPLES_AT_THE_END: usize = 20;

static IN_CHAIN: Place = Place::new("in the chain");

#[test]
fn each_stack_is_the_chain_from_the_start_of_the_thread() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let thread = std::thread::spawn(|| {
            gekkota::register_thread(THREAD);
            let mut value = 0;
            IN_CHAIN.repeat(|| value ^= f01(2000));
            value
        });
        IN_CHAIN.wait_for_samples(THREAD, SAMPLES);
        wait_until("the end of the chain is sampled", || {
            let samples = Read::of_running().samples(THREAD);
            let at_the_end = samples.iter().filter(|sample| is_in(sample, END));
            at_the_end.count() >= SAMPLES_AT_THE_END
        });
        IN_CHAIN.release();
        thread.join().expect("thread");
        let read = Read::from_profile(&session.finish().expect("profile"));

        let samples = read.samples(THREAD);
        let in_chain: Vec<_> = samples
            .iter()
            .filter(|sample| !links(&sample.stack).is_empty())
            .collect();
        let mut truncated = 0usize;
        let mut deepest = 0;
        for sample in &in_chain {
            let stack = &sample.stack;
            if stack[0] == "(truncated)" {
                truncated += 1;
                continue;
            }
            let links = links(stack);
            assert_eq!(links, (0..links.len()).collect::<Vec<_>>(), "{stack:#?}");
            let starts_at_the_start =
                stack[0].contains("clone") || stack[0].contains("start_thread");
            assert!(starts_at_the_start, "the first frame is {}", stack[0]);
            assert!(
                stack
                    .iter()
                    .any(|frame| frame.contains("__rust_begin_short_backtrace")),
                "{stack:#?}"
            );
            deepest = deepest.max(links.len());
        }
        let from_outside = read.count("remote_samples") as usize;
        println!(
            "{} samples in the chain, {truncated} truncated, {from_outside} from outside, {deepest} links at most",
            in_chain.len()
        );
        assert!(!in_chain.is_empty());
        assert_eq!(deepest, CHAIN.len());
        // The kernel does not report all registers of a thread that a page fault blocks.
        assert!(
            truncated.saturating_sub(from_outside) * 1000 <= in_chain.len(),
            "{truncated} of {} are truncated",
            in_chain.len()
        );
    });
}
