//! Captures single stacks on demand: unwinds them with separate unwinders and merges them with
//! their labels.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use once_cell::race::OnceBox;

use crate::backtrace::{BacktraceLabel, CapturedBacktrace};
use crate::capture::CapturedView;
use crate::labels::{joined_label_text, script_function};
use crate::model::LABELS_LEFT_OUT;
use crate::platform::pin_own_library;
use crate::sampler::encode::{MergedFrame, label_of, merge_stacks};
use crate::sampler::tick_context::{captured_by, captured_of_backtrace};
use crate::symbols::{CodeAddressService, SampledAddress};
use crate::types::{
    FrameFlags, FunctionName, ProfilerTime, StackAddress, StackFeatures, StackFrame, Symbolicate,
    ThreadId, TimeStamp,
};
use crate::unwind::{
    Captured, CodeMap, ModuleTable, NamedCode, NativeStack, Unwinder, registered_code,
};
use crate::util::{
    Guard, LockRank, NamedMutex, as_profiler_work, is_any_lock_held_on_current_thread,
};

/// Maximum number of unwinders that are kept for later stacks.
const MAX_IDLE: usize = 4;

/// An unwinder for stacks on demand.
///
/// A thread that unwinds takes an unwinder for itself. It unwinds without a lock, because the
/// unwinder may wait for the loader. A thread of the application may hold the loader's lock while
/// it calls the profiler.
struct OnDemandUnwinder {
    unwinder: Unwinder,
    modules: Arc<ModuleTable>,
    native: NativeStack,
    merged: Vec<MergedFrame>,
}

/// The unwinders that no thread uses at the moment.
pub(crate) struct IdleUnwinders {
    unwinders: Vec<OnDemandUnwinder>,
    /// The modules as the last unwinder listed them; `None` before the first list. A new unwinder
    /// continues this list. A separate list would not show which modules were replaced between a
    /// capture and the list.
    modules: Option<Arc<ModuleTable>>,
}

static IDLE: NamedMutex<IdleUnwinders> = NamedMutex::new(
    "idle on-demand unwinders",
    LockRank::IdleUnwinders,
    IdleUnwinders {
        unwinders: Vec::new(),
        modules: None,
    },
);

/// Holds the lock of the idle unwinders while the process forks.
pub(crate) fn hold_unwinders_for_fork() -> Guard<'static, IdleUnwinders> {
    IDLE.lock()
}

impl OnDemandUnwinder {
    /// Creates an unwinder that knows these modules, or the currently loaded ones. Waits for the
    /// loader.
    fn new(known: Option<&ModuleTable>) -> Self {
        let unwinder = match known {
            Some(known) => Unwinder::with_modules(known.clone()),
            None => Unwinder::new(),
        };
        let modules = Arc::new(unwinder.modules().clone());
        Self {
            unwinder,
            modules,
            native: NativeStack::default(),
            merged: Vec::new(),
        }
    }

    /// Lists the modules on the first call. From then on the unwinders notice if a module that a
    /// capture refers to is replaced. Returns only after a list exists, because a stack that is
    /// captured before the modules are listed ends where it leaves the program's own module. A
    /// call that comes from the application's allocator during the profiler's own work returns at
    /// once.
    fn ensure() {
        static IS_MADE: AtomicBool = AtomicBool::new(false);
        if !IS_MADE.load(Ordering::Acquire) && !is_any_lock_held_on_current_thread() {
            as_profiler_work(|| {
                let first = Self::new(None);
                // Of several first lists, the one that is published first is the oldest that any
                // capture refers to.
                let surplus = {
                    let mut idle = IDLE.lock();
                    match idle.modules {
                        None => {
                            idle.modules = Some(Arc::clone(&first.modules));
                            idle.unwinders.push(first);
                            None
                        }
                        Some(_) => Some(first),
                    }
                };
                drop(surplus);
            });
            IS_MADE.store(true, Ordering::Release);
        }
    }

    /// Calls `body` with an unwinder, after updating its list of modules. Waits for the loader, but
    /// for no thread that unwinds.
    fn with<T>(body: impl FnOnce(&mut Self) -> T) -> T {
        // An allocator of the application that calls the profiler is refused, although no lock is
        // held.
        as_profiler_work(|| {
            let (taken, known) = {
                let mut idle = IDLE.lock();
                (idle.unwinders.pop(), idle.modules.clone())
            };
            let mut on_demand = taken.unwrap_or_else(|| Self::new(known.as_deref()));
            if on_demand.unwinder.check_modules() && on_demand.unwinder.refresh_modules() {
                on_demand.modules = Arc::new(on_demand.unwinder.modules().clone());
            }
            let result = body(&mut on_demand);
            on_demand.give_back();
            result
        })
    }

    /// Keeps the unwinder for a later stack, if not too many are kept.
    fn give_back(self) {
        // Dropped after the lock is released, because there may be much of it.
        let _older;
        let _surplus;
        let mut idle = IDLE.lock();
        let is_newer = |known: &Arc<ModuleTable>| self.modules.is_newer_than(known);
        if idle.modules.as_ref().is_none_or(is_newer) {
            _older = idle.modules.replace(Arc::clone(&self.modules));
        }
        if idle.unwinders.len() < MAX_IDLE {
            idle.unwinders.push(self);
        } else {
            _surplus = self;
        }
    }

    fn unwind(&mut self, features: StackFeatures, captured: &Captured<'_>) {
        if features.contains(StackFeatures::NATIVE) {
            self.unwinder.unwind(captured, &mut self.native);
            return;
        }
        self.native.frames.clear();
        self.native.truncated = false;
        if features.contains(StackFeatures::LEAF) {
            (self.unwinder).unwind_innermost(captured, &mut self.native);
        }
    }
}

/// Name of script code outside of any function, as in the viewer.
const ROOT_SCOPE: &str = "(root scope)";

/// Labels as frames, oldest first, with their stack addresses. If `left_out`, a placeholder for the
/// missing labels follows the newest one.
fn label_frames<'l>(
    labels: impl Iterator<Item = BacktraceLabel<'l>>,
    left_out: bool,
) -> Vec<(StackAddress, StackFrame)> {
    let frames = labels.map(|label| (label.stack_address, label_frame(&label)));
    let mut frames: Vec<_> = frames.collect();
    if left_out {
        let address = frames
            .last()
            .map_or(StackAddress(0), |(address, _)| *address);
        let text = LABELS_LEFT_OUT.to_owned();
        let is_sensitive = false;
        frames.push((address, StackFrame::Label { text, is_sensitive }));
    }
    frames
}

/// Returns the frame for an entry of the label stack.
fn label_frame(label: &BacktraceLabel<'_>) -> StackFrame {
    let (dynamic, flags) = (label.dynamic, label.flags);
    let Some(place) = label.script else {
        let is_sensitive = !dynamic.is_empty() && !flags.has(FrameFlags::NONSENSITIVE);
        return StackFrame::Label {
            text: joined_label_text(label.text, dynamic, flags),
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

/// An unwound stack. Its names are looked up on first use.
#[derive(Clone, Debug)]
pub(crate) struct SampledStack {
    thread: ThreadId,
    time: TimeStamp,
    /// Innermost first.
    frames: Vec<StackFrame>,
    /// For each frame, its address if it is native.
    addresses: Vec<Option<SampledAddress>>,
    truncated: bool,
    /// The modules that were loaded when the stack was unwound.
    modules: Arc<ModuleTable>,
    /// The profiler's functions that may be inlined into the innermost frame.
    own_functions: &'static [&'static str],
    names: OnceBox<Vec<Vec<FunctionName>>>,
}

impl SampledStack {
    /// Prepares for captures. Must be called before the first one: from then on the profiler knows
    /// which modules are loaded and which are replaced. The library with this code stays loaded,
    /// because a thread that opens files for a stack may begin after the call has returned.
    pub(crate) fn prepare() {
        pin_own_library();
        OnDemandUnwinder::ensure();
    }

    /// Unwinds a stack that another thread's handler captured.
    pub(crate) fn of_capture(
        view: &CapturedView<'_>,
        thread: ThreadId,
        features: StackFeatures,
    ) -> Self {
        let labels = (0..view.labels().len()).map(|index| label_of(view, index));
        let labels = label_frames(labels, view.header().labels_left_out);
        Self::unwind(features, thread, &captured_by(view), &labels)
    }

    /// Unwinds a stack that the thread captured itself. The names of its innermost frame do not
    /// include the profiler's `own_functions`.
    pub(crate) fn of_backtrace(
        backtrace: &CapturedBacktrace,
        features: StackFeatures,
        own_functions: &'static [&'static str],
    ) -> Self {
        let labels = match features.contains(StackFeatures::LABELS) {
            true => label_frames(backtrace.labels(), backtrace.head.labels_left_out),
            false => Vec::new(),
        };
        let captured = captured_of_backtrace(backtrace);
        let sampled = Self::unwind(features, backtrace.thread(), &captured, &labels);
        Self {
            own_functions,
            ..sampled
        }
    }

    /// Unwinds a stack with these labels, oldest first.
    fn unwind(
        features: StackFeatures,
        thread: ThreadId,
        captured: &Captured<'_>,
        labels: &[(StackAddress, StackFrame)],
    ) -> Self {
        OnDemandUnwinder::with(|on_demand| {
            on_demand.unwind(features, captured);
            let OnDemandUnwinder {
                native,
                merged,
                modules,
                ..
            } = on_demand;
            let addresses = labels.iter().map(|(address, _)| *address);
            merge_stacks(&native.frames, addresses, merged);
            let frame = |frame: &MergedFrame| match *frame {
                MergedFrame::Native(index) => {
                    let address = native.frames[index].address;
                    let sampled = SampledAddress {
                        address,
                        is_return_address: index > 0,
                    };
                    (StackFrame::Native { address }, Some(sampled))
                }
                MergedFrame::Label(index) => (labels[index].1.clone(), None),
            };
            let (frames, addresses) = merged.iter().rev().map(frame).unzip();
            Self {
                thread,
                time: captured.time,
                frames,
                addresses,
                truncated: native.truncated,
                modules: Arc::clone(modules),
                own_functions: &[],
                names: OnceBox::new(),
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

    /// Returns the frames, innermost first.
    pub(crate) fn frames(&self) -> &[StackFrame] {
        &self.frames
    }

    /// Returns the functions at each frame, innermost inlined function first.
    pub(crate) fn names(&self) -> &[Vec<FunctionName>] {
        self.names.get_or_init(|| Box::new(self.resolve_names()))
    }

    fn resolve_names(&self) -> Vec<Vec<FunctionName>> {
        let modules = self.modules.all_as_of_now();
        let addresses = self.addresses.iter().flatten().copied().collect();
        let generated = NamedCode::new(registered_code(), CodeMap::default());
        let names =
            CodeAddressService::new(&modules, &generated, Symbolicate::Full).resolve(addresses);
        let functions =
            |(frame, address): (&StackFrame, &Option<SampledAddress>)| match (frame, address) {
                (StackFrame::Native { .. }, Some(address)) => {
                    let named = names.get(address).map(|name| name.functions.clone());
                    let named = named.into_iter().flatten();
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
                    let is_root = function.is_empty();
                    let name = if is_root { ROOT_SCOPE } else { function };
                    let file = (!file.is_empty()).then(|| file.clone());
                    vec![FunctionName::new(name.to_owned(), file, *line)]
                }
                (StackFrame::Native { .. }, None) => Vec::new(),
            };
        let frames = self.frames.iter().zip(&self.addresses);
        frames.map(functions).collect()
    }

    fn without_own_functions(&self, mut functions: Vec<FunctionName>) -> Vec<FunctionName> {
        let is_own = |function: &FunctionName| {
            let last = function.name.rsplit("::").next().unwrap_or_default();
            (function.name).starts_with(concat!(env!("CARGO_CRATE_NAME"), "::"))
                && self.own_functions.contains(&last)
        };
        let last_own = functions.iter().rposition(is_own);
        let own = last_own.map_or(0, |last| last + 1);
        // Keep the profiler's function where it was not inlined, because it is the whole frame
        // there.
        if own < functions.len() {
            functions.drain(..own);
        }
        functions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backtrace::BacktraceParts;

    /// Also run for musl, by `.ci/steps/14-musl`.
    #[test]
    fn stack_of_a_new_thread_ends_at_a_root() {
        let captures = || {
            SampledStack::prepare();
            let backtrace = CapturedBacktrace::capture_here(BacktraceParts::LabelsAndStack);
            let backtrace = backtrace.expect("memory");
            let stack = SampledStack::of_backtrace(&backtrace, StackFeatures::NATIVE, &[]);
            assert!(!stack.is_truncated(), "{:?}", stack.names());
        };
        std::thread::spawn(captures).join().expect("no panic");
    }
}
