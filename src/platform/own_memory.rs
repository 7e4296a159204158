//! Memory of this process that may be gone: read without a fault.
//!
//! The kernel copies, and says so when there is nothing to copy. What was read may be out of date the moment after;
//! whoever asks has to expect that.

/// Copies from `address` on into `out`; true when all of it was readable. One system call.
pub(crate) fn read_own_memory(address: u64, out: &mut [u8]) -> bool {
    let local = libc::iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: out.len() };
    // SAFETY: the kernel writes into `out` alone, no more than it holds, and checks the other address itself.
    let read =
        unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
    read == out.len() as isize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_read_and_what_is_not_is_refused() {
        let words = [1u8, 2, 3, 4];
        let mut out = [0; 4];
        assert!(read_own_memory(words.as_ptr() as u64, &mut out));
        assert_eq!(out, words);
        for address in [0, 8, u64::MAX - 2, 1 << 63] {
            assert!(!read_own_memory(address, &mut out), "{address:#x}");
        }
    }
}
