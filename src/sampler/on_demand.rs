//! Single stacks, for whoever asks for one: unwound by an unwinder of their own, and merged with their labels.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::base::{
    FrameFlags, FunctionName, Guard, LockRank, NamedMutex, ProfilerTime, StackAddress,
    StackFeatures, StackFrame, ThreadId, TimeStamp,
};
use crate::sampler::merge::{MergedFrame, merge_stacks};
use crate::sampler::tick_context::{captured_by, captured_of_backtrace};
use crate::symbols::{CodeAddressService, SampledAddress};
use crate::threads::{
    BacktraceLabel, CapturedBacktrace, CapturedView, LABELS_LEFT_OUT, ScriptPlace,
    joined_label_text, script_function,
};
use crate::unwind::{Captured, ModuleTable, NativeStack, Unwinder, registered_code};

/// The unwinder of stacks on demand, from the first one on.
pub(crate) struct OnDemandUnwinder {
    unwinder: Unwinder,
    modules: Arc<ModuleTable>,
    native: NativeStack,
    merged: Vec<MergedFrame>,
}

static ON_DEMAND: NamedMutex<Option<OnDemandUnwinder>> =
    NamedMutex::new("on-demand unwinder", LockRank::Unwinder, None);

/// Holds it still while the process forks.
pub(crate) fn hold_unwinder_for_fork() -> Guard<'static, Option<OnDemandUnwinder>> {
    ON_DEMAND.lock()
}

impl OnDemandUnwinder {
    fn new() -> Self {
        let unwinder = Unwinder::new();
        let modules = Arc::new(unwinder.modules().clone());
        Self {
            unwinder,
            modules,
            native: NativeStack::default(),
            merged: Vec::new(),
        }
    }

    /// Has one from now on, so that it can be told later whether what is captured after this was replaced.
    pub(crate) fn ensure() {
        static IS_THERE: AtomicBool = AtomicBool::new(false);
        if !IS_THERE.swap(true, Ordering::Relaxed) {
            Self::with(|_| ());
        }
    }

    /// Calls `body` with the unwinder, which knows what is loaded now.
    fn with<T>(body: impl FnOnce(&mut Self) -> T) -> T {
        let mut place = ON_DEMAND.lock();
        let on_demand = place.get_or_insert_with(Self::new);
        if on_demand.unwinder.look_at_modules() {
            on_demand.unwinder.refresh_modules();
            on_demand.modules = Arc::new(on_demand.unwinder.modules().clone());
        }
        body(on_demand)
    }

    fn unwind(&mut self, copied: &Copied<'_>) {
        if copied.features.contains(StackFeatures::NATIVE) {
            self.unwinder.unwind(&copied.captured, &mut self.native);
            return;
        }
        self.native.frames.clear();
        self.native.truncated = false;
        if copied.features.contains(StackFeatures::LEAF) {
            self.unwinder
                .take_innermost(&copied.captured, &mut self.native);
        }
    }
}

/// What stands in no function of its file, in the viewer's words.
const ROOT_SCOPE: &str = "(root scope)";

/// What was copied of a thread.
struct Copied<'a> {
    features: StackFeatures,
    thread: ThreadId,
    captured: Captured<'a>,
    /// Oldest first.
    labels: Vec<(StackAddress, StackFrame)>,
}

/// Puts a frame behind the newest label, for those that are missing.
fn tell_labels_left_out(labels: &mut Vec<(StackAddress, StackFrame)>) {
    let address = labels
        .last()
        .map_or(StackAddress(0), |(address, _)| *address);
    labels.push((
        address,
        StackFrame::Label {
            text: LABELS_LEFT_OUT.to_owned(),
            is_sensitive: false,
        },
    ));
}

/// A frame of the label stack.
fn label_frame(
    text: &[u8],
    dynamic: &[u8],
    flags: FrameFlags,
    script: Option<ScriptPlace>,
) -> StackFrame {
    let Some(place) = script else {
        let is_sensitive = !dynamic.is_empty() && !flags.has(FrameFlags::NONSENSITIVE);
        return StackFrame::Label {
            text: joined_label_text(text, dynamic, flags),
            is_sensitive,
        };
    };
    let known = |number: u32| (number != 0).then_some(number);
    let (name, file) = script_function(place.function()).map_or(("", ""), |function| {
        (function.description.name, function.description.file)
    });
    StackFrame::Script {
        function: name.to_owned(),
        file: file.to_owned(),
        line: known(place.line()),
        column: known(place.column()),
    }
}

/// A stack, unwound; its names are looked up when they are asked for.
#[derive(Clone, Debug)]
pub(crate) struct SampledStack {
    thread: ThreadId,
    time: TimeStamp,
    /// Innermost first.
    frames: Vec<StackFrame>,
    /// The address of each frame that is native.
    addresses: Vec<Option<SampledAddress>>,
    truncated: bool,
    /// What was loaded when it was unwound.
    modules: Arc<ModuleTable>,
    /// Our functions that were inlined into the innermost frame.
    own_functions: &'static [&'static str],
    names: OnceLock<Vec<Vec<FunctionName>>>,
}

impl SampledStack {
    /// To be called before a capture: from the first call on it is known what is loaded, and what takes its place.
    pub(crate) fn prepare() {
        OnDemandUnwinder::ensure();
    }

    /// Unwinds what another thread's handler captured.
    pub(crate) fn of_capture(
        view: &CapturedView<'_>,
        thread: ThreadId,
        features: StackFeatures,
    ) -> Self {
        let label = |label| {
            let (text, dynamic) = view.texts_of(label);
            (
                label.stack_address,
                label_frame(text, dynamic, label.flags, label.script()),
            )
        };
        let mut labels = view.labels().iter().map(label).collect();
        if view.header().labels_left_out {
            tell_labels_left_out(&mut labels);
        }
        Self::unwind(Copied {
            features,
            thread,
            captured: captured_by(view),
            labels,
        })
    }

    /// Unwinds what a thread captured of itself. Where it did so is named without `own_functions`, innermost first.
    pub(crate) fn of_backtrace(
        backtrace: &CapturedBacktrace,
        features: StackFeatures,
        own_functions: &'static [&'static str],
    ) -> Self {
        let label = |label: BacktraceLabel<'_>| {
            (
                label.stack_address,
                label_frame(label.text, label.dynamic, label.flags, label.script),
            )
        };
        let mut labels = Vec::new();
        if features.contains(StackFeatures::LABELS) {
            labels.extend(backtrace.labels().map(label));
            if backtrace.labels_left_out() {
                tell_labels_left_out(&mut labels);
            }
        }
        let sampled = Self::unwind(Copied {
            features,
            thread: backtrace.thread(),
            captured: captured_of_backtrace(backtrace),
            labels,
        });
        Self {
            own_functions,
            ..sampled
        }
    }

    fn unwind(copied: Copied<'_>) -> Self {
        OnDemandUnwinder::with(|on_demand| {
            on_demand.unwind(&copied);
            let OnDemandUnwinder {
                native,
                merged,
                modules,
                ..
            } = on_demand;
            merge_stacks(
                &native.frames,
                copied.labels.iter().map(|(address, _)| *address),
                merged,
            );
            let frame = |frame: &MergedFrame| match *frame {
                MergedFrame::Native(index) => {
                    let address = native.frames[index].address;
                    let sampled = SampledAddress {
                        address,
                        is_return_address: index > 0,
                    };
                    (StackFrame::Native { address }, Some(sampled))
                }
                MergedFrame::Label(index) => (copied.labels[index].1.clone(), None),
            };
            let (frames, addresses) = merged.iter().rev().map(frame).unzip();
            Self {
                thread: copied.thread,
                time: copied.captured.time,
                frames,
                addresses,
                truncated: native.truncated,
                modules: Arc::clone(modules),
                own_functions: &[],
                names: OnceLock::new(),
            }
        })
    }

    pub(crate) fn thread(&self) -> ThreadId {
        self.thread
    }

    pub(crate) fn time(&self) -> ProfilerTime {
        ProfilerTime::from_monotonic_ns(self.time.0)
    }

    pub(crate) fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// Innermost first.
    pub(crate) fn frames(&self) -> &[StackFrame] {
        &self.frames
    }

    /// For each frame the functions that it stands for, innermost inlined one first.
    pub(crate) fn names(&self) -> &[Vec<FunctionName>] {
        self.names.get_or_init(|| self.look_names_up())
    }

    fn look_names_up(&self) -> Vec<Vec<FunctionName>> {
        let modules = self.modules.all_as_of_now();
        let addresses = self.addresses.iter().flatten().copied().collect();
        let generated = registered_code();
        let names = CodeAddressService::new(&modules, &generated).resolve(addresses);
        let functions =
            |(frame, address): (&StackFrame, &Option<SampledAddress>)| match (frame, address) {
                (StackFrame::Native { .. }, Some(address)) => {
                    let named = names.get(address).into_iter().flatten().cloned();
                    let named =
                        named.map(|name| FunctionName::new(name.function, name.file, name.line));
                    if address.is_return_address {
                        named.collect()
                    } else {
                        self.without_own_functions(named.collect())
                    }
                }
                (StackFrame::Label { text, .. }, _) => {
                    vec![FunctionName::new(text.clone(), None, None)]
                }
                (
                    StackFrame::Script {
                        function,
                        file,
                        line,
                        ..
                    },
                    _,
                ) => {
                    let name = if function.is_empty() {
                        ROOT_SCOPE
                    } else {
                        function
                    };
                    let file = (!file.is_empty()).then(|| file.clone());
                    vec![FunctionName::new(name.to_owned(), file, *line)]
                }
                (StackFrame::Native { .. }, None) => Vec::new(),
            };
        self.frames
            .iter()
            .zip(&self.addresses)
            .map(functions)
            .collect()
    }

    fn without_own_functions(&self, mut functions: Vec<FunctionName>) -> Vec<FunctionName> {
        let is_own = |function: &FunctionName| {
            let last = function.name.rsplit("::").next().unwrap_or_default();
            function
                .name
                .starts_with(concat!(env!("CARGO_CRATE_NAME"), "::"))
                && self.own_functions.contains(&last)
        };
        let own = functions
            .iter()
            .rposition(is_own)
            .map_or(0, |last| last + 1);
        // It is the whole frame where it was not inlined.
        if own < functions.len() {
            functions.drain(..own);
        }
        functions
    }
}
