//! A table of file descriptors for the profiler's threads only.
//!
//! The threads of a process share one table of file descriptors. The application may close every
//! descriptor that it does not know, and open files that get the same numbers. A thread of the
//! profiler therefore leaves that table for an empty one of its own, before it opens files. Then
//! neither side can close or use a descriptor of the other, the limit of open files counts for each
//! side alone, and the child of a fork inherits nothing, because the application's threads fork.
//!
//! A thread cannot return to the shared table, so no function of the application may run on a
//! thread that has left it. The allocator and the panic hook run there nevertheless. A new thread
//! shares the table of the thread that creates it.
//!
//! **Contract of the calls** (cited below):
//! - *no memory*: the call reads and writes no memory of this process;
//! - *own memory*: the kernel writes to a local structure of numbers, for which zeros are valid;
//! - *own table*: only threads of the profiler use the table, and none of them uses a number that
//!   another one has closed.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, IntoRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::stat::stat;
use nix::unistd::{dup, dup2_stderr};

use crate::platform::sandbox::may_make_uncommon_call;
use crate::platform::shared_file::FileIdentity;
use crate::platform::standard_streams::StandardStream;
use crate::platform::thread::channel::{Receiver, Sender, channel};
use crate::platform::thread::profiler_thread::spawn_profiler_thread;
use crate::util::{SMALL_TASK_BYTES, allocator_has};

/// `CLOSE_RANGE_UNSHARE`.
const UNSHARE: libc::c_uint = 1 << 1;
/// Number of descriptors that the kernel copies for a thread that leaves the shared table: those in
/// the first word of its table.
const COPIED_DESCRIPTORS: libc::c_int = 64;
/// Largest share of the limit of open files that the profiler keeps open.
const KEPT_SHARE: u64 = 2;
/// Maximum time that a new thread takes to begin its work before its creator does the work itself.
/// A thread begins within microseconds, or milliseconds on a busy machine. It waits for longer if
/// the application's allocator, or an older C library, waits for the loader on it, and the creator
/// is in a library's constructor.
const MAX_BEGIN: Duration = Duration::from_secs(5);
/// Number of threads that were given up and have not begun yet. A new one would not begin either.
static NOT_BEGUN: AtomicUsize = AtomicUsize::new(0);
/// Whether the kernel, or a message queue, kept the last thread that wanted an own table from it.
static IS_REFUSED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The limit of open files when the calling thread left the shared table; 0 on a thread that
    /// has not left it.
    static LIMIT: Cell<u64> = const { Cell::new(0) };
}

/// Returns whether the calling thread has left the table of the application's threads.
pub(crate) fn has_own_descriptors() -> bool {
    LIMIT.get() > 0
}

/// A descriptor table of the profiler, for a thread that its user creates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnTable(u64);

impl OwnTable {
    /// Returns the table of the calling thread; `None` if that is the application's.
    pub(crate) fn current() -> Option<Self> {
        Some(Self(LIMIT.get())).filter(|table| table.0 > 0)
    }

    /// Tells the calling thread that it shares the table: a thread of the table has created it.
    pub(crate) fn share(self) {
        LIMIT.set(self.0);
    }
}

/// Returns the number from which on the calling thread should close descriptors after use. All of
/// them, if the thread shares the application's table.
pub(crate) fn first_number_to_close(most: i32) -> i32 {
    let share = i32::try_from(LIMIT.get() / KEPT_SHARE).unwrap_or(i32::MAX);
    share.min(most)
}

/// Moves the calling thread, which runs no code of the application from now on, to an empty
/// descriptor table. The standard streams read and write nothing there. Returns false if the kernel
/// refuses, or if the application has a message queue. Also returns false in a sandbox, which may
/// kill the process for the call. Cost: about 40 µs, mostly the check for a sandbox.
pub(crate) fn use_own_descriptors() -> bool {
    leave_for_own_table(false)
}

/// Works like [`use_own_descriptors`], but keeps standard error, so that what a sanitizer or a panic
/// prints is seen. The thread ends soon, or calls [`follow_standard_error`] about once a second: a
/// reader of the stream waits until all its descriptors are closed.
pub(crate) fn use_own_descriptors_and_standard_error() -> bool {
    leave_for_own_table(StandardStream::Error.is_stream())
}

/// Closes standard error in the calling thread's own table, if the application has closed or replaced
/// its own. Cost: three system calls, about 3 µs.
pub(crate) fn follow_standard_error() {
    let own = StandardStream::Error.file();
    // Standard output is `/dev/null` there, as standard error is once it is closed.
    if !has_own_descriptors() || own == StandardStream::Output.file() {
        return;
    }
    let of_application = stat("/proc/self/fd/2").ok();
    if of_application.as_ref().map(FileIdentity::of) != own
        && let Ok(null) = open_null()
    {
        let _ = dup2_stderr(null);
    }
}

fn leave_for_own_table(keeps_error: bool) -> bool {
    if has_own_descriptors() {
        return true;
    }
    if !may_make_uncommon_call() {
        return false;
    }
    let has_left = !(0..COPIED_DESCRIPTORS).any(is_message_queue)
        // The calls since the question took up to some 20 µs.
        && may_make_uncommon_call()
        && leave_shared_table(keeps_error);
    IS_REFUSED.store(!has_left, Ordering::Relaxed);
    if !has_left {
        return false;
    }
    open_null_streams(keeps_error);
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(1, |(soft, _)| soft.max(1));
    LIMIT.set(limit);
    true
}

/// Runs `body` on a thread with an empty descriptor table, and waits for it. Runs it on the calling
/// thread if that is such a thread, if the system refuses to create one, if a new one has no memory
/// or does not begin, in a sandbox, and where the last thread was refused such a table. `body` neither runs code of the application nor calls the
/// loader, whose lock the calling thread may hold. Cost: about 40 µs, for the thread and the check.
pub(crate) fn on_own_descriptors<T: Send + 'static>(
    body: impl FnOnce() -> T + Send + 'static,
) -> T {
    if has_own_descriptors() || !may_begin_thread() || IS_REFUSED.load(Ordering::Relaxed) {
        return body();
    }
    let (answer, _) = on_new_thread(MAX_BEGIN, &NOT_BEGUN, || (), body);
    answer
}

/// Returns whether a new thread may be created, and is likely to begin.
pub(super) fn may_begin_thread() -> bool {
    NOT_BEGUN.load(Ordering::Relaxed) == 0 && may_make_uncommon_call()
}

/// Work that two threads may take: a new one, and the one that created it. Whichever takes it first
/// does it.
///
/// The mutex belongs to one call, so no code that interrupts the call can wait for it.
pub(super) struct Work<F> {
    state: Mutex<WorkState<F>>,
    /// The number of threads that were given up, such as [`NOT_BEGUN`].
    not_begun: &'static AtomicUsize,
}

struct WorkState<F> {
    body: Option<F>,
    /// Whether the new thread has begun, or was never created.
    has_begun: bool,
    is_counted: bool,
}

/// The new thread's share of the work. It is dropped when the thread begins, or is not created.
pub(super) struct WorkOfThread<F>(Arc<Work<F>>);

impl<F> Work<F> {
    pub(super) fn new(not_begun: &'static AtomicUsize, body: F) -> (Arc<Self>, WorkOfThread<F>) {
        let state = Mutex::new(WorkState {
            body: Some(body),
            has_begun: false,
            is_counted: false,
        });
        let work = Arc::new(Self { state, not_begun });
        (Arc::clone(&work), WorkOfThread(work))
    }

    fn lock(&self) -> MutexGuard<'_, WorkState<F>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the work back from the new thread, unless that has taken it. Counts a thread that has
    /// not begun.
    pub(super) fn take_back(&self) -> Option<F> {
        let mut state = self.lock();
        let body = state.body.take();
        if body.is_some() && !state.has_begun {
            state.is_counted = true;
            self.not_begun.fetch_add(1, Ordering::Relaxed);
        }
        body
    }
}

impl<F> WorkOfThread<F> {
    /// Takes the work, unless the thread was given up.
    pub(super) fn take(self) -> Option<F> {
        self.0.lock().body.take()
    }
}

impl<F> Drop for WorkOfThread<F> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.has_begun = true;
        if std::mem::take(&mut state.is_counted) {
            self.0.not_begun.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Runs `body` on a new thread, after `begin`; on the calling thread if the new one does not come
/// that far within `max_begin`. Returns the answer, and whether the new thread ran `body`.
fn on_new_thread<T: Send + 'static>(
    max_begin: Duration,
    not_begun: &'static AtomicUsize,
    begin: impl FnOnce() + Send + 'static,
    body: impl FnOnce() -> T + Send + 'static,
) -> (T, bool) {
    let (work, of_thread) = Work::new(not_begun, body);
    let (send, answer) = channel();
    let run = move || {
        begin();
        if !has_memory() {
            return;
        }
        use_own_descriptors_and_standard_error();
        if let Some(body) = of_thread.take() {
            send.send(catch_unwind(AssertUnwindSafe(body)));
        }
    };
    let thread = spawn_profiler_thread(c"ProfilerFiles", run);
    let mut answered = answer.receive_within(max_begin);
    if answered.is_none() {
        if let Some(body) = work.take_back() {
            // The thread is not joined: it may begin only after the caller has returned.
            return (body(), false);
        }
        answered = answer.receive();
    }
    if let Ok(thread) = thread {
        thread.join();
    }
    match answered {
        Some(Ok(answer)) => (answer, true),
        Some(Err(panic)) => resume_unwind(panic),
        None => unreachable!("the thread has sent its answer"),
    }
}

/// Returns whether the calling thread, a new one, has memory. glibc gives most threads memory of
/// their own, so the thread that created it may have some left.
pub(super) fn has_memory() -> bool {
    allocator_has(SMALL_TASK_BYTES)
}

/// Returns whether the process or the calling thread has no free descriptor.
pub(crate) fn is_out_of_descriptors(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMFILE)
}

/// A part of what the calling thread writes, or its result.
enum Part {
    Bytes(Vec<u8>),
    End(io::Result<()>),
}

/// Writes to the file that another thread has opened.
struct Feed {
    parts: Sender<Part>,
    /// An answer for each part.
    written: Receiver<io::Result<()>>,
}

/// Runs `body` on a thread with an empty descriptor table, and waits for it. `body` gets a function
/// that writes what `feed` writes on the calling thread. So `feed` may run code of the application,
/// and `body` opens files although the process has no free descriptor. Returns `None` without
/// running either if the system refuses such a thread or its memory, if the thread does not begin,
/// and in a sandbox.
pub(crate) fn feed_own_descriptors<T: Send + 'static>(
    feed: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    body: impl FnOnce(&mut dyn FnMut(&mut dyn Write) -> io::Result<()>) -> T + Send + 'static,
) -> Option<T> {
    if !may_begin_thread() {
        return None;
    }
    let (work, of_thread) = Work::new(&NOT_BEGUN, body);
    let (send_answer, answer) = channel();
    let (parts, receive_parts) = channel();
    let (send_written, written) = channel();
    let run = move || {
        if has_memory()
            && use_own_descriptors()
            && let Some(body) = of_thread.take()
        {
            let mut copy = |out: &mut dyn Write| copy_parts(&receive_parts, &send_written, out);
            send_answer.send(catch_unwind(AssertUnwindSafe(|| body(&mut copy))));
        }
    };
    let thread = spawn_profiler_thread(c"ProfilerFiles", run).ok()?;
    let mut is_open = written.receive_within(MAX_BEGIN);
    if is_open.is_none() {
        if work.take_back().is_some() {
            return None;
        }
        is_open = written.receive();
    }
    // The other thread has opened its file. If it cannot, there is nothing to write to.
    if is_open.is_some() {
        let mut out = Feed { parts, written };
        let fed = feed(&mut out);
        out.parts.send(Part::End(fed));
    }
    let answer = answer.receive();
    thread.join();
    match answer? {
        Ok(answer) => Some(answer),
        Err(panic) => resume_unwind(panic),
    }
}

/// Writes each part to `out`, after a first answer that the file is open.
fn copy_parts(
    parts: &Receiver<Part>,
    written: &Sender<io::Result<()>>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut answer = Ok(());
    loop {
        // The other thread notices if this one has ended, and this one if the other has panicked.
        written.send(answer);
        match parts.receive() {
            Some(Part::Bytes(bytes)) => {
                if let Err(error) = out.write_all(&bytes) {
                    written.send(Err(error.kind().into()));
                    return Err(error);
                }
                answer = Ok(());
            }
            Some(Part::End(result)) => return result,
            None => return Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

impl Write for Feed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        self.parts.send(Part::Bytes(bytes.to_vec()));
        let written = self.written.receive().ok_or_else(broken)?;
        written.map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Leaves the shared table in one step, so that no file of the application is kept open for longer
/// than this call. Fails before Linux 5.9, where the table could only be copied.
///
/// The kernel nevertheless copies the first [`COPIED_DESCRIPTORS`], and closes the copies. That
/// flushes a file of the application, and may wait for the server of a network file system.
fn leave_shared_table(keeps_error: bool) -> bool {
    let error = libc::STDERR_FILENO as libc::c_uint;
    let first = if keeps_error { error + 1 } else { 0 };
    // SAFETY: *no memory*; *own table*: the call closes the numbers of the new table only.
    let close = |first: libc::c_uint, last: libc::c_uint, flags: libc::c_uint| unsafe {
        libc::syscall(libc::SYS_close_range, first, last, flags) == 0
    };
    let has_left = close(first, libc::c_uint::MAX, UNSHARE);
    if has_left && keeps_error {
        close(0, error - 1, 0);
    }
    has_left
}

/// The kernel's `struct statx`. Not every version of `libc` has it for musl.
#[repr(C)]
#[derive(Default)]
struct FileAttributes {
    before_mode: [u32; 7],
    mode: u16,
    padding: u16,
    inode: u64,
    size: u64,
    after_size: [u64; 26],
}
const _: () = assert!(size_of::<FileAttributes>() == 256);

/// Returns whether the descriptor refers to a POSIX message queue. When a process closes any
/// descriptor of a queue, the kernel removes the process's registration with `mq_notify`.
fn is_message_queue(number: libc::c_int) -> bool {
    /// Size that the kernel reports for a queue, in bytes, and the type of its file system.
    const QUEUE_BYTES: u64 = 80;
    const QUEUES: u64 = 0x1980_0202;
    /// `AT_STATX_DONT_SYNC`: does not ask the server of a network file system.
    const ONLY_LOCAL: libc::c_int = 0x4000;
    /// `STATX_TYPE` and `STATX_SIZE`.
    const FIELDS: libc::c_uint = 0x201;
    let mut file = FileAttributes::default();
    let flags = libc::AT_EMPTY_PATH | ONLY_LOCAL;
    let no_path = c"".as_ptr();
    let file_pointer = &raw mut file;
    // SAFETY: *own memory*.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_statx,
            number,
            no_path,
            flags,
            FIELDS,
            file_pointer,
        )
    };
    let is_regular = u32::from(file.mode) & libc::S_IFMT == libc::S_IFREG;
    if answer != 0 || !is_regular || file.size != QUEUE_BYTES {
        return false;
    }
    let mut system = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: *own memory*.
    unsafe {
        let answer = libc::fstatfs(number, system.as_mut_ptr());
        answer == 0 && system.assume_init().f_type as u64 == QUEUES
    }
}

/// Opens `/dev/null` as the standard streams that are closed, for code that uses them by their
/// numbers. A process without that file has no standard streams on this thread.
fn open_null_streams(has_error: bool) {
    if let Ok(null) = open_null() {
        let copies = if has_error { 1 } else { 2 };
        let copies = (0..copies).map(|_| dup(null.as_fd()));
        // They stay open as long as the thread.
        for copy in copies.flatten() {
            let _ = copy.into_raw_fd();
        }
        let _ = null.into_raw_fd();
    }
}

fn open_null() -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.custom_flags(OFlag::O_CLOEXEC.bits());
    options.read(true).write(true).open("/dev/null")
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    /// Returns the open descriptors of the calling thread.
    fn own_numbers() -> Vec<i32> {
        let entries = std::fs::read_dir("/proc/thread-self/fd").expect("descriptors");
        let mut numbers: Vec<i32> = entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect();
        numbers.sort_unstable();
        numbers
    }

    #[test]
    fn own_table_has_only_null_streams() {
        let (end, write_end) = std::io::pipe().expect("a pipe");
        std::thread::scope(|scope| {
            let checks = scope.spawn(|| {
                assert!(use_own_descriptors());
                let null = std::fs::metadata("/dev/null").expect("a device");
                use std::os::unix::fs::MetadataExt;
                let is_null = |number: &i32| {
                    std::fs::metadata(format!("/proc/thread-self/fd/{number}"))
                        .is_ok_and(|file| file.rdev() == null.rdev())
                };
                // The last one is that of the listing itself.
                let numbers = own_numbers();
                (numbers.len(), (0..3).all(|number| is_null(&number)))
            });
            assert_eq!(checks.join().expect("thread"), (4, true));
        });
        // This test's thread has all that it had.
        let numbers = own_numbers();
        for number in [end.as_raw_fd(), write_end.as_raw_fd()] {
            assert!(
                numbers.contains(&number),
                "{number} is not open: {numbers:?}"
            );
        }
    }

    #[test]
    fn feed_writes_on_the_other_thread_and_returns_its_answer() {
        let written = feed_own_descriptors(
            |out| {
                out.write_all(b"first")
                    .and_then(|()| out.write_all(b", second"))
            },
            |write| {
                let mut text = Vec::new();
                let result = write(&mut text).map_err(|error| error.kind());
                (has_own_descriptors(), result, text)
            },
        );
        assert_eq!(written, Some((true, Ok(()), b"first, second".to_vec())));
        // Neither the error of the writer nor that of the text is lost.
        let full = feed_own_descriptors(
            |out| {
                let error = out.write_all(b"text").expect_err("no space");
                assert_eq!(error.kind(), io::ErrorKind::WriteZero);
                Err(error)
            },
            |write| write(&mut [0u8; 2].as_mut_slice()).map_err(|error| error.kind()),
        );
        assert_eq!(full, Some(Err(io::ErrorKind::WriteZero)));
        let failed = feed_own_descriptors(
            |_| Err(io::ErrorKind::Other.into()),
            |write| write(&mut Vec::new()).map_err(|error| error.kind()),
        );
        assert_eq!(failed, Some(Err(io::ErrorKind::Other)));
        // Without a file, no text is read.
        let unopened = feed_own_descriptors(|_| panic!("not called"), |_| 7);
        assert_eq!(unopened, Some(7));
    }

    #[test]
    fn on_own_descriptors_returns_the_answer_or_the_panic() {
        assert!(!has_own_descriptors());
        assert!(on_own_descriptors(has_own_descriptors));
        assert!(std::panic::catch_unwind(|| on_own_descriptors(|| panic!("on purpose"))).is_err());
    }

    #[test]
    fn work_of_a_thread_that_does_not_begin_is_done_by_its_creator() {
        let (end_wait, waits) = channel();
        let begin = move || assert_eq!(waits.receive(), Some(()));
        let max_begin = Duration::from_millis(20);
        // Not the one of the other tests in this process.
        static NOT_BEGUN: AtomicUsize = AtomicUsize::new(0);
        let answer = on_new_thread(max_begin, &NOT_BEGUN, begin, has_own_descriptors);
        assert_eq!(answer, (false, false), "the creator shares the table");
        assert_eq!(NOT_BEGUN.load(Ordering::Relaxed), 1);
        assert!(end_wait.send(()));
        while NOT_BEGUN.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        let answer = on_new_thread(MAX_BEGIN, &NOT_BEGUN, || (), has_own_descriptors);
        assert_eq!(answer, (true, true));
        assert_eq!(NOT_BEGUN.load(Ordering::Relaxed), 0);
    }
}
