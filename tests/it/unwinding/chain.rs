//! Every stack is the exact chain of calls, down to the thread's start, in code without frame pointers.

use std::time::{Duration, Instant};

use crate::common::{Read, isolated, work};
use gekkota::{ProfilerSession, StartParams};

macro_rules! chain {
    ($($name:ident -> $next:ident,)+) => {
        $(
            #[inline(never)]
            fn $name(rounds: u64) -> u64 {
                // Work before and after the call, so that samples fall into every function of the chain.
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

#[inline(never)]
fn f30(rounds: u64) -> u64 {
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

#[test]
fn each_stack_is_the_chain_from_the_threads_start() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let thread = std::thread::spawn(|| {
            gekkota::register_thread("chain");
            let end = Instant::now() + Duration::from_secs(5);
            let mut value = 0;
            while Instant::now() < end {
                value ^= f01(2000);
            }
            value
        });
        thread.join().expect("thread");
        let read = Read::from_profile(&session.finish().expect("profile"));

        let samples = read.samples("chain");
        let in_chain: Vec<_> = samples
            .iter()
            .filter(|sample| !links(&sample.stack).is_empty())
            .collect();
        assert!(
            in_chain.len() > 500,
            "{} of {} samples are in the chain",
            in_chain.len(),
            samples.len()
        );
        let mut truncated = 0;
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
        println!(
            "{} samples in the chain, {truncated} truncated, {deepest} links at most",
            in_chain.len()
        );
        assert_eq!(deepest, CHAIN.len());
        assert!(
            truncated * 1000 <= in_chain.len(),
            "{truncated} of {} are truncated",
            in_chain.len()
        );
    });
}
