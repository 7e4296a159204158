//! The memory for copies of large stacks is returned when the thread sleeps or exits, during the
//! session.

use std::hint::black_box;
use std::sync::mpsc;

use crate::common::{isolated, wait_until, work};
use gekkota::{ProfilerSession, StartParams};

/// Memory of a copy, which is the maximum.
const STACK_MIB: u64 = 1;
const THREADS: u64 = 64;
/// Maximum memory of the profile and the sampler itself.
const OTHER_MIB: u64 = 24;

/// Anonymous memory of the process.
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

/// Uses at least [`STACK_MIB`] of stack, and works there until a message arrives.
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
fn memory_of_deep_stacks_is_returned() {
    isolated(|| {
        let spawn = || {
            let (go_on, goes_on) = mpsc::channel();
            let body = move || {
                gekkota::register_thread("uses much stack");
                // Once before the session, so that the stack itself is in memory.
                uses_much_stack(&goes_on);
                goes_on.recv().expect("the session has started");
                uses_much_stack(&goes_on);
                // Sleeps.
                goes_on.recv().expect("the thread may exit");
            };
            let thread = std::thread::Builder::new()
                .stack_size(4 << 20)
                .spawn(body)
                .expect("spawn");
            (go_on, thread)
        };
        let empty = memory_mib();
        let threads: Vec<_> = (0..THREADS).map(|_| spawn()).collect();
        let continue_all = || {
            threads
                .iter()
                .for_each(|(go_on, _)| go_on.send(()).expect("the thread lives"))
        };
        wait_until("the stacks are in memory", || {
            memory_mib() >= empty + THREADS * STACK_MIB
        });
        continue_all();
        let before = memory_mib();
        let params = StartParams::default();
        let session = ProfilerSession::start(params).expect("start");
        continue_all();
        wait_until("the stacks are copied", || {
            memory_mib() >= before + THREADS * STACK_MIB / 2
        });
        let copied = memory_mib();
        continue_all();
        wait_until("the copies are returned while the threads sleep", || {
            memory_mib() <= before + OTHER_MIB
        });
        let asleep = memory_mib();
        continue_all();
        for (_, thread) in threads {
            thread.join().expect("thread");
        }
        let ended = memory_mib();

        // These exit directly after they have used the stack.
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let (go_on, goes_on) = mpsc::channel();
                let body = move || {
                    gekkota::register_thread("exits soon");
                    uses_much_stack(&goes_on);
                };
                (
                    go_on,
                    std::thread::Builder::new()
                        .stack_size(4 << 20)
                        .spawn(body)
                        .expect("spawn"),
                )
            })
            .collect();
        wait_until("these stacks are copied", || {
            memory_mib() >= ended + THREADS * STACK_MIB * 3 / 2
        });
        for (go_on, thread) in threads {
            go_on.send(()).expect("the thread lives");
            thread.join().expect("thread");
        }
        wait_until("the copies are returned after the threads' exit", || {
            memory_mib() <= ended + OTHER_MIB
        });
        println!(
            "{empty} MiB; {before} with the stacks, {copied} with copies, {asleep} asleep; {ended} after the exits, {} after the second ones",
            memory_mib()
        );
        drop(session);
    });
}
