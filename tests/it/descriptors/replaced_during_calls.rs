//! In a sandbox the profiler's threads share the application's descriptors. The application closes
//! one and opens a file with its number while the profiler uses it: just after the profiler has
//! found it to be its own. The profiler neither uses the data that it read then, nor closes the
//! file.
//!
//! A filter lets a handler of the test answer the call in question. The handler replaces the
//! descriptor first.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::common::seccomp::{
    Filtered, JUMP_IF_ANY_BIT, JUMP_IF_EQUAL, LOAD_WORD, RETURN, answer_calls, install_filter,
    instruction,
};
use crate::common::{Read, Sleeper, isolated, wait_until};
use gekkota::{ProfilerSession, StartParams};

/// Maximum number of descriptors to replace.
const MAX_REPLACED: usize = 100;
/// The numbers that were replaced.
static REPLACED: [AtomicI32; MAX_REPLACED] = [const { AtomicI32::new(0) }; MAX_REPLACED];
static REPLACED_COUNT: AtomicUsize = AtomicUsize::new(0);
/// The number of the application's file, of which the others are copies.
static HOST_FILE: AtomicI32 = AtomicI32::new(-1);

/// Replaces the descriptor that the interrupted call uses, and answers the call: from the new file,
/// or as if the folder had no more files, or as if another process held the lock.
extern "C" fn replace_and_answer(
    _: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes structures that live as long as the call.
    let (call, context) = unsafe { ((*info).si_syscall(), &mut *context.cast()) };
    let context: &mut libc::ucontext_t = context;
    let registers = &mut context.uc_mcontext.gregs;
    let argument = |register: libc::c_int| registers[register as usize];
    let number = argument(libc::REG_RDI) as libc::c_int;
    let index = REPLACED_COUNT.fetch_add(1, Ordering::Relaxed);
    let answer = if let Some(replaced) = REPLACED.get(index) {
        // SAFETY: the profiler expects that the application replaces descriptors.
        unsafe { libc::dup2(HOST_FILE.load(Ordering::Relaxed), number) };
        replaced.store(number, Ordering::Relaxed);
        match libc::c_long::from(call) {
            libc::SYS_pread64 => {
                let target = libc::iovec {
                    iov_base: argument(libc::REG_RSI) as *mut libc::c_void,
                    iov_len: argument(libc::REG_RDX) as usize,
                };
                // SAFETY: the caller of `pread64` has passed this range.
                unsafe { libc::preadv(number, &target, 1, argument(libc::REG_R10)) as i64 }
            }
            libc::SYS_getdents64 => 0,
            _ => -i64::from(libc::EWOULDBLOCK),
        }
    } else {
        -i64::from(libc::EIO)
    };
    registers[libc::REG_RAX as usize] = answer;
}

/// From now on, [`replace_and_answer`] answers the calls for which a filter asks a handler.
fn answer_in_handler() -> File {
    let host_file = File::open("/dev/zero").expect("a device");
    HOST_FILE.store(host_file.as_raw_fd(), Ordering::Relaxed);
    let handler = SigHandler::SigAction(replace_and_answer);
    let action = SigAction::new(handler, SaFlags::SA_ONSTACK, SigSet::empty());
    // SAFETY: the handler changes the answer of the interrupted call, and what that call would.
    unsafe { sigaction(Signal::SIGSYS, &action) }.expect("a handler");
    host_file
}

/// Asserts that each number which was replaced still refers to the application's file.
fn assert_replaced_stay_open(host_file: &File) {
    let host = host_file.metadata().expect("a status");
    let count = REPLACED_COUNT.load(Ordering::Relaxed).min(MAX_REPLACED);
    assert!(count > 0, "nothing was replaced");
    for number in &REPLACED[..count] {
        let number = number.load(Ordering::Relaxed);
        let file = std::fs::metadata(format!("/proc/self/fd/{number}"));
        let is_host = file.is_ok_and(|file| file.rdev() == host.rdev());
        assert!(is_host, "{number} is not the application's file any more");
    }
}

#[test]
fn file_with_the_number_of_a_memory_file_is_neither_used_nor_closed() {
    isolated(|| {
        let host_file = answer_in_handler();
        // Reads of memory, by its address. Offsets in `struct seccomp_data`.
        let (number, upper_half_of_position) = (0, 44);
        install_filter(
            Filtered::AllThreads,
            &mut [
                instruction(LOAD_WORD, 0, 0, number),
                instruction(JUMP_IF_EQUAL, 0, 3, libc::SYS_pread64 as u32),
                instruction(LOAD_WORD, 0, 0, upper_half_of_position),
                instruction(JUMP_IF_ANY_BIT, 0, 1, u32::MAX),
                instruction(RETURN, 0, 0, libc::SECCOMP_RET_TRAP),
                instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
            ],
        );
        let params = StartParams::default();
        let session = ProfilerSession::start(params).expect("start");
        let sleeper = Sleeper::start("sleeper");
        wait_until("a stack is read from outside", || {
            REPLACED_COUNT.load(Ordering::Relaxed) > 0
        });
        drop(sleeper);
        let read = Read::from_profile(&session.finish().expect("profile"));
        assert_eq!(read.count("remote_samples"), 0);
        assert_replaced_stay_open(&host_file);
    });
}

#[test]
fn file_with_the_number_of_a_folder_or_temporary_file_is_not_closed_by_a_save() {
    isolated(|| {
        let host_file = answer_in_handler();
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let profile = session.finish().expect("profile");
        let name = format!("gekkota-replaced-during-calls-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let (ask, allow) = (libc::SECCOMP_RET_TRAP, libc::SECCOMP_RET_ALLOW);
        answer_calls(Filtered::AllThreads, &[libc::SYS_getdents64], ask, allow);
        profile.save(&path).expect("saved");
        std::fs::remove_file(&path).expect("removed");
        assert_replaced_stay_open(&host_file);
        let with_folder = REPLACED_COUNT.load(Ordering::Relaxed);
        answer_calls(Filtered::AllThreads, &[libc::SYS_flock], ask, allow);
        profile.save(&path).expect_err("no file can be locked");
        assert!(REPLACED_COUNT.load(Ordering::Relaxed) > with_folder);
        assert_replaced_stay_open(&host_file);
    });
}
