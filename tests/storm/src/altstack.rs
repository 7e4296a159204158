//! Receives signals of the application on a signal stack, and works in their handler.

use std::cell::Cell;

use crate::crew::Context;
use crate::tally;
use crate::work::mix;

const STACK_BYTES: usize = 256 << 10;
const SIGNAL: libc::c_int = libc::SIGUSR2;

thread_local! {
    static SEED: Cell<u64> = const { Cell::new(0) };
    static RESULT: Cell<u64> = const { Cell::new(0) };
    static HANDLER_FRAME: Cell<u64> = const { Cell::new(0) };
}

extern "C" fn work_on_altstack(_: libc::c_int) {
    let here = 0u8;
    HANDLER_FRAME.set(&raw const here as u64);
    RESULT.set(mix(SEED.get(), 100_000));
}

/// Installs the signal handler. Called once, before the workers start.
pub fn install_handler() {
    // SAFETY: a zeroed `sigaction` is valid. The handler has the signature for these flags, and
    // only uses thread-locals without destructors.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = work_on_altstack as extern "C" fn(_) as usize;
        action.sa_flags = libc::SA_ONSTACK | libc::SA_RESTART;
        assert_eq!(libc::sigaction(SIGNAL, &action, std::ptr::null_mut()), 0);
    }
}

/// The calling thread's signal stack, restored on drop.
struct SignalStack {
    bytes: Vec<u8>,
    before: libc::stack_t,
}

impl SignalStack {
    fn enter() -> Self {
        let mut bytes = vec![0; STACK_BYTES];
        let stack = libc::stack_t {
            ss_sp: bytes.as_mut_ptr().cast(),
            ss_flags: 0,
            ss_size: bytes.len(),
        };
        // SAFETY: the bytes live until the drop, which first restores the previous stack.
        let before = unsafe {
            let mut before = std::mem::zeroed();
            assert_eq!(libc::sigaltstack(&stack, &mut before), 0);
            before
        };
        Self { bytes, before }
    }

    fn holds(&self, address: u64) -> bool {
        self.bytes.as_ptr_range().contains(&(address as *const u8))
    }
}

impl Drop for SignalStack {
    fn drop(&mut self) {
        // SAFETY: the previous stack belongs to the standard library, and lives as long as the
        // thread.
        unsafe { libc::sigaltstack(&self.before, std::ptr::null_mut()) };
    }
}

pub fn altstack_worker(context: &mut Context) {
    let stack = SignalStack::enter();
    while context.goes_on() {
        let seed = context.random.next();
        SEED.set(seed);
        // SAFETY: the signal goes to this thread, and has a handler.
        assert_eq!(unsafe { libc::raise(SIGNAL) }, 0);
        assert_eq!(
            RESULT.get(),
            mix(seed, 100_000),
            "the result of the signal handler was corrupted"
        );
        assert!(
            stack.holds(HANDLER_FRAME.get()),
            "the handler did not run on the signal stack"
        );
        tally::ALTSTACK_SIGNALS.one();
    }
}
