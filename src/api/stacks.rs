//! Single stacks on demand, of another thread or of the calling one.

use std::fmt;
use std::time::Duration;

use crate::api::backend;
use crate::markers::{MarkerBacktrace, MarkerStack};
use crate::types::{FunctionName, ProfilerTime, StackFeatures, StackFrame, SuspendError, ThreadId};

/// Returns the kernel's id of the calling thread.
///
/// Cost: two loads; one system call for the first call of a thread, and for all calls before the
/// first session. Not for the child of a system call `clone` or `fork` that bypasses the C library.
pub fn profiler_current_thread_id() -> ThreadId {
    backend::own_thread_id()
}

/// Interrupts a thread while its own signal handler copies its stack, and unwinds the copy.
///
/// May be called from any thread, for any registered thread, with or without a session, and
/// concurrently for the same thread. The calling thread may pass its own id or
/// [`ThreadId::UNSPECIFIED`], registered or not; then no signal is sent.
///
/// The thread receives the running session's signal. Without a session, or if other code has taken
/// that signal over, it receives the signal that a session would choose: see
/// [`StartParams::signal`](crate::StartParams::signal). The signal interrupts a system call in
/// which the thread sleeps. Most calls are restarted, because the handler is installed with
/// `SA_RESTART`. Some, such as `epoll_wait`, `poll` and `nanosleep`, return `EINTR`. A thread that
/// blocks the signal does not answer, and finds the signal pending. No signal is sent during a fork
/// of the process. The handler stays installed, and forwards foreign signals as a session's handler
/// does.
///
/// Cost: 0.1 ms for a running thread, mostly the wait for its answer; the first stack costs 0.5 ms
/// more, for the list of modules. The thread is interrupted only for the copy. Idea: Gecko's
/// `profiler_suspend_and_sample_thread`, which unwinds while the thread is suspended, and waits for
/// it without a timeout.
///
/// # Errors
/// Returns a [`SuspendError`] if the thread is not registered or has exited; if it did not answer
/// within `timeout`, in which case a signal may still be pending for it; or if the system refused a
/// call.
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
#[doc(alias = "LUL")]
pub fn profiler_suspend_and_sample_thread(
    thread: ThreadId,
    features: StackFeatures,
    timeout: Duration,
) -> Result<StackSample, SuspendError> {
    if !backend::is_current_thread(thread) {
        return backend::suspend_and_sample(thread, features, timeout)
            .map(|sampled| StackSample { sampled });
    }
    let own = profiler_capture_backtrace().map(|backtrace| backtrace.resolve_with(features));
    own.ok_or(SuspendError::NoStack { thread })
}

/// Copies the calling thread's stack and labels at this point. The copy can be unwound later.
///
/// Returns `None` if there is not enough memory for the copy, or in a build without the profiler.
/// May be called from any thread, registered or not, with or without a session. On a stack that is
/// not the thread's own (a signal stack, a coroutine), the copy contains only the innermost frame,
/// and is marked as truncated. Of a stack that uses more than 1 MiB, the youngest MiB is copied,
/// and the copy is marked as truncated, too.
///
/// Cost: 0.1 µs, and the copy of the used part of the stack, at most 1 MiB. Takes no lock, except
/// that the first call in the process lists the loaded modules under the loader's lock, in about
/// 0.5 ms. The first call on a thread asks the system for the stack's bounds. A call reuses the
/// memory of a dropped backtrace of about the same size; without one, it allocates. Once neither is
/// necessary, the function makes no system call and may be called in any signal handler. Until
/// then, it may be called only in a handler that did not interrupt the allocator. Idea: Gecko's
/// `profiler_capture_backtrace`, which unwinds at once and allocates 128 KiB each time.
#[doc(alias = "profiler_capture_backtrace_into")]
#[doc(alias = "profiler_get_backtrace")]
#[inline(always)]
pub fn profiler_capture_backtrace() -> Option<ProfilerBacktrace> {
    backend::capture_backtrace().map(|captured| ProfilerBacktrace { captured })
}

/// A copied stack that has not been unwound yet. Dropping it makes its memory available to the next
/// copy.
#[doc(alias = "ProfileChunkedBuffer")]
#[doc(alias = "UniqueProfilerBacktrace")]
#[derive(Debug)]
pub struct ProfilerBacktrace {
    captured: backend::CapturedBacktrace,
}

/// Hands a copy of the backtrace to the running session, for
/// [`MarkerStack::Backtrace`](crate::markers::MarkerStack::Backtrace).
impl From<&ProfilerBacktrace> for MarkerBacktrace {
    fn from(backtrace: &ProfilerBacktrace) -> Self {
        Self(backend::record_backtrace(&backtrace.captured))
    }
}

/// Hands a copy of the backtrace to the running session, as
/// [`MarkerStack::Backtrace`](crate::markers::MarkerStack::Backtrace).
impl From<&ProfilerBacktrace> for MarkerStack {
    fn from(backtrace: &ProfilerBacktrace) -> Self {
        Self::Backtrace(backtrace.into())
    }
}

impl MarkerBacktrace {
    /// Hands a stack that the application collected itself to the running session. `addresses` are
    /// the return addresses of its calls, innermost first. Zeros are skipped.
    ///
    /// With the cargo feature `backtrace`, `(&backtrace).into()` does this for a
    /// `backtrace::Backtrace`, such as the one that an error carries. Its symbols need not be
    /// resolved, because the profile resolves the addresses. `std::backtrace::Backtrace` does not
    /// provide its addresses.
    ///
    /// The code must still be loaded: an address in an unloaded module gets no name, or a name from
    /// the module that took its place. The marker's tooltip shows the time of this call as the time
    /// of the stack. A session without [`Features::STACK_WALK`](crate::Features::STACK_WALK) keeps
    /// only the innermost address.
    ///
    /// Cost: some ns per frame, and an allocation.
    ///
    /// ```
    /// use gekkota::MarkerStack;
    /// use gekkota::marker::MarkerBacktrace;
    ///
    /// # let return_addresses = [0x1000, 0x2000];
    /// let cause = MarkerBacktrace::from_return_addresses(return_addresses);
    /// let stack = MarkerStack::Backtrace(cause);
    /// ```
    #[doc(alias = "UseBacktrace")]
    pub fn from_return_addresses(addresses: impl IntoIterator<Item = usize>) -> Self {
        let addresses = addresses
            .into_iter()
            .filter(|&address| address != 0)
            .map(|address| address as u64);
        Self(backend::record_return_addresses(
            &addresses.collect::<Vec<_>>(),
        ))
    }
}

/// Hands the stack to the running session: see [`MarkerBacktrace::from_return_addresses`].
#[cfg(all(feature = "backtrace", target_os = "linux"))]
impl From<&backtrace::Backtrace> for MarkerBacktrace {
    fn from(backtrace: &backtrace::Backtrace) -> Self {
        let frames = backtrace.frames().iter();
        Self::from_return_addresses(frames.map(|frame| frame.ip().addr()))
    }
}

/// Hands the stack to the running session: see [`MarkerBacktrace::from_return_addresses`].
#[cfg(all(feature = "backtrace", target_os = "linux"))]
impl From<&backtrace::Backtrace> for MarkerStack {
    fn from(backtrace: &backtrace::Backtrace) -> Self {
        Self::Backtrace(backtrace.into())
    }
}

impl ProfilerBacktrace {
    /// Returns the id of the thread whose stack this is.
    pub fn thread(&self) -> ThreadId {
        self.captured.thread()
    }

    /// Unwinds the copy into labels and native frames. May be called on any thread.
    ///
    /// Cost: some µs; the first call 0.5 ms more, for the list of modules.
    pub fn resolve(&self) -> StackSample {
        self.resolve_with(StackFeatures::FULL)
    }

    /// Unwinds the copy into the frames that `features` selects, otherwise like
    /// [`resolve`](Self::resolve).
    pub fn resolve_with(&self, features: StackFeatures) -> StackSample {
        StackSample {
            sampled: backend::resolve_backtrace(&self.captured, features),
        }
    }
}

/// One stack of a thread at one moment, with its innermost frame first.
///
/// Its `Display` form has one line per function, with names.
#[derive(Clone, Debug)]
pub struct StackSample {
    sampled: backend::SampledStack,
}

impl StackSample {
    /// Returns the id of the thread whose stack this is.
    pub fn thread(&self) -> ThreadId {
        self.sampled.thread()
    }

    /// Returns the time at which the stack was copied.
    pub fn time(&self) -> ProfilerTime {
        self.sampled.time()
    }

    /// Returns the frames, innermost first. A label or script frame follows the function that
    /// pushed it, and precedes that function's caller.
    pub fn frames(&self) -> &[StackFrame] {
        self.sampled.frames()
    }

    /// Returns whether older frames are missing because the stack could not be unwound to the
    /// thread's start. Always `false` if no [`StackFeatures::NATIVE`] frames were requested.
    pub fn is_truncated(&self) -> bool {
        self.sampled.is_truncated()
    }

    /// Returns, for each of [`frames`](Self::frames), the functions that it represents: inlined
    /// functions first, innermost first, then the function that contains them. An entry is empty if
    /// no name was found.
    ///
    /// The first call looks the names up in the debug information and symbol tables on this
    /// machine, which takes some ms to seconds. A module that has been unloaded since yields no
    /// names.
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
