//! Helpers of the tests: reading profiles, using CPU time and waiting for states.
#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "each test binary uses some of the helpers"
)]

mod busy;
pub mod controlled;
pub mod coroutine;
pub mod counters;
mod folder;
mod isolated;
pub mod left_behind;
pub mod moving_task;
mod processed;
pub mod sampled;
pub mod seccomp;
pub mod sleepers;
pub mod typed_markers;

use std::hint::black_box;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Gid, Pid, Uid, fork, geteuid, setgid, setuid};
use serde_json::Value;

pub use busy::{BUSY, Busy};
pub use folder::Folder;
pub use isolated::{isolated, isolated_with, libtest_name};

/// A profile in Gecko's JSON, with functions that look things up in it.
pub struct Read(pub Value);

/// Returns the number in an environment variable that makes a test longer, or `default`.
pub fn number_in(variable: &str, default: u64) -> u64 {
    let value = std::env::var(variable).ok();
    value.map_or(default, |value| value.parse().expect("a number"))
}

/// A small generator of random numbers.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// A sample of a thread.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Frame locations, oldest first, without the root.
    pub stack: Vec<String>,
    pub time_ms: f64,
    pub event_delay_ms: Option<f64>,
    pub cpu_ns: Option<u64>,
}

impl Read {
    /// Returns the frames of a label on a thread: the category, the name of the subcategory, and
    /// `relevantForJS`.
    pub fn label_frames(&self, thread: &str, label: &str) -> Vec<(&Value, &str, bool)> {
        let (thread, categories) = (self.thread(thread), &self.0["meta"]["categories"]);
        let index = |value: &Value| value.as_u64().expect("an index") as usize;
        let frames = thread["frameTable"]["data"]
            .as_array()
            .expect("frames")
            .iter();
        let of_label = frames.filter(|frame| thread["stringTable"][index(&frame[0])] == label);
        let told = of_label.map(|frame| {
            let category = &categories[index(&frame[6])];
            let subcategory = category["subcategories"][index(&frame[7])]
                .as_str()
                .expect("a name");
            (
                category,
                subcategory,
                frame[1].as_bool().expect("whether it is"),
            )
        });
        told.collect()
    }

    /// Reads the data of the running session, without function names.
    pub fn of_running() -> Self {
        let options = gekkota::profile::SnapshotOptions::default()
            .symbolicate(gekkota::profile::Symbolicate::No);
        let mut text = Vec::new();
        gekkota::profiler_stream_json(&mut text, &options).expect("active");
        Self::from_text(&text)
    }

    pub fn from_profile(profile: &gekkota::Profile) -> Self {
        let mut text = Vec::new();
        profile
            .write(gekkota::profile::Format::Gecko, &mut text)
            .expect("a vector never fails");
        Self::from_text(&text)
    }

    pub fn from_text(text: &[u8]) -> Self {
        Self(serde_json::from_slice(text).expect("JSON"))
    }

    pub fn threads(&self) -> &[Value] {
        self.0["threads"].as_array().expect("threads")
    }

    pub fn thread(&self, name: &str) -> &Value {
        self.threads()
            .iter()
            .find(|thread| thread["name"] == name)
            .unwrap_or_else(|| {
                let names: Vec<_> = self
                    .threads()
                    .iter()
                    .map(|thread| &thread["name"])
                    .collect();
                panic!("no thread {name:?} among {names:?}")
            })
    }

    pub fn samples(&self, name: &str) -> Vec<Sample> {
        samples_of(self.thread(name))
    }

    /// Returns the markers of a thread: name, start and end in ms, phase, category, data.
    pub fn markers(&self, name: &str) -> Vec<(String, f64, Option<f64>, u64, u64, Value)> {
        let thread = self.thread(name);
        let string =
            |index: &Value| thread["stringTable"][index.as_u64().expect("index") as usize].clone();
        let rows = thread["markers"]["data"].as_array().expect("markers");
        rows.iter()
            .map(|row| {
                let mut data = row.get(5).cloned().unwrap_or(Value::Null);
                if data["type"] == "Text" {
                    data["name"] = string(&data["name"]);
                }
                let name = string(&row[0]).as_str().expect("name").to_owned();
                let number = |index: usize| row[index].as_f64();
                let unsigned = |index: usize| row[index].as_u64().expect("number");
                (
                    name,
                    number(1).expect("start"),
                    number(2),
                    unsigned(3),
                    unsigned(4),
                    data,
                )
            })
            .collect()
    }

    /// Returns the names of the events in the profiling log.
    pub fn logged_events(&self) -> Vec<&str> {
        let log = &self.0["profilingLog"][std::process::id().to_string()];
        let events = log["events"].as_array().expect("events").iter();
        events
            .map(|event| event["event"].as_str().expect("a name"))
            .collect()
    }

    /// Returns a count from the sampler's part of the profiling log.
    pub fn count(&self, name: &str) -> u64 {
        let log = &self.0["profilingLog"][std::process::id().to_string()]["sampler"];
        log[name]
            .as_u64()
            .unwrap_or_else(|| panic!("no count {name} in {log}"))
    }
}

/// Returns the samples of a thread.
pub fn samples_of(thread: &Value) -> Vec<Sample> {
    let table = |name: &str| thread[name]["data"].as_array().expect("a table");
    let (stacks, frames) = (table("stackTable"), table("frameTable"));
    let stack_of = |mut index: Option<u64>| {
        let mut stack = Vec::new();
        while let Some(at) = index {
            let row = &stacks[at as usize];
            let frame = &frames[row[1].as_u64().expect("frame") as usize];
            let location = &thread["stringTable"][frame[0].as_u64().expect("location") as usize];
            stack.push(location.as_str().expect("a string").to_owned());
            index = row[0].as_u64();
        }
        assert_eq!(
            stack.pop().as_deref(),
            Some("(root)"),
            "every stack begins with the root"
        );
        stack.reverse();
        stack
    };
    let row = |row: &Value| Sample {
        stack: stack_of(row[0].as_u64()),
        time_ms: row[1].as_f64().expect("time"),
        event_delay_ms: row.get(2).and_then(Value::as_f64),
        cpu_ns: row.get(3).and_then(Value::as_u64),
    };
    thread["samples"]["data"]
        .as_array()
        .expect("samples")
        .iter()
        .map(row)
        .collect()
}

/// Returns parameters of a session that leaves out threads which have not registered.
pub fn registered_threads_only() -> gekkota::StartParams {
    let params = gekkota::StartParams::default();
    let features = params.features | gekkota::Features::NO_UNREGISTERED_SAMPLING;
    params.features(features)
}

/// Returns the CPU time that the calling thread has used.
pub fn thread_cpu() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes to a local.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Does work that the optimizer cannot remove.
#[inline(always)]
pub fn work(rounds: u64) -> u64 {
    let mut value = black_box(rounds);
    for round in 0..rounds {
        value = black_box(value.rotate_left(5) ^ round);
    }
    value
}

/// Works until `time` has passed.
pub fn work_for(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        work(1000);
    }
}

/// CPU time that the calling thread has yet to use.
pub struct WorkLeft {
    left: Duration,
    seen: Duration,
}

impl WorkLeft {
    pub fn new(time: Duration) -> Self {
        Self {
            left: time,
            seen: thread_cpu(),
        }
    }

    /// Returns whether any time is left. Callers ask often, because a call takes at most 10 ms off:
    /// while a virtual machine is paused, its clocks advance although no thread works.
    pub fn is_some(&mut self) -> bool {
        const LONGEST_STEP: Duration = Duration::from_millis(10);
        let now = thread_cpu();
        let worked = now - std::mem::replace(&mut self.seen, now);
        self.left = self.left.saturating_sub(worked.min(LONGEST_STEP));
        !self.left.is_zero()
    }
}

/// Works until the calling thread has used `time` of CPU time.
pub fn work_for_cpu(time: Duration) {
    let mut left = WorkLeft::new(time);
    while left.is_some() {
        work(1000);
    }
}

/// Longest time that a test waits for something that happens soon on a quiet machine. It only turns
/// a hang into a failure, so it is long enough for a busy machine.
pub const LONGEST_WAIT: Duration = Duration::from_secs(120);

/// Returns once `condition` is true. Panics after [`LONGEST_WAIT`].
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + LONGEST_WAIT;
    while !condition() {
        assert!(Instant::now() < end, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits for one loop of the sampler, and returns its result.
pub fn one_loop() -> gekkota::callback::SamplingState {
    let (send, receive) = std::sync::mpsc::channel();
    assert!(gekkota::callback::profiler_callback_after_sampling(
        move |state| _ = send.send(state)
    ));
    receive.recv_timeout(LONGEST_WAIT).expect("a loop")
}

/// Returns the names that the kernel has for the threads of this process.
pub fn thread_names() -> Vec<String> {
    let threads = std::fs::read_dir("/proc/self/task")
        .expect("threads")
        .flatten();
    // A thread that has exited since has no file.
    let names =
        threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
    names.map(|name| name.trim_end().to_owned()).collect()
}

/// A panic payload that panics again when it is dropped.
pub struct PanicsAgain;

impl Drop for PanicsAgain {
    fn drop(&mut self) {
        panic!("the payload panics when it is dropped, as the test wants");
    }
}

/// A function that calls its argument.
pub type CallThrough = extern "C" fn(extern "C" fn());

/// Generates machine code that calls its argument and keeps a frame pointer. Returns its memory,
/// which is never unmapped, and the function.
#[cfg(target_arch = "x86_64")]
pub fn generated_call() -> (&'static [u8], CallThrough) {
    // push rbp; mov rbp, rsp; call rdi; pop rbp; ret
    const CODE: [u8; 8] = [0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3];
    let (write, run) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::PROT_READ | libc::PROT_EXEC,
    );
    // SAFETY: the mapping is new, is filled before it becomes executable, and is never unmapped.
    // Its code follows the C ABI.
    unsafe {
        let memory = libc::mmap(
            std::ptr::null_mut(),
            4096,
            write,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(memory, libc::MAP_FAILED);
        std::ptr::copy_nonoverlapping(CODE.as_ptr(), memory.cast(), CODE.len());
        assert_eq!(libc::mprotect(memory, 4096, run), 0);
        let code = std::slice::from_raw_parts(memory.cast::<u8>(), CODE.len());
        (
            code,
            std::mem::transmute::<*mut libc::c_void, CallThrough>(memory),
        )
    }
}

/// Records a marker on the calling thread.
pub fn mark(name: &str) {
    gekkota::add_untyped_marker(
        name,
        gekkota::gecko_profiler_category!(Other),
        Default::default(),
    );
}

/// A registered thread that sleeps until this is dropped.
pub struct Sleeper(Option<(std::sync::mpsc::Sender<()>, std::thread::JoinHandle<()>)>);

impl Sleeper {
    pub fn start(name: &'static str) -> Self {
        let (end, ends) = std::sync::mpsc::channel();
        let body = move || {
            gekkota::register_thread(name);
            // Ends when the sender is dropped.
            while ends.recv().is_ok() {}
        };
        Self(Some((end, std::thread::spawn(body))))
    }

    /// Lets the thread run for a moment.
    pub fn wake(&self) {
        if let Some((end, _)) = &self.0 {
            end.send(()).expect("the thread lives");
        }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.0.take() {
            drop(end);
            thread.join().expect("it only sleeps");
        }
    }
}

/// Runs `body` in a forked child and returns its text. The child exits without returning to the
/// test harness. If `body` panics, so does this function.
pub fn in_forked_child(body: impl FnOnce() -> String) -> String {
    use std::io::{Read as _, Write as _};
    let (mut from_child, mut to_parent) = std::io::pipe().expect("a pipe");
    // SAFETY: glibc lets the child of a program with threads call any function.
    let child = unsafe { fork() }.expect("a child");
    let ForkResult::Parent { child } = child else {
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        let (text, status) = match found {
            Ok(text) => (text, 0),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                (
                    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
                        .unwrap_or_default(),
                    3,
                )
            }
        };
        let status = if to_parent.write_all(text.as_bytes()).is_ok() {
            status
        } else {
            4
        };
        // SAFETY: ends the process.
        unsafe { libc::_exit(status) }
    };
    drop(to_parent);
    let mut text = String::new();
    from_child
        .read_to_string(&mut text)
        .expect("what the child found");
    let status = waitpid(child, None).expect("the child's status");
    assert_eq!(status, WaitStatus::Exited(child, 0), "{text}");
    text
}

/// Runs `body` in a forked child, and asserts that it returns true. The child exits without
/// returning to the test harness.
#[track_caller]
pub fn assert_in_forked_child(body: impl FnOnce() -> bool) {
    // SAFETY: glibc lets the child of a program with threads call any function.
    match unsafe { fork() }.expect("a child") {
        ForkResult::Parent { child } => {
            let status = waitpid(child, None).expect("the child's status");
            assert_eq!(status, WaitStatus::Exited(child, 0));
        }
        ForkResult::Child => {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            // SAFETY: ends the process.
            unsafe { libc::_exit(if matches!(result, Ok(true)) { 0 } else { 3 }) }
        }
    }
}

/// Gives up the superuser's rights, if the process has them.
pub fn become_nobody() {
    const NOBODY: libc::uid_t = 65534;
    if geteuid().is_root() {
        setgid(Gid::from_raw(NOBODY)).expect("the right to change the group");
        setuid(Uid::from_raw(NOBODY)).expect("the right to change the user");
    }
    assert!(!geteuid().is_root());
}

/// Opens a disabled event that counts the calling thread's CPU time and signals after each
/// `period_ns`.
///
/// # Errors
/// Returns the error of the kernel if it refuses.
pub fn open_cpu_event(period_ns: u64, exclude_kernel: bool) -> std::io::Result<i32> {
    // `struct perf_event_attr`: type and size, config, period, sample type, read format, flags, and
    // wake up after one event.
    let (software, size, cpu_clock) = (1u64, 64u64, 0);
    let (disabled, without_kernel, without_hypervisor) =
        (1, u64::from(exclude_kernel) << 5, 1 << 6);
    let flags = disabled | without_kernel | without_hypervisor;
    let attributes = [
        software | size << 32,
        cpu_clock,
        period_ns,
        0,
        0,
        flags,
        1,
        0,
    ];
    let (own_thread, any_processor, no_group, close_on_exec) = (0, -1, -1, 8);
    // SAFETY: the kernel only reads the structure.
    let event = unsafe {
        let call = libc::SYS_perf_event_open;
        libc::syscall(
            call,
            attributes.as_ptr(),
            own_thread,
            any_processor,
            no_group,
            close_on_exec,
        )
    };
    if event < 0 {
        Err(std::io::Error::last_os_error())
    } else {
        Ok(event as i32)
    }
}

/// Limits the process to the first `wanted` of its processors.
pub fn use_processors(wanted: usize) {
    let this_process = Pid::from_raw(0);
    let mut set = sched_getaffinity(this_process).expect("the processors");
    let mut left = wanted;
    for processor in 0..CpuSet::count() {
        if !set.is_set(processor).expect("a valid number") {
            continue;
        }
        match left {
            0 => set.unset(processor).expect("a valid number"),
            _ => left -= 1,
        }
    }
    sched_setaffinity(this_process, &set).expect("a subset of the processors");
}
