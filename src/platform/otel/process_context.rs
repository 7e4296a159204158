//! The process context: a mapping with a name, in which a reader outside of the process finds a
//! header and a message.
//!
//! | bytes | header |
//! |---|---|
//! | 0..8 | `OTEL_CTX` |
//! | 8..12 | version of the format, 2 |
//! | 12..16 | length of the message |
//! | 16..24 | time of publication, in ns of `CLOCK_BOOTTIME`; 0 while the message is being changed |
//! | 24..32 | address of the message, which follows the header |
//!
//! **Contract** (cited below):
//! - *ours*: the mapping is created here and stays until the process ends or replaces its program.
//!   Only a [`ProcessContext`] writes to it, and a child of a fork has no such mapping, so each
//!   write is preceded by a comparison of the process's id. A child in a new PID namespace can have
//!   the id of its parent, so the fork handlers drop the value there;
//! - *in bounds*: a message has at most [`MAX_PAYLOAD_BYTES`].

use std::ffi::CStr;
use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use nix::sys::prctl::set_vma_anon_name;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::ftruncate;

use crate::platform::identity::{
    current_process_id, has_rights_of_another_user, without_write_signals,
};
use crate::platform::sandbox::may_make_uncommon_call;
use crate::platform::shared_file::{SharedFile, read_bytes};
use crate::types::ProcessId;

/// Maximum length of a message, in bytes. OpenTelemetry's profiler reads up to 64 KiB.
pub(crate) const MAX_PAYLOAD_BYTES: usize = (60 << 10) - HEADER_BYTES;
const HEADER_BYTES: usize = 32;
const MAPPED_BYTES: NonZeroUsize = NonZeroUsize::new(HEADER_BYTES + MAX_PAYLOAD_BYTES).unwrap();
const VERSION: u32 = 2;
const NAME: &CStr = c"OTEL_CTX";
/// Position of the time of publication in the header.
const PUBLISHED_AT: usize = 16;

/// A process context that is published until the process ends.
#[derive(Debug)]
pub(crate) struct ProcessContext {
    start: NonNull<u8>,
    /// The process that has the mapping.
    process: ProcessId,
    has_file: bool,
}

// SAFETY: *ours*: a mapping belongs to the process, not to a thread.
unsafe impl Send for ProcessContext {}

impl ProcessContext {
    /// Publishes a context with this message. Cost: some system calls, and a look at the list of
    /// all mappings.
    ///
    /// # Errors
    /// `AlreadyExists` if the process has a context, such as that of an SDK; `PermissionDenied` in
    /// a program with the rights of another user; `NotFound` without `/proc`; `InvalidInput` if the
    /// message is too long; otherwise the error of the operating system.
    pub(crate) fn publish(payload: &[u8]) -> io::Result<Self> {
        if has_rights_of_another_user() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let maps = read_bytes("/proc/self/maps");
        if maps.is_empty() {
            // Whether there is a context is not known.
            return Err(io::ErrorKind::NotFound.into());
        }
        if names_context(&maps) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if payload.len() > MAX_PAYLOAD_BYTES {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mapped = map_file();
        let has_file = mapped.is_ok();
        let start = match mapped {
            Ok(start) => start,
            Err(_) => map_anonymous()?,
        };
        let mut context = Self {
            start,
            process: current_process_id(),
            has_file,
        };
        // SAFETY: *ours*: the range is the mapping just created.
        let kept_from_children =
            unsafe { madvise(start.cast(), MAPPED_BYTES.get(), MmapAdvise::MADV_DONTFORK) };
        let published = kept_from_children
            .map_err(io::Error::from)
            .and_then(|()| context.write(payload));
        if published.is_err() {
            // SAFETY: *ours*: nothing refers to the mapping.
            let _ = unsafe { munmap(start.cast(), MAPPED_BYTES.get()) };
        }
        published.map(|()| context)
    }

    /// Replaces the message. Does nothing in a process that does not have the mapping.
    ///
    /// # Errors
    /// `InvalidInput` if the message is too long: the older one stays.
    pub(crate) fn update(&mut self, payload: &[u8]) -> io::Result<()> {
        if payload.len() > MAX_PAYLOAD_BYTES {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        match self.is_of_this_process() {
            true => self.write(payload),
            false => Ok(()),
        }
    }

    /// Returns whether this process published the context, and not its parent.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.process == current_process_id()
    }

    fn write(&mut self, payload: &[u8]) -> io::Result<()> {
        // SAFETY: *ours*, and the position is aligned.
        let published_at = unsafe { &*self.start.add(PUBLISHED_AT).as_ptr().cast::<AtomicU64>() };
        let before = published_at.swap(0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        // SAFETY: *ours*.
        let message = unsafe { self.start.add(HEADER_BYTES) }.as_ptr();
        let header: [&[u8]; 3] = [
            NAME.to_bytes(),
            &VERSION.to_ne_bytes(),
            &(payload.len() as u32).to_ne_bytes(),
        ];
        let address = (message as u64).to_ne_bytes();
        let parts = [(0, header.concat()), (PUBLISHED_AT + 8, address.to_vec())];
        for (position, bytes) in &parts {
            // SAFETY: *ours*: the parts lie in the header.
            unsafe {
                let place = self.start.add(*position).as_ptr();
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len());
            }
        }
        // SAFETY: *ours* and *in bounds*.
        unsafe { std::ptr::copy_nonoverlapping(payload.as_ptr(), message, payload.len()) };
        fence(Ordering::SeqCst);
        let now = clock_gettime(ClockId::CLOCK_BOOTTIME)?;
        let now_ns = now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64;
        published_at.store(now_ns.max(before + 1), Ordering::Relaxed);
        self.set_name()
    }

    /// Names the mapping, by which a reader finds it, or notices a change of it. A mapping of the
    /// file has a name already.
    fn set_name(&self) -> io::Result<()> {
        let named = match may_make_uncommon_call() {
            true => set_vma_anon_name(self.start.cast(), MAPPED_BYTES, Some(NAME)),
            false => Err(Errno::EPERM),
        };
        match named {
            Err(error) if !self.has_file => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// Maps a file in memory, whose name is then that of the mapping.
fn map_file() -> io::Result<NonNull<u8>> {
    let create = |flags| memfd_create(NAME, flags);
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let not_executable = MFdFlags::from_bits_retain(libc::MFD_NOEXEC_SEAL);
    // Kernels before 6.3 do not know the third flag.
    let file = create(flags | not_executable).or_else(|_| create(flags))?;
    let file = SharedFile::new(file.into())?;
    // The limit for the size of files holds for a file in memory, too.
    without_write_signals(|| Ok(ftruncate(file.get()?, MAPPED_BYTES.get() as i64)?))?;
    let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a new mapping at an address chosen by the kernel does not affect memory in use.
    let start = unsafe {
        mmap(
            None,
            MAPPED_BYTES,
            access,
            MapFlags::MAP_PRIVATE,
            file.get()?,
            0,
        )
    }?;
    Ok(start.cast())
}

/// Maps memory without a file, which gets its name later.
fn map_anonymous() -> io::Result<NonNull<u8>> {
    let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a new mapping at an address chosen by the kernel does not affect memory in use.
    let start = unsafe { mmap_anonymous(None, MAPPED_BYTES, access, MapFlags::MAP_PRIVATE) }?;
    Ok(start.cast())
}

/// Returns whether the text of a `maps` file has a mapping with the name of a context.
fn names_context(maps: &[u8]) -> bool {
    const NAMES: [&[u8]; 3] = [
        b"/memfd:OTEL_CTX",
        b"[anon_shmem:OTEL_CTX]",
        b"[anon:OTEL_CTX]",
    ];
    maps.split(|&byte| byte == b'\n').any(|line| {
        let name = line.iter().position(|byte| matches!(byte, b'/' | b'['));
        name.is_some_and(|at| NAMES.iter().any(|name| line[at..].starts_with(name)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_context_compares_the_names_of_mappings() {
        for name in [
            "/memfd:OTEL_CTX (deleted)",
            "[anon_shmem:OTEL_CTX]",
            "[anon:OTEL_CTX]",
        ] {
            let maps =
                format!("7f00-7f10 r--p 0 fe:00 42  /lib/a.so\n7f10-7f20 rw-p 0 0:1 7  {name}\n");
            assert!(names_context(maps.as_bytes()), "{name}");
        }
        for name in ["/home/OTEL_CTX", "[heap]", ""] {
            let maps = format!("7f10-7f20 rw-p 0 0:1 7  {name}\n");
            assert!(!names_context(maps.as_bytes()), "{name}");
        }
    }
}
