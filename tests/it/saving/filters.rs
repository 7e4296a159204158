//! Filters that change what the kernel does for the calling thread. They stay until it ends.

const LOAD_WORD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

/// Lets the kernel refuse to create files without a name, as some file systems do.
pub(crate) fn refuse_unnamed_files() {
    let unnamed = (libc::O_TMPFILE & !libc::O_DIRECTORY) as u32;
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EOPNOTSUPP as u32;
    // Offsets in `struct seccomp_data`.
    let (number, third_argument) = (0, 32);
    install(&mut [
        instruction(LOAD_WORD, 0, 0, number),
        instruction(JUMP_IF_EQUAL, 0, 3, libc::SYS_openat as u32),
        instruction(LOAD_WORD, 0, 0, third_argument),
        instruction(JUMP_IF_ANY_BIT, 0, 1, unnamed),
        instruction(RETURN, 0, 0, refuse),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]);
}

/// Lets the kernel refuse to give a file another name, as some security policies do.
pub(crate) fn refuse_links() {
    install(&mut [
        instruction(LOAD_WORD, 0, 0, 0),
        instruction(JUMP_IF_EQUAL, 0, 1, libc::SYS_linkat as u32),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EACCES as u32),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]);
}

/// Lets the kernel kill the process when it waits for a file's content to be on the disk.
pub(crate) fn kill_at_sync() {
    install(&mut [
        instruction(LOAD_WORD, 0, 0, 0),
        instruction(JUMP_IF_EQUAL, 0, 1, libc::SYS_fsync as u32),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]);
}

/// Installs a filter on the calling thread, beside those that it has.
fn install(program: &mut [libc::sock_filter]) {
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the program lives until both calls have returned.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        assert_eq!(
            libc::syscall(libc::SYS_seccomp, mode, 0, &raw const filter),
            0
        );
    }
}
