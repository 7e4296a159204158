//! A renderer with threads, hooks and guards, in the style of WebRender's bindings and the style
//! system.

use gekkota::gecko_profiler;

use std::collections::HashMap;
use std::ffi::CStr;
use std::time::Duration;

use gecko_profiler::marker::options::*;
use gecko_profiler::{
    AutoProfilerFlowMarker, AutoProfilerMarker, AutoProfilerTextMarker, AutoProfilerTracingMarker,
    CowString, FlowId, FlowStackMarker, ProfilerTime, ProfilingCategoryPair, StackMarker, Tracing,
    add_marker, auto_profiler_flow_marker, auto_profiler_marker, auto_profiler_marker_text,
    auto_profiler_marker_tracing, gecko_profiler_category, gecko_profiler_fn_label,
    gecko_profiler_label,
};

/// The renderer's interface to the profiler, on which it does not depend.
pub(crate) trait ProfilerHooks: Send + Sync {
    fn register_thread(&self, name: &str);
    fn unregister_thread(&self);
    fn begin_marker(&self, label: &CStr);
    fn end_marker(&self, label: &CStr);
    fn event_marker(&self, label: &CStr);
    fn add_text_marker(&self, label: &CStr, text: &str, duration: Duration);
    fn thread_is_being_profiled(&self) -> bool;
}

struct GeckoProfilerHooks;

impl GeckoProfilerHooks {
    fn mark(&self, label: &CStr, timing: MarkerTiming) {
        gecko_profiler::add_untyped_marker(
            label.to_str().unwrap(),
            gecko_profiler_category!(Graphics),
            MarkerOptions {
                timing,
                ..Default::default()
            },
        );
    }
}

impl ProfilerHooks for GeckoProfilerHooks {
    fn register_thread(&self, name: &str) {
        gecko_profiler::register_thread(name);
    }

    fn unregister_thread(&self) {
        gecko_profiler::unregister_thread();
    }

    fn begin_marker(&self, label: &CStr) {
        self.mark(label, MarkerTiming::interval_start(ProfilerTime::now()));
    }

    fn end_marker(&self, label: &CStr) {
        self.mark(label, MarkerTiming::interval_end(ProfilerTime::now()));
    }

    fn event_marker(&self, label: &CStr) {
        self.mark(label, MarkerTiming::instant_now());
    }

    fn add_text_marker(&self, label: &CStr, text: &str, duration: Duration) {
        let now = ProfilerTime::now();
        let start = now
            .clone()
            .subtract_microseconds(duration.as_micros() as f64);
        gecko_profiler::add_text_marker(
            &label.to_string_lossy(),
            gecko_profiler_category!(Graphics),
            MarkerOptions {
                timing: MarkerTiming::interval(start, now),
                ..Default::default()
            },
            text,
        );
    }

    fn thread_is_being_profiled(&self) -> bool {
        gecko_profiler::current_thread_is_being_profiled_for_markers()
    }
}

static HOOKS: &dyn ProfilerHooks = &GeckoProfilerHooks;

pub(crate) fn use_hooks() {
    HOOKS.register_thread("RenderBackend");
    assert!(HOOKS.thread_is_being_profiled());
    HOOKS.begin_marker(c"Frame");
    HOOKS.event_marker(c"Vsync");
    HOOKS.add_text_marker(c"Shader", "compiled", Duration::from_millis(2));
    HOOKS.end_marker(c"Frame");
    HOOKS.unregister_thread();
    assert!(!HOOKS.thread_is_being_profiled());
}

type Handler = Box<dyn Fn(usize) + Send + Sync>;

/// A thread pool with start and exit handlers, like rayon's.
#[derive(Default)]
pub(crate) struct PoolBuilder {
    start_handler: Option<Handler>,
    exit_handler: Option<Handler>,
}

impl PoolBuilder {
    fn start_handler(mut self, handler: impl Fn(usize) + Send + Sync + 'static) -> Self {
        self.start_handler = Some(Box::new(handler));
        self
    }

    fn exit_handler(mut self, handler: impl Fn(usize) + Send + Sync + 'static) -> Self {
        self.exit_handler = Some(Box::new(handler));
        self
    }

    fn run(self, work: impl Fn() + Send + Sync) {
        std::thread::scope(|scope| {
            for idx in 0..2 {
                let (builder, work) = (&self, &work);
                scope.spawn(move || {
                    builder
                        .start_handler
                        .iter()
                        .for_each(|handler| handler(idx));
                    work();
                    builder.exit_handler.iter().for_each(|handler| handler(idx));
                });
            }
        });
    }
}

pub(crate) fn use_pool() {
    let tag = "LP";
    PoolBuilder::default()
        .start_handler(move |idx| {
            gecko_profiler::register_thread(&format!("Worker{}#{}", tag, idx));
        })
        .exit_handler(|_idx| {
            gecko_profiler::unregister_thread();
        })
        .run(|| {
            gecko_profiler_label!(Layout, StyleComputation);
            super::run();
        });
}

#[inline(never)]
fn parse(script: &str) -> usize {
    gecko_profiler_label!(ProfilingCategoryPair::JavaScript(Some(
        gecko_profiler::JavaScript::Parsing
    )));
    super::run();
    std::hint::black_box(script.len())
}

#[gecko_profiler_fn_label(Idle)]
#[inline(never)]
fn wait(bar: u32) -> u32 {
    super::run();
    bar
}

struct Display;

impl Display {
    #[gecko_profiler_fn_label(Graphics, DisplayListBuilding)]
    #[inline(never)]
    pub(self) fn build(&self, item: i8) -> i8 {
        super::run();
        item
    }
}

pub(crate) fn use_labels() {
    let parsing = ProfilingCategoryPair::JavaScript(Some(gecko_profiler::JavaScript::Parsing));
    assert_eq!(parsing, gecko_profiler_category!(JavaScript, Parsing));
    assert_eq!(
        (
            parsing.to_cpp_enum_value(),
            format!("{:?}", parsing).as_str()
        ),
        (14, "JavaScript(Some(Parsing))")
    );
    let counts = HashMap::from([(parsing, 1), (ProfilingCategoryPair::Other(None), 2)]);
    assert_eq!(counts[&parsing], 1);
    {
        gecko_profiler_label!(Layout);
        super::run();
    }
    assert_eq!((parse("1 + 1"), wait(7), Display.build(1)), (5, 7, 1));
}

/// Guards with borrowed texts, for the time of drawing a frame.
struct Frame<'a> {
    _text: Option<AutoProfilerTextMarker<'a>>,
    _interval: Option<AutoProfilerMarker<'a>>,
    _tracing: Option<AutoProfilerTracingMarker<'a>>,
    _flow: Option<AutoProfilerFlowMarker<'a>>,
}

impl<'a> Frame<'a> {
    fn new(name: &'a str, url: &'a str, flow: FlowStackMarker) -> Frame<'a> {
        let category = gecko_profiler_category!(Graphics, WRDisplayList);
        Frame {
            _text: AutoProfilerTextMarker::new(name, category, Default::default(), url),
            _interval: AutoProfilerMarker::new(name, category, default_options()),
            _tracing: AutoProfilerTracingMarker::new(
                name,
                category,
                Default::default(),
                "word".into(),
            ),
            _flow: AutoProfilerFlowMarker::new(name, category, Default::default(), flow),
        }
    }
}

fn default_options() -> MarkerOptions {
    MarkerOptions {
        timing: Default::default(),
        stack: Default::default(),
    }
}

pub(crate) fn use_guards() {
    let mut document = 7u64;
    let url = String::from("https://example.org/page");
    drop(Frame::new(
        "Guards",
        &url,
        FlowStackMarker::from_pointer(&document),
    ));
    {
        let category = gecko_profiler_category!(Graphics);
        auto_profiler_marker_text!("Macros", category, Default::default(), "text");
        auto_profiler_marker!("Macros", category, Default::default());
        auto_profiler_marker_tracing!("Macros", category, Default::default(), "Webrender".into());
        let flow = FlowStackMarker(FlowId::from(&mut document as *mut u64));
        auto_profiler_flow_marker!("Macros", category, MarkerOptions::default(), flow);
    }
    let category = gecko_profiler_category!(Graphics, Rasterization);
    let word: CowString = format!("word {}", document).into();
    add_marker("Ready types", category, Default::default(), Tracing(word));
    add_marker(
        "Ready types",
        category,
        Default::default(),
        Tracing::from_str("constant"),
    );
    add_marker("Ready types", category, Default::default(), StackMarker());
    add_marker(
        "Ready types",
        category,
        Default::default(),
        FlowStackMarker(FlowId::from(9)),
    );
}
