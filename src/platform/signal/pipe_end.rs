//! Pipe ends that detect whether their descriptor was closed or reused. An application may close
//! all descriptors that it did not open; the number is then free, or refers to another file.
//!
//! Runs in the signal handler, except for reading and closing.
//!
//! **Contract** (cited below):
//! - *still ours*: each caller checks [`PipeEnd::is_open_in_handler`] just before it reads, writes
//!   or closes.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Word that means “no pipe end”. [`PipeEnd::to_word`] never returns it.
pub(crate) const NO_END: u64 = u64::MAX;

/// Device number of the kernel's pipes; `NO_DEVICE` until the first pipe is opened. A named pipe of
/// another file system may have the inode number of any pipe.
static PIPE_DEVICE: AtomicU64 = AtomicU64::new(NO_DEVICE);
const NO_DEVICE: u64 = u64::MAX;

/// One end of a pipe: its descriptor, and the inode that identifies the pipe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PipeEnd {
    pub(crate) number: i32,
    /// Inode number of the pipe. Both ends share it, and no other open pipe has it.
    inode: u32,
}

impl PipeEnd {
    /// Takes over an end of a pipe without a name that was just opened. From now on only
    /// [`close_if_open`](Self::close_if_open) closes it.
    pub(crate) fn new(file: impl AsRawFd + IntoRawFd) -> io::Result<Self> {
        let status = status_in_handler(file.as_raw_fd()).ok_or_else(io::Error::last_os_error)?;
        PIPE_DEVICE.store(status.st_dev, Ordering::Relaxed);
        let inode = pipe_inode_in_handler(file.as_raw_fd()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self {
            number: file.into_raw_fd(),
            inode,
        })
    }

    /// Packs the end into one word, so that it fits an atomic.
    pub(crate) const fn to_word(self) -> u64 {
        (self.inode as u64) << 32 | self.number as u32 as u64
    }

    /// Unpacks a word of [`to_word`](Self::to_word). Returns `None` for [`NO_END`].
    pub(crate) fn from_word_in_handler(word: u64) -> Option<Self> {
        (word != NO_END).then_some(Self {
            number: word as u32 as i32,
            inode: (word >> 32) as u32,
        })
    }

    /// Returns whether the descriptor still refers to the pipe. Cost: one system call.
    pub(crate) fn is_open_in_handler(self) -> bool {
        pipe_inode_in_handler(self.number) == Some(self.inode)
    }

    /// Writes one byte without blocking, and returns the result of the system call. It does not use
    /// the C library's `write`, which is a cancellation point.
    pub(crate) fn write_in_handler(self, byte: u8) -> libc::c_long {
        // SAFETY: *still ours*; the kernel reads one byte of a local. The descriptor is
        // non-blocking.
        unsafe { libc::syscall(libc::SYS_write, self.number, &raw const byte, 1usize) }
    }

    /// Waits for data and returns the number of bytes read, or 0 if all write ends are closed.
    pub(crate) fn read(self, bytes: &mut [u8]) -> io::Result<usize> {
        // SAFETY: *still ours*.
        let descriptor = unsafe { BorrowedFd::borrow_raw(self.number) };
        Ok(nix::unistd::read(descriptor, bytes)?)
    }

    /// Closes the descriptor, unless it no longer refers to the pipe.
    pub(crate) fn close_if_open(self) {
        if self.is_open_in_handler() {
            // *still ours*, and the descriptor is not used afterwards.
            let _ = nix::unistd::close(self.number);
        }
    }
}

/// Returns the inode number of the pipe that the descriptor refers to, or `None` if it is not a
/// pipe, or one with a name.
fn pipe_inode_in_handler(number: i32) -> Option<u32> {
    let is_pipe = |status: &libc::stat| {
        status.st_mode & libc::S_IFMT == libc::S_IFIFO
            && status.st_dev == PIPE_DEVICE.load(Ordering::Relaxed)
    };
    // The kernel uses 32 bits for the inode numbers of pipes.
    status_in_handler(number)
        .filter(is_pipe)
        .map(|status| status.st_ino as u32)
}

fn status_in_handler(number: i32) -> Option<libc::stat> {
    // SAFETY: zeroed is a valid `stat`; async-signal-safe, the kernel fills in a local.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        (libc::fstat(number, &mut status) == 0).then_some(status)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::fs::MetadataExt;

    use nix::fcntl::OFlag;
    use nix::unistd::dup3_raw;

    use super::*;

    #[test]
    fn pipe_end_round_trips_through_its_word() {
        for (number, inode) in [(0, 0), (3, 7), (i32::MAX, u32::MAX), (5, 1 << 31)] {
            let end = PipeEnd { number, inode };
            assert_eq!(PipeEnd::from_word_in_handler(end.to_word()), Some(end));
        }
        assert_eq!(PipeEnd::from_word_in_handler(NO_END), None);
    }

    #[test]
    fn named_pipe_with_the_same_inode_is_another_file() {
        let (read_end, _write_end) = io::pipe().expect("a pipe");
        let end = PipeEnd::new(read_end).expect("an end");
        let path = std::env::temp_dir().join(format!("gekkota-named-pipe-{}", std::process::id()));
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("a named pipe");
        let named = std::fs::File::options().read(true).write(true).open(&path);
        std::fs::remove_file(&path).expect("removed");
        let named = named.expect("both ends of the named pipe");
        let forged = PipeEnd {
            number: named.as_raw_fd(),
            inode: named.metadata().expect("a status").ino() as u32,
        };
        assert!(!forged.is_open_in_handler());
        end.close_if_open();
    }

    #[test]
    fn is_open_detects_a_reused_descriptor() {
        let (read_end, mut write_end) = io::pipe().expect("a pipe");
        let (mut foreign_read_end, foreign_write_end) = io::pipe().expect("another pipe");
        let end = PipeEnd::new(read_end).expect("an end");
        assert!(end.is_open_in_handler());
        write_end.write_all(b"12345").expect("the pipe has space");
        let mut bytes = [0; 9];
        assert_eq!(end.read(&mut bytes).expect("five bytes"), 5);
        // SAFETY: the test owns the descriptor.
        let copy = unsafe { dup3_raw(&foreign_write_end, end.number, OFlag::O_CLOEXEC) };
        let copy = copy.expect("a copy");
        assert_eq!(copy.as_raw_fd(), end.number);
        assert!(!end.is_open_in_handler());
        drop(foreign_write_end);
        end.close_if_open();
        assert_eq!(nix::unistd::write(&copy, &bytes[..1]), Ok(1));
        drop(copy);
        assert_eq!(
            foreign_read_end
                .read_to_end(&mut Vec::new())
                .expect("one byte"),
            1
        );
        assert!(!end.is_open_in_handler());
    }
}
