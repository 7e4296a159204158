//! Builds small profiles for tests: [`TestProfile`] those for the texts, [`ProfileBuilder`] those
//! for the writers.

use crate::model::{
    Category, CategoryPair, FieldValue, Frame, Function, FunctionKind, Marker, MarkerPayload,
    MarkerPhase, Markers, Module, ModuleId, Process, ProfileModel, Sample, Samples, StackId,
    Thread,
};

/// A profile whose samples follow each other at its interval.
pub(super) struct TestProfile {
    pub(super) profile: ProfileModel,
    app: ModuleId,
}

impl TestProfile {
    /// Returns a profile of the program `app`, which is also its only library.
    pub(super) fn new(interval_ns: u64) -> Self {
        let mut profile = ProfileModel::default();
        profile.meta.product = "app".to_owned();
        profile.meta.interval_ns = interval_ns;
        profile.processes.push(Process {
            pid: "7".to_owned(),
            name: "app".to_owned(),
            ..Process::default()
        });
        profile.categories.push(Category {
            name: "Idle".to_owned(),
            color: "transparent".to_owned(),
            subcategories: vec!["Other".to_owned()],
        });
        let mut test = Self {
            profile,
            app: ModuleId(0),
        };
        test.app = test.library("app");
        test
    }

    pub(super) fn library(&mut self, name: &str) -> ModuleId {
        let number = self.profile.modules.len() as u64;
        self.profile.modules.push(Module {
            process: 0,
            start: number << 20,
            end: (number + 1) << 20,
            offset: 0,
            name: name.to_owned(),
            path: format!("/{name}"),
            debug_name: name.to_owned(),
            debug_path: format!("/{name}"),
            breakpad_id: String::new(),
            code_id: None,
            arch: None,
        });
        ModuleId(number as u32)
    }

    pub(super) fn thread(&mut self, name: &str) -> usize {
        let number = self.profile.threads.len();
        self.profile.threads.push(Thread {
            process: 0,
            name: name.to_owned(),
            tid: (100 + number).to_string(),
            is_main: number == 0,
            registered_ns: None,
            unregistered_ns: None,
            asleep_at: None,
            samples: Samples::default(),
            markers: Markers::default(),
        });
        number
    }

    /// Adds the stack of these names, the outermost one first. A name in parentheses is not code,
    /// `+` before a name means inlined, `@` a script function, `#` a label, and `~` a function that
    /// waits.
    pub(super) fn stack(&mut self, names: &[&str]) -> Option<StackId> {
        let mut stack = None;
        for text in names {
            let name = text.trim_start_matches(['+', '@', '#', '~']);
            let kind = match text.as_bytes().first() {
                Some(b'(') => FunctionKind::Structure,
                Some(b'@') => FunctionKind::Script,
                Some(b'#') => FunctionKind::Label,
                _ => FunctionKind::Native,
            };
            let name = self.profile.intern(name);
            let function = self.profile.intern_function(Function {
                module: (kind == FunctionKind::Native).then_some(self.app),
                ..Function::new(name, kind)
            });
            let idle = CategoryPair {
                category: 0,
                subcategory: 0,
            };
            let frame = self.profile.intern_frame(&Frame {
                inline_depth: u16::from(text.starts_with('+')),
                category: text.starts_with('~').then_some(idle),
                ..Frame::new(function)
            });
            stack = Some(self.profile.append_frame(stack, frame));
        }
        stack
    }

    pub(super) fn sample(&mut self, thread: usize, names: &[&str], cpu_delta_ns: Option<u64>) {
        let stack = self.stack(names);
        self.sample_of(thread, stack, cpu_delta_ns);
    }

    pub(super) fn sample_of(
        &mut self,
        thread: usize,
        stack: Option<StackId>,
        cpu_delta_ns: Option<u64>,
    ) {
        let interval_ns = self.profile.meta.interval_ns as i64;
        let samples = &mut self.profile.threads[thread].samples;
        samples.push(Sample {
            stack,
            time_ns: samples.len() as i64 * interval_ns,
            cpu_delta_ns,
            event_delay_ns: None,
            weight: 1,
        });
    }

    /// Adds a marker of context switches, with the wait in ns and both numbers of switches.
    pub(super) fn switches(
        &mut self,
        thread: usize,
        (start_ns, end_ns): (i64, i64),
        waited_ns: Option<i64>,
        [voluntary, involuntary]: [i64; 2],
    ) {
        let type_name = self.profile.intern("ContextSwitches");
        let mut field = |key: &str, value| (self.profile.intern(key), value);
        let mut fields = vec![
            field("voluntary", FieldValue::Integer(voluntary)),
            field("involuntary", FieldValue::Integer(involuntary)),
        ];
        fields.extend(waited_ns.map(|ns| field("waited", FieldValue::Number(ns as f64 / 1e6))));
        let name = self.profile.intern("Context switches");
        self.profile.threads[thread].markers.push(Marker {
            name,
            phase: MarkerPhase::Interval,
            start_ns: Some(start_ns),
            end_ns: Some(end_ns),
            category: 0,
            payload: Some(MarkerPayload {
                type_name,
                fields: &fields,
                stack: None,
            }),
        });
    }

    pub(super) fn interval(&mut self, thread: usize, name: &str, start_ns: i64, end_ns: i64) {
        let name = self.profile.intern(name);
        self.profile.threads[thread].markers.push(Marker {
            name,
            phase: MarkerPhase::Interval,
            start_ns: Some(start_ns),
            end_ns: Some(end_ns),
            category: 0,
            payload: None,
        });
    }
}

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
