//! Seccomp filters: programs that decide what the kernel does for each system call. A filter stays
//! until its thread ends.

pub const LOAD_WORD: u16 = 0x20;
pub const JUMP_IF_EQUAL: u16 = 0x15;
pub const JUMP_IF_ANY_BIT: u16 = 0x45;
pub const RETURN: u16 = 0x06;

/// The threads that get a filter.
#[derive(Clone, Copy)]
pub enum Filtered {
    CallingThread,
    AllThreads,
}

pub fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

/// Installs a filter that answers these system calls in one way and all others in another. The
/// answers are `SECCOMP_RET_` constants.
pub fn answer_calls(threads: Filtered, calls: &[libc::c_long], answer: u32, to_others: u32) {
    let mut program = vec![instruction(LOAD_WORD, 0, 0, 0)];
    for &call in calls {
        program.push(instruction(JUMP_IF_EQUAL, 0, 1, call as u32));
        program.push(instruction(RETURN, 0, 0, answer));
    }
    program.push(instruction(RETURN, 0, 0, to_others));
    install_filter(threads, &mut program);
}

/// Installs a filter in addition to those that the threads have.
pub fn install_filter(threads: Filtered, program: &mut [libc::sock_filter]) {
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    let flags = match threads {
        Filtered::CallingThread => 0,
        Filtered::AllThreads => libc::SECCOMP_FILTER_FLAG_TSYNC,
    };
    let mode = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: the program lives until both calls have returned.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let answer = libc::syscall(libc::SYS_seccomp, mode, flags, &raw const filter);
        assert_eq!(answer, 0);
    }
}
