//! Files of an application that has closed all descriptors that it does not know, as daemons do.
//! They get the numbers that the profiler may have had. Only the application reads, writes or
//! closes them.

use std::io;

/// More files than a session of the storm has threads.
const FILES: usize = 100;

/// A file in memory with a known content.
struct HostFile {
    number: libc::c_int,
    inode: u64,
    content: String,
}

impl HostFile {
    fn create(index: usize) -> io::Result<Self> {
        let content = format!("file {index} of the application");
        // SAFETY: the name is a C string.
        let number = unsafe { libc::memfd_create(c"storm".as_ptr(), libc::MFD_CLOEXEC) };
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the bytes live as long as the call.
        let written = unsafe { libc::pwrite(number, content.as_ptr().cast(), content.len(), 0) };
        if written != content.len() as isize {
            return Err(io::Error::last_os_error());
        }
        let inode = inode_of(number).ok_or_else(io::Error::last_os_error)?;
        Ok(Self {
            number,
            inode,
            content,
        })
    }

    /// Returns what has happened to the file, if anything has.
    fn damage(&self) -> Option<String> {
        let number = self.number;
        match inode_of(number) {
            None => return Some("is closed".to_owned()),
            Some(inode) if inode != self.inode => return Some("is another file".to_owned()),
            Some(_) => {}
        }
        // SAFETY: the call accesses no memory.
        let position = unsafe { libc::lseek(number, 0, libc::SEEK_CUR) };
        if position != 0 {
            return Some(format!("was read or written up to byte {position}"));
        }
        let mut bytes = [0u8; 64];
        // SAFETY: the buffer is a local.
        let read = unsafe { libc::pread(number, bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        let is_intact =
            usize::try_from(read).is_ok_and(|read| bytes[..read] == *self.content.as_bytes());
        (!is_intact).then(|| "has another content".to_owned())
    }
}

fn inode_of(number: libc::c_int) -> Option<u64> {
    // SAFETY: a zeroed status is valid, and a local.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        (libc::fstat(number, &mut status) == 0).then_some(status.st_ino)
    }
}

/// The files. They stay open until the process ends.
pub struct HostFiles(Vec<HostFile>);

impl HostFiles {
    /// Closes all descriptors but the standard streams, and opens the files.
    ///
    /// # Safety
    /// - The process uses no descriptor that was open before, except for the profiler.
    pub unsafe fn replace_all() -> Result<Self, String> {
        let (first, last, flags) = (3u32, u32::MAX, 0);
        // SAFETY: the call accesses no memory; by this function's contract.
        let answer = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
        if answer != 0 {
            return Err(format!("close_range: {}", io::Error::last_os_error()));
        }
        let files: io::Result<_> = (0..FILES).map(HostFile::create).collect();
        files
            .map(Self)
            .map_err(|error| format!("cannot open a file of the application: {error}"))
    }

    /// Checks that no file was touched.
    pub fn check(&self, when: &str) -> Result<(), String> {
        let damaged = self.0.iter().find_map(|file| Some((file, file.damage()?)));
        match damaged {
            None => Ok(()),
            Some((file, damage)) => Err(format!("{when}: descriptor {} {damage}", file.number)),
        }
    }
}
