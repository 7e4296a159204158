//! Being told of `fork`, before it and on both sides after it.

use std::sync::OnceLock;

use crate::platform::control_pipe::forget_control_pipe_in_child;
use crate::platform::identity::note_process;
use crate::platform::procfs::take_kept_files;

/// What to do around a `fork`. All three run on the thread that forks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForkHooks {
    pub(crate) prepare: fn(),
    pub(crate) parent: fn(),
    pub(crate) child: fn(),
}

static HOOKS: OnceLock<ForkHooks> = OnceLock::new();

extern "C" fn prepare() {
    if let Some(hooks) = HOOKS.get() {
        (hooks.prepare)();
    }
}

extern "C" fn parent() {
    if let Some(hooks) = HOOKS.get() {
        (hooks.parent)();
    }
}

extern "C" fn child() {
    note_process();
    forget_control_pipe_in_child();
    for number in take_kept_files() {
        // SAFETY: open since before the fork, and its owner was another thread.
        unsafe { libc::close(number) };
    }
    if let Some(hooks) = HOOKS.get() {
        (hooks.child)();
    }
}

/// Registers the hooks; once, later calls change nothing. `vfork` and `posix_spawn` do not run them.
pub(crate) fn install_fork_handlers(hooks: ForkHooks) {
    if HOOKS.set(hooks).is_ok() {
        // SAFETY: the three functions live as long as the program, and take nothing.
        unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    }
}
