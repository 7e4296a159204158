//! Devices and pipes, which are written directly: a rename would replace them by a file.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::OFlag;

use crate::platform::identity::{wait_until_writable, without_write_signals};
use crate::platform::output::links::check_owner;
use crate::platform::shared_file::SharedFile;

/// Maximum wait for a reader of a pipe, and for the reader to read something. Shorter than the time
/// after which the end of the process gives up a save (`process_end/gate.rs`).
const MAX_WAIT: Duration = Duration::from_secs(5);
/// Time between two attempts to open a pipe that has no reader.
const ATTEMPT: Duration = Duration::from_millis(10);

/// A device or pipe that is open for writing.
#[derive(Debug)]
pub(crate) struct SpecialFile(SharedFile);

impl SpecialFile {
    /// Returns whether the path leads to a device, pipe or socket.
    pub(crate) fn is_at(path: &Path) -> bool {
        std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
    }

    /// Opens a device or pipe. Refuses a pipe that a stranger may have planted, and one that has no
    /// reader for five seconds.
    ///
    /// The path is one that [`follow_links`](super::follow_links) returned. If it still ends with a
    /// link, that link is one of the kernel's, and is followed.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let metadata = std::fs::symlink_metadata(path)?;
        check_owner(path, &metadata, "file")?;
        let mut flags = OFlag::O_NOCTTY | OFlag::O_NONBLOCK;
        if !metadata.is_symlink() {
            flags |= OFlag::O_NOFOLLOW;
        }
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(flags.bits());
        let is_pipe = std::fs::metadata(path)?.file_type().is_fifo();
        let until = Instant::now() + MAX_WAIT;
        let file = loop {
            match SharedFile::open(&options, path) {
                Err(error) if is_pipe && error.raw_os_error() == Some(Errno::ENXIO as i32) => {
                    if Instant::now() > until {
                        return Err(timed_out("got no reader of the pipe for"));
                    }
                    std::thread::sleep(ATTEMPT);
                }
                opened => break opened?,
            }
        };
        if file.get()?.metadata()?.is_file() {
            return Err(io::Error::other("got a file, expected a device or pipe"));
        }
        Ok(Self(file))
    }
}

impl Write for SpecialFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let until = Instant::now() + MAX_WAIT;
        loop {
            match without_write_signals(|| self.0.write(bytes)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let is_late = Instant::now() > until;
                    if is_late || !wait_until_writable(self.0.get()?.as_fd(), until) {
                        return Err(timed_out("got a reader that reads nothing for"));
                    }
                }
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn timed_out(got: &str) -> io::Error {
    let error = format!("{got} {} s, expected one that reads", MAX_WAIT.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, error)
}
