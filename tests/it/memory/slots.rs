//! The memory that is set aside for the captures of registered threads.

use std::sync::Barrier;

use super::ONE_ARENA;
use crate::common::isolated_with;

const THREADS: u64 = 200;
/// Maximum of memory that a registered thread takes before it is sampled, in bytes: its slot with
/// labels, texts and the first part of the stack, and an alternate signal stack.
const MAX_THREAD_BYTES: u64 = 300 << 10;

/// Minimum: less would not hold the first 64 KiB of a stack, and would prove that the mappings are
/// not found.
const MIN_THREAD_BYTES: u64 = 64 << 10;

/// Sum of all writable mappings, in bytes. No flag tells the profiler's from others: the kernel
/// reserves nothing for them (`nr`), but not with `vm.overcommit_memory=2`.
fn writable_bytes() -> u64 {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("the mappings");
    let (mut sum, mut bytes) = (0, 0);
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("VmFlags:") => {
                sum += if words.any(|flag| flag == "wr") {
                    bytes
                } else {
                    0
                };
            }
            Some("Size:") => {
                let size = words.next().and_then(|size| size.parse::<u64>().ok());
                bytes = size.expect("a size") * 1024;
            }
            _ => {}
        }
    }
    sum
}

#[test]
fn registered_thread_takes_little_memory_before_it_is_sampled() {
    // glibc sets memory aside for each arena, too.
    isolated_with(&[ONE_ARENA], || {
        let barrier = Barrier::new(THREADS as usize + 1);
        let (before, registered) = std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    barrier.wait();
                    barrier.wait();
                    gekkota::register_thread("waits");
                    barrier.wait();
                    barrier.wait();
                });
            }
            barrier.wait();
            // The threads have their own stacks by now.
            let before = writable_bytes();
            barrier.wait();
            barrier.wait();
            let registered = writable_bytes();
            barrier.wait();
            (before, registered)
        });
        let thread_bytes = (registered - before) / THREADS;
        println!("{thread_bytes} bytes for each thread");
        let expected = MIN_THREAD_BYTES..=MAX_THREAD_BYTES;
        assert!(expected.contains(&thread_bytes), "{thread_bytes}");
    });
}
