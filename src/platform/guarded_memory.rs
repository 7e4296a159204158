//! Reading memory of this process that may not be there, without a fault: the kernel copies it, and says how far it came.
//!
//! [`read_guarded_in_handler`] runs in the signal handler: one system call, which neither waits nor allocates.
//!
//! **Contract of the copies** (cited below):
//! - *kernel's copy*: an address that is not readable ends the copy; what is read may change meanwhile, and is bytes.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::platform::clock::monotonic_now;
use crate::platform::identity::process_number_in_handler;
use crate::platform::procfs::is_sandboxed;

/// A piece of this process's memory, wherever it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryPiece {
    pub(crate) address: u64,
    pub(crate) bytes: usize,
}

/// How many pieces the kernel takes at once.
const MAX_PIECES: usize = 64;

/// Set when a sandbox forbids `process_vm_readv`, or may kill for it.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Looks whether the process has a filter of system calls by now. Some kill for one that they do not know, as a service
/// manager's do; so uncommon ones are not made from then on. About 20 µs.
pub(crate) fn follow_sandbox() {
    if is_sandboxed() {
        REFUSED.store(true, Ordering::Relaxed);
    }
}

/// Whether uncommon system calls are not to be made: for who makes one now and then, and looks itself, unless that was done
/// just now.
pub(super) fn follow_sandbox_now() -> bool {
    const JUST_NOW_NS: u64 = 1_000_000;
    static LOOKED_NS: AtomicU64 = AtomicU64::new(0);
    let now = monotonic_now().0;
    if now.saturating_sub(LOOKED_NS.load(Ordering::Relaxed)) > JUST_NOW_NS {
        follow_sandbox();
        LOOKED_NS.store(now, Ordering::Relaxed);
    }
    REFUSED.load(Ordering::Relaxed)
}

/// Copies as much of a piece as is readable from its beginning on, and gives how many bytes that was.
///
/// # Safety
/// - `target` is writable for as many bytes as the piece has, and nobody else reads or writes them meanwhile.
pub(crate) unsafe fn read_guarded_in_handler(piece: MemoryPiece, target: *mut u8) -> usize {
    if REFUSED.load(Ordering::Relaxed) {
        return 0;
    }
    let local = libc::iovec {
        iov_base: target.cast(),
        iov_len: piece.bytes,
    };
    let remote = libc::iovec {
        iov_base: piece.address as *mut libc::c_void,
        iov_len: piece.bytes,
    };
    // SAFETY: *kernel's copy*; by this function's contract.
    let copied =
        unsafe { libc::process_vm_readv(process_number_in_handler(), &local, 1, &remote, 1, 0) };
    // Below 0 it was refused.
    usize::try_from(copied).unwrap_or_default()
}

/// Calls once what the handler calls, unless a sandbox might kill for it.
pub(super) fn bind_guarded_reads() {
    follow_sandbox();
    let mut byte = 0u8;
    let piece = MemoryPiece {
        address: (&raw const byte).addr() as u64,
        bytes: 1,
    };
    // SAFETY: one byte of a local.
    unsafe { read_guarded_in_handler(piece, &raw mut byte) };
}

/// Copies the pieces one behind the other, and gives how many bytes came before the first that could not be read. About
/// 1.5 µs and the copying.
///
/// # Safety
/// - `target` is writable for as many bytes as the pieces have together, and nobody else reads or writes them meanwhile.
pub(crate) unsafe fn read_guarded(pieces: &[MemoryPiece], target: *mut u8) -> usize {
    let mut copied = 0;
    for pieces in pieces.chunks(MAX_PIECES) {
        let asked: usize = pieces.iter().map(|piece| piece.bytes).sum();
        // SAFETY: by this function's contract: `copied` bytes of the target are used.
        let got = unsafe { read_some(pieces, target.add(copied), asked) };
        copied += got;
        if got < asked {
            break;
        }
    }
    copied
}

/// Copies from `address` on into `out`; true when all of it was readable. One system call.
pub(crate) fn read_own_memory(address: u64, out: &mut [u8]) -> bool {
    // SAFETY: `out` is as long as the piece.
    unsafe {
        read_guarded(
            &[MemoryPiece {
                address,
                bytes: out.len(),
            }],
            out.as_mut_ptr(),
        ) == out.len()
    }
}

/// # Safety
/// - As `read_guarded`; `asked` is the sum of the pieces.
unsafe fn read_some(pieces: &[MemoryPiece], target: *mut u8, asked: usize) -> usize {
    if !REFUSED.load(Ordering::Relaxed) {
        let local = libc::iovec {
            iov_base: target.cast(),
            iov_len: asked,
        };
        let mut remote = [libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        }; MAX_PIECES];
        for (place, piece) in remote.iter_mut().zip(pieces) {
            *place = libc::iovec {
                iov_base: piece.address as *mut libc::c_void,
                iov_len: piece.bytes,
            };
        }
        // SAFETY: *kernel's copy*; by this function's contract.
        let copied = unsafe {
            libc::process_vm_readv(
                libc::getpid(),
                &local,
                1,
                remote.as_ptr(),
                pieces.len() as libc::c_ulong,
                0,
            )
        };
        if let Ok(copied) = usize::try_from(copied) {
            return copied;
        }
        let error = std::io::Error::last_os_error().raw_os_error();
        if !matches!(error, Some(libc::ENOSYS | libc::EPERM)) {
            return 0;
        }
        REFUSED.store(true, Ordering::Relaxed);
    }
    // SAFETY: by this function's contract, for so many bytes.
    let target = unsafe { std::slice::from_raw_parts_mut(target, asked) };
    read_from_file(pieces, target)
}

/// The same by `/proc/self/mem`, which fewer sandboxes forbid. Opened each time: an open one would still be the parent's
/// memory in the child of a fork.
fn read_from_file(pieces: &[MemoryPiece], target: &mut [u8]) -> usize {
    let Ok(memory) = std::fs::File::open("/proc/self/mem") else {
        return 0;
    };
    let mut copied = 0;
    for piece in pieces {
        let Some(place) = target.get_mut(copied..copied + piece.bytes) else {
            break;
        };
        match memory.read_at(place, piece.address) {
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
    use crate::platform::LazyRegion;

    fn piece_of(bytes: &[u8]) -> MemoryPiece {
        MemoryPiece {
            address: bytes.as_ptr() as u64,
            bytes: bytes.len(),
        }
    }

    #[test]
    fn pieces_come_one_behind_the_other() {
        let (one, two) = ([1u8; 10], [2u8; 5]);
        let many: Vec<MemoryPiece> = (0..100)
            .flat_map(|_| [piece_of(&one), piece_of(&two)])
            .collect();
        let mut target = vec![0u8; 1500];
        // SAFETY: the target has room for 100 times 15 bytes.
        assert_eq!(unsafe { read_guarded(&many, target.as_mut_ptr()) }, 1500);
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
    fn what_is_not_there_ends_the_copy() {
        let region = LazyRegion::reserve(1 << 16).expect("a mapping");
        // The kernel's first pages are nobody's.
        let absent = MemoryPiece {
            address: 16,
            bytes: 8,
        };
        let start = region.start().as_ptr() as u64;
        let present = MemoryPiece {
            address: start,
            bytes: 32,
        };
        let mut target = [7u8; 64];
        // SAFETY: the target has room.
        unsafe {
            assert_eq!(
                read_guarded(&[present, absent, present], target.as_mut_ptr()),
                32
            );
            assert_eq!(read_guarded(&[absent], target.as_mut_ptr()), 0);
            assert_eq!(read_guarded_in_handler(absent, target.as_mut_ptr()), 0);
            assert_eq!(read_guarded_in_handler(present, target.as_mut_ptr()), 32);
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
