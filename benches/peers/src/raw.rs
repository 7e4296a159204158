//! Direct access to the kernel and the machine for the measurements: clocks, processors, signals,
//! timers, and threads that are suspended while their stack is read.
//!
//! **Contract** (cited below):
//! - *kernel's arguments*: the kernel calls a handler with a `ucontext_t` that lives as long as the
//!   call;
//! - *stays*: this program never unloads a library, so what the loader lists stays mapped;
//! - *one handshake*: at most one [`Handshake`] exists, and the coordinator's semaphores order the
//!   accesses to the context: the handler writes the context before its first post, and the sampler
//!   reads it between that post and its own.
#![allow(
    unsafe_code,
    reason = "signals, timers and the stacks of suspended threads have no safe interface"
)]

use std::cell::UnsafeCell;
use std::io::{Error, Result};
use std::mem::{MaybeUninit, zeroed};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

// ---- Clocks

/// Reads the processor's clock, in its own unit. Cost: a few nanoseconds.
#[inline(always)]
pub(crate) fn cycles() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction, and Linux allows it in user space.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(target_arch = "aarch64")]
    {
        let cycles;
        // SAFETY: reads a register that Linux makes readable in user space.
        unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) cycles, options(nomem, nostack)) };
        cycles
    }
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the out-pointer is to a local.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

pub(crate) fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Returns the CPU time of the whole process.
pub(crate) fn process_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Returns the CPU time of the calling thread.
pub(crate) fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the CPU time of all children that have ended and were waited for, with their children.
pub(crate) fn children_cpu_ns() -> u64 {
    // SAFETY: zeroed is a valid value, and the out-pointer is to a local.
    let usage = unsafe {
        let mut usage: libc::rusage = zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    };
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
    ns(usage.ru_utime) + ns(usage.ru_stime)
}

fn timespec(ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (ns / 1_000_000_000) as _,
        tv_nsec: (ns % 1_000_000_000) as _,
    }
}

/// Sleeps until a time of [`monotonic_ns`].
pub(crate) fn sleep_until_ns(deadline: u64) {
    let deadline = timespec(deadline);
    // SAFETY: the first pointer is to a local, and the second may be null.
    while unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &deadline,
            std::ptr::null_mut(),
        )
    } == libc::EINTR
    {}
}

// ---- Threads and processors

/// Returns the calling thread's id.
pub(crate) fn thread_id() -> i32 {
    // SAFETY: touches no memory.
    unsafe { libc::gettid() }
}

/// Returns the processors that the calling thread may run on.
pub(crate) fn processors() -> Vec<usize> {
    // SAFETY: zeroed is an empty set, and the out-pointer is to a local of the given size.
    unsafe {
        let mut set: libc::cpu_set_t = zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &mut set);
        (0..libc::CPU_SETSIZE as usize)
            .filter(|processor| libc::CPU_ISSET(*processor, &set))
            .collect()
    }
}

/// Restricts the calling thread, and the threads that it creates from now on, to these processors.
pub(crate) fn run_on(processors: &[usize]) -> Result<()> {
    // SAFETY: zeroed is an empty set, whose bounds `CPU_SET` checks; the pointer is to a local of
    // the given size.
    check(unsafe {
        let mut set: libc::cpu_set_t = zeroed();
        processors
            .iter()
            .for_each(|processor| libc::CPU_SET(*processor, &mut set));
        libc::sched_setaffinity(0, size_of_val(&set), &set)
    })
}

/// Prepares the calling thread as gekkota prepares its sampler (`src/platform/identity.rs`): no
/// timer slack, and the shortest time slice.
pub(crate) fn prepare_sampler_thread() {
    /// The kernel's `struct sched_attr`, in its first version.
    #[repr(C)]
    #[derive(Default)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        slice_ns: u64,
        deadline_ns: u64,
        period_ns: u64,
    }
    let mut attributes = Attributes::default();
    let bytes = size_of::<Attributes>();
    // SAFETY: the option takes a number. The kernel writes at most `bytes` bytes to the local, and
    // reads as many.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong);
        let this_thread = 0;
        let read = libc::syscall(
            libc::SYS_sched_getattr,
            this_thread,
            &raw mut attributes,
            bytes,
            0,
        );
        if read == 0 && attributes.policy == libc::SCHED_OTHER as u32 {
            attributes.slice_ns = 100_000;
            libc::syscall(
                libc::SYS_sched_setattr,
                this_thread,
                &raw const attributes,
                0,
            );
        }
    }
}

fn check(result: libc::c_int) -> Result<()> {
    if result < 0 {
        Err(Error::last_os_error())
    } else {
        Ok(())
    }
}

// ---- Signals

/// The signal of the bare timers, the bare sampler and the handshake.
const SIGNAL: libc::c_int = libc::SIGUSR2;

type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

fn install(handler: Handler) -> Result<()> {
    // SAFETY: zeroed is a valid action, the pointer is to a local, and the handler has the shape of
    // `SA_SIGINFO`.
    check(unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigfillset(&mut action.sa_mask);
        libc::sigaction(SIGNAL, &action, std::ptr::null_mut())
    })
}

fn send(thread: i32) -> Result<()> {
    // SAFETY: touches no memory.
    check(unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, SIGNAL) } as libc::c_int)
}

static ANSWERS: AtomicU64 = AtomicU64::new(0);

extern "C" fn empty_handler(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // Only one thread is signaled at a time, so a load and a store suffice.
    ANSWERS.store(ANSWERS.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// A handler that only counts its calls, with the ways to trigger it. It is never uninstalled.
#[derive(Clone, Copy)]
pub(crate) struct EmptyHandler(());

impl EmptyHandler {
    pub(crate) fn install() -> Result<Self> {
        install(empty_handler).map(|()| Self(()))
    }

    /// Returns how often the handler has run.
    pub(crate) fn answers(self) -> u64 {
        ANSWERS.load(Ordering::Relaxed)
    }

    /// Runs the handler on a thread of this process.
    pub(crate) fn send(self, thread: i32) -> Result<()> {
        send(thread)
    }

    /// Runs the handler on a thread after each `interval` of that thread's CPU time, by the
    /// kernel's software CPU clock.
    pub(crate) fn start_perf_timer(self, thread: i32, interval: Duration) -> Result<PerfTimer> {
        /// The kernel's `struct perf_event_attr`, in its first version.
        #[repr(C)]
        #[derive(Default)]
        struct Attributes {
            kind: u32,
            size: u32,
            config: u64,
            sample_period: u64,
            sample_type: u64,
            read_format: u64,
            flags: u64,
            wakeup_events: u32,
            breakpoint_type: u32,
            breakpoint: u64,
        }
        const SOFTWARE: u32 = 1;
        const CPU_CLOCK: u64 = 0;
        const DISABLED: u64 = 1;
        const EXCLUDE_KERNEL_AND_HYPERVISOR: u64 = 1 << 5 | 1 << 6;
        const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;
        const ENABLE: libc::c_ulong = 0x2400;
        #[repr(C)]
        struct Owner {
            kind: libc::c_int,
            id: libc::c_int,
        }
        const F_SETSIG: libc::c_int = 10;
        const F_SETOWN_EX: libc::c_int = 15;
        const F_OWNER_TID: libc::c_int = 0;

        let attributes = Attributes {
            kind: SOFTWARE,
            size: size_of::<Attributes>() as u32,
            config: CPU_CLOCK,
            sample_period: interval.as_nanos() as u64,
            flags: DISABLED | EXCLUDE_KERNEL_AND_HYPERVISOR,
            wakeup_events: 1,
            ..Attributes::default()
        };
        let owner = Owner {
            kind: F_OWNER_TID,
            id: thread,
        };
        // SAFETY: the kernel reads the local, whose size the attributes state. -1 means any
        // processor and no group.
        let descriptor = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                thread,
                -1,
                -1,
                CLOSE_ON_EXEC,
            )
        } as libc::c_int;
        check(descriptor)?;
        let timer = PerfTimer(descriptor);
        // SAFETY: the descriptor is open, and the kernel only reads `owner`.
        unsafe {
            check(libc::fcntl(descriptor, F_SETOWN_EX, &raw const owner))?;
            check(libc::fcntl(descriptor, F_SETSIG, SIGNAL))?;
            check(libc::fcntl(descriptor, libc::F_SETFL, libc::O_ASYNC))?;
            check(libc::ioctl(descriptor, ENABLE, 0))?;
        }
        Ok(timer)
    }

    /// Runs the handler on a thread at each `interval` of wall time. The timer interrupts the
    /// processor that the caller is on.
    pub(crate) fn start_posix_timer(self, thread: i32, interval: Duration) -> Result<PosixTimer> {
        let every = timespec(interval.as_nanos() as u64);
        // SAFETY: zeroed is a valid event, and all pointers are to locals.
        unsafe {
            let mut event: libc::sigevent = zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = SIGNAL;
            event.sigev_notify_thread_id = thread;
            let mut timer = MaybeUninit::uninit();
            check(libc::timer_create(
                libc::CLOCK_MONOTONIC,
                &mut event,
                timer.as_mut_ptr(),
            ))?;
            let timer = PosixTimer(timer.assume_init());
            let times = libc::itimerspec {
                it_interval: every,
                it_value: every,
            };
            check(libc::timer_settime(
                timer.0,
                0,
                &times,
                std::ptr::null_mut(),
            ))?;
            Ok(timer)
        }
    }
}

/// A running timer. Dropping this deletes it.
pub(crate) struct PerfTimer(libc::c_int);

impl Drop for PerfTimer {
    fn drop(&mut self) {
        // SAFETY: this value owns the descriptor.
        unsafe { libc::close(self.0) };
    }
}

/// A running timer. Dropping this deletes it.
pub(crate) struct PosixTimer(libc::timer_t);

impl Drop for PosixTimer {
    fn drop(&mut self) {
        // SAFETY: this value owns the timer.
        unsafe { libc::timer_delete(self.0) };
    }
}

// ---- The handshake

/// State that the sampler and the handler share while a thread is suspended.
struct Coordinator {
    context: UnsafeCell<MaybeUninit<libc::ucontext_t>>,
    /// Posted when the thread has copied its context: Gecko's message 2.
    copied: UnsafeCell<MaybeUninit<libc::sem_t>>,
    /// Posted when the thread may resume: message 3.
    released: UnsafeCell<MaybeUninit<libc::sem_t>>,
    /// Posted when the thread no longer uses the coordinator: message 4.
    done: UnsafeCell<MaybeUninit<libc::sem_t>>,
}

// SAFETY: *one handshake*.
unsafe impl Sync for Coordinator {}

static COORDINATOR: Coordinator = Coordinator {
    context: UnsafeCell::new(MaybeUninit::uninit()),
    copied: UnsafeCell::new(MaybeUninit::uninit()),
    released: UnsafeCell::new(MaybeUninit::uninit()),
    done: UnsafeCell::new(MaybeUninit::uninit()),
};

fn post(semaphore: &UnsafeCell<MaybeUninit<libc::sem_t>>) {
    // SAFETY: `Handshake::new` initializes it before any signal is sent.
    unsafe { libc::sem_post(semaphore.get().cast()) };
}

fn wait(semaphore: &UnsafeCell<MaybeUninit<libc::sem_t>>) {
    // SAFETY: `Handshake::new` initializes it before any signal is sent. The wait fails only when a
    // signal interrupts it.
    while unsafe { libc::sem_wait(semaphore.get().cast()) } != 0 {}
}

extern "C" fn suspending_handler(
    _: libc::c_int,
    _: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: *kernel's arguments*; *one handshake*. The C library's type is longer than the
    // kernel's. In the signal frame, the saved floating-point registers follow the kernel's
    // context, and they are longer than the difference.
    unsafe {
        (*COORDINATOR.context.get()).write(std::ptr::read(context.cast::<libc::ucontext_t>()))
    };
    post(&COORDINATOR.copied);
    wait(&COORDINATOR.released);
    post(&COORDINATOR.done);
}

/// A thread that can be suspended, with the bounds of its stack. It outlives all its suspensions.
#[derive(Clone, Debug)]
pub(crate) struct SuspendableThread {
    thread: i32,
    stack: Range<u64>,
}

impl SuspendableThread {
    /// Returns the calling thread.
    pub(crate) fn current() -> Result<Self> {
        // SAFETY: `pthread_getattr_np` fills the attributes, and allocates what
        // `pthread_attr_destroy` frees. All pointers are to locals.
        let stack = unsafe {
            let mut attributes: libc::pthread_attr_t = zeroed();
            if libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) != 0 {
                return Err(Error::other("cannot read the bounds of a thread's stack"));
            }
            let (mut low, mut bytes) = (std::ptr::null_mut(), 0);
            libc::pthread_attr_getstack(&attributes, &mut low, &mut bytes);
            libc::pthread_attr_destroy(&mut attributes);
            low as u64..low as u64 + bytes as u64
        };
        Ok(Self {
            thread: thread_id(),
            stack,
        })
    }
}

/// Suspends threads as the Gecko Profiler does on Linux
/// (`Sampler::SuspendAndSampleAndResumeThread`), with its three semaphores. At most one exists per
/// process.
pub(crate) struct Handshake(());

impl Handshake {
    pub(crate) fn new() -> Result<Self> {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        if !TAKEN.swap(true, Ordering::AcqRel) {
            for semaphore in [
                &COORDINATOR.copied,
                &COORDINATOR.released,
                &COORDINATOR.done,
            ] {
                // SAFETY: no other code uses it yet.
                check(unsafe { libc::sem_init(semaphore.get().cast(), 0, 0) })?;
            }
            install(suspending_handler)?;
            return Ok(Self(()));
        }
        Err(Error::other(
            "cannot create a second handshake in a process",
        ))
    }

    /// Suspends the thread in its handler. Returns `None` if the thread has exited.
    pub(crate) fn suspend<'a>(
        &'a mut self,
        thread: &'a SuspendableThread,
    ) -> Option<SuspendedThread<'a>> {
        send(thread.thread).ok()?;
        wait(&COORDINATOR.copied);
        // SAFETY: *one handshake*: the handler wrote it before the post that this waited for.
        let context = unsafe { (*COORDINATOR.context.get()).assume_init_ref() };
        Some(SuspendedThread {
            registers: Registers::of(context),
            stack: &thread.stack,
        })
    }
}

/// The registers from which unwinding starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registers {
    pub(crate) pc: u64,
    pub(crate) sp: u64,
    pub(crate) fp: u64,
    /// The link register.
    #[cfg(target_arch = "aarch64")]
    pub(crate) lr: u64,
}

impl Registers {
    #[cfg(target_arch = "x86_64")]
    fn of(context: &libc::ucontext_t) -> Self {
        let register = |number: libc::c_int| context.uc_mcontext.gregs[number as usize] as u64;
        Self {
            pc: register(libc::REG_RIP),
            sp: register(libc::REG_RSP),
            fp: register(libc::REG_RBP),
        }
    }

    #[cfg(target_arch = "aarch64")]
    fn of(context: &libc::ucontext_t) -> Self {
        let machine = &context.uc_mcontext;
        Self {
            pc: machine.pc,
            sp: machine.sp,
            fp: machine.regs[29],
            lr: machine.regs[30],
        }
    }
}

/// A thread that is suspended in its handler. Dropping this resumes it.
pub(crate) struct SuspendedThread<'a> {
    pub(crate) registers: Registers,
    stack: &'a Range<u64>,
}

impl SuspendedThread<'_> {
    /// Reads a word of the suspended thread's stack in place. Returns `None` for an address outside
    /// of the stack's used part.
    pub(crate) fn word_at(&self, address: u64) -> Option<u64> {
        let used = self.registers.sp.max(self.stack.start)..self.stack.end.saturating_sub(7);
        // SAFETY: the thread's stack is mapped while the thread lives, and the thread is suspended.
        used.contains(&address)
            .then(|| unsafe { std::ptr::read_unaligned(address as *const u64) })
    }
}

impl Drop for SuspendedThread<'_> {
    fn drop(&mut self) {
        post(&COORDINATOR.released);
        wait(&COORDINATOR.done);
    }
}

// ---- Modules

/// A loaded module, with its unwind sections where they are mapped.
pub(crate) struct Module {
    pub(crate) range: Range<u64>,
    /// Difference between an address in memory and the address in the file.
    pub(crate) bias: u64,
    pub(crate) eh_frame_hdr: &'static [u8],
    pub(crate) eh_frame: &'static [u8],
}

/// Returns all loaded modules that have unwind sections.
pub(crate) fn modules() -> Vec<Module> {
    extern "C" fn visit(
        info: *mut libc::dl_phdr_info,
        _: libc::size_t,
        modules: *mut libc::c_void,
    ) -> libc::c_int {
        // SAFETY: the loader passes its own record, and the pointer that it is given below.
        let (info, modules) = unsafe { (&*info, &mut *modules.cast::<Vec<Module>>()) };
        modules.extend(to_module(info));
        0
    }
    let mut modules: Vec<Module> = Vec::new();
    // SAFETY: the callback has the type that the loader expects, and its pointer outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut modules).cast()) };
    modules
}

fn to_module(info: &libc::dl_phdr_info) -> Option<Module> {
    const GNU_EH_FRAME: u32 = 0x6474_e550;
    /// Encoding that all common linkers use for the pointer to `.eh_frame`: a 32-bit distance from
    /// the pointer itself.
    const DISTANCE_FROM_HERE: u8 = 0x1b;
    // SAFETY: *stays*: there are as many headers as the loader's record says.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let in_memory = |header: &libc::Elf64_Phdr| {
        let start = info.dlpi_addr + header.p_vaddr;
        start..start + header.p_memsz
    };
    let loaded = || {
        headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD)
            .map(in_memory)
    };
    let range = loaded().map(|part| part.start).min()?..loaded().map(|part| part.end).max()?;
    let index = in_memory(
        headers
            .iter()
            .find(|header| header.p_type == GNU_EH_FRAME)?,
    );
    let segment = loaded().find(|part| part.start <= index.start && index.end <= part.end)?;
    // SAFETY: *stays*: callers pass ranges within a loaded segment.
    let bytes = |range: Range<u64>| unsafe {
        std::slice::from_raw_parts(range.start as *const u8, (range.end - range.start) as usize)
    };
    let eh_frame_hdr = bytes(index.clone());
    let head: &[u8; 8] = eh_frame_hdr.first_chunk()?;
    if head[..2] != [1, DISTANCE_FROM_HERE] {
        return None;
    }
    let distance = i32::from_le_bytes([head[4], head[5], head[6], head[7]]);
    let eh_frame = (index.start + 4).checked_add_signed(distance.into())?;
    let eh_frame = segment
        .contains(&eh_frame)
        .then(|| bytes(eh_frame..segment.end))?;
    Some(Module {
        range,
        bias: info.dlpi_addr,
        eh_frame_hdr,
        eh_frame,
    })
}
