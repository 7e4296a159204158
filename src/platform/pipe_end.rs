//! The ends of a pipe, which know whether their numbers stand for it still: a host may close all files that it does not know,
//! and the numbers are another file's then, or nobody's.
//!
//! Runs in the signal handler, but for reading and closing.
//!
//! **Contract** (cited below):
//! - *still ours*: whoever reads, writes or closes has asked [`PipeEnd::is_open_in_handler`] just before.

use std::io;
use std::os::fd::{AsRawFd, IntoRawFd};

/// The word that stands for no end.
pub(super) const NO_END: u64 = u64::MAX;

/// One end of a pipe: the number that it was opened with, and by which it is known again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PipeEnd {
    pub(super) number: i32,
    /// The kernel's number of the pipe itself, which both ends have and no other pipe.
    inode: u32,
}

impl PipeEnd {
    /// Of one that was opened just now, and which nothing closes any more but [`close_if_open`](Self::close_if_open).
    pub(super) fn new(file: impl AsRawFd + IntoRawFd) -> io::Result<Self> {
        let inode = pipe_of_in_handler(file.as_raw_fd()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self {
            number: file.into_raw_fd(),
            inode,
        })
    }

    pub(super) const fn to_word(self) -> u64 {
        (self.inode as u64) << 32 | self.number as u32 as u64
    }

    pub(super) fn from_word_in_handler(word: u64) -> Option<Self> {
        (word != NO_END).then_some(Self {
            number: word as u32 as i32,
            inode: (word >> 32) as u32,
        })
    }

    /// Whether the number stands for the pipe still. One system call.
    pub(super) fn is_open_in_handler(self) -> bool {
        pipe_of_in_handler(self.number) == Some(self.inode)
    }

    /// Not by `write`, where a thread may be cancelled. Gives what the system does.
    pub(super) fn write_in_handler(self, byte: u8) -> libc::c_long {
        // SAFETY: *still ours*; one byte of a local. It does not wait.
        unsafe { libc::syscall(libc::SYS_write, self.number, &raw const byte, 1usize) }
    }

    /// How many bytes were read, once there are some; 0 when nobody has the other end any more.
    pub(super) fn read(self, bytes: &mut [u8]) -> io::Result<usize> {
        // SAFETY: *still ours*; the kernel writes at most so many bytes to the slice.
        let count = unsafe { libc::read(self.number, bytes.as_mut_ptr().cast(), bytes.len()) };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    pub(super) fn close_if_open(self) {
        if self.is_open_in_handler() {
            // SAFETY: *still ours*, and nobody uses it any more.
            unsafe { libc::close(self.number) };
        }
    }
}

/// Which pipe the number stands for, if it is one's.
fn pipe_of_in_handler(number: i32) -> Option<u32> {
    // SAFETY: zeroed is a valid `stat`; async-signal-safe, the kernel fills a local.
    let status = unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        (libc::fstat(number, &mut status) == 0).then_some(status)
    };
    // The kernel numbers pipes with 32 bits.
    status
        .filter(|status| status.st_mode & libc::S_IFMT == libc::S_IFIFO)
        .map(|status| status.st_ino as u32)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn the_end_of_a_pipe_survives_the_word_that_it_is_kept_in() {
        for (number, inode) in [(0, 0), (3, 7), (i32::MAX, u32::MAX), (5, 1 << 31)] {
            let end = PipeEnd { number, inode };
            assert_eq!(PipeEnd::from_word_in_handler(end.to_word()), Some(end));
        }
        assert_eq!(PipeEnd::from_word_in_handler(NO_END), None);
    }

    #[test]
    fn a_number_that_stands_for_another_file_is_none_of_ours() {
        let (read_end, mut write_end) = io::pipe().expect("a pipe");
        let (mut others_read_end, others_write_end) = io::pipe().expect("another pipe");
        let end = PipeEnd::new(read_end).expect("an end");
        assert!(end.is_open_in_handler());
        write_end.write_all(b"to us").expect("written");
        let mut bytes = [0; 9];
        assert_eq!(end.read(&mut bytes).expect("five bytes"), 5);
        // SAFETY: touches no memory; the number is the end's.
        let copy = unsafe { libc::dup3(others_write_end.as_raw_fd(), end.number, libc::O_CLOEXEC) };
        assert_eq!(copy, end.number);
        assert!(!end.is_open_in_handler());
        drop(others_write_end);
        end.close_if_open();
        assert_eq!(
            // SAFETY: one byte of a local; the number is open still.
            unsafe { libc::write(end.number, (&raw const bytes[0]).cast(), 1) },
            1
        );
        // SAFETY: the number is nobody else's.
        assert_eq!(unsafe { libc::close(end.number) }, 0);
        assert_eq!(
            others_read_end
                .read_to_end(&mut Vec::new())
                .expect("one byte"),
            1
        );
        assert!(!end.is_open_in_handler());
    }
}
