//! Signals that somebody sends to the process, handed on through a pipe to a thread that may take its time.
//!
//! Runs in the signal handler: it writes one byte, calls the handler that was there before, and keeps `errno`.
//!
//! **Contract of the handler** (cited below):
//! - *kernel's arguments*: the kernel calls it with a `siginfo_t` and a `ucontext_t` that live as long as the call;
//! - *published before*: the previous action was stored with release ordering before the handler was installed, and is
//!   never freed;
//! - *open while in use*: a handler counts itself before it takes the pipe's number and until it has written; the number
//!   is taken away first, then nobody may be left, then the pipe is closed. A child of `fork` has the parent's pipe, so
//!   the handler writes in the process that opened it alone.

use std::io;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::base::StartError;
use crate::platform::pipe_end::{NO_END, PipeEnd};
use crate::platform::signal::{
    SIGNALS, call_in_handler, check_signal, is_function, is_sampling_signal, keep_action,
    read_action, refused,
};

/// What somebody asks for from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum ControlRequest {
    Start = 1,
    Stop = 2,
    /// The thread that reads ends.
    End = 3,
}

impl ControlRequest {
    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Start, Self::Stop, Self::End]
            .into_iter()
            .find(|request| *request as u8 == byte)
    }
}

/// A signal, and what it asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ControlSignal {
    pub(crate) number: i32,
    pub(crate) request: ControlRequest,
}

/// The ends of the open pipe, as [`PipeEnd::to_word`] writes them.
static WRITE_END: AtomicU64 = AtomicU64::new(NO_END);
static READ_END: AtomicU64 = AtomicU64::new(NO_END);
/// The process that opened the pipe.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// How many handlers may be about to write.
static WRITERS: AtomicU32 = AtomicU32::new(0);
/// What each signal asks for; 0 is nothing.
static REQUESTS: [AtomicU8; SIGNALS] = [const { AtomicU8::new(0) }; SIGNALS];
static PREVIOUS: [AtomicPtr<libc::sigaction>; SIGNALS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; SIGNALS];

/// Marks a signal that our handler has seen; the kernel writes 0 there.
const SEEN: libc::c_int = 0x6e6c;

extern "C" fn handle_control_signal(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: async-signal-safe; gives the address of this thread's `errno`.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the thread's own `errno`.
    let kept = unsafe { *errno };
    // SAFETY: *kernel's arguments*.
    unsafe { answer_in_handler(signal, info, context) };
    // SAFETY: the thread's own `errno`.
    unsafe { *errno = kept };
}

/// # Safety
/// - The arguments are those of the signal handler that runs.
unsafe fn answer_in_handler(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // A handler that was installed over ours may pass signals on to us, and be the one that we pass them on to.
    // SAFETY: *kernel's arguments*: the frame's own copy, which nobody else reads meanwhile.
    unsafe {
        if (*info).si_errno == SEEN {
            return;
        }
        (*info).si_errno = SEEN;
    }
    write_request_in_handler(signal);
    let previous = PREVIOUS
        .get(signal as usize)
        .map(|previous| previous.load(Ordering::Acquire));
    if let Some(previous) = previous.filter(|previous| !previous.is_null()) {
        // SAFETY: *published before*; *kernel's arguments*.
        unsafe { call_in_handler(&*previous, signal, info, context) };
    }
}

/// Where the pipe is full, so many requests wait that one more says nothing new.
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
        // SAFETY: async-signal-safe, touches no memory.
        && OWNER.load(Ordering::Relaxed) == unsafe { libc::getpid() }
        // Where nobody can read, it would be a signal that ends the process.
        && read_end.is_open_in_handler()
        && write_end.is_open_in_handler()
    {
        // *open while in use*.
        write_end.write_in_handler(request);
    }
    WRITERS.fetch_sub(1, Ordering::SeqCst);
}

/// Calls each function of the C library that the handler calls: a function of another library may be bound at its first
/// call, and that takes the loader's lock. [`PipeEnd::new`] has called `fstat`.
fn bind_what_the_handler_calls() {
    // SAFETY: touch no memory of ours.
    unsafe {
        std::hint::black_box((libc::__errno_location(), libc::syscall(libc::SYS_getpid)));
    }
}

/// The signals that are meant, `SIGUSR1` and `SIGUSR2` by default, if they can be used.
///
/// # Errors
/// [`StartError::BadValue`] for one that is not free for this.
pub(crate) fn check_control_signals(
    start: Option<i32>,
    stop: Option<i32>,
) -> Result<[ControlSignal; 2], StartError> {
    let start = check_signal("start_signal", start.unwrap_or(libc::SIGUSR1))?;
    let stop = check_signal("stop_signal", stop.unwrap_or(libc::SIGUSR2))?;
    let bad = |field, value, accepted: &str| {
        Err(StartError::BadValue {
            field,
            value,
            accepted: accepted.into(),
        })
    };
    if start == stop {
        return bad(
            "stop_signal",
            format!("{stop}, which is the start's"),
            "another one than start_signal",
        );
    }
    for (field, signal) in [("start_signal", start), ("stop_signal", stop)] {
        if is_sampling_signal(signal) {
            let value = format!("{signal}, by which threads are sampled");
            return bad(field, value, "a signal by which they are not");
        }
    }
    let signal = |number, request| ControlSignal { number, request };
    Ok([
        signal(start, ControlRequest::Start),
        signal(stop, ControlRequest::Stop),
    ])
}

/// Has the signal write its request, from now on.
///
/// # Errors
/// [`StartError::System`] when the system refuses.
pub(crate) fn take_signal(signal: ControlSignal) -> Result<(), StartError> {
    let ControlSignal { number, request } = signal;
    let index = number as usize;
    let before = read_action(number)?;
    REQUESTS[index].store(request as u8, Ordering::Relaxed);
    if is_ours(&before) {
        return Ok(());
    }
    PREVIOUS[index].store(keep_action(before), Ordering::Release);
    // A handler that was there before runs as it did: with the same signals blocked, on the same stack, with calls that
    // it interrupts begun again or not.
    // SAFETY: zeroed is a valid `sigaction`; both are on this stack, and the handler has the shape that `SA_SIGINFO` asks
    // for.
    let (answer, replaced) = unsafe {
        let (mut action, mut replaced): (libc::sigaction, libc::sigaction) = std::mem::zeroed();
        action.sa_sigaction = handle_control_signal as extern "C" fn(_, _, _) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        if is_function(&before) {
            let kept = before.sa_flags & (libc::SA_RESTART | libc::SA_ONSTACK | libc::SA_NODEFER);
            action.sa_flags = libc::SA_SIGINFO | kept;
            action.sa_mask = before.sa_mask;
        }
        (libc::sigaction(number, &action, &mut replaced), replaced)
    };
    if answer != 0 {
        REQUESTS[index].store(0, Ordering::Relaxed);
        return Err(refused("install the signal's handler"));
    }
    // One that was installed since ours was looked for.
    if replaced.sa_sigaction != before.sa_sigaction && !is_ours(&replaced) {
        PREVIOUS[index].store(keep_action(replaced), Ordering::Release);
    }
    Ok(())
}

/// Has the signal ask for nothing, and puts back what answered it before, if ours is still there. The default action is
/// not put back: it would end the host for a signal that comes too late, so our handler stays and does nothing.
pub(crate) fn give_signal_back(number: i32) {
    let index = number as usize;
    REQUESTS[index].store(0, Ordering::Relaxed);
    let previous = PREVIOUS[index].load(Ordering::Acquire);
    // SAFETY: *published before*: a leaked `sigaction`.
    let Some(previous) = (unsafe { previous.as_ref() }) else {
        return;
    };
    let is_default = previous.sa_sigaction == libc::SIG_DFL;
    if !is_default && read_action(number).is_ok_and(|current| is_ours(&current)) {
        // SAFETY: the kernel held this action, and reads it alone.
        unsafe { libc::sigaction(number, previous, std::ptr::null_mut()) };
    }
}

fn is_ours(action: &libc::sigaction) -> bool {
    action.sa_sigaction == handle_control_signal as extern "C" fn(_, _, _) as usize
}

/// The pipe between the handlers and the thread that reads. There is one at a time.
#[derive(Debug)]
pub(crate) struct ControlPipe {
    read_end: PipeEnd,
    write_end: PipeEnd,
}

impl ControlPipe {
    /// Opens it for the handlers. A program that is executed does not get it.
    ///
    /// # Errors
    /// The system's refusal.
    pub(crate) fn open() -> io::Result<Self> {
        let (read_end, write_end) = io::pipe()?;
        let pipe = Self {
            read_end: PipeEnd::new(read_end)?,
            write_end: PipeEnd::new(write_end)?,
        };
        // SAFETY: the number is open; no memory is touched.
        if unsafe { libc::fcntl(pipe.write_end.number, libc::F_SETFL, libc::O_NONBLOCK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        bind_what_the_handler_calls();
        // SAFETY: touches no memory.
        OWNER.store(unsafe { libc::getpid() }, Ordering::SeqCst);
        READ_END.store(pipe.read_end.to_word(), Ordering::SeqCst);
        WRITE_END.store(pipe.write_end.to_word(), Ordering::SeqCst);
        Ok(pipe)
    }

    /// Whether the host has left it open.
    pub(crate) fn is_whole(&self) -> bool {
        self.read_end.is_open_in_handler() && self.write_end.is_open_in_handler()
    }

    /// Waits for requests. Of many that have come at once the first counts, and the last, if it is another one.
    ///
    /// # Errors
    /// Somebody has closed the pipe: there will be no more.
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

    /// Asks the thread that reads to end; false where the pipe is full.
    ///
    /// # Errors
    /// Somebody has closed the pipe, or the system's refusal.
    pub(crate) fn ask_to_end(&self) -> io::Result<bool> {
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

    /// Takes it from the handlers.
    pub(crate) fn withdraw(&self) {
        // Another one may have been opened already.
        for (place, end) in [(&WRITE_END, self.write_end), (&READ_END, self.read_end)] {
            let _ =
                place.compare_exchange(end.to_word(), NO_END, Ordering::SeqCst, Ordering::SeqCst);
        }
    }
}

fn summarize_requests(bytes: &[u8]) -> Vec<ControlRequest> {
    let requests = || {
        bytes
            .iter()
            .filter_map(|byte| ControlRequest::from_byte(*byte))
    };
    let asks = |request: &ControlRequest| *request != ControlRequest::End;
    let mut summary: Vec<_> = requests()
        .find(asks)
        .into_iter()
        .chain(requests().rfind(asks))
        .collect();
    summary.dedup();
    summary.extend(requests().find(|request| !asks(request)));
    summary
}

impl Drop for ControlPipe {
    fn drop(&mut self) {
        /// A handler that another one has jumped out of counts for ever.
        const LONGEST_WAIT: Duration = Duration::from_secs(1);
        self.withdraw();
        let end = Instant::now() + LONGEST_WAIT;
        while WRITERS.load(Ordering::SeqCst) != 0 {
            if Instant::now() > end {
                // Both ends are left open, since a handler may write yet.
                return;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        self.write_end.close_if_open();
        self.read_end.close_if_open();
    }
}

/// In the child of a fork: its copy of the parent's pipe is closed, and nobody is in a handler.
pub(super) fn forget_control_pipe_in_child() {
    WRITERS.store(0, Ordering::SeqCst);
    for end in [&WRITE_END, &READ_END] {
        // Its owner, which never drops it here, was the parent's.
        let end = PipeEnd::from_word_in_handler(end.swap(NO_END, Ordering::SeqCst));
        end.into_iter().for_each(PipeEnd::close_if_open);
    }
}

#[cfg(test)]
mod tests {
    use super::ControlRequest::{End, Start, Stop};
    use super::*;

    #[test]
    fn of_many_requests_the_first_and_the_last_count() {
        let cases: [(&[ControlRequest], &[ControlRequest]); 9] = [
            (&[Start], &[Start]),
            (&[Start, Start, Start], &[Start]),
            (&[Start, Stop], &[Start, Stop]),
            (&[Stop, Start, Stop, Start], &[Stop, Start]),
            (&[Stop, Start, Stop], &[Stop]),
            (&[End], &[End]),
            (&[Start, Stop, End], &[Start, Stop, End]),
            (&[Start, End, End], &[Start, End]),
            (&[], &[]),
        ];
        for (given, expected) in cases {
            let bytes: Vec<u8> = given.iter().map(|request| *request as u8).collect();
            assert_eq!(summarize_requests(&bytes), expected, "{given:?}");
        }
        assert_eq!(
            summarize_requests(b"\0g\xff"),
            [],
            "what others have written is nothing"
        );
    }

    #[test]
    fn a_pipe_that_a_handler_may_write_to_yet_keeps_both_its_ends() {
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
            "a write that comes late ends no process"
        );
        WRITERS.fetch_sub(1, Ordering::SeqCst);
        drop(ControlPipe {
            read_end: ends[0],
            write_end: ends[1],
        });
        assert_eq!(ends.map(PipeEnd::is_open_in_handler), [false; 2]);
    }

    #[test]
    fn signals_that_cannot_be_used_are_refused_in_words() {
        let refusal = |start, stop| check_control_signals(start, stop).unwrap_err().to_string();
        assert!(refusal(Some(libc::SIGKILL), None).contains("start_signal is 9"));
        assert!(refusal(None, Some(libc::SIGSEGV)).contains("stop_signal is 11"));
        assert!(
            refusal(Some(libc::SIGUSR2), None).contains("stop_signal is 12, which is the start's")
        );
        let numbers =
            check_control_signals(None, None).map(|signals| signals.map(|signal| signal.number));
        assert_eq!(numbers, Ok([libc::SIGUSR1, libc::SIGUSR2]));
    }
}
