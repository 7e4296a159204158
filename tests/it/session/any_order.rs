//! Eight threads call the functions of the crate in random order: those of sessions, threads,
//! labels, markers, event loops, stacks, callbacks, scripts and profiles. No call panics, hangs or
//! leaks. Of the functions that only make or read a value, in `types` and `markers`, this test
//! calls those that the others need. Typed markers have their own tests.
//!
//! `GEKKOTA_SEED` repeats the choices of a run, but not the order of the threads.
mod random;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::left_behind::{Holdings, threads};
use crate::common::{LONGEST_WAIT, isolated, wait_until};
use gekkota::callback::{
    ProfilingState, profiler_add_state_change_callback, profiler_callback_after_sampling,
    profiler_remove_state_change_callback,
};
use gekkota::event_delay::{
    AutoProfilerEvent, EventDelayProbe, EventLoopWatch, profiler_watch_event_loop,
};
use gekkota::jit::{CodeRange, profiler_register_code_range};
use gekkota::process::{
    Page, profiler_clear_all_pages, profiler_current_process_id,
    profiler_env_vars_for_child_process, profiler_received_exit_profile, profiler_register_page,
    profiler_set_process_name, profiler_set_process_type, profiler_set_version,
    profiler_unregister_page,
};
use gekkota::profile::{Format, SnapshotOptions, Symbolicate};
use gekkota::script::{AutoProfilerScriptFrame, profiler_register_script_function};
use gekkota::stack::{
    StackFeatures, profiler_capture_backtrace, profiler_suspend_and_sample_thread,
};
use gekkota::thread::{
    ThreadId, ThreadProfilingFeatures, profiler_current_thread_id,
    profiler_is_active_and_thread_is_registered, profiler_is_locked_on_current_thread,
    profiler_is_main_thread, profiler_main_thread_id, profiler_other_thread_is_being_profiled,
    profiler_thread_is_being_profiled, profiler_thread_is_sleeping,
};
use gekkota::*;
use random::Random;

const THREADS: u64 = 8;
/// Number of steps of a round on a quiet machine.
const STEPS: u64 = 4_000;
/// Maximum number of steps of a round, for a sampler that gets no processor for a while.
const MAX_STEPS: u64 = 100 * STEPS;

/// Number of rounds after the first one, which allocates the slots, chunks and thread stacks that
/// the process keeps.
const COMPARED_ROUNDS: u64 = 2;
const RESIDENT_SLACK_KIB: usize = 32 * 1024;
/// The process keeps as many slots as were ever in use at once, and on a busy machine more threads
/// use theirs at once. So the mapped memory varies: 250 to 410 MiB on a quiet machine, up to 663
/// MiB were seen on a busy one. If each unregistration leaked one slot, the compared rounds would leak about
/// 1,600 MiB.
const MAPPED_SLACK_KIB: usize = 800 * 1024;

/// A value that a thread holds, and drops at a random time.
enum Held {
    Label(#[expect(dead_code, reason = "held for its drop")] AutoProfilerLabel),
    ScriptFrame(AutoProfilerScriptFrame),
    TextMarker(#[expect(dead_code, reason = "held for its drop")] AutoProfilerTextMarker<'static>),
    Registration(ThreadGuard),
    Asleep(AutoProfilerThreadSleep),
    Awake(#[expect(dead_code, reason = "held for its drop")] AutoProfilerThreadWake),
    Code(CodeRange),
    Event(#[expect(dead_code, reason = "held for its drop")] AutoProfilerEvent),
    Watch(EventLoopWatch),
    Session(ProfilerSession),
    Init(#[expect(dead_code, reason = "held for its drop")] AutoProfilerInit),
}

/// The state that all threads share.
struct Shared {
    folder: PathBuf,
    thread_ids: [AtomicU64; THREADS as usize],
    /// Number of steps begun.
    steps: AtomicU64,
    /// Whether all threads have done their steps.
    is_over: AtomicBool,
    /// The choice, plus one, of the step that each thread is in; 0 between two steps.
    doing: [AtomicU64; THREADS as usize],
    called_back: AtomicU64,
    /// Probes that the watches have posted to the event loops of all threads. Any thread runs or
    /// drops them. Has its own `Arc`, because the watches hold it, too.
    probes: Arc<Mutex<VecDeque<EventDelayProbe>>>,
    answered: AtomicU64,
}

struct Actor<'a> {
    number: usize,
    random: Random,
    held: Vec<Held>,
    shared: &'a Arc<Shared>,
}

impl Shared {
    /// Returns whether to do another step: [`STEPS`] in all, and up to [`MAX_STEPS`] until a
    /// callback was called and a probe was run.
    fn begin_step(&self) -> bool {
        let steps = self.steps.fetch_add(1, Ordering::Relaxed);
        let is_unused = |count: &AtomicU64| count.load(Ordering::Relaxed) == 0;
        let is_incomplete = is_unused(&self.called_back) || is_unused(&self.answered);
        steps < STEPS || (is_incomplete && steps < MAX_STEPS)
    }
}

const CATEGORY: ProfilingCategoryPair = ProfilingCategoryPair::Other(None);

impl Actor<'_> {
    fn params(&mut self) -> StartParams {
        let features = match self.random.below(4) {
            0 => Features::default(),
            1 => Features::from_bits(self.random.below(1 << 29)) | Features::STACK_WALK,
            2 => {
                Features::CPU_ALL_THREADS
                    | Features::MARKERS_ALL_THREADS
                    | Features::NO_STACK_SAMPLING
            }
            _ => Features::SAMPLING_ALL_THREADS | Features::STACK_WALK | Features::CPU,
        };
        let params = StartParams::default()
            .capacity_bytes(1 << (18 + self.random.below(5)))
            .interval(Duration::from_micros(500 + self.random.below(2000)))
            .features(features)
            .duration(Duration::from_millis(20 + self.random.below(1000)));
        match self.random.below(4) {
            0 => params.filters(["actor 1", "3"]),
            // Refused, because it selects only another process.
            1 => params.filters(["pid:1"]),
            _ => params,
        }
    }

    /// Does a random step. Slow steps are rare.
    fn step(&mut self) {
        let choice = self.random.below(100);
        self.shared.doing[self.number].store(choice + 1, Ordering::Relaxed);
        match choice {
            0..10 => self.hold_label(),
            10..25 => self.drop_one(),
            25..35 => self.mark(),
            35..42 => self.event_loop(),
            42..52 => self.query(),
            52..58 => self.register(),
            58..64 => self.sleep_or_wake(),
            64..70 => self.pause_or_resume(),
            70..76 => self.take_stacks(),
            76..82 => self.callbacks(),
            82..86 => self.scripts_and_code(),
            86..92 => self.start_or_stop(),
            92..95 => self.read_out(),
            95..97 => self.control(),
            97..99 => self.sessions(),
            _ => self.begin_or_end(),
        }
        self.shared.doing[self.number].store(0, Ordering::Relaxed);
    }

    fn hold_label(&mut self) {
        let label = match self.random.below(4) {
            0 => AutoProfilerLabel::new("plain", CATEGORY),
            1 => AutoProfilerLabel::with_dynamic("dynamic", "part", CATEGORY),
            2 => AutoProfilerLabel::relevant_for_js_with_dynamic("script", "part", CATEGORY),
            _ => AutoProfilerLabel::relevant_for_js("script", CATEGORY),
        };
        self.held.push(Held::Label(label));
    }

    fn drop_one(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let index = self.random.below(self.held.len() as u64) as usize;
        let held = self.held.swap_remove(index);
        match held {
            Held::Code(range) if self.random.one_in(8) => range.keep(),
            Held::Watch(watch) if self.random.one_in(4) => watch.keep(),
            // Safe code may forget these. A forgotten registration would last until the thread
            // ends.
            Held::Label(_) | Held::ScriptFrame(_) | Held::Event(_) if self.random.one_in(16) => {
                std::mem::forget(held)
            }
            _ => drop(held),
        }
    }

    fn mark(&mut self) {
        let text = "x".repeat(self.random.below(600) as usize);
        let now = ProfilerTime::now();
        match self.random.below(4) {
            0 => add_untyped_marker("untyped", CATEGORY, MarkerOptions::default()),
            1 => add_text_marker(
                "text",
                CATEGORY,
                MarkerTiming::interval_until_now_from(now).into(),
                &text,
            ),
            2 => add_text_marker(&text, CATEGORY, MarkerTiming::interval_end(now).into(), ""),
            _ => {
                let marker = AutoProfilerTextMarker::new(
                    "scope",
                    CATEGORY,
                    MarkerOptions::default(),
                    "text",
                );
                self.held.extend(marker.map(Held::TextMarker));
            }
        }
    }

    fn event_loop(&mut self) {
        match self.random.below(8) {
            0 => self.held.push(Held::Event(AutoProfilerEvent::new())),
            1 | 2 => {
                let ago = self.random.below(200_000) as f64;
                let queued_at = ProfilerTime::now().subtract_microseconds(ago);
                self.held
                    .push(Held::Event(AutoProfilerEvent::queued_at(queued_at)));
            }
            3 => {
                let probes = Arc::clone(&self.shared.probes);
                let post = move |probe| {
                    probes
                        .lock()
                        .expect("no thread panics while it holds the lock")
                        .push_back(probe)
                };
                self.held.push(Held::Watch(profiler_watch_event_loop(post)));
            }
            choice => {
                // The lock is released first, because dropping a probe may end its watch.
                let probe = self
                    .shared
                    .probes
                    .lock()
                    .expect("no thread panics while it holds the lock")
                    .pop_front();
                match probe {
                    Some(probe) if choice > 4 => {
                        probe.run();
                        self.shared.answered.fetch_add(1, Ordering::Relaxed);
                    }
                    probe => drop(probe),
                }
            }
        }
    }

    fn query(&mut self) {
        let other =
            self.shared.thread_ids[self.random.below(THREADS) as usize].load(Ordering::Relaxed);
        let other = ThreadId::from_number(other as i32);
        let _ = (
            profiler_is_active(),
            profiler_is_active_and_unpaused(),
            profiler_is_paused(),
        );
        let _ = (
            profiler_is_sampling_paused(),
            profiler_feature_active(Features::CPU),
        );
        let _ = (
            profiler_features_if_active(),
            profiler_features_if_active_and_unpaused(),
        );
        let _ = (
            profiler_get_available_features(),
            profiler_get_start_params(),
        );
        let _ = (
            profiler_get_buffer_info(),
            profiler_env_vars_for_child_process(),
        );
        let _ = profiler_other_thread_is_being_profiled(other, ThreadProfilingFeatures::ANY);
        let _ = profiler_thread_is_being_profiled(ThreadProfilingFeatures::SAMPLING);
        let _ = (
            profiler_is_active_and_thread_is_registered(),
            profiler_thread_is_sleeping(),
        );
        let _ = (profiler_main_thread_id(), profiler_current_process_id());
        assert!(!profiler_is_main_thread() && !profiler_is_locked_on_current_thread());
    }

    fn register(&mut self) {
        match self.random.below(6) {
            0 => register_thread(&format!("actor {}", self.number)),
            1 | 2 => unregister_thread(),
            3 => self
                .held
                .push(Held::Registration(ThreadGuard::register("guarded"))),
            _ => {
                // The thread exits without unregistering.
                let short = thread::spawn(|| register_thread("short"));
                short.join().expect("registering does not panic");
            }
        }
    }

    fn sleep_or_wake(&mut self) {
        match self.random.below(5) {
            0 => profiler_thread_sleep(),
            1 => profiler_thread_wake(),
            2 => self.held.push(Held::Asleep(AutoProfilerThreadSleep::new())),
            3 => self.held.push(Held::Awake(AutoProfilerThreadWake::new())),
            _ => thread::sleep(Duration::from_micros(self.random.below(500))),
        }
    }

    fn pause_or_resume(&mut self) {
        [
            profiler_pause,
            profiler_resume,
            profiler_pause_sampling,
            profiler_resume_sampling,
        ][self.random.below(4) as usize]();
    }

    fn take_stacks(&mut self) {
        let other =
            self.shared.thread_ids[self.random.below(THREADS) as usize].load(Ordering::Relaxed);
        let other = ThreadId::from_number(other as i32);
        let features = [
            StackFeatures::FULL,
            StackFeatures::LABELS,
            StackFeatures::NATIVE,
        ][self.random.below(3) as usize];
        if self.random.one_in(4) {
            let bound = Duration::from_millis(self.random.below(5));
            if let Ok(stack) = profiler_suspend_and_sample_thread(other, features, bound) {
                assert_eq!(stack.names().len(), stack.frames().len());
                let own = profiler_current_thread_id();
                assert_eq!(
                    stack.thread(),
                    if other.is_specified() { other } else { own }
                );
                assert!(stack.time() <= ProfilerTime::now(), "{stack:?}");
                assert!(
                    stack.is_truncated()
                        || !stack.to_string().is_empty()
                        || stack.frames().is_empty()
                );
            }
        } else if let Some(backtrace) = profiler_capture_backtrace() {
            assert_eq!(backtrace.thread(), profiler_current_thread_id());
            match self.random.below(16) {
                0 => assert!(!backtrace.resolve().frames().is_empty()),
                1 => _ = backtrace.resolve_with(features),
                _ => drop(backtrace),
            }
        }
    }

    fn callbacks(&mut self) {
        let shared = Arc::clone(self.shared);
        let id = self.random.below(4);
        match self.random.below(3) {
            0 => {
                let states =
                    ProfilingState::Started | ProfilingState::Stopping | ProfilingState::Pausing;
                let count = move |_| _ = shared.called_back.fetch_add(1, Ordering::Relaxed);
                profiler_add_state_change_callback(states, count, id + 1);
            }
            1 => profiler_remove_state_change_callback(id + 1),
            _ => {
                let count = move |_| {
                    shared.called_back.fetch_add(1, Ordering::Relaxed);
                    profiler_pause_sampling();
                    profiler_resume_sampling();
                };
                profiler_callback_after_sampling(count);
            }
        }
    }

    fn scripts_and_code(&mut self) {
        match self.random.below(3) {
            0 => {
                let line = self.random.below(20) as u32;
                let function = profiler_register_script_function("f", "any.script", line, 1);
                assert_eq!((function.name(), function.file()), ("f", "any.script"));
                assert_eq!((function.line(), function.column()), (line, 1));
                let here = (&raw const line).addr();
                self.held
                    .push(Held::ScriptFrame(match self.random.below(2) {
                        0 => AutoProfilerScriptFrame::new(function),
                        _ => AutoProfilerScriptFrame::with_stack_address(function, here),
                    }));
            }
            1 => {
                let at = (0x10_0000 + self.random.below(1 << 20)) as *const u8;
                self.held.push(Held::Code(profiler_register_code_range(
                    at,
                    64,
                    "generated",
                )));
            }
            _ => {
                for held in &self.held {
                    if let Held::ScriptFrame(frame) = held {
                        let line = self.random.below(99) as u32;
                        if self.random.one_in(2) {
                            frame.set_line(line)
                        } else {
                            frame.set_position(line, 1)
                        }
                    }
                }
            }
        }
    }

    fn start_or_stop(&mut self) {
        let params = self.params();
        match self.random.below(4) {
            0 => _ = profiler_start(params),
            1 | 2 => _ = profiler_ensure_started(params),
            _ => profiler_stop(),
        }
    }

    fn read_out(&mut self) {
        let options = SnapshotOptions::default().symbolicate(Symbolicate::No);
        let mut text = Vec::new();
        match self.random.below(8) {
            0 => text = profiler_get_profile().unwrap_or_default(),
            1 => {
                let path = self.shared.folder.join(format!("{}.json", self.number));
                if profiler_save_profile_to_file(&path).is_ok() {
                    text = std::fs::read(&path).expect("it was saved");
                }
            }
            _ => _ = profiler_stream_json(&mut text, &options),
        }
        let parsed = (!text.is_empty()).then(|| serde_json::from_slice::<serde_json::Value>(&text));
        assert!(
            parsed.is_none_or(|parsed| parsed.is_ok_and(|profile| profile["threads"].is_array()))
        );
    }

    fn control(&mut self) {
        let id = self.random.below(20);
        match self.random.below(4) {
            0 => profiler_register_page(Page::new(id, "page")),
            1 => profiler_unregister_page(id),
            2 if self.random.one_in(4) => profiler_clear_all_pages(),
            2 if self.random.one_in(2) => profiler_set_version("1.2.3"),
            2 => {
                profiler_set_process_name("any", Some("order.example"));
                profiler_set_process_type("order");
            }
            _ => _ = profiler_received_exit_profile(r#"{"meta": {}, "threads": []}"#),
        }
        let signals = match self.random.below(3) {
            0 => ControlSignals::new()
                .start_signal(libc::SIGUSR2)
                .stop_signal(libc::SIGUSR1),
            _ => ControlSignals::new(),
        };
        _ = profiler_control_by_signals(signals.folder(&self.shared.folder));
    }

    fn sessions(&mut self) {
        let params = self.params();
        match (
            self.random.below(3),
            self.held
                .iter()
                .position(|held| matches!(held, Held::Session(_))),
        ) {
            (0, Some(index)) => {
                let Held::Session(session) = self.held.swap_remove(index) else {
                    return;
                };
                if let Ok(profile) = session.finish() {
                    self.read_profile(&profile);
                }
            }
            (1, Some(index)) => {
                let Held::Session(session) = &self.held[index] else {
                    return;
                };
                if let Ok(profile) = session.snapshot()
                    && self.random.one_in(4)
                {
                    self.read_profile(&profile);
                }
            }
            _ => {
                if let Ok(session) = ProfilerSession::start(params) {
                    self.held.push(Held::Session(session));
                }
            }
        }
    }

    fn read_profile(&mut self, profile: &Profile) {
        assert!(!profile.sampler_counts().is_empty());
        let mut text = Vec::new();
        match self.random.below(4) {
            0 => {
                for thread in profile.summarize() {
                    assert!(thread.truncated_samples <= thread.samples, "{thread:?}");
                }
                return;
            }
            1 => {
                let path = self
                    .shared
                    .folder
                    .join(format!("{}-of-session.json", self.number));
                profile.save(&path).expect("the folder is there");
                text = std::fs::read(&path).expect("it was saved");
            }
            2 => profile
                .write(Format::Gecko, &mut text)
                .expect("memory takes all"),
            _ => {
                let options = SnapshotOptions::default().symbolicate(Symbolicate::No);
                profile
                    .write_with(Format::Gecko, &mut text, &options)
                    .expect("memory takes all");
            }
        }
        let parsed = serde_json::from_slice::<serde_json::Value>(&text);
        assert!(parsed.is_ok_and(|profile| profile["threads"].is_array()));
    }

    fn begin_or_end(&mut self) {
        match self.random.below(4) {
            0 => profiler_init(),
            1 => profiler_shutdown(),
            2 => self.held.push(Held::Init(AutoProfilerInit::new())),
            // Shuts down at once, maybe after another thread has started a session.
            _ => drop(AutoProfilerInit::new()),
        }
    }

    fn act(mut self) {
        let own = profiler_current_thread_id().to_number() as u64;
        self.shared.thread_ids[self.number].store(own, Ordering::Relaxed);
        while self.shared.begin_step() {
            self.step();
            self.held.truncate(64);
        }
        while !self.held.is_empty() {
            self.drop_one();
        }
    }
}

/// Aborts the process if no step begins within [`LONGEST_WAIT`], and prints what each thread was
/// doing.
fn watch(shared: &Shared) {
    let (mut last, mut since) = (0, Instant::now());
    loop {
        let steps = shared.steps.load(Ordering::Relaxed);
        if shared.is_over.load(Ordering::Relaxed) {
            return;
        }
        if std::mem::replace(&mut last, steps) != steps {
            since = Instant::now();
        }
        if since.elapsed() > LONGEST_WAIT {
            let doing: Vec<u64> = shared
                .doing
                .iter()
                .map(|step| step.load(Ordering::Relaxed))
                .collect();
            eprintln!(
                "no step began in {LONGEST_WAIT:?}, after {steps} steps; \
                 the choices, plus one, of the threads: {doing:?}"
            );
            std::process::abort();
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn round(seed: u64, folder: &std::path::Path) {
    let shared = Arc::new(Shared {
        folder: folder.to_owned(),
        thread_ids: Default::default(),
        steps: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
        doing: Default::default(),
        called_back: AtomicU64::new(0),
        probes: Arc::default(),
        answered: AtomicU64::new(0),
    });
    thread::scope(|scope| {
        scope.spawn(|| watch(&shared));
        let actors: Vec<_> = (0..THREADS as usize)
            .map(|number| {
                let random = Random(seed.wrapping_mul(31).wrapping_add(number as u64 + 1) | 1);
                let shared = &shared;
                scope.spawn(move || {
                    Actor {
                        number,
                        random,
                        held: Vec::new(),
                        shared,
                    }
                    .act()
                })
            })
            .collect();
        let ends: Vec<_> = actors.into_iter().map(|actor| actor.join()).collect();
        shared.is_over.store(true, Ordering::Relaxed);
        for (number, end) in ends.into_iter().enumerate() {
            end.unwrap_or_else(|_| panic!("actor {number} panicked; GEKKOTA_SEED={seed}"));
        }
    });
    (1..5).for_each(profiler_remove_state_change_callback);
    profiler_shutdown();
    assert!(!profiler_is_active() && profiler_get_profile().is_none());
    assert!(
        shared.called_back.load(Ordering::Relaxed) > 0,
        "a callback was called"
    );
    assert!(
        shared.answered.load(Ordering::Relaxed) > 0,
        "a probe was posted and run"
    );
}

#[test]
fn calls_in_any_order_do_not_panic_hang_or_leak() {
    isolated(|| {
        let time = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .expect("after 1970");
        let seed = std::env::var("GEKKOTA_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok());
        let seed: u64 = seed.unwrap_or(time.as_nanos() as u64);
        println!("GEKKOTA_SEED={seed}");
        let folder = std::env::temp_dir().join(format!("gekkota-any-order-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        Holdings::prepare();
        let own_threads = threads();
        let wait_for_profiler_threads = || {
            wait_until("the threads of the profiler have exited", || {
                threads() <= own_threads
            });
        };
        round(seed, &folder);
        wait_for_profiler_threads();
        let before = Holdings::now();
        (1..=COMPARED_ROUNDS).for_each(|number| round(seed + number, &folder));
        wait_for_profiler_threads();
        Holdings::now().assert_as_before(&before, RESIDENT_SLACK_KIB, MAPPED_SLACK_KIB);
        std::fs::remove_dir_all(&folder).expect("the folder is ours");
    });
}
