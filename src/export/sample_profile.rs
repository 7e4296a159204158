//! Small profiles for the tests of the writers.

use crate::model::{
    Category, CategoryPair, Frame, Function, FunctionKind, Markers, Module, ModuleId, Process,
    ProfileModel, Sample, Samples, Thread,
};

/// Adds threads and samples to a profile of one process, whose interval is 1 ms.
pub(crate) struct ProfileBuilder {
    pub(crate) profile: ProfileModel,
    /// The module of functions that are added from now on.
    pub(crate) module: Option<ModuleId>,
}

/// Name of the functions whose category is `Idle`.
pub(crate) const WAIT: &str = "wait";

impl ProfileBuilder {
    pub(crate) fn new() -> Self {
        let mut profile = ProfileModel::default();
        profile.meta.product = "demo".to_owned();
        profile.meta.interval_ns = 1_000_000;
        profile.meta.is_symbolicated = true;
        let category = |name: &str, color: &str| Category {
            name: name.to_owned(),
            color: color.to_owned(),
            subcategories: vec!["Other".to_owned()],
        };
        profile.categories = vec![category("Other", "grey"), category("Idle", "transparent")];
        profile.processes.push(Process {
            pid: "1".to_owned(),
            name: "demo".to_owned(),
            kind: "default".to_owned(),
            ..Process::default()
        });
        Self {
            profile,
            module: None,
        }
    }

    /// Adds a module behind the others, and returns it.
    pub(crate) fn add_module(&mut self, name: &str) -> Option<ModuleId> {
        let index = self.profile.modules.len() as u32;
        let start = 0x10_0000 * (u64::from(index) + 1);
        self.profile.modules.push(Module {
            process: 0,
            start,
            end: start + 0x8_0000,
            offset: 0,
            name: name.to_owned(),
            path: format!("/lib/{name}"),
            debug_name: name.to_owned(),
            debug_path: format!("/lib/{name}"),
            breakpad_id: String::new(),
            code_id: None,
            arch: None,
        });
        Some(ModuleId(index))
    }

    /// Adds a thread and returns its index.
    pub(crate) fn thread(&mut self, name: &str) -> usize {
        let index = self.profile.threads.len();
        self.profile.threads.push(Thread {
            process: 0,
            name: name.to_owned(),
            tid: (index + 1).to_string(),
            is_main: index == 0,
            registered_ns: None,
            unregistered_ns: None,
            asleep_at: None,
            samples: Samples::default(),
            markers: Markers::default(),
        });
        index
    }

    /// Adds a sample of native functions, the outermost first, at a time in ms. Without a name, the
    /// sample has no stack.
    pub(crate) fn sample(&mut self, thread: usize, time_ms: i64, names: &[&str]) {
        self.push(thread, time_ms, names, None);
    }

    /// Adds a sample with the CPU time since the previous one.
    pub(crate) fn cpu_sample(&mut self, thread: usize, time_ms: i64, names: &[&str], cpu_ns: u64) {
        self.profile.meta.has_cpu_deltas = true;
        self.push(thread, time_ms, names, Some(cpu_ns));
    }

    fn push(&mut self, thread: usize, time_ms: i64, names: &[&str], cpu_delta_ns: Option<u64>) {
        let profile = &mut self.profile;
        let mut stack = None;
        for name in names {
            let text = profile.intern(name);
            let function = profile.intern_function(Function {
                module: self.module,
                ..Function::new(text, FunctionKind::Native)
            });
            let frame = profile.intern_frame(&Frame {
                category: Some(CategoryPair {
                    category: u16::from(*name == WAIT),
                    subcategory: 0,
                }),
                ..Frame::new(function)
            });
            stack = Some(profile.append_frame(stack, frame));
        }
        profile.threads[thread].samples.push(Sample {
            stack,
            time_ns: time_ms * 1_000_000,
            cpu_delta_ns,
            event_delay_ns: None,
            weight: 1,
        });
    }
}

/// Returns a profile of a main thread, which works and waits, and of a worker, which only waits.
pub(crate) fn two_threads() -> ProfileModel {
    let mut builder = ProfileBuilder::new();
    let (main, worker) = (builder.thread("main"), builder.thread("worker"));
    builder.module = builder.add_module("demo");
    builder.sample(main, 0, &[]);
    builder.cpu_sample(main, 1, &["run", "parse"], 400_000);
    builder.cpu_sample(main, 2, &["run", "parse", "alloc"], 0);
    builder.cpu_sample(main, 4, &["run", "parse"], 2_900_000);
    for time_ms in [5, 6, 7] {
        builder.cpu_sample(main, time_ms, &["run", WAIT], 0);
    }
    for time_ms in [1, 2] {
        builder.cpu_sample(worker, time_ms, &[WAIT], 0);
    }
    builder.profile
}
