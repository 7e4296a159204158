//! Threads that do not register are sampled as if they did.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crate::common::seccomp::{Filtered, answer_calls};
use crate::common::{Read, isolated, mark, one_loop, wait_until, work};
use gekkota::script::{AutoProfilerScriptFrame, profiler_register_script_function};
use gekkota::{Features, ProfilerSession, StartParams, register_thread};

/// A thread that runs until this is dropped.
struct Busy {
    ends: mpsc::Sender<()>,
    id: i32,
    thread: Option<JoinHandle<()>>,
}

#[inline(never)]
fn spin_until_the_end(end: &mpsc::Receiver<()>) {
    while matches!(end.try_recv(), Err(mpsc::TryRecvError::Empty)) {
        work(1000);
    }
}

#[inline(never)]
fn spin_deep_until_the_end(depth: u32, end: &mpsc::Receiver<()>) -> u64 {
    let frame = [u64::from(depth); 128];
    if depth == 0 {
        spin_until_the_end(end);
    } else {
        spin_deep_until_the_end(depth - 1, end);
    }
    std::hint::black_box(&frame)[3]
}

fn own_id() -> i32 {
    nix::unistd::gettid().as_raw()
}

impl Busy {
    /// Starts a thread that runs `body` and ends soon after its receiver is disconnected.
    fn start(name: &str, body: impl FnOnce(mpsc::Receiver<()>) + Send + 'static) -> Self {
        let ((ends, end), (has_id, id)) = (mpsc::channel(), mpsc::channel());
        let thread = Builder::new().name(name.to_owned()).spawn(move || {
            has_id.send(own_id()).expect("the test waits");
            body(end);
        });
        Self {
            ends,
            id: id.recv().expect("the thread's id"),
            thread: Some(thread.expect("a thread")),
        }
    }

    fn spinning(name: &str) -> Self {
        Self::start(name, |end| spin_until_the_end(&end))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let (other, _) = mpsc::channel();
        drop(std::mem::replace(&mut self.ends, other));
        let joined = self.thread.take().map(JoinHandle::join);
        assert!(joined.is_some_and(|joined| joined.is_ok()));
    }
}

fn start() -> ProfilerSession {
    ProfilerSession::start(StartParams::default()).expect("start")
}

fn sample_count(name: &str) -> usize {
    let read = Read::of_running();
    let threads = read
        .threads()
        .iter()
        .filter(|thread| thread["name"] == name);
    let rows =
        |thread: &serde_json::Value| thread["samples"]["data"].as_array().map_or(0, Vec::len);
    threads.map(rows).sum()
}

/// Returns the profile of the session once this thread has this many samples.
fn profile_with(session: ProfilerSession, name: &str, samples: usize) -> Read {
    wait_until("the thread has samples", || {
        one_loop();
        sample_count(name) >= samples
    });
    Read::from_profile(&session.finish().expect("a profile"))
}

/// Returns the names of all threads of a profile but the main thread and those of the test itself.
fn other_names(read: &Read) -> Vec<String> {
    let names = read
        .threads()
        .iter()
        .filter_map(|thread| thread["name"].as_str());
    let own = std::thread::current();
    let own = own
        .name()
        .unwrap_or_default()
        .get(..15)
        .unwrap_or_default()
        .to_owned();
    let mut names: Vec<_> = names
        .filter(|name| *name != "GeckoMain" && !own.starts_with(name) && *name != own)
        .map(str::to_owned)
        .collect();
    names.sort();
    names
}

/// Returns how many of a thread's samples have this function and are whole, and how many samples
/// there are from the first such one on.
fn whole_with(read: &Read, thread: &str, function: &str) -> [usize; 2] {
    let samples = read.samples(thread);
    let has = |part: &str, stack: &[String]| stack.iter().any(|frame| frame.contains(part));
    let is_whole = |stack: &[String]| has(function, stack) && !has("(truncated)", stack);
    // On a busy machine, a thread may begin for long.
    let begun = samples.iter().skip_while(|sample| !is_whole(&sample.stack));
    let all = begun.clone().count();
    let whole = begun.filter(|sample| is_whole(&sample.stack));
    [whole.count(), all]
}

#[test]
fn busy_threads_that_began_before_and_during_the_session_have_whole_stacks() {
    isolated(|| {
        let _before = Busy::spinning("before");
        let session = start();
        let _during = Busy::spinning("during");
        let deep = Busy::start("deep", |end| {
            spin_deep_until_the_end(400, &end);
        });
        for name in ["before", "during"] {
            wait_until("the thread has samples", || sample_count(name) >= 20);
        }
        let read = profile_with(session, "deep", 20);
        drop(deep);
        for (thread, function) in [
            ("before", "spin_until_the_end"),
            ("during", "spin_until_the_end"),
            ("deep", "spin_deep_until_the_end"),
        ] {
            let [whole, all] = whole_with(&read, thread, function);
            // The first samples may be of the thread's start.
            assert!(whole >= 5 && whole + 1 >= all, "{thread}: {whole} of {all}");
        }
        let deepest = read
            .samples("deep")
            .iter()
            .map(|sample| sample.stack.len())
            .max();
        assert!(deepest >= Some(400));
        assert_eq!(read.count("samples_on_other_stacks"), 0);
        assert!(read.count("unregistered_threads") >= 3);
    });
}

/// A thread that the C library makes: it has no signal stack and, at first, its creator's name.
extern "C" fn wait_in_c(flag: *mut c_void) -> *mut c_void {
    // SAFETY: the flag outlives this thread, which is joined.
    let ends = unsafe { &*flag.cast::<AtomicBool>() };
    // SAFETY: the name is a constant.
    unsafe { libc::pthread_setname_np(libc::pthread_self(), c"waits in C".as_ptr()) };
    while !ends.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::ptr::null_mut()
}

#[test]
fn sleeping_thread_of_a_c_library_has_its_name_and_whole_stacks() {
    isolated(|| {
        let session = start();
        let mut ends = AtomicBool::new(false);
        let mut thread = 0;
        let flag = (&raw mut ends).cast();
        // SAFETY: the flag outlives the thread, which is joined.
        let made = unsafe { libc::pthread_create(&mut thread, std::ptr::null(), wait_in_c, flag) };
        assert_eq!(made, 0);
        let read = profile_with(session, "waits in C", 30);
        ends.store(true, Ordering::Relaxed);
        // SAFETY: the thread is joined once.
        let joined = unsafe { libc::pthread_join(thread, std::ptr::null_mut()) };
        assert_eq!(joined, 0);
        let [whole, all] = whole_with(&read, "waits in C", "wait_in_c");
        assert!(whole >= 5 && whole + 1 >= all, "{whole} of {all}");
        assert!(read.count("remote_samples") > 0);
    });
}

#[test]
fn thread_that_registers_later_is_one_thread_with_labels() {
    isolated(|| {
        let session = start();
        let (register, registers) = mpsc::channel::<()>();
        let thread = Busy::start("early name", move |end| {
            while registers.try_recv() == Err(mpsc::TryRecvError::Empty) {
                work(1000);
            }
            register_thread("given name");
            gekkota::auto_profiler_label!("after", Other);
            spin_until_the_end(&end);
        });
        wait_until("it is sampled", || sample_count("early name") >= 10);
        let before = sample_count("early name");
        register.send(()).expect("the thread waits");
        wait_until("it has registered", || {
            sample_count("given name") >= before + 10
        });
        let read = profile_with(session, "given name", before + 20);
        drop(thread);
        assert_eq!(other_names(&read), ["given name"]);
        let samples = read.samples("given name");
        let labelled = samples
            .iter()
            .position(|sample| sample.stack.iter().any(|frame| frame == "after"));
        assert!(labelled.is_some_and(|first| first >= 10), "{labelled:?}");
        let times: Vec<_> = samples.iter().map(|sample| sample.time_ms).collect();
        assert!(times.is_sorted());
    });
}

#[test]
fn markers_and_labels_of_an_unregistered_thread_are_on_its_track() {
    isolated(|| {
        let session = start();
        let thread = Busy::start("marks", |end| {
            mark("first");
            gekkota::auto_profiler_label!("label", Other);
            mark("second");
            spin_until_the_end(&end);
        });
        let read = profile_with(session, "marks", 20);
        drop(thread);
        let markers: Vec<_> = read
            .markers("marks")
            .into_iter()
            .map(|marker| marker.0)
            .collect();
        assert_eq!(markers, ["first", "second"]);
        let samples = read.samples("marks");
        let has_label = |stack: &[String]| stack.iter().any(|frame| frame == "label");
        assert!(samples.iter().any(|sample| has_label(&sample.stack)));
        assert_eq!(other_names(&read), ["marks"]);
    });
}

#[test]
fn label_of_any_kind_registers_a_thread_only_during_a_session() {
    isolated(|| {
        gekkota::profiler_init();
        let has_registered = gekkota::thread::profiler_is_active_and_thread_is_registered;
        let by_label = move || {
            gekkota::auto_profiler_label!("label", Other);
            has_registered()
        };
        let by_text = move || {
            gekkota::auto_profiler_label_dynamic!("label", "text", Other);
            has_registered()
        };
        let function = profiler_register_script_function("function", "test.script", 1, 1);
        let by_script_frame = move || {
            let _frame = AutoProfilerScriptFrame::new(function);
            has_registered()
        };
        let on_threads = || {
            [
                std::thread::spawn(by_label),
                std::thread::spawn(by_text),
                std::thread::spawn(by_script_frame),
                std::thread::spawn(has_registered),
            ]
            .map(|thread| thread.join().expect("no panic"))
        };
        assert_eq!(on_threads(), [false; 4]);
        let session = start();
        assert_eq!(on_threads(), [true, true, true, false]);
        drop(session);
        let without = StartParams::default();
        let features = without.features | Features::NO_UNREGISTERED_SAMPLING;
        let session = ProfilerSession::start(without.features(features)).expect("start");
        assert_eq!(on_threads(), [false; 4]);
        drop(session);
    });
}

#[test]
fn filters_select_and_exclude_by_name_and_id() {
    isolated(|| {
        let (one, two) = (Busy::spinning("worker one"), Busy::spinning("worker two"));
        let other = Busy::spinning("other");
        // The threads are found on one of the first ticks. None is found later that the filters
        // exclude.
        let check = |filters: &[&str], expected: &[&str]| {
            let params = StartParams::default().filters(filters.iter().copied());
            let session = ProfilerSession::start(params).expect("start");
            wait_until("the threads are found", || {
                one_loop();
                other_names(&Read::of_running()).len() >= expected.len()
            });
            for _ in 0..3 {
                one_loop();
            }
            let read = Read::from_profile(&session.finish().expect("a profile"));
            assert_eq!(other_names(&read), expected, "{filters:?}");
        };
        check(&["worker"], &["worker one", "worker two"]);
        check(&["worker", "-two"], &["worker one"]);
        check(&[&format!("tid:{}", two.id)], &["worker two"]);
        check(&[&format!("-tid:{}", one.id), "-other"], &["worker two"]);
        drop((one, two, other));
    });
}

#[test]
fn thread_with_the_excluded_name_of_its_creator_is_sampled_once_it_has_its_own() {
    isolated(|| {
        let params = StartParams::default().filters(["-excluded"]);
        let session = ProfilerSession::start(params).expect("start");
        let (renames, is_told) = mpsc::channel::<()>();
        let creator = Busy::start("excluded", move |end| {
            let without_a_name = std::thread::spawn(move || {
                while matches!(is_told.try_recv(), Err(mpsc::TryRecvError::Empty)) {
                    one_loop();
                }
                // SAFETY: the name is a constant.
                unsafe { libc::pthread_setname_np(libc::pthread_self(), c"worker".as_ptr()) };
                spin_until_the_end(&end);
            });
            without_a_name.join().expect("no panic");
        });
        // Dropped before the thread, so that a test that fails ends, too.
        let renames = renames;
        for _ in 0..30 {
            one_loop();
        }
        assert_eq!(other_names(&Read::of_running()), [""; 0]);
        renames.send(()).expect("the thread waits");
        let read = profile_with(session, "worker", 5);
        drop(creator);
        assert_eq!(other_names(&read), ["worker"]);
    });
}

#[test]
fn thread_that_gets_an_excluded_name_is_not_interrupted_any_more() {
    isolated(|| {
        let params = StartParams::default().filters(["-excluded"]);
        let session = ProfilerSession::start(params).expect("start");
        let (renames, is_told) = mpsc::channel();
        let thread = Busy::start("worker", move |end| {
            while matches!(is_told.try_recv(), Err(mpsc::TryRecvError::Empty)) {
                one_loop();
            }
            // SAFETY: the name is a constant.
            unsafe { libc::pthread_setname_np(libc::pthread_self(), c"excluded".as_ptr()) };
            spin_until_the_end(&end);
        });
        wait_until("the thread is sampled", || sample_count("worker") > 5);
        renames.send(()).expect("the thread waits");
        wait_until("the new name is known", || sample_count("excluded") > 5);
        // One sample may have been under way.
        let before = sample_count("excluded");
        for _ in 0..30 {
            one_loop();
        }
        let read = Read::from_profile(&session.finish().expect("a profile"));
        drop(thread);
        let after = read.samples("excluded").len();
        assert!(after <= before + 1, "{after} after {before}");
    });
}

#[test]
fn feature_leaves_unregistered_threads_out() {
    isolated(|| {
        let _busy = Busy::spinning("busy");
        let params = StartParams::default();
        let features = params.features | Features::NO_UNREGISTERED_SAMPLING;
        let session = ProfilerSession::start(params.features(features)).expect("start");
        for _ in 0..5 {
            one_loop();
        }
        let read = Read::from_profile(&session.finish().expect("a profile"));
        assert_eq!(other_names(&read), [""; 0]);
        assert_eq!(read.count("unregistered_threads"), 0);
    });
}

/// The sampler sees nothing of the registration.
#[test]
fn thread_that_unregisters_before_it_is_found_is_left_alone() {
    isolated(|| {
        let params = StartParams::default().interval(Duration::from_millis(100));
        let session = ProfilerSession::start(params).expect("start");
        one_loop();
        let (leaves, has_left) = mpsc::channel();
        let thread = Busy::start("own name", move |end| {
            register_thread("given name");
            gekkota::unregister_thread();
            leaves.send(()).expect("the test waits");
            spin_until_the_end(&end);
        });
        has_left.recv().expect("the thread");
        for _ in 0..3 {
            one_loop();
        }
        let read = Read::from_profile(&session.finish().expect("a profile"));
        drop(thread);
        assert_eq!(other_names(&read), ["given name"]);
    });
}

#[test]
fn thread_that_renames_itself_is_found_by_its_new_name() {
    isolated(|| {
        let params = StartParams::default().filters(["second"]);
        let session = ProfilerSession::start(params).expect("start");
        let thread = Busy::start("first", |end| {
            // Found under its first name, and not selected.
            for _ in 0..5 {
                one_loop();
            }
            // SAFETY: the name is a constant.
            unsafe { libc::pthread_setname_np(libc::pthread_self(), c"second".as_ptr()) };
            spin_until_the_end(&end);
        });
        let read = profile_with(session, "second", 5);
        drop(thread);
        assert_eq!(other_names(&read), ["second"]);
    });
}

#[test]
fn thread_that_has_unregistered_is_left_alone() {
    isolated(|| {
        let session = start();
        let thread = Busy::start("leaves", |end| {
            register_thread("registered");
            for _ in 0..5 {
                one_loop();
            }
            gekkota::unregister_thread();
            mark("not recorded");
            spin_until_the_end(&end);
        });
        wait_until("it has unregistered", || {
            let read = Read::of_running();
            let mut threads = read.threads().iter();
            threads
                .any(|thread| thread["name"] == "registered" && !thread["unregisterTime"].is_null())
        });
        for _ in 0..10 {
            one_loop();
        }
        let read = Read::from_profile(&session.finish().expect("a profile"));
        drop(thread);
        assert_eq!(other_names(&read), ["registered"]);
        assert!(read.markers("registered").is_empty());
    });
}

#[test]
fn thread_that_awaits_the_sampling_signal_does_not_receive_it() {
    isolated(|| {
        let received = std::sync::Arc::new(AtomicI32::new(0));
        let thread_received = std::sync::Arc::clone(&received);
        let (blocks, has_blocked) = mpsc::channel();
        let thread = Busy::start("awaits", move |end| {
            let mut all = nix::sys::signal::SigSet::all();
            all.remove(nix::sys::signal::Signal::SIGSEGV);
            all.thread_block().expect("a mask");
            blocks.send(()).expect("the test waits");
            while matches!(end.try_recv(), Err(mpsc::TryRecvError::Empty)) {
                let wait = libc::timespec {
                    tv_sec: 0,
                    tv_nsec: 3_000_000,
                };
                // SAFETY: the set and the time are locals.
                let signal =
                    unsafe { libc::sigtimedwait(all.as_ref(), std::ptr::null_mut(), &wait) };
                thread_received.fetch_max(signal, Ordering::Relaxed);
            }
        });
        // A thread that answers a signal and then blocks it may receive the next one.
        has_blocked.recv().expect("the thread");
        let session = start();
        let read = profile_with(session, "awaits", 50);
        drop(thread);
        assert_eq!(received.load(Ordering::Relaxed), 0);
        assert!(read.count("remote_samples") > 0);
    });
}

/// The generated code keeps a frame pointer, which the kernel does not report. A signal would supply it.
#[cfg(target_arch = "x86_64")]
#[test]
fn thread_that_only_a_signal_wakes_is_not_woken() {
    static HAS_RETURNED: AtomicI32 = AtomicI32::new(0);
    extern "C" fn pause() {
        // SAFETY: waits for a handler.
        unsafe { libc::pause() };
        HAS_RETURNED.store(1, Ordering::SeqCst);
    }
    extern "C" fn handle(_: libc::c_int) {}
    /// Wakes the thread, so that a test that fails ends, too.
    struct WokenAtTheEnd(Busy);
    impl Drop for WokenAtTheEnd {
        fn drop(&mut self) {
            // SAFETY: the thread exists, since it has not been joined.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.0.id, libc::SIGUSR1) };
        }
    }
    isolated(|| {
        let action = nix::sys::signal::SigAction::new(
            nix::sys::signal::SigHandler::Handler(handle),
            nix::sys::signal::SaFlags::empty(),
            nix::sys::signal::SigSet::empty(),
        );
        // SAFETY: the handler does nothing.
        unsafe { nix::sys::signal::sigaction(nix::sys::signal::Signal::SIGUSR1, &action) }
            .expect("a handler");
        let (_, call) = crate::common::generated_call();
        let thread = WokenAtTheEnd(Busy::start("pauses", move |_end| call(pause)));
        let path = format!("/proc/self/task/{}/syscall", thread.0.id);
        wait_until("it pauses", || {
            let call = std::fs::read_to_string(&path).expect("its system call");
            call.starts_with(&format!("{} ", libc::SYS_pause))
        });
        let session = start();
        profile_with(session, "pauses", 20);
        assert_eq!(HAS_RETURNED.load(Ordering::SeqCst), 0);
        drop(thread);
        assert_eq!(HAS_RETURNED.load(Ordering::SeqCst), 1);
    });
}

/// A thread whose stack has no guard page, and which runs a coroutine in the memory below it.
#[cfg(target_env = "gnu")]
mod without_guard {
    use std::ptr::null_mut;
    use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

    use super::*;

    const BYTES: usize = 1 << 20;
    /// Parts of the memory: that of the coroutine's stack, and the gap between the stacks.
    const COROUTINE_BYTES: usize = 256 << 10;
    const GAP_BYTES: usize = 64 << 10;

    static MEMORY: AtomicPtr<u8> = AtomicPtr::new(null_mut());
    static LEAVES_OWN_STACK: AtomicBool = AtomicBool::new(false);
    static UNMAPS_GAP: AtomicBool = AtomicBool::new(false);
    static HAS_UNMAPPED_GAP: AtomicBool = AtomicBool::new(false);
    static ENDS: AtomicBool = AtomicBool::new(false);

    fn spin_until(flag: &AtomicBool) {
        while !flag.load(Ordering::SeqCst) {
            work(1000);
        }
    }

    extern "C" fn coroutine() {
        spin_until(&UNMAPS_GAP);
        let gap = MEMORY.load(Ordering::SeqCst).wrapping_add(COROUTINE_BYTES);
        // SAFETY: nothing uses the gap.
        assert_eq!(unsafe { libc::munmap(gap.cast(), GAP_BYTES) }, 0);
        HAS_UNMAPPED_GAP.store(true, Ordering::SeqCst);
        spin_until(&ENDS);
    }

    extern "C" fn run(_: *mut libc::c_void) -> *mut libc::c_void {
        spin_until(&LEAVES_OWN_STACK);
        // SAFETY: both contexts live until the coroutine has returned to this function, and its stack
        // is memory that nothing else uses.
        unsafe {
            let mut own: libc::ucontext_t = std::mem::zeroed();
            let mut other: libc::ucontext_t = std::mem::zeroed();
            libc::getcontext(&raw mut other);
            other.uc_stack.ss_sp = MEMORY.load(Ordering::SeqCst).cast();
            other.uc_stack.ss_size = COROUTINE_BYTES;
            other.uc_link = &raw mut own;
            libc::makecontext(&raw mut other, coroutine, 0);
            libc::swapcontext(&raw mut own, &raw const other);
        }
        null_mut()
    }

    fn wait_for_more_samples() {
        let before = sample_count("coroutines");
        wait_until("the thread has more samples", || {
            one_loop();
            sample_count("coroutines") >= before + 20
        });
    }

    #[test]
    fn coroutine_below_a_stack_without_a_guard_page_is_sampled_safely() {
        isolated(|| {
            let (access, flags) = (
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            );
            // SAFETY: new memory.
            let memory = unsafe { libc::mmap(null_mut(), BYTES, access, flags, -1, 0) };
            assert_ne!(memory, libc::MAP_FAILED);
            MEMORY.store(memory.cast(), Ordering::SeqCst);
            let own = COROUTINE_BYTES + GAP_BYTES;
            let mut thread: libc::pthread_t = 0;
            // SAFETY: the thread's stack is the rest of the memory, which stays until the process ends.
            unsafe {
                let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
                assert_eq!(libc::pthread_attr_init(&raw mut attributes), 0);
                let stack = memory.byte_add(own);
                let set = libc::pthread_attr_setstack(&raw mut attributes, stack, BYTES - own);
                assert_eq!(set, 0);
                let made =
                    libc::pthread_create(&raw mut thread, &raw const attributes, run, null_mut());
                assert_eq!(made, 0);
                libc::pthread_setname_np(thread, c"coroutines".as_ptr());
            }
            let session = start();
            // The sampler takes all of the memory to be the thread's stack, once it has seen the
            // thread in the coroutine.
            wait_for_more_samples();
            LEAVES_OWN_STACK.store(true, Ordering::SeqCst);
            wait_for_more_samples();
            UNMAPS_GAP.store(true, Ordering::SeqCst);
            wait_until("the gap is unmapped", || {
                HAS_UNMAPPED_GAP.load(Ordering::SeqCst)
            });
            wait_for_more_samples();
            let read = Read::from_profile(&session.finish().expect("a profile"));
            ENDS.store(true, Ordering::SeqCst);
            // SAFETY: the thread was made above, and is joined once.
            assert_eq!(unsafe { libc::pthread_join(thread, null_mut()) }, 0);
            let stacks = read.samples("coroutines");
            let in_coroutine = stacks.iter().filter(|sample| {
                let frames = &sample.stack;
                frames
                    .iter()
                    .any(|frame| frame.contains("without_guard::coroutine"))
            });
            assert!(in_coroutine.count() > 0);
        });
    }
}

#[test]
fn thread_without_thread_local_memory_is_not_interrupted() {
    static STATE: AtomicI32 = AtomicI32::new(0);
    extern "C" fn spin(_: *mut libc::c_void) -> libc::c_int {
        STATE.store(1, Ordering::SeqCst);
        while STATE.load(Ordering::SeqCst) < 2 {
            std::hint::spin_loop();
        }
        STATE.store(3, Ordering::SeqCst);
        0
    }
    if !cfg!(all(target_env = "gnu", target_arch = "x86_64")) {
        return;
    }
    isolated(|| {
        let flags = libc::CLONE_VM
            | libc::CLONE_FS
            | libc::CLONE_FILES
            | libc::CLONE_SIGHAND
            | libc::CLONE_THREAD
            | libc::CLONE_SYSVSEM
            | libc::CLONE_SETTLS;
        let stack = vec![0u128; 4096].leak();
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: the stack is leaked, and the function uses no thread-local memory.
        let thread = unsafe {
            let top = stack.as_mut_ptr_range().end.cast();
            libc::clone(spin, top, flags, none, none, none, none)
        };
        assert!(thread > 0);
        wait_until("it runs", || STATE.load(Ordering::SeqCst) == 1);
        let session = start();
        for _ in 0..30 {
            one_loop();
        }
        let read = Read::from_profile(&session.finish().expect("a profile"));
        STATE.store(2, Ordering::SeqCst);
        wait_until("it ends", || STATE.load(Ordering::SeqCst) == 3);
        assert!(read.count("samples_without_stack") > 0);
    });
}

#[test]
fn threads_of_a_sandbox_have_whole_stacks() {
    isolated(|| {
        // Docker's filter, for example, allows nearly all calls, but it is a filter.
        let errors = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
        let allowed = libc::SECCOMP_RET_ALLOW;
        answer_calls(
            Filtered::AllThreads,
            &[libc::SYS_process_vm_readv],
            errors,
            allowed,
        );
        let session = start();
        let busy = Busy::spinning("busy");
        let deep = Busy::start("deep", |end| {
            spin_deep_until_the_end(400, &end);
        });
        wait_until("it is sampled", || sample_count("busy") >= 20);
        let read = profile_with(session, "deep", 20);
        drop((busy, deep));
        for thread in ["busy", "deep"] {
            let [whole, all] = whole_with(&read, thread, "until_the_end");
            assert!(whole >= 5 && whole + 1 >= all, "{thread}: {whole} of {all}");
        }
    });
}

#[test]
fn main_thread_is_sampled_if_another_thread_starts_the_profiler() {
    // The tests of this binary run on other threads than the main one, which waits for them.
    isolated(|| {
        let session = start();
        let read = profile_with(session, "GeckoMain", 20);
        // It gets no signal. Where its stack needs the frame pointer, only the inner part is known.
        let samples = read.samples("GeckoMain");
        assert!(samples.iter().all(|sample| sample.stack.len() > 1));
        assert!(read.count("remote_samples") > 0);
    });
}

#[test]
fn threads_of_the_profiler_are_not_sampled() {
    isolated(|| {
        gekkota::profiler_control_by_signals(gekkota::ControlSignals::default()).expect("control");
        let session = start();
        let busy = Busy::spinning("busy");
        one_loop();
        let read = profile_with(session, "busy", 20);
        drop(busy);
        assert_eq!(other_names(&read), ["busy"]);
    });
}

#[test]
fn thread_that_has_ended_keeps_its_samples() {
    isolated(|| {
        let session = start();
        let thread = Busy::spinning("ends");
        wait_until("the thread has samples", || sample_count("ends") >= 10);
        drop(thread);
        wait_until("its end is found", || {
            one_loop();
            !Read::of_running().thread("ends")["unregisterTime"].is_null()
        });
        // Another thread of that name is another thread.
        let thread = Busy::spinning("ends");
        wait_until("both are listed", || {
            one_loop();
            other_names(&Read::of_running()) == ["ends", "ends"]
        });
        let read = Read::from_profile(&session.finish().expect("a profile"));
        drop(thread);
        assert!(read.samples("ends").len() >= 10);
    });
}
