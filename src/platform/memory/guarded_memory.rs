//! Reads memory of this process that may be unmapped, without a fault: the kernel copies it, and
//! reports how many bytes it could copy.
//!
//! [`read_guarded_in_handler`] runs in the signal handler: two system calls, which neither wait nor
//! allocate.
//!
//! **Contract of the copies** (cited below):
//! - *kernel's copy*: an unreadable address ends the copy. The source may change during the copy,
//!   and is treated as plain bytes. The target is the caller's.

use std::cell::RefCell;
use std::fs::OpenOptions;
use std::mem::ManuallyDrop;
use std::path::Path;

use nix::errno::Errno;

use crate::platform::identity::{current_thread_id, process_number_in_handler};
use crate::platform::memory::memory_pipe::{MemoryPiece, MemoryPipe};
use crate::platform::sandbox::{
    avoid_calls_in_handler, may_make_uncommon_call, may_make_uncommon_call_in_handler,
};
use crate::platform::shared_file::SharedFile;

/// Maximum number of pieces per system call.
const MAX_PIECES: usize = 64;

thread_local! {
    /// The pipe that the thread reads through, if it has one. The kernel closes it with the
    /// thread's descriptor table. It is not dropped, because registering a destructor waits for the
    /// loader.
    static PIPE: RefCell<Option<ManuallyDrop<MemoryPipe>>> = const { RefCell::new(None) };
}

/// Makes the calling thread read through a pipe from now on, if the system grants one. The thread
/// has a descriptor table of its own: in the application's table, the pipe's numbers could become
/// those of the application's files.
pub(crate) fn read_through_pipe() {
    PIPE.set(MemoryPipe::open().map(ManuallyDrop::new));
}

/// Copies the readable bytes at the start of `piece`, and returns their number. `None` if the kernel
/// must not be asked, because the calling thread is in a sandbox, or refuses to copy for this process.
///
/// # Safety
/// - `target` is writable for `piece.bytes` bytes, and no other code accesses them during the call.
pub(crate) unsafe fn read_guarded_in_handler(piece: MemoryPiece, target: *mut u8) -> Option<usize> {
    if !may_make_uncommon_call_in_handler() {
        return None;
    }
    let local = libc::iovec {
        iov_base: target.cast(),
        iov_len: piece.bytes,
    };
    let remote = libc::iovec {
        iov_base: piece.address as *mut libc::c_void,
        iov_len: piece.bytes,
    };
    // SAFETY: by this function's contract.
    let copy_by = |thread| unsafe { copy_in_handler(thread, local, &[remote]) };
    let mut copied = copy_by(process_number_in_handler());
    if copied == Err(Errno::ESRCH) {
        // The main thread has ended. The process's number is its, and it has no memory any more.
        copied = copy_by(current_thread_id().to_number());
    }
    match copied {
        Err(Errno::ENOSYS | Errno::EPERM) => None,
        // Another error means that the first byte is not readable.
        copied => Some(copied.unwrap_or_default()),
    }
}

/// Calls `process_vm_readv`, without the C library: see [`MemoryPipe`].
///
/// # Safety
/// - `local` is writable, and no other code accesses it during the call.
unsafe fn copy_in_handler(
    thread: libc::pid_t,
    local: libc::iovec,
    remote: &[libc::iovec],
) -> nix::Result<usize> {
    let (call, local, pieces) = (libc::SYS_process_vm_readv, &raw const local, remote.len());
    let (one, no_flags): (usize, usize) = (1, 0);
    // SAFETY: *kernel's copy*.
    let copied =
        unsafe { libc::syscall(call, thread, local, one, remote.as_ptr(), pieces, no_flags) };
    usize::try_from(copied).map_err(|_| Errno::last())
}

/// Reads a byte, so that the symbols of a guarded read are bound before the handler uses them. Skips
/// that in a sandbox, where the handler does not use them.
pub(crate) fn bind_guarded_reads() {
    if !may_make_uncommon_call() {
        return;
    }
    let mut byte = 0u8;
    let piece = MemoryPiece {
        address: (&raw const byte).addr() as u64,
        bytes: 1,
    };
    // SAFETY: the target is one byte of a local.
    unsafe { read_guarded_in_handler(piece, &raw mut byte) };
}

/// Copies the pieces one after the other, and returns the number of bytes before the first
/// unreadable one. Ends at the first group of [`MAX_PIECES`] pieces that does not fit into
/// `target`.
///
/// The sampler copies through a pipe, and so makes no system call that a sandbox forbids. Its cost
/// is that of [`MemoryPipe::copy`]. Another thread asks the kernel whether it has a filter. Cost:
/// about 1.7 µs per group, plus the copying.
pub(crate) fn read_guarded(pieces: &[MemoryPiece], target: &mut [u8]) -> usize {
    let mut copied = 0;
    for pieces in pieces.chunks(MAX_PIECES) {
        let total: usize = pieces.iter().map(|piece| piece.bytes).sum();
        let Some(target) = target.get_mut(copied..copied + total) else {
            break;
        };
        let got = read_chunk(pieces, target);
        copied += got;
        if got < total {
            break;
        }
    }
    copied
}

/// Fills `out` with the memory from `address` on. Returns true if all of it was readable. Cost: two
/// system calls; on a thread without a pipe three, or seven in a sandbox.
pub(crate) fn read_own_memory(address: u64, out: &mut [u8]) -> bool {
    let bytes = out.len();
    read_guarded(&[MemoryPiece { address, bytes }], out) == bytes
}

/// Copies at most [`MAX_PIECES`] pieces, and returns the number of bytes before the first
/// unreadable one. `target` is as long as the pieces together.
fn read_chunk(pieces: &[MemoryPiece], target: &mut [u8]) -> usize {
    if let Some(copied) = read_by_pipe(pieces, target) {
        return copied;
    }
    if may_make_uncommon_call() {
        match read_by_call(pieces, target) {
            Ok(copied) => return copied,
            Err(Errno::ENOSYS | Errno::EPERM) => avoid_calls_in_handler(),
            Err(_) => return 0,
        }
    }
    read_from_file(pieces, target)
}

/// Returns `None` if the calling thread reads through no pipe. A pipe that could not be emptied is
/// closed, because the next copy would begin with the remaining bytes.
fn read_by_pipe(pieces: &[MemoryPiece], target: &mut [u8]) -> Option<usize> {
    let copied = PIPE.with_borrow(|pipe| Some(pipe.as_ref()?.copy(pieces, target)))?;
    if copied.is_none() {
        drop(PIPE.take().map(ManuallyDrop::into_inner));
    }
    copied
}

fn read_by_call(pieces: &[MemoryPiece], target: &mut [u8]) -> nix::Result<usize> {
    let iovec = |address: u64, bytes| libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: bytes,
    };
    let mut remote = [iovec(0, 0); MAX_PIECES];
    for (range, piece) in remote.iter_mut().zip(pieces) {
        *range = iovec(piece.address, piece.bytes);
    }
    let local = libc::iovec {
        iov_base: target.as_mut_ptr().cast(),
        iov_len: target.len(),
    };
    // SAFETY: the target is borrowed for the call.
    unsafe {
        copy_in_handler(
            current_thread_id().to_number(),
            local,
            &remote[..pieces.len()],
        )
    }
}

/// Copies the pieces by reading `/proc/thread-self/mem`, which fewer sandboxes forbid. The file is
/// opened each time, because in the child of a fork an open one would still refer to the parent's
/// memory. Copies nothing more once the application has closed the file's descriptor.
fn read_from_file(pieces: &[MemoryPiece], target: &mut [u8]) -> usize {
    let path = Path::new("/proc/thread-self/mem");
    let Ok(memory) = SharedFile::open(OpenOptions::new().read(true), path) else {
        return 0;
    };
    let mut copied = 0;
    for piece in pieces {
        let Some(out) = target.get_mut(copied..copied + piece.bytes) else {
            break;
        };
        match memory.read_at(out, piece.address) {
            Ok(got) if got == piece.bytes => copied += got,
            Ok(got) => return copied + got,
            Err(_) => break,
        }
    }
    copied
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::memory::mapping::LazyRegion;

    fn piece_of(bytes: &[u8]) -> MemoryPiece {
        MemoryPiece {
            address: bytes.as_ptr() as u64,
            bytes: bytes.len(),
        }
    }

    #[test]
    fn read_guarded_concatenates_the_pieces() {
        let (one, two) = ([1u8; 10], [2u8; 5]);
        let many: Vec<MemoryPiece> = (0..100)
            .flat_map(|_| [piece_of(&one), piece_of(&two)])
            .collect();
        let mut target = vec![0u8; 1500];
        assert_eq!(read_guarded(&many, &mut target), 1500);
        assert!(
            target
                .chunks(15)
                .all(|part| part[..10] == one && part[10..] == two)
        );
        target.fill(0);
        assert_eq!(read_from_file(&many, &mut target), 1500);
        assert!(
            target
                .chunks(15)
                .all(|part| part[..10] == one && part[10..] == two)
        );
    }

    #[test]
    fn pipe_that_could_not_be_emptied_is_not_used_again() {
        let reads_after_pipe = std::thread::spawn(|| {
            let pipe = MemoryPipe::open().expect("a pipe");
            let ended = std::fs::File::open("/dev/null").expect("a device");
            let (broken, _replaced) = pipe.with_reader(ended);
            PIPE.set(Some(ManuallyDrop::new(broken)));
            let (source, mut target) = ([3u8; 9], [0; 9]);
            let copied = read_guarded(&[piece_of(&source)], &mut target);
            (copied, target, PIPE.with_borrow(Option::is_none))
        });
        let answer = reads_after_pipe.join().expect("thread");
        assert_eq!(answer, (9, [3; 9], true));
    }

    #[test]
    fn read_guarded_ends_at_unmapped_memory() {
        let region = LazyRegion::reserve(1 << 16).expect("a mapping");
        // The first pages of the address space are never mapped.
        let absent = MemoryPiece {
            address: 16,
            bytes: 8,
        };
        let start = region.start().as_ptr() as u64;
        let present = MemoryPiece {
            address: start,
            bytes: 32,
        };
        let mut target = [7u8; 72];
        assert_eq!(read_guarded(&[present, absent, present], &mut target), 32);
        assert_eq!(read_guarded(&[absent], &mut target), 0);
        // SAFETY: the target has space for both pieces.
        unsafe {
            assert_eq!(
                read_guarded_in_handler(absent, target.as_mut_ptr()),
                Some(0)
            );
            assert_eq!(
                read_guarded_in_handler(present, target.as_mut_ptr()),
                Some(32)
            );
        }
        assert_eq!(target[..33], [[0; 32].as_slice(), &[7]].concat());
        assert_eq!(read_from_file(&[present, absent], &mut target), 32);
        let mut word = [0; 4];
        for address in [0, 8, u64::MAX - 2, 1 << 63] {
            assert!(!read_own_memory(address, &mut word), "{address:#x}");
        }
        assert!(read_own_memory(start, &mut word));
    }
}
