//! Requests to start, stop and dump that arrive as signals, passed through a pipe to a thread of the
//! profiler.
//!
//! Runs in the signal handler: the functions named `*_in_handler`. The handler writes one byte to
//! the pipe, calls the previous handler, and preserves `errno`.
//!
//! Two copies of the crate may be in one process, each with the same control signal. Each marks a
//! signal with a mark of its own, so that neither keeps the other, or the application's handler
//! below, from getting it.
//!
//! **Contract of the handler** (cited below):
//! - *kernel's arguments*: the kernel calls the handler with a `siginfo_t` and a `ucontext_t` that
//!   live as long as the call;
//! - *published before*: the previous action is stored with release ordering before the handler is
//!   installed, and is never freed;
//! - *open while in use*: a handler counts itself as a writer before it loads the pipe's ends, and
//!   stays counted until it has written. The pipe is closed only after its ends are unpublished and
//!   the count is 0. A child of `fork` inherits the parent's pipe, so a handler writes only in the
//!   process that opened the pipe.

use std::io;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{SaFlags, SigAction, SigHandler};
use nix::unistd::getpid;

use crate::platform::identity::signals_to_block;
use crate::platform::pinned_library::pin_own_library;
use crate::platform::signal::handler::{
    SIGNAL_LIMIT, bind_functions_of_all_handlers, call_as_installed_in_handler, check_signal,
    handler_with_head, intern_action, is_handler, is_sampling_signal, read_action, swap_action,
};
use crate::platform::signal::other_copy::{self, CONTROL, SAMPLING};
use crate::platform::signal::pipe_end::{NO_END, PipeEnd};
use crate::types::{StartError, signal_name};

/// A request from outside the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum ControlRequest {
    Start = 1,
    Stop = 2,
    /// Asks the reading thread to end.
    End = 3,
    Dump = 4,
}

impl ControlRequest {
    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Start, Self::Stop, Self::End, Self::Dump]
            .into_iter()
            .find(|request| *request as u8 == byte)
    }
}

/// A signal number and the request that it carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ControlSignal {
    pub(crate) number: i32,
    pub(crate) request: ControlRequest,
}

/// The ends of the open pipe, in the form of [`PipeEnd::to_word`].
static WRITE_END: AtomicU64 = AtomicU64::new(NO_END);
static READ_END: AtomicU64 = AtomicU64::new(NO_END);
/// The process that opened the pipe.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// Number of handlers that may be about to write.
static WRITERS: AtomicU32 = AtomicU32::new(0);
/// The [`ControlRequest`] of each signal; 0 for none.
static REQUESTS: [AtomicU8; SIGNAL_LIMIT] = [const { AtomicU8::new(0) }; SIGNAL_LIMIT];
static PREVIOUS: [AtomicPtr<libc::sigaction>; SIGNAL_LIMIT] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; SIGNAL_LIMIT];

/// Offset in the kernel's `siginfo_t` of the marks of the copies that have handled the signal, in
/// bytes. The kernel uses no byte from here on, and sets them to 0.
const MARKS_OFFSET: usize = 64;
/// Maximum number of copies of the crate that handle a signal.
const MARKS: usize = 8;
const _: () = assert!(MARKS_OFFSET + MARKS * size_of::<u64>() == size_of::<libc::siginfo_t>());

handler_with_head!(
    "gekkota/ctl1",
    control_signal_in_handler,
    control_body_in_handler,
    PREVIOUS,
    0,
    1
);

extern "C" fn control_body_in_handler(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // Without a destructor, because the previous handler may jump out of this frame.
    // SAFETY: async-signal-safe; returns the address of the calling thread's `errno`.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the thread's own `errno`.
    let kept = unsafe { *errno };
    // SAFETY: *kernel's arguments*.
    unsafe { write_and_pass_on_in_handler(signal, info, context) };
    // SAFETY: the thread's own `errno`.
    unsafe { *errno = kept };
}

/// Writes the signal's request and calls the previous handler, at most once per signal.
///
/// # Safety
/// - The arguments are those of the running signal handler.
unsafe fn write_and_pass_on_in_handler(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // A foreign handler that was installed over this one may call this handler, and may also be the
    // previous handler. The mark ends that recursion.
    // SAFETY: *kernel's arguments*: the `siginfo_t` lies in the signal frame, and nothing else
    // accesses it during the call.
    if !unsafe { mark_in_handler(info, own_mark_in_handler()) } {
        return;
    }
    write_request_in_handler(signal);
    let previous = PREVIOUS
        .get(signal as usize)
        .map(|previous| previous.load(Ordering::Acquire));
    if let Some(previous) = previous.filter(|previous| !previous.is_null()) {
        // SAFETY: *published before*; *kernel's arguments*.
        unsafe { call_as_installed_in_handler(&*previous, signal, info, context) };
    }
}

/// Returns the mark of this copy of the crate: the address of one of its statics. Never 0.
fn own_mark_in_handler() -> u64 {
    (&raw const REQUESTS).addr() as u64
}

/// Adds the mark `own` to the signal's. Returns false if the signal has it already, or has no space
/// for one more.
///
/// # Safety
/// - `info` points to a `siginfo_t` that no other code accesses during the call.
unsafe fn mark_in_handler(info: *mut libc::siginfo_t, own: u64) -> bool {
    for index in 0..MARKS {
        // SAFETY: by this function's contract: the marks end where the structure ends.
        let mark = unsafe {
            let marks = info.byte_add(MARKS_OFFSET).cast::<u64>();
            &mut *marks.add(index)
        };
        if *mark == 0 {
            *mark = own;
            return true;
        }
        if *mark == own {
            return false;
        }
    }
    false
}

/// Writes the signal's request to the pipe. If the pipe is full, the request is dropped; thousands
/// of earlier ones are then pending.
fn write_request_in_handler(signal: libc::c_int) {
    let request = REQUESTS
        .get(signal as usize)
        .map_or(0, |request| request.load(Ordering::Relaxed));
    if request == 0 {
        return;
    }
    WRITERS.fetch_add(1, Ordering::SeqCst);
    let [read_end, write_end] = [&READ_END, &WRITE_END]
        .map(|end| PipeEnd::from_word_in_handler(end.load(Ordering::SeqCst)));
    if let (Some(read_end), Some(write_end)) = (read_end, write_end)
        // SAFETY: async-signal-safe, accesses no memory.
        && OWNER.load(Ordering::Relaxed) == unsafe { libc::getpid() }
        // A write to a pipe without a reader raises SIGPIPE, which kills the process.
        && read_end.is_open_in_handler()
        && write_end.is_open_in_handler()
    {
        // *open while in use*.
        write_end.write_in_handler(request);
    }
    WRITERS.fetch_sub(1, Ordering::SeqCst);
}

/// Returns the signals to use, by default `SIGUSR1` to start and `SIGUSR2` to stop.
///
/// # Errors
/// [`StartError::BadValue`] if the profiler cannot take over a signal, if both are the same, or if
/// one is the sampling signal.
pub(crate) fn check_control_signals(
    start: Option<i32>,
    stop: Option<i32>,
) -> Result<[ControlSignal; 2], StartError> {
    let start = check_signal("start_signal", start.unwrap_or(libc::SIGUSR1))?;
    let stop = check_signal("stop_signal", stop.unwrap_or(libc::SIGUSR2))?;
    let bad_value = |field, value, accepted: &str| {
        Err(StartError::BadValue {
            field,
            value,
            accepted: accepted.into(),
        })
    };
    if start == stop {
        return bad_value(
            "stop_signal",
            format!("{}, the same as start_signal", signal_name(stop)),
            "a signal other than start_signal",
        );
    }
    for (field, signal) in [("start_signal", start), ("stop_signal", stop)] {
        if is_sampling_signal(signal) {
            let value = format!("{}, the sampling signal", signal_name(signal));
            return bad_value(field, value, "a signal that is not used for sampling");
        }
    }
    let signal = |number, request| ControlSignal { number, request };
    Ok([
        signal(start, ControlRequest::Start),
        signal(stop, ControlRequest::Stop),
    ])
}

/// Returns the signal that causes dumps.
///
/// # Errors
/// [`StartError::BadValue`] if the profiler cannot take over the signal, or if it is one of `taken`
/// or the sampling signal.
pub(crate) fn check_dump_signal(
    asked: i32,
    taken: &[ControlSignal],
) -> Result<ControlSignal, StartError> {
    let number = check_signal("on_signal", asked)?;
    let is_taken = taken.iter().any(|signal| signal.number == number);
    let used_for = match (is_taken, is_sampling_signal(number)) {
        (false, false) => {
            let request = ControlRequest::Dump;
            return Ok(ControlSignal { number, request });
        }
        (true, _) => "which starts or stops the profiler",
        (false, true) => "the sampling signal",
    };
    Err(StartError::BadValue {
        field: "on_signal",
        value: format!("{}, {used_for}", signal_name(number)),
        accepted: "a signal that the profiler does not use".into(),
    })
}

/// Does the part of [`take_signals`] and [`ControlPipe::open`] that may wait for the loader, and of
/// [`take_end_signals`](crate::platform::take_end_signals). Called before them, without a lock, as
/// `prepare_handler` in `handler.rs`.
pub(crate) fn prepare_control_signals() {
    pin_own_library();
    // Of the handler's other functions, `PipeEnd::new` has called `fstat`, and `ControlPipe::open`
    // calls `getpid`, before the pipe is published.
    bind_functions_of_all_handlers();
}

/// Installs the handler that writes a signal's request to the pipe, for each of these signals. The
/// caller has called [`prepare_control_signals`].
///
/// # Errors
/// [`StartError::System`] if the operating system refuses. Each signal then has the request, and
/// one without a request the handler, that it had before.
pub(crate) fn take_signals(signals: &[ControlSignal]) -> Result<(), StartError> {
    let request_of = |signal: &ControlSignal| &REQUESTS[signal.number as usize];
    let load = |signal: &ControlSignal| request_of(signal).load(Ordering::Relaxed);
    let before: Vec<_> = signals.iter().map(load).collect();
    let taken = signals.iter().copied().try_for_each(take_signal);
    if taken.is_err() {
        for (signal, before) in signals.iter().zip(before) {
            if before == 0 {
                release_control_signal(signal.number);
            }
            request_of(signal).store(before, Ordering::Relaxed);
        }
    }
    taken
}

/// Installs the handler that writes the signal's request to the pipe.
fn take_signal(signal: ControlSignal) -> Result<(), StartError> {
    let ControlSignal { number, request } = signal;
    let index = number as usize;
    let before = read_action(number)?;
    // Not over a copy of the crate that passes signals on to this one: its handler would be the
    // previous one then, and the application's below would get no more signals.
    let leads_to_ours =
        |handler| other_copy::passes_on_to(handler, number, &[SAMPLING, CONTROL], is_our_handler);
    if is_ours(&before) || leads_to_ours(before.sa_sigaction) {
        REQUESTS[index].store(request as u8, Ordering::Relaxed);
        return Ok(());
    }
    let previous = PREVIOUS[index].load(Ordering::Acquire);
    PREVIOUS[index].store(intern_action(before), Ordering::Release);
    REQUESTS[index].store(request as u8, Ordering::Relaxed);
    // On the thread's alternate stack if it has one, because the stack of a coroutine may be too
    // small, and Go requires it. All signals are blocked while the handler runs: with AVX-512 the
    // frame of a signal takes 3.3 KiB, and Rust's alternate stacks have 8 KiB, so three signals at
    // a time would overflow one. A previous handler must run under the same conditions as before:
    // on the same stack and with the same `SA_RESTART` behavior. `call_as_installed_in_handler`
    // makes sure that the same signals are blocked.
    let handler = SigHandler::SigAction(control_signal_in_handler);
    let flags = SaFlags::SA_RESTART | SaFlags::SA_ONSTACK;
    let mut action: libc::sigaction = SigAction::new(handler, flags, signals_to_block()).into();
    if is_handler(&before) {
        let kept = before.sa_flags & (libc::SA_RESTART | libc::SA_ONSTACK);
        action.sa_flags = libc::SA_SIGINFO | kept;
    }
    // SAFETY: the handler has the signature that `SA_SIGINFO` requires, and keeps its contract.
    let replaced = unsafe { swap_action(number, &action) }
        .inspect_err(|_| PREVIOUS[index].store(previous, Ordering::Release))?;
    // Another thread installed the replaced handler after `read_action`.
    if replaced.sa_sigaction != before.sa_sigaction && !is_ours(&replaced) {
        PREVIOUS[index].store(intern_action(replaced), Ordering::Release);
    }
    Ok(())
}

/// Disables the signal's request, and restores the previous action if the profiler's handler is
/// still installed. The default action is not restored: a late signal would then kill the process,
/// so the handler stays and does nothing.
///
/// A component of the application that unloads its handler without removing it from the signal first
/// would be called after that, both by the handler and by the restored action.
pub(crate) fn release_control_signal(number: i32) {
    let index = number as usize;
    REQUESTS[index].store(0, Ordering::Relaxed);
    let previous = PREVIOUS[index].load(Ordering::Acquire);
    // SAFETY: *published before*: a leaked `sigaction`.
    let Some(previous) = (unsafe { previous.as_ref() }) else {
        return;
    };
    let is_default = previous.sa_sigaction == libc::SIG_DFL;
    if !is_default && read_action(number).is_ok_and(|current| is_ours(&current)) {
        // SAFETY: the kernel held this action before.
        let _ = unsafe { swap_action(number, previous) };
    }
}

fn is_ours(action: &libc::sigaction) -> bool {
    is_our_handler(action.sa_sigaction)
}

fn is_our_handler(address: usize) -> bool {
    address == control_signal_in_handler as extern "C" fn(_, _, _) as usize
}

/// The pipe between the handlers and the reading thread. At most one exists at a time.
#[derive(Debug)]
pub(crate) struct ControlPipe {
    read_end: PipeEnd,
    write_end: PipeEnd,
}

impl ControlPipe {
    /// Opens the pipe and publishes its ends to the handlers. Programs that the process executes do
    /// not inherit it.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn open() -> io::Result<Self> {
        let (read_end, write_end) = io::pipe()?;
        fcntl(&write_end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let pipe = Self {
            read_end: PipeEnd::new(read_end)?,
            write_end: PipeEnd::new(write_end)?,
        };
        OWNER.store(getpid().as_raw(), Ordering::SeqCst);
        READ_END.store(pipe.read_end.to_word(), Ordering::SeqCst);
        WRITE_END.store(pipe.write_end.to_word(), Ordering::SeqCst);
        Ok(pipe)
    }

    /// Returns whether both ends are still open: the application may have closed them.
    pub(crate) fn is_whole(&self) -> bool {
        self.read_end.is_open_in_handler() && self.write_end.is_open_in_handler()
    }

    /// Waits for requests. If several are pending, returns the first start or stop, the last one if
    /// it differs from the first, and then [`ControlRequest::End`] if it is pending too. Several
    /// dumps are one, at the place of the first.
    ///
    /// # Errors
    /// `BrokenPipe` if the application has closed the pipe, so that no more requests will arrive;
    /// otherwise the error of `read`.
    pub(crate) fn wait(&self) -> io::Result<Vec<ControlRequest>> {
        let mut bytes = [0; 4096];
        while self.is_whole() {
            match self.read_end.read(&mut bytes) {
                Ok(0) => break,
                Ok(count) => return Ok(summarize_requests(&bytes[..count])),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::BrokenPipe.into())
    }

    /// Asks the reading thread to end. Returns false if the pipe is full.
    ///
    /// # Errors
    /// `BrokenPipe` if the application has closed the pipe; otherwise the error of `write`.
    pub(crate) fn request_end(&self) -> io::Result<bool> {
        if !self.is_whole() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if self.write_end.write_in_handler(ControlRequest::End as u8) == 1 {
            return Ok(true);
        }
        match io::Error::last_os_error() {
            full if full.kind() == io::ErrorKind::WouldBlock => Ok(false),
            error => Err(error),
        }
    }

    /// Unpublishes the ends, so that no new handler writes to the pipe.
    pub(crate) fn unpublish(&self) {
        // Another pipe may already be published.
        for (published, end) in [(&WRITE_END, self.write_end), (&READ_END, self.read_end)] {
            let _ = published.compare_exchange(
                end.to_word(),
                NO_END,
                Ordering::SeqCst,
                Ordering::SeqCst,
            );
        }
    }
}

/// Reduces pending requests to those that [`ControlPipe::wait`] returns.
fn summarize_requests(bytes: &[u8]) -> Vec<ControlRequest> {
    use ControlRequest::{Dump, End, Start, Stop};
    let requests = bytes.iter().copied().filter_map(ControlRequest::from_byte);
    let requests: Vec<_> = requests.collect();
    let asks = |request: &ControlRequest| matches!(request, Start | Stop);
    let first = requests.iter().position(asks);
    let last = requests.iter().rposition(asks);
    let last = last.filter(|&last| first.is_some_and(|first| requests[last] != requests[first]));
    let dump = requests.iter().position(|request| *request == Dump);
    let mut kept: Vec<usize> = [first, last, dump].into_iter().flatten().collect();
    kept.sort_unstable();
    let mut summary: Vec<_> = kept.into_iter().map(|place| requests[place]).collect();
    summary.extend(requests.contains(&End).then_some(End));
    summary
}

impl Drop for ControlPipe {
    fn drop(&mut self) {
        /// Maximum wait for handlers that are writing. Without a maximum, a handler that a
        /// `longjmp` left would stay counted, and the wait would never end.
        const MAX_WAIT: Duration = Duration::from_secs(1);
        self.unpublish();
        let end = Instant::now() + MAX_WAIT;
        while WRITERS.load(Ordering::SeqCst) != 0 {
            if Instant::now() > end {
                // Both ends stay open, because a handler may still write.
                return;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        self.write_end.close_if_open();
        self.read_end.close_if_open();
    }
}

/// Closes the inherited copy of the parent's pipe in the child of a fork, where no handler is
/// running.
pub(crate) fn forget_control_pipe_in_child() {
    WRITERS.store(0, Ordering::SeqCst);
    // The child decides what its signals ask for.
    for request in &REQUESTS {
        request.store(0, Ordering::Relaxed);
    }
    for end in [&WRITE_END, &READ_END] {
        // The `ControlPipe` that owns these ends belongs to the parent, and is never dropped in the
        // child.
        let end = PipeEnd::from_word_in_handler(end.swap(NO_END, Ordering::SeqCst));
        end.into_iter().for_each(PipeEnd::close_if_open);
    }
}

#[cfg(test)]
mod tests {
    use super::ControlRequest::{Dump, End, Start, Stop};
    use super::*;

    #[test]
    fn head_of_the_handler_leads_to_the_previous_handler() {
        let signal = libc::SIGRTMAX() - 2;
        let handler = control_signal_in_handler as extern "C" fn(_, _, _) as usize;
        let leads_to_1000 =
            || other_copy::passes_on_to(handler, signal, &[CONTROL], |handler| handler == 1000);
        assert!(!leads_to_1000());
        let mut previous = read_action(signal).expect("an action");
        previous.sa_sigaction = 1000;
        PREVIOUS[signal as usize].store(intern_action(previous), Ordering::Release);
        assert!(leads_to_1000());
    }

    #[test]
    fn mark_is_added_once_by_each_copy_of_the_crate() {
        // SAFETY: zeroed is a valid `siginfo_t`.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the structure is a local.
        let mut mark = |own| unsafe { mark_in_handler(&raw mut info, own) };
        let own = own_mark_in_handler();
        assert!(mark(own) && !mark(own));
        // The handler of another copy below passes the signal back to this one.
        assert!(mark(own + 1) && !mark(own) && !mark(own + 1));
        let others: Vec<bool> = (2..10).map(|other| mark(own + other)).collect();
        let expected = [true, true, true, true, true, true, false, false];
        assert_eq!(others, expected, "there is space for {MARKS}");
        assert_eq!((info.si_signo, info.si_errno, info.si_code), (0, 0, 0));
    }

    #[test]
    fn summarize_requests_keeps_the_first_and_the_last() {
        let cases: [(&[ControlRequest], &[ControlRequest]); 14] = [
            (&[Start], &[Start]),
            (&[Start, Start, Start], &[Start]),
            (&[Start, Stop], &[Start, Stop]),
            (&[Stop, Start, Stop, Start], &[Stop, Start]),
            (&[Stop, Start, Stop], &[Stop]),
            (&[End], &[End]),
            (&[Start, Stop, End], &[Start, Stop, End]),
            (&[Start, End, End], &[Start, End]),
            (&[Dump, End, Dump], &[Dump, End]),
            (&[Dump, Stop, Dump], &[Dump, Stop]),
            (&[Start, Dump, Dump, Stop], &[Start, Dump, Stop]),
            (&[Stop, Start, Dump], &[Stop, Start, Dump]),
            (&[Start, Start, Dump], &[Start, Dump]),
            (&[], &[]),
        ];
        for (given, expected) in cases {
            let bytes: Vec<u8> = given.iter().map(|request| *request as u8).collect();
            assert_eq!(summarize_requests(&bytes), expected, "{given:?}");
        }
        assert_eq!(
            summarize_requests(b"\0g\xff"),
            [],
            "unknown bytes are ignored"
        );
    }

    #[test]
    fn dropped_pipe_stays_open_while_a_handler_may_write() {
        let pipe = ControlPipe::open().expect("a pipe");
        let ends = [pipe.read_end, pipe.write_end];
        WRITERS.fetch_add(1, Ordering::SeqCst);
        drop(pipe);
        assert_eq!(ends.map(PipeEnd::is_open_in_handler), [true; 2]);
        assert_eq!(
            [&READ_END, &WRITE_END].map(|end| end.load(Ordering::SeqCst)),
            [NO_END; 2]
        );
        assert_eq!(
            ends[1].write_in_handler(1),
            1,
            "a late write does not raise SIGPIPE"
        );
        WRITERS.fetch_sub(1, Ordering::SeqCst);
        drop(ControlPipe {
            read_end: ends[0],
            write_end: ends[1],
        });
        assert_eq!(ends.map(PipeEnd::is_open_in_handler), [false; 2]);
    }

    #[test]
    fn check_control_signals_names_the_rejected_signal() {
        let error_text = |start, stop| check_control_signals(start, stop).unwrap_err().to_string();
        assert!(error_text(Some(libc::SIGKILL), None).contains("start_signal is SIGKILL"));
        assert!(error_text(None, Some(libc::SIGSEGV)).contains("stop_signal is SIGSEGV"));
        assert!(
            error_text(Some(libc::SIGUSR2), None)
                .contains("stop_signal is SIGUSR2, the same as start_signal")
        );
        let numbers =
            check_control_signals(None, None).map(|signals| signals.map(|signal| signal.number));
        assert_eq!(numbers, Ok([libc::SIGUSR1, libc::SIGUSR2]));
    }

    #[test]
    fn check_dump_signal_names_the_rejected_signal() {
        let taken = check_control_signals(None, None).expect("two signals");
        let error_text = |asked| check_dump_signal(asked, &taken).unwrap_err().to_string();
        assert!(error_text(libc::SIGKILL).contains("on_signal is SIGKILL"));
        assert!(
            error_text(libc::SIGUSR2)
                .contains("on_signal is SIGUSR2, which starts or stops the profiler")
        );
        let own = libc::SIGRTMAX() - 3;
        let signal = ControlSignal {
            number: own,
            request: Dump,
        };
        assert_eq!(check_dump_signal(own, &taken), Ok(signal));
    }
}
