//! Direct access to the kernel and the machine for the measurements: clocks, processors, signals,
//! and threads that are suspended while their stack is read.
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
    reason = "signals and the stacks of suspended threads have no safe interface"
)]

use std::cell::UnsafeCell;
use std::io::{Error, Result};
use std::mem::{MaybeUninit, zeroed};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::prctl::set_timerslack;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::sys::time::{TimeSpec, TimeValLike};
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};
use nix::unistd::{Pid, getpid, gettid};

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

/// Reads a clock.
fn read_clock(clock: ClockId) -> nix::Result<u64> {
    let time = clock_gettime(clock)?;
    Ok(Duration::from(time).as_nanos() as u64)
}

/// Returns the CPU time of a thread of this process, as the thread itself would read it with
/// `CLOCK_THREAD_CPUTIME_ID`; `None` if the thread does not exist.
pub(crate) fn cpu_ns_of(thread: i32) -> Option<u64> {
    // The kernel's encoding: the complement of the id above three bits; 4 means a thread, 2 the
    // scheduler's clock.
    read_clock(ClockId::from_raw((!thread << 3) | 6)).ok()
}

pub(crate) fn monotonic_ns() -> u64 {
    read_clock(ClockId::CLOCK_MONOTONIC).unwrap_or(0)
}

/// Returns the CPU time of the whole process.
pub(crate) fn process_cpu_ns() -> u64 {
    read_clock(ClockId::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0)
}

/// Returns the CPU time of the calling thread.
pub(crate) fn thread_cpu_ns() -> u64 {
    read_clock(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0)
}

/// Returns the CPU time of all children that have ended and were waited for, with their children.
pub(crate) fn children_cpu_ns() -> Result<u64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    Ok((usage.user_time() + usage.system_time()).num_microseconds() as u64 * 1000)
}

/// Sleeps until a time of [`monotonic_ns`].
pub(crate) fn sleep_until_ns(deadline: u64) {
    let deadline = TimeSpec::from_duration(Duration::from_nanos(deadline));
    let absolute = ClockNanosleepFlags::TIMER_ABSTIME;
    while clock_nanosleep(ClockId::CLOCK_MONOTONIC, absolute, &deadline) == Err(Errno::EINTR) {}
}

// ---- Threads and processors

/// Returns the calling thread's id.
pub(crate) fn thread_id() -> i32 {
    gettid().as_raw()
}

/// Returns the processors that the calling thread may run on.
pub(crate) fn processors() -> Vec<usize> {
    let set = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    let all = 0..CpuSet::count();
    all.filter(|processor| set.is_set(*processor) == Ok(true))
        .collect()
}

/// Restricts the calling thread, and the threads that it creates from now on, to these processors.
pub(crate) fn run_on(processors: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    for processor in processors {
        set.set(*processor)?;
    }
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

/// Lets the calling thread run only on one of the processors that it may use: the one at `place` in
/// their list, which starts again at its end.
pub(crate) fn pin_to(place: usize) -> Result<()> {
    let processors = processors();
    run_on(&[processors[place % processors.len()]])
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
    // The sampler tries this, too.
    let _ = set_timerslack(1);
    // SAFETY: the kernel writes at most `bytes` bytes to the local, and reads as many.
    unsafe {
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

// ---- Signals

/// The signal of the empty handler and of the handshake.
const SIGNAL: Signal = Signal::SIGUSR2;

type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

fn install(handler: Handler) -> Result<()> {
    let flags = SaFlags::SA_SIGINFO | SaFlags::SA_RESTART;
    let action = SigAction::new(SigHandler::SigAction(handler), flags, SigSet::all());
    // SAFETY: both handlers call only what is allowed in one.
    unsafe { sigaction(SIGNAL, &action)? };
    Ok(())
}

fn send(thread: i32) -> Result<()> {
    let process = getpid().as_raw();
    // SAFETY: touches no memory.
    let answer = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, SIGNAL as i32) };
    Errno::result(answer)?;
    Ok(())
}

static ANSWERS: AtomicU64 = AtomicU64::new(0);

extern "C" fn empty_handler(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // Only one thread is signaled at a time, so a load and a store suffice.
    ANSWERS.store(ANSWERS.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// A handler that only counts its calls, with a way to trigger it. It is never uninstalled.
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
}

// ---- The handshake

/// State that the sampler and the handler share while a thread is suspended.
struct Coordinator {
    context: UnsafeCell<MaybeUninit<libc::ucontext_t>>,
    semaphores: UnsafeCell<MaybeUninit<[libc::sem_t; 3]>>,
}

/// Semaphore that is posted when the thread has copied its context: Gecko's message 2.
const COPIED: usize = 0;
/// When the thread may resume: message 3.
const RELEASED: usize = 1;
/// When the thread no longer uses the coordinator: message 4.
const DONE: usize = 2;

// SAFETY: *one handshake*.
unsafe impl Sync for Coordinator {}

static COORDINATOR: Coordinator = Coordinator {
    context: UnsafeCell::new(MaybeUninit::uninit()),
    semaphores: UnsafeCell::new(MaybeUninit::uninit()),
};

fn semaphore(number: usize) -> *mut libc::sem_t {
    // SAFETY: callers pass one of the three numbers.
    unsafe {
        COORDINATOR
            .semaphores
            .get()
            .cast::<libc::sem_t>()
            .add(number)
    }
}

fn post(number: usize) {
    // SAFETY: `Handshake::new` initializes it before any signal is sent.
    unsafe { libc::sem_post(semaphore(number)) };
}

fn wait(number: usize) {
    // SAFETY: `Handshake::new` initializes it before any signal is sent. The wait fails only when a
    // signal interrupts it.
    while unsafe { libc::sem_wait(semaphore(number)) } != 0 {}
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
    post(COPIED);
    wait(RELEASED);
    post(DONE);
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
            for number in [COPIED, RELEASED, DONE] {
                // SAFETY: no other code uses it yet.
                Errno::result(unsafe { libc::sem_init(semaphore(number), 0, 0) })?;
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
        wait(COPIED);
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
        post(RELEASED);
        wait(DONE);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_ns_of_reads_a_threads_clock_by_its_id() {
        let own = thread_id();
        let before = cpu_ns_of(own).expect("own clock");
        while cpu_ns_of(own).expect("own clock") < before + 1_000_000 {}
        assert!(thread_cpu_ns() >= before + 1_000_000);
    }
}
