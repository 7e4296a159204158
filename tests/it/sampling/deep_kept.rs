//! The memory that copies of large stacks took is given back when the thread rests or ends, while the session goes on.

use std::hint::black_box;
use std::sync::mpsc;

use crate::common::{isolated, wait_until, work};
use gekkota::{ProfilerSession, SamplingEngine, StartParams};

const STACK_MIB: u64 = 50;
const THREADS: u64 = 3;
/// What the profile and the sampler itself may take meanwhile.
const OTHER_MIB: u64 = 24;

/// Memory of the process that is in no file.
fn memory_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))
        .expect("RssAnon");
    line.trim()
        .trim_end_matches(" kB")
        .parse::<u64>()
        .expect("a number")
        / 1024
}

/// Uses so much stack, and works there until it is told to go on.
#[inline(never)]
fn uses_much_stack(goes_on: &mpsc::Receiver<()>) {
    let stack = [1u8; (STACK_MIB as usize) << 20];
    black_box(&stack);
    while goes_on.try_recv() == Err(mpsc::TryRecvError::Empty) {
        work(1000);
    }
    black_box(&stack);
}

#[test]
fn what_deep_stacks_took_is_given_back() {
    isolated(|| {
        let spawn = || {
            let (go_on, goes_on) = mpsc::channel();
            let body = move || {
                gekkota::register_thread("uses much stack");
                // Once before the session, so that the stack itself is there.
                uses_much_stack(&goes_on);
                goes_on.recv().expect("the session has begun");
                uses_much_stack(&goes_on);
                // It rests.
                goes_on.recv().expect("it is to end");
            };
            let thread = std::thread::Builder::new()
                .stack_size(62 << 20)
                .spawn(body)
                .expect("spawn");
            (go_on, thread)
        };
        let empty = memory_mib();
        let threads: Vec<_> = (0..THREADS).map(|_| spawn()).collect();
        let tell_all = || {
            threads
                .iter()
                .for_each(|(go_on, _)| go_on.send(()).expect("it lives"))
        };
        wait_until("the stacks are there", || {
            memory_mib() >= empty + THREADS * STACK_MIB
        });
        tell_all();
        let before = memory_mib();
        let params = StartParams::default().engine(SamplingEngine::Signals);
        let session = ProfilerSession::start(params).expect("start");
        tell_all();
        wait_until("the stacks are copied", || {
            memory_mib() >= before + THREADS * STACK_MIB / 2
        });
        let copied = memory_mib();
        tell_all();
        wait_until("the copies are given back at a rest", || {
            memory_mib() <= before + OTHER_MIB
        });
        let at_rest = memory_mib();
        tell_all();
        for (_, thread) in threads {
            thread.join().expect("thread");
        }
        let ended = memory_mib();

        // These end from down there.
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let (go_on, goes_on) = mpsc::channel();
                let body = move || {
                    gekkota::register_thread("ends soon");
                    uses_much_stack(&goes_on);
                };
                (
                    go_on,
                    std::thread::Builder::new()
                        .stack_size(62 << 20)
                        .spawn(body)
                        .expect("spawn"),
                )
            })
            .collect();
        wait_until("these are copied", || {
            memory_mib() >= ended + THREADS * STACK_MIB * 3 / 2
        });
        for (go_on, thread) in threads {
            go_on.send(()).expect("it lives");
            thread.join().expect("thread");
        }
        wait_until("the copies are given back at the end", || {
            memory_mib() <= ended + OTHER_MIB
        });
        println!(
            "{empty} MiB; {before} with the stacks, {copied} with copies, {at_rest} at rest; ended {ended}, and again {}",
            memory_mib()
        );
        drop(session);
    });
}
