//! Single stacks, for whoever asks: of another thread, which is stopped for it, or of the calling one.

use std::fmt;
use std::time::Duration;

use crate::api::engine;
use crate::base::{FunctionName, ProfilerTime, StackFeatures, StackFrame, SuspendError, ThreadId};
use crate::markers::{MarkerBacktrace, MarkerStack};

/// The kernel's id of the calling thread, by which another one can ask for its stack. One system call.
pub fn profiler_current_thread_id() -> ThreadId {
    engine::own_thread_id()
}

/// Stops a thread for as long as it takes its own signal handler to copy its stack, and unwinds the copy.
///
/// May be called from any thread and for any registered one, whether the profiler is active or not, also from several
/// threads at once for the same one. The calling thread may ask for its own, registered or not, by its id or by
/// [`ThreadId::UNSPECIFIED`]; no signal is sent then.
///
/// The thread gets the running session's signal, or `SIGPROF` where there is none. A call that it sleeps in is
/// interrupted: most go on by themselves, since the handler asks for that; some, such as `epoll_wait`, `poll` and
/// `nanosleep`, return `EINTR`. A thread that blocks the signal does not answer. No signal is sent while the process
/// forks.
///
/// The signal's handler stays installed, and passes on what is not the profiler's, as that of a session does.
///
/// Cost: 0.1 ms if the thread runs, nearly all of it the wait for its answer; the first stack costs 0.5 ms more, for the
/// list of modules. The thread itself is stopped only while it copies. Idea: Gecko's
/// `profiler_suspend_and_sample_thread`, which unwinds while the thread is stopped, and waits for it without a bound.
///
/// # Errors
/// [`SuspendError`]: the thread is not registered, or gone; it did not answer within `timeout`, and then goes on as if
/// nobody had asked; or the system refused something.
///
/// ```
/// use std::time::Duration;
///
/// use gekkota::stack::{StackFeatures, profiler_suspend_and_sample_thread};
/// use gekkota::thread::ThreadId;
///
/// let own = ThreadId::UNSPECIFIED;
/// match profiler_suspend_and_sample_thread(own, StackFeatures::FULL, Duration::from_secs(1)) {
///     Ok(stack) => println!("{stack}"),
///     Err(error) => println!("{error}"),
/// }
/// ```
#[inline(always)]
pub fn profiler_suspend_and_sample_thread(
    thread: ThreadId,
    features: StackFeatures,
    timeout: Duration,
) -> Result<StackSample, SuspendError> {
    if !engine::is_current_thread(thread) {
        return engine::suspend_and_sample(thread, features, timeout)
            .map(|sampled| StackSample { sampled });
    }
    let own = profiler_capture_backtrace().map(|backtrace| backtrace.resolve_with(features));
    own.ok_or(SuspendError::NoStack { thread })
}

/// Copies the calling thread's stack and labels, as they are where this is called, to be unwound later or never.
///
/// May be called from any thread, registered or not, whether the profiler is active or not. `None` when there is no
/// memory, or no profiler in this build. On a stack that is not the thread's own, a signal stack or a coroutine's, it
/// holds the innermost frame alone, and says that it is truncated.
///
/// Cost: 0.1 µs, and the copying of the used part of the stack, 64 MiB of it at most. It takes no lock. The first on a
/// thread asks the system for the stack's bounds; and memory is allocated while no backtrace of about that size was dropped
/// before. From then on there is no allocation and no system call, and so it may be called in a signal handler; before,
/// only in one that did not interrupt the allocator. Idea: Gecko's `profiler_capture_backtrace`, which unwinds at once, and
/// allocates 128 KiB each time.
#[doc(alias = "profiler_capture_backtrace_into")]
#[doc(alias = "profiler_get_backtrace")]
#[inline(always)]
pub fn profiler_capture_backtrace() -> Option<ProfilerBacktrace> {
    engine::capture_backtrace().map(|captured| ProfilerBacktrace { captured })
}

/// A stack that was copied and not unwound yet. Dropping it gives its memory to the next one.
#[doc(alias = "ProfileChunkedBuffer")]
#[doc(alias = "UniqueProfilerBacktrace")]
#[derive(Debug)]
pub struct ProfilerBacktrace {
    captured: engine::CapturedBacktrace,
}

/// For [`MarkerStack::Backtrace`](crate::MarkerStack::Backtrace). Copies it, for the running session's sampler.
impl From<&ProfilerBacktrace> for MarkerBacktrace {
    fn from(backtrace: &ProfilerBacktrace) -> Self {
        Self(engine::record_backtrace(&backtrace.captured))
    }
}

/// The same.
impl From<&ProfilerBacktrace> for MarkerStack {
    fn from(backtrace: &ProfilerBacktrace) -> Self {
        Self::Backtrace(backtrace.into())
    }
}

impl ProfilerBacktrace {
    /// The thread that it is of.
    pub fn thread(&self) -> ThreadId {
        self.captured.thread()
    }

    /// Unwinds it, on whatever thread: labels and native frames. Some µs, and 0.5 ms the first
    /// time, for the list of modules.
    pub fn resolve(&self) -> StackSample {
        self.resolve_with(StackFeatures::FULL)
    }

    /// Unwinds it so.
    pub fn resolve_with(&self, features: StackFeatures) -> StackSample {
        StackSample {
            sampled: engine::resolve_backtrace(&self.captured, features),
        }
    }
}

/// One stack of a thread at one moment: its frames, innermost first.
///
/// It shows itself as text, with names, one line a function.
#[derive(Clone, Debug)]
pub struct StackSample {
    sampled: engine::SampledStack,
}

impl StackSample {
    /// The thread that it is of.
    pub fn thread(&self) -> ThreadId {
        self.sampled.thread()
    }

    /// When the stack was copied.
    pub fn time(&self) -> ProfilerTime {
        self.sampled.time()
    }

    /// The frames, innermost first; a label or script frame stands behind the function that pushed it, before its caller.
    pub fn frames(&self) -> &[StackFrame] {
        self.sampled.frames()
    }

    /// Whether older frames are missing, since the stack could not be followed to the thread's start. A stack of which no
    /// [`StackFeatures::NATIVE`] frames were asked for is never truncated.
    pub fn is_truncated(&self) -> bool {
        self.sampled.is_truncated()
    }

    /// For each of [`frames`](Self::frames) the functions that it stands for: those that were inlined, innermost first,
    /// then the one that they were inlined into. Empty where there is no name.
    ///
    /// Looked up the first time, in the debug information and symbol tables of this machine: some ms to seconds. What was
    /// unloaded since has no names.
    pub fn names(&self) -> &[Vec<FunctionName>] {
        self.sampled.names()
    }
}

impl fmt::Display for StackSample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut number = 0;
        for (frame, names) in self.frames().iter().zip(self.names()) {
            for name in names {
                match frame {
                    StackFrame::Label { .. } => writeln!(f, "{number:4}: [{name}]")?,
                    StackFrame::Native { .. } | StackFrame::Script { .. } => {
                        writeln!(f, "{number:4}: {name}")?;
                    }
                }
                number += 1;
            }
            if let (StackFrame::Native { address }, []) = (frame, &names[..]) {
                writeln!(f, "{number:4}: {address:?}")?;
                number += 1;
            }
        }
        if self.is_truncated() {
            writeln!(f, "      (truncated)")
        } else {
            Ok(())
        }
    }
}
