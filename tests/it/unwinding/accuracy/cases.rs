//! The cases: each compares stacks of one kind of code with the truth.

use std::ffi::c_char;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::c_code::{Folder, Library, compile};
use super::driver::{Learned, Sampling, row, sample, session, session_every, step_through};
use super::exceptions::throw_and_catch;
use super::rust_code::FUNCTIONS;
use super::stepper;
use super::table::{Bar, Row, Table};

/// Minimum CPU time of a sampled case.
const SAMPLED_CPU: Duration = Duration::from_millis(200);
/// Minimum number of judged samples of a sampled case.
const LEAST_SAMPLES: usize = 50;
const SAMPLING: Sampling = Sampling {
    cpu: SAMPLED_CPU,
    samples: 2 * LEAST_SAMPLES as u64,
};

pub(crate) fn all(table: &mut Table) {
    let folder = Folder::new();
    each_instruction_of_rust(table);
    each_instruction_of_c(table, &folder);
    stubs_of_the_linker(table, &folder);
    the_clock(table);
    copying(table);
    sorting(table);
    a_library_loaded_later(table, &folder);
    handlers_of_signals(table);
    deep_stacks(table);
}

fn each_instruction_of_rust(table: &mut Table) {
    for (name, function) in FUNCTIONS {
        let mut row = row(&format!("Rust: {name}"));
        step_through(&mut row, &mut || function(black_box(7)));
        table.add(row, 30);
    }
}

const FIXTURES: &str = include_str!("fixtures.c");

fn each_instruction_of_c(table: &mut Table, folder: &Folder) {
    let variants: &[(&str, Bar, &[&str])] = &[
        (
            "O2-omit-frame-pointer",
            Bar::Exact,
            &["-O2", "-fomit-frame-pointer"],
        ),
        (
            "O2-frame-pointer",
            Bar::Exact,
            &["-O2", "-fno-omit-frame-pointer"],
        ),
        ("O0", Bar::Exact, &["-O0"]),
        (
            "O2-stack-clash-protection",
            Bar::Exact,
            &["-O2", "-fstack-clash-protection", "-fomit-frame-pointer"],
        ),
        ("Os", Bar::Exact, &["-Os"]),
        (
            "O2-no-unwind-tables",
            Bar::ExactOrTruncated,
            &[
                "-O2",
                "-fno-asynchronous-unwind-tables",
                "-fno-unwind-tables",
            ],
        ),
        (
            "O2-frame-pointer-no-unwind-tables",
            Bar::ExactOrTruncated,
            &[
                "-O2",
                "-fno-omit-frame-pointer",
                "-fno-asynchronous-unwind-tables",
                "-fno-unwind-tables",
            ],
        ),
    ];
    for (name, bar, flags) in variants {
        let all = Library::load(&compile(folder, name, FIXTURES, flags)).function("acc_all");
        // Another case tests the linker's work on the first call.
        black_box(all(7));
        let mut row = Row::new(format!("C: {name}"), *bar);
        step_through(&mut row, &mut || _ = black_box(all(black_box(7))));
        table.add(row, 500);
    }
}

/// The first call of each function goes through the dynamic linker, which looks the function up.
/// Later calls go only through the stub.
fn stubs_of_the_linker(table: &mut Table, folder: &Folder) {
    let library = compile(folder, "lazy", FIXTURES, &["-O2", "-fplt", "-Wl,-z,lazy"]);
    let library = Library::load(&library);
    let mut first = row("PLT: first calls, through the linker");
    // Functions one by one, because one run keeps a limited number of steps.
    for name in ["acc_small", "acc_tail_call", "acc_recursive", "acc_all"] {
        let function = library.function(name);
        step_through(&mut first, &mut || _ = black_box(function(black_box(7))));
    }
    table.add(first, 2000);
    let all = library.function("acc_all");
    let mut later = row("PLT: later calls");
    step_through(&mut later, &mut || _ = black_box(all(black_box(7))));
    table.add(later, 500);

    let calls_libc = library.calls_libc();
    let from = [b'x'; 300];
    let mut to = [0u8; 301];
    let mut call = || {
        let to = to.as_mut_ptr().cast::<c_char>();
        _ = black_box(calls_libc(to, from.as_ptr().cast(), black_box(300)));
    };
    call();
    let mut row = row("PLT: into libc's memcpy and strlen");
    step_through(&mut row, &mut call);
    table.add(row, 50);
}

#[inline(never)]
fn read_clocks(times: u64) {
    for _ in 0..times {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the time is a local.
        unsafe { libc::clock_gettime(black_box(libc::CLOCK_MONOTONIC), &mut time) };
        black_box(&time);
    }
}

fn the_clock(table: &mut Table) {
    let times = AtomicU64::new(2);
    let mut body = || read_clocks(times.load(Ordering::Relaxed));
    let mut stepped = row("vDSO: each instruction of clock_gettime");
    let learned = step_through(&mut stepped, &mut body);
    table.add(stepped, 50);
    times.store(10_000, Ordering::Relaxed);
    let mut sampled = row("vDSO: clock_gettime, sampled at 10 kHz");
    sample(&mut sampled, session(), &learned, SAMPLING, &mut body);
    table.add(sampled, LEAST_SAMPLES);
}

#[inline(never)]
fn copy_blocks(from: &[u8], to: &mut [u8], times: u64) {
    for _ in 0..times {
        let (from, to) = (black_box(from), black_box(&mut *to));
        // SAFETY: the length fits both buffers, which do not overlap.
        unsafe {
            libc::memcpy(
                to.as_mut_ptr().cast(),
                from.as_ptr().cast(),
                from.len().min(to.len()),
            )
        };
    }
}

fn copying(table: &mut Table) {
    let from = vec![7u8; 4 << 20];
    let mut to = vec![0u8; 4 << 20];
    let length = AtomicU64::new(0);
    let mut body = || {
        let bytes = length.load(Ordering::Relaxed) as usize;
        copy_blocks(&from[..bytes], &mut to[..bytes], black_box(2));
    };
    let mut stepped = row("libc: each instruction of memcpy");
    let mut learned = Learned::default();
    for bytes in [1, 20, 100, 500, 1500] {
        length.store(bytes, Ordering::Relaxed);
        learned.add(step_through(&mut stepped, &mut body));
    }
    table.add(stepped, 200);
    length.store(4 << 20, Ordering::Relaxed);
    let mut sampled = row("libc: memcpy of 4 MiB, sampled at 10 kHz");
    sample(&mut sampled, session(), &learned, SAMPLING, &mut body);
    table.add(sampled, LEAST_SAMPLES);
}

extern "C" fn compare(one: *const libc::c_void, other: *const libc::c_void) -> i32 {
    // SAFETY: `qsort` passes pointers into its array of `u32`.
    let (one, other) = unsafe { (*one.cast::<u32>(), *other.cast::<u32>()) };
    black_box(one).cmp(&black_box(other)) as i32
}

/// Sorts the same numbers each time.
#[inline(never)]
fn sort_numbers(times: u64) {
    for _ in 0..times {
        let mut numbers = [0u32; 60];
        let mut number = 12_345u32;
        for place in &mut numbers {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *place = number;
        }
        // SAFETY: the array has this length and element size, and `compare` reads `u32`.
        unsafe {
            libc::qsort(
                numbers.as_mut_ptr().cast(),
                numbers.len(),
                size_of::<u32>(),
                Some(compare),
            )
        };
        black_box(&numbers);
    }
}

fn sorting(table: &mut Table) {
    let times = AtomicU64::new(1);
    let mut body = || sort_numbers(times.load(Ordering::Relaxed));
    let mut stepped = row("libc: each instruction of qsort");
    let learned = step_through(&mut stepped, &mut body);
    table.add(stepped, 2000);
    times.store(100, Ordering::Relaxed);
    let mut sampled = row("libc: qsort with a call-back, sampled");
    sample(&mut sampled, session(), &learned, SAMPLING, &mut body);
    table.add(sampled, LEAST_SAMPLES);
}

#[inline(never)]
extern "C" fn spin(rounds: u64) {
    for round in 0..rounds {
        black_box(round);
    }
}

fn a_library_loaded_later(table: &mut Table, folder: &Folder) {
    let library = compile(folder, "later", FIXTURES, &["-O2", "-fomit-frame-pointer"]);
    let session = session();
    let calls_back = Library::load(&library).calls_back();
    calls_back(spin, 1);
    let rounds = AtomicU64::new(5);
    let mut body = || calls_back(spin, rounds.load(Ordering::Relaxed));
    let mut stepped = row("a library loaded in the session, stepped");
    let learned = step_through(&mut stepped, &mut body);
    table.add(stepped, 20);
    rounds.store(100_000, Ordering::Relaxed);
    let mut sampled = row("a library loaded in the session, sampled");
    sample(&mut sampled, session, &learned, SAMPLING, &mut body);
    table.add(sampled, LEAST_SAMPLES);
}

extern "C" fn host_handler(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // Samples show the whole handler, and stepping only the call of `spin`. So the handler must
    // call nothing else while it is sampled, not even to drop a local.
    let is_stepped = stepper::is_stepping();
    if black_box(is_stepped) {
        // SAFETY: the kernel passes a valid context to the handler.
        stepper::enter_handler(unsafe { &*context.cast() });
        stepper::start();
    }
    spin(black_box(if is_stepped { 5 } else { 200_000 }));
    if black_box(is_stepped) {
        stepper::stop();
        stepper::leave_handler();
    }
}

#[inline(never)]
fn raises() {
    // SAFETY: the signal's handler is installed.
    unsafe { libc::raise(black_box(libc::SIGUSR1)) };
}

fn handlers_of_signals(table: &mut Table) {
    handler_of_signal(
        table,
        "a signal handler on the thread's stack",
        Bar::Exact,
        0,
    );

    let mut memory = vec![0u8; 256 << 10];
    let stack = libc::stack_t {
        ss_sp: memory.as_mut_ptr().cast(),
        ss_flags: 0,
        ss_size: memory.len(),
    };
    // SAFETY: the memory lives until the stack is removed below.
    let answer = unsafe { libc::sigaltstack(&stack, std::ptr::null_mut()) };
    assert_eq!(answer, 0);
    let bar = Bar::ExactOrTruncated;
    handler_of_signal(
        table,
        "a signal handler on a stack of its own",
        bar,
        libc::SA_ONSTACK,
    );
    let none = libc::stack_t {
        ss_sp: std::ptr::null_mut(),
        ss_flags: libc::SS_DISABLE,
        ss_size: 0,
    };
    // SAFETY: nothing runs on that stack.
    assert_eq!(unsafe { libc::sigaltstack(&none, std::ptr::null_mut()) }, 0);
}

fn handler_of_signal(table: &mut Table, case: &str, bar: Bar, flags: i32) {
    stepper::install_handler(libc::SIGUSR1, flags, host_handler);
    let mut stepped = Row::new(case, bar);
    let learned = step_through(&mut stepped, &mut raises);
    table.add(stepped, 50);
    let mut sampled = Row::new(format!("{case}, sampled"), bar);
    sample(&mut sampled, session(), &learned, SAMPLING, &mut raises);
    table.add(sampled, LEAST_SAMPLES);
}

/// Recurses with a frame of 64 KiB for each call.
#[inline(never)]
fn recursive_with_large_frames(depth: u64) -> u64 {
    let mut memory = std::mem::MaybeUninit::<[u64; 8192]>::uninit();
    let first = memory.as_mut_ptr().cast::<u64>();
    // SAFETY: the pointer is to the first element of the array.
    unsafe { first.write(depth) };
    black_box(first);
    let below = if depth == 0 {
        spins_at_the_bottom()
    } else {
        recursive_with_large_frames(depth - 1)
    };
    // SAFETY: the element was written above.
    black_box(below) + unsafe { first.read() }
}

#[inline(never)]
fn spins_at_the_bottom() -> u64 {
    spin(black_box(SPIN_AT_THE_BOTTOM.load(Ordering::Relaxed)));
    1
}

static SPIN_AT_THE_BOTTOM: AtomicU64 = AtomicU64::new(3);

#[inline(never)]
fn recursive_and_spins(depth: u64) -> u64 {
    if depth == 0 {
        spins_at_the_bottom()
    } else {
        black_box(recursive_and_spins(depth - 1)) + 1
    }
}

pub(crate) fn exceptions(table: &mut Table) {
    // The first one binds functions and initializes libgcc.
    throw_and_catch();
    let mut row = Row::new("an exception, raised and caught", Bar::MostlyExact);
    step_through(&mut row, &mut throw_and_catch);
    table.add(row, 2000);
}

type Recursive = fn(u64) -> u64;

/// Depth at which a recursion is stepped through.
const SHALLOW: u64 = 4;

/// Interval between the samples of deep stacks. While the thread waits for a processor, its sample
/// is repeated on each tick, and the test reads every repetition. On a busy machine, a shorter
/// interval takes gigabytes.
const DEEP_INTERVAL: Duration = Duration::from_millis(1);

fn deep_stacks(table: &mut Table) {
    let deep: [(&str, Recursive, u64); 2] = [
        ("10,000 calls deep", recursive_and_spins, 10_000),
        (
            // At most 1 MiB is copied.
            "over 768 KiB of stack in use",
            recursive_with_large_frames,
            12,
        ),
    ];
    for (name, function, depth) in deep {
        SPIN_AT_THE_BOTTOM.store(3, Ordering::Relaxed);
        let mut stepped = row(&format!("recursion, stepped, then {name}"));
        let calls = AtomicU64::new(SHALLOW);
        let mut body = || _ = black_box(function(calls.load(Ordering::Relaxed)));
        let learned = step_through(&mut stepped, &mut body);
        table.add(stepped, 50);
        SPIN_AT_THE_BOTTOM.store(500_000, Ordering::Relaxed);
        let learned = learned.with_recursion(SHALLOW as usize, depth as usize);
        let mut sampled = row(&format!("{name}, sampled"));
        calls.store(depth, Ordering::Relaxed);
        let session = session_every(DEEP_INTERVAL);
        sample(&mut sampled, session, &learned, SAMPLING, &mut body);
        table.add(sampled, LEAST_SAMPLES);
    }
}
