//! The system calls of sockets that the standard library lacks.
//!
//! **Contract of the calls** (cited below):
//! - *own memory*: the kernel reads or writes the slice or the structure that the caller lends for
//!   the call, and no more than its length;
//! - *new descriptor*: the kernel has just created it for this call, so nothing else owns it.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;

/// Sends bytes without waiting and without `SIGPIPE`. Returns how many the kernel has taken.
pub(super) fn send(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: *own memory*.
    let sent = unsafe {
        let start = bytes.as_ptr().cast();
        libc::send(socket.as_raw_fd(), start, bytes.len(), flags)
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Receives bytes without waiting. Returns 0 at the end.
pub(super) fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<usize> {
    // SAFETY: *own memory*.
    let received = unsafe {
        let start = bytes.as_mut_ptr().cast();
        libc::recv(socket.as_raw_fd(), start, bytes.len(), libc::MSG_DONTWAIT)
    };
    usize::try_from(received).map_err(|_| io::Error::last_os_error())
}

/// Accepts a connection, without waiting for one.
pub(super) fn accept(listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let (no_address, no_length) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: *own memory*: the kernel is given none.
    let number = unsafe {
        let flags = libc::SOCK_CLOEXEC;
        libc::accept4(listener.as_raw_fd(), no_address, no_length, flags)
    };
    owned(number)
}

/// Moves a descriptor to a number above those of the standard streams, which the application may
/// have closed.
pub(super) fn above_standard_streams(descriptor: OwnedFd) -> io::Result<OwnedFd> {
    const FIRST_NUMBER: i32 = 3;
    if descriptor.as_raw_fd() >= FIRST_NUMBER {
        return Ok(descriptor);
    }
    // SAFETY: *own memory*: the kernel is given none.
    owned(unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_DUPFD_CLOEXEC, FIRST_NUMBER) })
}

/// Begins to connect to this address. The socket can send once it is connected, and its next call
/// returns the error if it cannot connect.
pub(super) fn begin_to_connect(address: std::net::SocketAddr) -> io::Result<OwnedFd> {
    use std::net::SocketAddr;

    let family = match address {
        SocketAddr::V4(_) => libc::AF_INET,
        SocketAddr::V6(_) => libc::AF_INET6,
    };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: *own memory*: the kernel is given none.
    let socket = owned(unsafe { libc::socket(family, kind, 0) })?;
    let family = family as libc::sa_family_t;
    let connect = |raw: *const libc::sockaddr, bytes: usize| {
        // SAFETY: *own memory*: a local, and its length.
        unsafe { libc::connect(socket.as_raw_fd(), raw, bytes as libc::socklen_t) }
    };
    let answer = match address {
        SocketAddr::V4(address) => {
            let raw = libc::sockaddr_in {
                sin_family: family,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(address.ip().octets()),
                },
                sin_zero: [0; 8],
            };
            connect((&raw const raw).cast(), size_of_val(&raw))
        }
        SocketAddr::V6(address) => {
            let raw = libc::sockaddr_in6 {
                sin6_family: family,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: address.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: address.ip().octets(),
                },
                sin6_scope_id: address.scope_id(),
            };
            connect((&raw const raw).cast(), size_of_val(&raw))
        }
    };
    match Errno::result(answer) {
        Ok(_) | Err(Errno::EINPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

fn owned(number: i32) -> io::Result<OwnedFd> {
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: *new descriptor*.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Returns the process and the user at the other end, as the kernel knows them. The process is 0 if
/// it is in another namespace, and not visible from here.
pub(super) fn peer_of(socket: BorrowedFd<'_>) -> io::Result<(libc::pid_t, libc::uid_t)> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: libc::uid_t::MAX,
        gid: libc::gid_t::MAX,
    };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: *own memory*: both are locals, and the length is that of the structure.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    Errno::result(answer)?;
    Ok((peer.pid, peer.uid))
}

/// Ends a connection in both directions, or in that of `SHUT_WR`.
pub(super) fn shut_down(socket: BorrowedFd<'_>, direction: libc::c_int) -> io::Result<()> {
    // SAFETY: *own memory*: the kernel is given none.
    let answer = unsafe { libc::shutdown(socket.as_raw_fd(), direction) };
    Ok(Errno::result(answer).map(drop)?)
}

/// Waits until one of the descriptors is ready, or for this time at most. `None` means no limit. If
/// the process may open fewer files than there are descriptors, the kernel does not wait for them:
/// then all of them count as ready after a moment.
pub(super) fn poll(entries: &mut [libc::pollfd], limit: Option<Duration>) -> io::Result<()> {
    const MOMENT: Duration = Duration::from_millis(10);
    // Rounded up, so that a wait for the rest of a time ends after it.
    let limit_ms = limit.map_or(-1, |limit| {
        i32::try_from(limit.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
    });
    // SAFETY: *own memory*.
    let answer = unsafe {
        let count = entries.len() as libc::nfds_t;
        libc::poll(entries.as_mut_ptr(), count, limit_ms)
    };
    match Errno::result(answer) {
        Err(Errno::EINTR) | Ok(_) => Ok(()),
        Err(Errno::EINVAL) => {
            std::thread::sleep(limit.map_or(MOMENT, |limit| limit.min(MOMENT)));
            for entry in entries {
                entry.revents = entry.events;
            }
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns random bytes of the kernel, which no other process can guess.
///
/// # Errors
/// The error of the operating system, for example before it has gathered randomness.
pub(crate) fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    const { assert!(N <= 256, "the kernel returns so many bytes at once") };
    let mut bytes = [0; N];
    // SAFETY: *own memory*.
    let count = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), N, libc::GRND_NONBLOCK) };
    match usize::try_from(count) {
        Ok(count) if count == N => Ok(bytes),
        Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}
