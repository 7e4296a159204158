//! The table of the workers.

use crate::crew::Context;
use crate::{
    altstack, always_on, backtraces, blocked, churn, copies, coroutines, forks, labels, loader,
    loops, memory, panics, plugins, programs, reader, recursion, registers, saver, shortage,
    spawning, swarm, waits,
};

/// A kind of worker.
pub struct Role {
    pub name: &'static str,
    pub count: u64,
    pub stack_bytes: usize,
    pub work: fn(&mut Context),
    /// A function that must not appear in the stacks of other roles.
    pub root: &'static str,
    /// Whether a profile of a second must contain that function in the role's stacks. Some roles
    /// cannot be sampled for a second.
    pub shows_root: bool,
}

const MIB: usize = 1 << 20;

pub const fn role(
    name: &'static str,
    count: u64,
    work: fn(&mut Context),
    root: &'static str,
) -> Role {
    Role {
        name,
        count,
        stack_bytes: 2 * MIB,
        work,
        root,
        shows_root: true,
    }
}

static ROSTER: &[Role] = &[
    role("malloc", 4, memory::malloc_worker, "::malloc_worker"),
    role("load", 3, loader::load_worker, "::load_worker"),
    role("panic", 3, panics::panic_worker, "::panic_worker"),
    role(
        "backtrace",
        2,
        backtraces::backtrace_worker,
        "::backtrace_worker",
    ),
    role("churn", 2, churn::churn_worker, "::churn_worker"),
    role("fork", 2, forks::fork_worker, "::fork_worker"),
    role("spawn", 1, spawning::spawn_worker, "::spawn_worker"),
    role("recurse", 1, recursion::recurse_worker, "::recurse_worker"),
    Role {
        stack_bytes: MIB,
        ..role("dive", 1, recursion::dive_worker, "::dive_worker")
    },
    Role {
        stack_bytes: 8 * MIB,
        // The youngest MiB of its stack, which is all that is sampled, holds only this function.
        ..role("plunge", 1, recursion::plunge_worker, "::plunge_to")
    },
    role("epoll", 2, waits::epoll_worker, "::epoll_worker"),
    role("poll", 2, waits::poll_worker, "::poll_worker"),
    role(
        "nanosleep",
        2,
        waits::nanosleep_worker,
        "::nanosleep_worker",
    ),
    role("pipe", 2, waits::pipe_worker, "::pipe_worker"),
    role(
        "altstack",
        2,
        altstack::altstack_worker,
        "::altstack_worker",
    ),
    role(
        "coroutine",
        3,
        coroutines::coroutine_worker,
        "::coroutine_worker",
    ),
    Role {
        shows_root: false,
        ..role("blocked", 2, blocked::blocked_worker, "::blocked_worker")
    },
    role("label", 3, labels::label_worker, "::label_worker"),
    role(loops::KIND, 2, loops::loop_worker, "::loop_worker"),
    role("marker", 2, labels::marker_worker, "::marker_worker"),
    role(
        "register",
        3,
        registers::register_worker,
        "::register_worker",
    ),
    role("reader", 1, reader::reader_worker, "::reader_worker"),
    role("save", 2, saver::save_worker, "::save_worker"),
    role("swarm", 1, swarm::swarm_worker, "::swarm_worker"),
    role("plugin", 1, plugins::plugin_worker, "::plugin_worker"),
    role("copy", 1, copies::copy_worker, "::copy_worker"),
    role(
        "shortage",
        1,
        shortage::shortage_worker,
        "::shortage_worker",
    ),
    role("closing", 1, programs::closing_worker, "::closing_worker"),
    role(
        "executing",
        1,
        programs::executing_worker,
        "::executing_worker",
    ),
    role("sandbox", 1, programs::sandbox_worker, "::sandbox_worker"),
    role("copies", 1, programs::copies_worker, "::copies_worker"),
];

/// Returns all kinds of workers of this storm.
pub fn roles() -> impl Iterator<Item = &'static Role> {
    ROSTER.iter().chain(always_on::roles())
}
