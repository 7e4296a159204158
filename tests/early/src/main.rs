//! A program that is profiled before `main`. A variable tells what it does.

#[path = "../tests/common/mod.rs"]
mod common;

use std::ffi::{CStr, CString};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use common::{AFTER_END, BEFORE_MAIN, ENOUGH, FILE, IN_MAIN, NO_BASE, ROLE, Read, TOO_EARLY};
use gekkota::{AutoProfilerInit, ProfilerTime, profiler_is_active};

/// Time after which work without samples fails.
const MAX_WORK: Duration = Duration::from_secs(120);

gekkota::early_start!();

// SAFETY: the loader calls the functions, which do not unwind: a panic aborts the process.
#[used]
#[unsafe(link_section = ".init_array.00100")]
static EARLIER: extern "C" fn() = run_earlier_constructor;

// SAFETY: as above.
#[used]
#[unsafe(link_section = ".init_array")]
static LATER: extern "C" fn() = run_static_initializer;

extern "C" fn run_earlier_constructor() {
    mark(TOO_EARLY);
}

/// Does what a slow static initializer of C++ does.
extern "C" fn run_static_initializer() {
    mark(BEFORE_MAIN);
    match role().as_str() {
        "hand-over" | "file in code" | "no init" => work_before_main(),
        "fork" => fork_and_wait(),
        _ => {}
    }
}

fn role() -> String {
    std::env::var(ROLE).unwrap_or_default()
}

fn mark(name: &str) {
    gekkota::add_untyped_marker(
        name,
        gekkota::gecko_profiler_category!(Other),
        gekkota::MarkerOptions::default(),
    );
}

#[inline(never)]
fn work_before_main() {
    work_until_sampled();
    black_box(line!());
}

#[inline(never)]
fn work_in_main() {
    work_until_sampled();
    black_box(line!());
}

/// Sets the flag when it is dropped.
struct Ends(Arc<AtomicBool>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Works until another thread has seen that the running session has enough samples of the work. This
/// thread only works: the C library may have no unwind information.
fn work_until_sampled() {
    let started = Arc::new(OnceLock::new());
    let is_sampled = Arc::new(AtomicBool::new(false));
    let counter = std::thread::spawn({
        let (started, is_sampled) = (Arc::clone(&started), Arc::clone(&is_sampled));
        move || {
            // The work ends even if this thread panics.
            let _ends = Ends(is_sampled);
            let start = *started.wait();
            let end = Instant::now() + MAX_WORK;
            while Read::since(Some(start)).sample_times().len() < ENOUGH {
                assert!(Instant::now() < end, "there are not enough samples");
            }
        }
    });
    started.get_or_init(ProfilerTime::now);
    while !is_sampled.load(Ordering::Relaxed) {
        for number in 0..1_000u64 {
            black_box(number);
        }
    }
    counter.join().expect("the counter");
}

/// Forks. The parent continues once the child has ended.
fn fork_and_wait() {
    // SAFETY: the C library allows its allocator and its threads in the child.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "cannot fork");
    if child > 0 {
        let mut status = 0;
        // SAFETY: the kernel writes to a local.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "the child failed");
    }
}

fn main() {
    let was_active = profiler_is_active();
    println!("active at the beginning of main: {was_active}");
    match role().as_str() {
        "hand-over" => hand_over(),
        "handlers" => {
            // SAFETY: reads an action into a local, for which zeros are valid.
            let is_free = |signal| unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                assert_eq!(libc::sigaction(signal, std::ptr::null(), &mut action), 0);
                action.sa_sigaction == libc::SIG_DFL
            };
            let are_free = || [libc::SIGINT, libc::SIGTERM, libc::SIGHUP].map(is_free);
            println!("free before profiler_init: {:?}", are_free());
            let _profiler = AutoProfilerInit::new();
            println!("free after profiler_init: {:?}", are_free());
        }
        "no init" => {
            std::env::set_current_dir("/").expect("a folder");
            mark(IN_MAIN);
        }
        "file in code" => {
            let file = std::env::var_os(FILE).expect("a path");
            let _profiler = AutoProfilerInit::builder().save_at_exit(file).init();
            mark(IN_MAIN);
            work_in_main();
        }
        "no profiler" => {
            let threads = std::fs::read_dir("/proc/self/task").expect("a folder");
            assert_eq!(threads.count(), 1);
        }
        "init" => {
            let _profiler = AutoProfilerInit::new();
            println!("active after profiler_init: {}", profiler_is_active());
            let for_children = gekkota::process::profiler_env_vars_for_child_process();
            if for_children.iter().any(|(name, _)| name == NO_BASE) {
                println!("children start in profiler_init, too");
            }
            mark(IN_MAIN);
        }
        "fork" => {
            let _profiler = AutoProfilerInit::new();
            println!("active after profiler_init: {}", profiler_is_active());
            mark(IN_MAIN);
            work_in_main();
        }
        "start in code" => start_in_code(),
        "overflow" => {
            let _profiler = AutoProfilerInit::new();
            mark(IN_MAIN);
            overflow(0);
        }
        "overflow after the end" => {
            gekkota::profiler_shutdown();
            overflow(0);
        }
        "streams" => assert_standard_streams_are_null(),
        "load" => println!("active in the library: {}", is_active_in_loaded_library()),
        "preloaded" => println!(
            "active in the library: {}",
            is_active_in_preloaded_library()
        ),
        "cost" => print_cost(),
        other => panic!("no role {other:?}"),
    }
}

/// Asserts that `profiler_init` takes over what was recorded before `main`. Recording continues.
fn hand_over() {
    assert!(profiler_is_active());
    let before = Read::of_running();
    let profiler = AutoProfilerInit::new();
    assert!(profiler_is_active());
    let after = Read::of_running();
    for name in ["startTime", "profilingStartTime", "configuration"] {
        assert_eq!(before.0["meta"][name], after.0["meta"][name], "{name}");
    }
    let (before_times, after_times) = (before.sample_times(), after.sample_times());
    assert!(before_times.len() >= ENOUGH);
    assert!(before_times.iter().all(|time| after_times.contains(time)));
    for marker in [TOO_EARLY, BEFORE_MAIN] {
        let count = usize::from(marker == BEFORE_MAIN);
        assert_eq!(before.markers_named(marker), count, "{marker}");
        assert_eq!(after.markers_named(marker), count, "{marker}");
    }
    mark(IN_MAIN);
    work_in_main();
    // A second guard changes nothing.
    gekkota::profiler_init();
    assert_eq!(Read::of_running().markers_named(BEFORE_MAIN), 1);
    drop(profiler);
    assert!(!profiler_is_active());
    mark(AFTER_END);
}

/// Asserts what starts in code do to the session from before `main`.
fn start_in_code() {
    let _profiler = AutoProfilerInit::new();
    let params = gekkota::profiler_get_start_params().expect("active");
    let markers = || Read::of_running().markers_named(BEFORE_MAIN);
    gekkota::profiler_ensure_started(params.clone()).expect("started");
    assert_eq!(markers(), 1, "the same settings keep the session");
    gekkota::profiler_start(params).expect("started");
    assert_eq!(markers(), 0, "a start in code is a restart");
}

#[expect(unconditional_recursion, reason = "overflows the stack")]
#[inline(never)]
fn overflow(depth: u64) -> u64 {
    let space = black_box([depth; 64]);
    overflow(depth + 1) + space[0]
}

/// Asserts that no file of the profiler has become a standard stream. The program was started
/// without any.
fn assert_standard_streams_are_null() {
    for stream in 0..3 {
        let file = std::fs::read_link(format!("/proc/self/fd/{stream}")).expect("open");
        if file.to_str() != Some("/dev/null") {
            std::process::exit(10 + stream);
        }
    }
    gekkota::profiler_shutdown();
}

const LIBRARYS_ANSWER: &CStr = c"early_library_is_active";

/// Asks a library, which this symbol of it answers for.
fn ask(symbol: *mut libc::c_void) -> bool {
    assert!(!symbol.is_null(), "{LIBRARYS_ANSWER:?}");
    // SAFETY: the symbol is a function of this type.
    let is_active: extern "C" fn() -> bool = unsafe { std::mem::transmute(symbol) };
    is_active()
}

fn is_active_in_loaded_library() -> bool {
    let path = CString::new(std::env::var(FILE).expect("a path")).expect("no zero byte");
    // SAFETY: the library's constructors are those of the standard library and of gekkota.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!library.is_null(), "cannot load {path:?}");
    // SAFETY: the library is loaded.
    ask(unsafe { libc::dlsym(library, LIBRARYS_ANSWER.as_ptr()) })
}

fn is_active_in_preloaded_library() -> bool {
    // SAFETY: looks in all libraries.
    ask(unsafe { libc::dlsym(libc::RTLD_DEFAULT, LIBRARYS_ANSWER.as_ptr()) })
}

/// Prints how long the constructor takes if the variables do not start the profiler.
fn print_cost() {
    extern "C" fn constructor() {}
    const CALLS: u32 = 100_000;
    let begin = std::time::Instant::now();
    for _ in 0..CALLS {
        gekkota::__private::start_early(black_box(constructor));
    }
    println!("one call takes {:?}", begin.elapsed() / CALLS);
}
