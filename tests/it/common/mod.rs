//! What the tests share: profiles read back, and time spent.
#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "each test uses its part of it"
)]

pub mod controlled;
mod isolated;
pub mod left_behind;
pub mod moving_task;
pub mod typed_markers;

use std::hint::black_box;
use std::time::{Duration, Instant};

use serde_json::Value;

pub use isolated::{isolated, libtest_name};

/// A profile, as a reader sees it.
pub struct Read(pub Value);

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
    /// The frames of a label on a thread: its category, its subcategory's name, and whether views of scripts alone show it, too.
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

    /// What the running session has so far, without names.
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

    /// Name, start and end in ms, phase, category, data.
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

    /// A count of the sampler's.
    pub fn count(&self, name: &str) -> u64 {
        let log = &self.0["profilingLog"][std::process::id().to_string()]["sampler"];
        log[name]
            .as_u64()
            .unwrap_or_else(|| panic!("no count {name} in {log}"))
    }
}

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

/// CPU time of the calling thread.
pub fn thread_cpu() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel fills a local.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Some work that takes a moment and cannot be left out.
#[inline(always)]
pub fn work(rounds: u64) -> u64 {
    let mut value = black_box(rounds);
    for round in 0..rounds {
        value = black_box(value.rotate_left(5) ^ round);
    }
    value
}

/// Works until so much time has gone by.
pub fn work_for(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        work(1000);
    }
}

/// CPU time of the calling thread that it is to work for.
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

    /// Whether there is some left. To be asked often: of what passes at once no more counts than a while, since a virtual machine may
    /// be held up, and its clocks go on then while nobody works.
    pub fn is_some(&mut self) -> bool {
        const MOST_AT_ONCE: Duration = Duration::from_millis(10);
        let now = thread_cpu();
        let worked = now - std::mem::replace(&mut self.seen, now);
        self.left = self.left.saturating_sub(worked.min(MOST_AT_ONCE));
        !self.left.is_zero()
    }
}

/// Works until the calling thread has had so much CPU time.
pub fn work_for_cpu(time: Duration) {
    let mut left = WorkLeft::new(time);
    while left.is_some() {
        work(1000);
    }
}

/// Asks until it is so; fails after ten seconds.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !is_so() {
        assert!(Instant::now() < end, "waited ten seconds until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits for a loop of the sampler, and tells what it did.
pub fn one_loop() -> gekkota::callback::SamplingState {
    let (send, receive) = std::sync::mpsc::channel();
    assert!(gekkota::callback::profiler_callback_after_sampling(
        move |state| _ = send.send(state)
    ));
    receive
        .recv_timeout(Duration::from_secs(10))
        .expect("a loop")
}

/// The kernel's names of the process's threads.
pub fn thread_names() -> Vec<String> {
    let threads = std::fs::read_dir("/proc/self/task")
        .expect("threads")
        .flatten();
    // One that has ended meanwhile has none.
    let names =
        threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
    names.map(|name| name.trim_end().to_owned()).collect()
}

/// What a panic carries that panics again when it is dropped.
pub struct PanicsAgain;

impl Drop for PanicsAgain {
    fn drop(&mut self) {
        panic!("on purpose, when it is dropped");
    }
}

/// A function that calls what it is given.
pub type CallThrough = extern "C" fn(extern "C" fn());

/// Makes machine code that calls through, with a frame pointer, and gives the memory that it stands in; that stays.
#[cfg(target_arch = "x86_64")]
pub fn generated_call() -> (&'static [u8], CallThrough) {
    // push rbp; mov rbp, rsp; call rdi; pop rbp; ret
    const CODE: [u8; 8] = [0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3];
    let (write, run) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::PROT_READ | libc::PROT_EXEC,
    );
    // SAFETY: a new mapping, filled before it becomes code, which keeps the C ABI, and never given back.
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

/// A marker of the calling thread's.
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
            // Nobody sends: it is woken by the end alone.
            assert!(ends.recv().is_err());
        };
        Self(Some((end, std::thread::spawn(body))))
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

/// Runs it in a forked child, which ends without the test harness's own end, and gives what it found; a panic there is one
/// here.
pub fn in_forked_child(body: impl FnOnce() -> String) -> String {
    use std::io::{Read as _, Write as _};
    let (mut from_child, mut to_parent) = std::io::pipe().expect("a pipe");
    // SAFETY: the child calls what it likes, as a child of a program with threads may where the C library is glibc.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
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
        unsafe { libc::_exit(status) };
    }
    drop(to_parent);
    let mut text = String::new();
    from_child
        .read_to_string(&mut text)
        .expect("what the child found");
    let mut status = 0;
    // SAFETY: the status is a local.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child: {text}");
    text
}

/// Makes the process an ordinary user's, if it is the superuser's.
pub fn become_nobody() {
    const NOBODY: libc::uid_t = 65534;
    // SAFETY: touches no memory.
    unsafe {
        if libc::geteuid() == 0 {
            assert_eq!(libc::setgid(NOBODY), 0);
            assert_eq!(libc::setuid(NOBODY), 0);
        }
        assert_ne!(libc::geteuid(), 0);
    }
}

/// Opens a stopped event that counts the calling thread's CPU time and signals after each `period_ns`.
///
/// # Errors
/// The system's refusal.
pub fn open_cpu_event(period_ns: u64, exclude_kernel: bool) -> std::io::Result<i32> {
    // `struct perf_event_attr`: type and size; config; period; sample type; read format; flags; wake up after one.
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
    // SAFETY: the kernel reads the structure alone.
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

/// Leaves the process the first processors that it has, so many.
pub fn use_processors(wanted: usize) {
    // SAFETY: the set is a local of the size that is told.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &mut set), 0);
        let mut left = wanted;
        for processor in 0..libc::CPU_SETSIZE as usize {
            if libc::CPU_ISSET(processor, &set) && left == 0 {
                libc::CPU_CLR(processor, &mut set);
            } else if libc::CPU_ISSET(processor, &set) {
                left -= 1;
            }
        }
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}
