//! Writes notices to the standard streams of the process, while they are its standard streams.
//!
//! An application may close them and open files, of which one then gets the number of standard
//! error. So a notice is written only to the file that the stream was when the profiler first ran,
//! or to one that looks redirected: open only for writing, and not closed on `exec`. Databases and
//! sockets are open for reading, too.
//!
//! The stream's file is shared with the application and other processes, so it stays in blocking
//! mode. Instead each step waits until the file has space, and writes no more than that holds.

use std::io::{self, IsTerminal};
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::write;
use once_cell::race::OnceBox;

use crate::platform::identity::{wait_until_writable, without_write_signals};
use crate::platform::shared_file::FileIdentity;

/// Maximum number of bytes of one step to a pipe or socket, which has space for them once it has
/// space at all (`PIPE_BUF`).
const PIPE_STEP_BYTES: usize = 4096;
/// Likewise for a terminal, whose buffer grows by this.
const TERMINAL_STEP_BYTES: usize = 256;

/// A standard stream of the process.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(crate) enum StandardStream {
    Output = libc::STDOUT_FILENO,
    Error = libc::STDERR_FILENO,
}

/// The files of standard output and standard error when the profiler first ran; `None` for one that
/// was closed.
static FIRST_FILES: OnceBox<[Option<FileIdentity>; 2]> = OnceBox::new();

/// Remembers which files the standard streams are, on the first call. Cost: two system calls.
pub(crate) fn note_standard_streams() {
    first_files();
}

/// Opens `/dev/null` for each standard stream that is closed, as Rust's runtime does a little later:
/// otherwise the next file that is opened would become the stream. Called before `main`.
pub(crate) fn open_missing_standard_streams() {
    for stream in libc::STDIN_FILENO..=libc::STDERR_FILENO {
        // SAFETY: a system call with this number fails if nothing is open there.
        let descriptor = unsafe { BorrowedFd::borrow_raw(stream) };
        if fcntl(descriptor, FcntlArg::F_GETFD) != Err(Errno::EBADF) {
            continue;
        }
        // The kernel gives out the lowest number that is free, which is this one, unless a library has
        // started a thread that opens a file at the same moment.
        if let Ok(null) = open("/dev/null", OFlag::O_RDWR, Mode::empty())
            && null.as_raw_fd() == stream
        {
            let _ = null.into_raw_fd();
        }
    }
}

fn first_files() -> &'static [Option<FileIdentity>; 2] {
    FIRST_FILES.get_or_init(|| {
        let streams = [StandardStream::Output, StandardStream::Error];
        Box::new(streams.map(StandardStream::file))
    })
}

impl StandardStream {
    fn descriptor(self) -> BorrowedFd<'static> {
        // SAFETY: a system call with this number fails if nothing is open there.
        unsafe { BorrowedFd::borrow_raw(self as i32) }
    }

    /// Returns the file that the descriptor with the stream's number refers to.
    pub(super) fn file(self) -> Option<FileIdentity> {
        fstat(self.descriptor()).ok().as_ref().map(FileIdentity::of)
    }

    /// Returns whether the descriptor with the stream's number is the stream.
    pub(super) fn is_stream(self) -> bool {
        let [output, error] = first_files();
        let first = match self {
            Self::Output => output,
            Self::Error => error,
        };
        (first.is_some() && self.file() == *first) || self.looks_redirected()
    }

    fn looks_redirected(self) -> bool {
        let ask = |what| fcntl(self.descriptor(), what);
        let is_kept = ask(FcntlArg::F_GETFD).is_ok_and(|flags| flags & libc::FD_CLOEXEC == 0);
        let is_for_writing = |flags| flags & libc::O_ACCMODE == libc::O_WRONLY;
        is_kept && ask(FcntlArg::F_GETFL).is_ok_and(is_for_writing)
    }
}

/// Returns whether the stream is a terminal.
pub(crate) fn is_terminal(stream: StandardStream) -> bool {
    stream.is_stream() && stream.descriptor().is_terminal()
}

/// Returns the number of columns that the stream's terminal says it has, if it says so.
pub(crate) fn terminal_columns(stream: StandardStream) -> Option<usize> {
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: the kernel writes a `winsize` to the pointer, which is to one that outlives the call.
    let answer = unsafe { libc::ioctl(stream as i32, libc::TIOCGWINSZ, &raw mut size) };
    (answer == 0 && size.ws_col > 0).then_some(size.ws_col.into())
}

/// Returns what is written in one step. A terminal replaces a control character by several, so that
/// is a step of its own.
fn first_step(text: &[u8], is_terminal: bool) -> &[u8] {
    if !is_terminal {
        return &text[..text.len().min(PIPE_STEP_BYTES)];
    }
    let is_replaced = |byte: &u8| (b'\x08'..=b'\r').contains(byte);
    let before = text.iter().position(is_replaced).unwrap_or(text.len());
    &text[..before.clamp(1, TERMINAL_STEP_BYTES)]
}

/// Writes `text` to a standard stream, stopping at the first error, or after `max_wait` if the stream
/// does not accept it all: a full pipe, or a terminal after Ctrl-S. A stream that has not accepted
/// one text is not waited for again until it has accepted another. Takes no lock and bypasses the
/// application's own buffer, so the text appears before what is buffered there.
///
/// Not covered: another thread or process may fill the stream between the question and the write.
pub(crate) fn write_to_standard(stream: StandardStream, mut text: &[u8], max_wait: Duration) {
    static IS_STUCK: AtomicBool = AtomicBool::new(false);
    if !stream.is_stream() {
        return;
    }
    let is_terminal = stream.descriptor().is_terminal();
    let mut until = Instant::now();
    if !IS_STUCK.load(Ordering::Relaxed) {
        until += max_wait;
    }
    while !text.is_empty() {
        if !wait_until_writable(stream.descriptor(), until) {
            IS_STUCK.store(true, Ordering::Relaxed);
            return;
        }
        let step = first_step(text, is_terminal);
        // `std::io::stdout` would create the application's buffer.
        match without_write_signals(|| Ok(write(stream.descriptor(), step)?)) {
            Ok(0) => return,
            Ok(written) => text = text.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
    IS_STUCK.store(false, Ordering::Relaxed);
}
