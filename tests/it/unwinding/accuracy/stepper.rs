//! Runs code one instruction at a time, and takes a backtrace after each.
//!
//! The processor's trap flag raises `SIGTRAP` after every instruction. Its handler sees where the code is, and whether
//! the instruction before was a call; so it knows the stack of calls, from the driver's on, without any unwinding. It takes
//! a backtrace of itself: the handler, the trampoline by which the kernel called it, and below them the code that was
//! interrupted.

use std::arch::asm;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence};

use gekkota::stack::{ProfilerBacktrace, profiler_capture_backtrace};

/// So many backtraces are kept at once; code of more steps is run again for the later ones.
pub(crate) const WINDOW: usize = 8192;

/// A call that has not returned.
#[derive(Clone, Copy)]
struct Call {
    /// Where on the stack its return address is.
    place: u64,
    returns_to: u64,
}

/// A backtrace after one instruction, and what it must be.
pub(crate) struct Step {
    pub(crate) backtrace: ProfilerBacktrace,
    /// The instruction that was about to run.
    pub(crate) interrupted: u64,
    /// Return addresses and the interrupted instruction, innermost first, beginning with the trampoline's.
    pub(crate) truth: Vec<u64>,
}

#[derive(Default)]
struct Stepper {
    calls: Vec<Call>,
    /// The callers of the code that is stepped through.
    outer: Vec<u64>,
    /// The instruction and the stack pointer of the step before.
    before: Option<(u64, u64)>,
    steps_seen: usize,
    first_kept: usize,
    kept: Vec<Step>,
}

struct OneThread(UnsafeCell<Option<Stepper>>);
// SAFETY: the one thread that steps uses it, and its handlers while it is in code that does not.
unsafe impl Sync for OneThread {}
static STEPPER: OneThread = OneThread(UnsafeCell::new(None));

/// In the flags of a context.
const TRAP_FLAG: i64 = 0x100;
static STOPS: AtomicBool = AtomicBool::new(false);
static STEPS: AtomicBool = AtomicBool::new(false);

/// Whether code is being stepped through, so that a handler of the host's has to say so.
#[inline(always)]
pub(crate) fn is_stepping() -> bool {
    STEPS.load(Ordering::Relaxed)
}

fn stepper() -> Option<&'static mut Stepper> {
    // SAFETY: as above; no two of these live at once.
    unsafe { (*STEPPER.0.get()).as_mut() }
}

/// The instruction and the stack pointer of a signal's context.
fn place_of(context: &libc::ucontext_t) -> (u64, u64) {
    let registers = &context.uc_mcontext.gregs;
    (
        registers[libc::REG_RIP as usize] as u64,
        registers[libc::REG_RSP as usize] as u64,
    )
}

fn word_at(address: u64) -> u64 {
    // SAFETY: the callers give addresses of this thread's stack.
    unsafe { (address as *const u64).read() }
}

/// The kernel puts the address of the trampoline right below the context.
fn trampoline_of(context: &libc::ucontext_t) -> u64 {
    word_at(std::ptr::from_ref(context) as u64 - 8)
}

/// Every address in a stack but the innermost is taken for a return address, and so belongs to what is one byte before.
/// One that a signal interrupted stands there as if a call of one byte returned.
fn as_return_address(interrupted: u64) -> u64 {
    interrupted + 1
}

impl Stepper {
    /// Follows one instruction: a return leaves its place above the stack pointer, a call has put an address there.
    fn follow(&mut self, pc: u64, sp: u64) {
        while self.calls.last().is_some_and(|call| call.place < sp) {
            self.calls.pop();
        }
        if let Some((pc_before, sp_before)) = self.before
            && sp == sp_before - 8
        {
            let after = pc_before + 1..=pc_before + 15;
            let pushed = word_at(sp);
            if after.contains(&pushed) && !after.contains(&pc) {
                self.calls.push(Call {
                    place: sp,
                    returns_to: pushed,
                });
            }
        }
        self.before = Some((pc, sp));
    }

    /// The trampoline, the interrupted instruction and its callers, as they stand in a stack.
    fn truth(&self, context: &libc::ucontext_t) -> Vec<u64> {
        let calls = self.calls.iter().rev().map(|call| call.returns_to);
        let interrupted = [
            trampoline_of(context),
            as_return_address(place_of(context).0),
        ]
        .into_iter();
        interrupted
            .chain(calls)
            .chain(self.outer.iter().copied())
            .collect()
    }
}

extern "C" fn on_trap(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel's argument.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    if STOPS.swap(false, Ordering::Relaxed) {
        context.uc_mcontext.gregs[libc::REG_EFL as usize] &= !TRAP_FLAG;
        return;
    }
    let Some(stepper) = stepper() else { return };
    let (pc, sp) = place_of(context);
    stepper.follow(pc, sp);
    let number = stepper.steps_seen;
    stepper.steps_seen += 1;
    if number < stepper.first_kept || number >= stepper.first_kept + WINDOW {
        return;
    }
    // The code that is stepped through allocates nothing, so that memory can be had here.
    if let Some(backtrace) = profiler_capture_backtrace() {
        stepper.kept.push(Step {
            backtrace,
            interrupted: pc,
            truth: stepper.truth(context),
        });
    }
}

pub(crate) fn install_handler(
    signal: i32,
    flags: i32,
    handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void),
) {
    // SAFETY: the action is on this stack, and the handler has the shape that `SA_SIGINFO` asks for.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | flags;
        // The stepper's own signal must not be blocked in a handler that is stepped through.
        libc::sigemptyset(&mut action.sa_mask);
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
    }
}

/// Sets the trap flag.
#[inline(always)]
pub(crate) fn start() {
    // SAFETY: the stack is as it was afterwards, and the handler is there.
    unsafe { asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq") };
}

/// Has the handler clear it. Code that does so itself would move the stack pointer where its unwind tables do not say so.
#[inline(always)]
pub(crate) fn stop() {
    STOPS.store(true, Ordering::Relaxed);
    // The handler comes before the next one.
    compiler_fence(Ordering::SeqCst);
}

/// Gets ready to keep the steps from `first_kept` on. `outer` are the callers of the function that starts and stops.
pub(crate) fn begin(outer: Vec<u64>, first_kept: usize) {
    install_handler(libc::SIGTRAP, 0, on_trap);
    let state = Stepper {
        outer,
        first_kept,
        calls: Vec::with_capacity(1024),
        ..Stepper::default()
    };
    // SAFETY: nothing is stepped through now.
    unsafe { *STEPPER.0.get() = Some(state) };
    STEPS.store(true, Ordering::Relaxed);
}

/// What was kept, and how many steps there were.
pub(crate) fn end() -> (Vec<Step>, usize) {
    STEPS.store(false, Ordering::Relaxed);
    // SAFETY: nothing is stepped through any more.
    let stepper = unsafe { (*STEPPER.0.get()).take() };
    stepper.map_or((Vec::new(), 0), |stepper| {
        (stepper.kept, stepper.steps_seen)
    })
}

/// The state of the code that a signal interrupted.
pub(crate) struct Interrupted {
    calls: Vec<Call>,
    outer: Vec<u64>,
    before: Option<(u64, u64)>,
}

/// In a host's own signal handler, which interrupted code that is being stepped through: the handler's callers are the
/// trampoline and that code. `None` where nothing is stepped through.
pub(crate) fn enter_handler(context: &libc::ucontext_t) -> Option<Interrupted> {
    let stepper = stepper()?;
    let (pc, sp) = place_of(context);
    stepper.follow(pc, sp);
    let outer = stepper.truth(context);
    let outer = std::mem::replace(&mut stepper.outer, outer);
    let calls = std::mem::replace(&mut stepper.calls, Vec::with_capacity(1024));
    Some(Interrupted {
        calls,
        outer,
        before: stepper.before.take(),
    })
}

/// Goes back to the interrupted code.
pub(crate) fn leave_handler(interrupted: Interrupted) {
    if let Some(stepper) = stepper() {
        (stepper.calls, stepper.outer, stepper.before) =
            (interrupted.calls, interrupted.outer, interrupted.before);
    }
}
