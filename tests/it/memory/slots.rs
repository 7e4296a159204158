//! The memory that is set aside for the captures of registered threads.

use std::sync::Barrier;

use super::ONE_ARENA;
use crate::common::isolated_with;

const THREADS: u64 = 200;
/// Maximum of memory that a registered thread takes before it is sampled, in bytes: its slot with
/// labels, texts and the first part of the stack, and an alternate signal stack.
const MAX_THREAD_BYTES: u64 = 300 << 10;

/// Sum of the profiler's writable mappings, in bytes: those of which the kernel reserves nothing
/// (`nr`). With `vm.overcommit_memory=2` it reserves all of them, and none has that flag.
fn writable_bytes() -> u64 {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("the mappings");
    let (mut sum, mut bytes) = (0, 0);
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("VmFlags:") => {
                let flags: Vec<_> = words.collect();
                let is_ours = flags.contains(&"wr") && flags.contains(&"nr");
                sum += if is_ours { bytes } else { 0 };
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
        let before = writable_bytes();
        let registered = std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    gekkota::register_thread("waits");
                    barrier.wait();
                    barrier.wait();
                });
            }
            barrier.wait();
            let registered = writable_bytes();
            barrier.wait();
            registered
        });
        let thread_bytes = (registered - before) / THREADS;
        println!("{thread_bytes} bytes for each thread");
        let mode = std::fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap_or_default();
        assert!(thread_bytes > 0 || mode.trim() == "2", "mode {mode}");
        assert!(thread_bytes <= MAX_THREAD_BYTES);
    });
}
