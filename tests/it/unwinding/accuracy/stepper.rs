//! Runs code one instruction at a time, and takes a backtrace after each instruction.
//!
//! The processor's trap flag raises `SIGTRAP` after every instruction. The handler sees the program
//! counter, and whether the instruction before was a call. So it knows the stack of calls, from the
//! driver's on, without unwinding. It takes a backtrace of itself: the handler, the trampoline by
//! which the kernel called it, and the interrupted code.

use std::arch::asm;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence};

use gekkota::stack::{ProfilerBacktrace, profiler_capture_backtrace};

/// Maximum number of backtraces from one run. Code of more steps is run again for the later ones.
pub(crate) const WINDOW: usize = 8192;

/// A call that has not returned.
#[derive(Clone, Copy)]
struct Call {
    /// Address of its return address on the stack.
    place: u64,
    returns_to: u64,
}

/// A backtrace after one instruction, and the true stack.
pub(crate) struct Step {
    pub(crate) backtrace: ProfilerBacktrace,
    /// The instruction that was about to run.
    pub(crate) interrupted: u64,
    /// Return addresses and the interrupted instruction, innermost first, beginning with the
    /// trampoline, as they appear in a stack.
    pub(crate) truth: Vec<u64>,
    /// Whether the step belongs to the case, and not to the driver.
    pub(crate) is_judged: bool,
}

/// The state of the code that a signal interrupted.
struct Interrupted {
    calls: Vec<Call>,
    outer: Vec<u64>,
    before: Option<(u64, u64)>,
}

#[derive(Default)]
struct Stepper {
    calls: Vec<Call>,
    /// The callers of the stepped code.
    outer: Vec<u64>,
    /// The program counter and the stack pointer of the previous step.
    before: Option<(u64, u64)>,
    /// The code below the handlers that run, outermost first.
    interrupted: Vec<Interrupted>,
    steps_seen: usize,
    first_kept: usize,
    kept: Vec<Step>,
}

struct OneThread(UnsafeCell<Option<Stepper>>);
// SAFETY: only the stepping thread uses it, and its handlers only interrupt code that does not.
unsafe impl Sync for OneThread {}
static STEPPER: OneThread = OneThread(UnsafeCell::new(None));

/// The trap flag in the flags of a context.
const TRAP_FLAG: i64 = 0x100;
static STOPS: AtomicBool = AtomicBool::new(false);
static STEPS: AtomicBool = AtomicBool::new(false);
static JUDGES: AtomicBool = AtomicBool::new(false);

/// Returns whether code is being stepped through.
#[inline(always)]
pub(crate) fn is_stepping() -> bool {
    STEPS.load(Ordering::Relaxed)
}

/// Sets whether the following steps belong to the case.
#[inline(always)]
pub(crate) fn set_judged(is_judged: bool) {
    JUDGES.store(is_judged, Ordering::Relaxed);
}

fn stepper() -> Option<&'static mut Stepper> {
    // SAFETY: only the stepping thread calls this, and no two of these references live at once.
    unsafe { (*STEPPER.0.get()).as_mut() }
}

/// Returns the program counter and the stack pointer of a signal's context.
fn place_of(context: &libc::ucontext_t) -> (u64, u64) {
    let registers = &context.uc_mcontext.gregs;
    (
        registers[libc::REG_RIP as usize] as u64,
        registers[libc::REG_RSP as usize] as u64,
    )
}

fn word_at(address: u64) -> u64 {
    // SAFETY: the callers pass addresses in this thread's stack.
    unsafe { (address as *const u64).read() }
}

/// Returns the address of the trampoline, which the kernel puts directly below the context.
fn trampoline_of(context: &libc::ucontext_t) -> u64 {
    word_at(std::ptr::from_ref(context) as u64 - 8)
}

/// Returns the address of the next instruction of a frame, interrupted or a trampoline, as it
/// appears in a stack. There, every address except the innermost is a return address, and belongs to
/// the instruction one byte before. So the address is raised by one.
fn as_return_address(next_instruction: u64) -> u64 {
    next_instruction + 1
}

impl Stepper {
    /// Follows one instruction. A return raises the stack pointer above its return address, and a
    /// call puts a return address at the stack pointer.
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

    /// Returns the trampoline, the interrupted instruction and its callers, as they appear in a
    /// stack.
    fn truth(&self, context: &libc::ucontext_t) -> Vec<u64> {
        let calls = self.calls.iter().rev().map(|call| call.returns_to);
        let interrupted = [
            as_return_address(trampoline_of(context)),
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
    // SAFETY: the kernel passes a valid context to the handler.
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
    // The stepped code allocates nothing, so the handler may allocate.
    if let Some(backtrace) = profiler_capture_backtrace() {
        stepper.kept.push(Step {
            backtrace,
            interrupted: pc,
            truth: stepper.truth(context),
            is_judged: JUDGES.load(Ordering::Relaxed),
        });
    }
}

pub(crate) fn install_handler(
    signal: i32,
    flags: i32,
    handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void),
) {
    // SAFETY: the action is a local, and the handler has the signature of `SA_SIGINFO`.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | flags;
        // A handler that is stepped through must not block the stepper's own signal.
        libc::sigemptyset(&mut action.sa_mask);
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
    }
}

/// Sets the trap flag.
#[inline(always)]
pub(crate) fn start() {
    // SAFETY: the instructions leave the stack unchanged, and the handler is installed.
    unsafe { asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq") };
}

/// Makes the handler clear the trap flag. Code that cleared it itself would move the stack pointer
/// in a way that its unwind tables do not describe.
#[inline(always)]
pub(crate) fn stop() {
    STOPS.store(true, Ordering::Relaxed);
    // The handler runs before the next instruction.
    compiler_fence(Ordering::SeqCst);
}

/// Prepares to keep the steps from `first_kept` on. `outer` are the callers of the function that
/// starts and stops the stepper.
pub(crate) fn begin(outer: Vec<u64>, first_kept: usize) {
    install_handler(libc::SIGTRAP, 0, on_trap);
    let state = Stepper {
        outer,
        first_kept,
        calls: Vec::with_capacity(1024),
        ..Stepper::default()
    };
    // SAFETY: no code is being stepped through.
    unsafe { *STEPPER.0.get() = Some(state) };
    STEPS.store(true, Ordering::Relaxed);
}

/// Returns the kept steps, and the number of all steps.
pub(crate) fn end() -> (Vec<Step>, usize) {
    STEPS.store(false, Ordering::Relaxed);
    // SAFETY: no code is being stepped through.
    let stepper = unsafe { (*STEPPER.0.get()).take() };
    stepper.map_or((Vec::new(), 0), |stepper| {
        (stepper.kept, stepper.steps_seen)
    })
}

/// Called in a signal handler of the application that interrupted stepped code: the handler's
/// callers are the trampoline and that code. Does nothing if no code is being stepped through.
pub(crate) fn enter_handler(context: &libc::ucontext_t) {
    let Some(stepper) = stepper() else { return };
    let (pc, sp) = place_of(context);
    stepper.follow(pc, sp);
    let outer = stepper.truth(context);
    stepper.interrupted.push(Interrupted {
        outer: std::mem::replace(&mut stepper.outer, outer),
        calls: std::mem::replace(&mut stepper.calls, Vec::with_capacity(1024)),
        before: stepper.before.take(),
    });
}

/// Returns to the code that the handler interrupted.
pub(crate) fn leave_handler() {
    if let Some(stepper) = stepper()
        && let Some(interrupted) = stepper.interrupted.pop()
    {
        (stepper.calls, stepper.outer, stepper.before) =
            (interrupted.calls, interrupted.outer, interrupted.before);
    }
}
