//! Filters that change what the kernel does for the calling thread.

use crate::common::seccomp::{
    Filtered, JUMP_IF_ANY_BIT, JUMP_IF_EQUAL, LOAD_WORD, RETURN, answer_calls, install_filter,
    instruction,
};

/// Lets the kernel refuse to create files without a name, as some file systems do.
pub(crate) fn refuse_unnamed_files() {
    let unnamed = (libc::O_TMPFILE & !libc::O_DIRECTORY) as u32;
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EOPNOTSUPP as u32;
    // Offsets in `struct seccomp_data`.
    let (number, third_argument) = (0, 32);
    install_filter(
        Filtered::CallingThread,
        &mut [
            instruction(LOAD_WORD, 0, 0, number),
            instruction(JUMP_IF_EQUAL, 0, 3, libc::SYS_openat as u32),
            instruction(LOAD_WORD, 0, 0, third_argument),
            instruction(JUMP_IF_ANY_BIT, 0, 1, unnamed),
            instruction(RETURN, 0, 0, refuse),
            instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
        ],
    );
}

/// Lets the kernel refuse to give a file another name, as some security policies do.
pub(crate) fn refuse_links() {
    answer_calls(
        Filtered::CallingThread,
        &[libc::SYS_linkat],
        libc::SECCOMP_RET_ERRNO | libc::EACCES as u32,
        libc::SECCOMP_RET_ALLOW,
    );
}

/// Lets the kernel kill the process when it waits for a file's content to be on the disk.
pub(crate) fn kill_at_sync() {
    answer_calls(
        Filtered::CallingThread,
        &[libc::SYS_fsync],
        libc::SECCOMP_RET_KILL_PROCESS,
        libc::SECCOMP_RET_ALLOW,
    );
}
