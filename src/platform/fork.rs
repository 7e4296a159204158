//! Hooks that run before `fork`, and after it in the parent and in the child.

use once_cell::race::OnceBox;

use crate::platform::identity::note_process;
use crate::platform::procfs::take_cached_descriptors;
use crate::platform::signal::forget_control_pipe_in_child;
use crate::util::LocksInChild;

/// Functions to run around a `fork`. All three run on the thread that forks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForkHooks {
    pub(crate) prepare: fn(),
    pub(crate) parent: fn(),
    pub(crate) child: fn(),
}

static HOOKS: OnceBox<ForkHooks> = OnceBox::new();

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
    for descriptor in take_cached_descriptors() {
        // The descriptor has been open since before the fork. Its owner was a thread that the child
        // does not have.
        let _ = nix::unistd::close(descriptor);
    }
    if let Some(hooks) = HOOKS.get() {
        // SAFETY: *single thread*: a child begins with one thread, and the hooks start no other.
        let _locks = unsafe { LocksInChild::begin() };
        (hooks.child)();
    }
}

/// Registers the hooks. Only the first call has an effect. `vfork` and `posix_spawn` do not run
/// hooks.
pub(crate) fn install_fork_handlers(hooks: ForkHooks) {
    if HOOKS.set(Box::new(hooks)).is_ok() {
        // SAFETY: the three functions take no arguments and live as long as the program.
        unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    }
}
