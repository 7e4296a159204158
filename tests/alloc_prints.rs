//! What code prints on the sampler's thread, as an allocator, a sanitizer or a panic does, reaches
//! standard error while the program has that.
#![cfg(has_profiler)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use gekkota::callback::profiler_callback_after_sampling;
use gekkota::{ProfilerSession, StartParams};

const LINE: &[u8] = b"printed on the sampler's thread\n";
const ROLE: &str = "GEKKOTA_TEST_ROLE";

/// Whether the next allocation of the sampler prints.
static MAY_PRINT: AtomicBool = AtomicBool::new(false);
static HAS_PRINTED: AtomicBool = AtomicBool::new(false);

struct Printing;

fn print_on_sampler() {
    if !MAY_PRINT.load(Ordering::Relaxed) {
        return;
    }
    let mut name = [0u8; 16];
    // SAFETY: the kernel writes at most 16 bytes to the local.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    if name.starts_with(b"SamplerThread") && MAY_PRINT.swap(false, Ordering::Relaxed) {
        // SAFETY: the kernel reads a constant.
        unsafe { libc::write(2, LINE.as_ptr().cast(), LINE.len()) };
        HAS_PRINTED.store(true, Ordering::Relaxed);
    }
}

// SAFETY: every method delegates to the system's allocator.
unsafe impl GlobalAlloc for Printing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        print_on_sampler();
        // SAFETY: the caller upholds the contract of this method.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of this method.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Printing = Printing;

/// Runs in a child process: prints, closes standard error, and then runs until standard input ends.
fn print_and_close() {
    // Ends a test that hangs.
    // SAFETY: accesses no memory.
    unsafe { libc::alarm(100) };
    let session = ProfilerSession::start(StartParams::default()).expect("start");
    // The sampler has its own descriptor table by then.
    let (send, end_of_loop) = std::sync::mpsc::channel();
    assert!(profiler_callback_after_sampling(move |_| _ = send.send(())));
    end_of_loop.recv().expect("a loop");
    MAY_PRINT.store(true, Ordering::Relaxed);
    while !HAS_PRINTED.load(Ordering::Relaxed) {
        // The sampler's lists grow.
        let threads = (0..20).map(|_| {
            std::thread::spawn(|| std::thread::sleep(std::time::Duration::from_millis(5)))
        });
        let threads: Vec<_> = threads.collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().expect("no panic"));
    }
    // SAFETY: the child does not use its standard error any more.
    assert_eq!(unsafe { libc::close(2) }, 0);
    let _ = std::io::stdin().read(&mut [0]);
    drop(session);
}

#[test]
fn text_of_the_samplers_thread_reaches_standard_error_until_the_program_closes_it() {
    if std::env::var_os(ROLE).is_some() {
        return print_and_close();
    }
    let mut child = Command::new(std::env::current_exe().expect("path"))
        .args(["--nocapture", "--test-threads=1"])
        .env(ROLE, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a child");
    let mut text = Vec::new();
    let mut error = child.stderr.take().expect("a pipe");
    error.read_to_end(&mut text).expect("text");
    assert!(child.try_wait().expect("the child").is_none(), "{text:?}");
    let is_printed = text.windows(LINE.len()).any(|part| part == LINE);
    assert!(is_printed, "{}", String::from_utf8_lossy(&text));
    child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(b"\n")
        .expect("written");
    assert!(child.wait().expect("the child").success());
}
