//! Stream sockets that never block, and are used and closed only while they are the profiler's:
//! Unix ones between processes of this user, and TCP ones. A mailbox lets a thread wait for values
//! as it waits for sockets.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use nix::sys::stat::fstat;
use nix::unistd::geteuid;

use crate::platform::shared_file::SharedFile;
use crate::platform::socket::calls;
use crate::platform::socket::copies_in_child::CopiedInChild;
use crate::platform::thread::channel::{Receiver, Sender, channel};
use crate::platform::thread::own_descriptors::has_own_descriptors;
use crate::platform::thread::profiler_thread::spawn_profiler_thread;

/// A descriptor of a socket, of either kind.
#[derive(Debug)]
struct Descriptor {
    file: SharedFile,
    /// If the child of a fork gets a copy. Dropped after the file is closed.
    _copied: Option<CopiedInChild>,
}

impl Descriptor {
    fn new(socket: OwnedFd) -> io::Result<Self> {
        let socket = calls::above_standard_streams(socket)?;
        let number = socket.as_raw_fd();
        let copied = match has_own_descriptors() {
            true => None,
            false => Some(CopiedInChild::new(number, fstat(&socket)?.st_ino)),
        };
        Ok(Self {
            file: SharedFile::new(File::from(socket))?,
            _copied: copied,
        })
    }
}

/// An end of a connection. It belongs to the descriptor table of the thread that made it.
#[derive(Debug)]
pub(crate) struct Socket {
    descriptor: Descriptor,
    /// The process at the other end when the connection was made, if it is visible from here.
    peer: Option<i32>,
}

impl Socket {
    /// Connects to the listener at this path, if it belongs to this user.
    ///
    /// # Errors
    /// `PermissionDenied` if it belongs to another user; otherwise the error of the operating
    /// system.
    pub(crate) fn connect(path: &Path) -> io::Result<Self> {
        Self::of_own_user(UnixStream::connect(path)?.into())
    }

    /// Begins to connect to this address of the network. [`Interest::Space`] tells when the
    /// connection is there or has failed, and then [`Self::send`] returns the error.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn begin_tcp(address: std::net::SocketAddr) -> io::Result<Self> {
        Ok(Self {
            descriptor: Descriptor::new(calls::begin_to_connect(address)?)?,
            peer: None,
        })
    }

    /// Checks that the process at the other end belonged to this user when the connection was made.
    fn of_own_user(socket: OwnedFd) -> io::Result<Self> {
        let descriptor = Descriptor::new(socket)?;
        let (process, user) = calls::peer_of(descriptor.file.get()?.as_fd())?;
        match user == geteuid().as_raw() {
            true => Ok(Self {
                descriptor,
                peer: Some(process).filter(|process| *process > 0),
            }),
            false => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }

    /// Returns the process at the other end, as this process sees it: `None` if it is in a
    /// namespace that is not visible from here. It may have passed the connection on.
    pub(crate) fn peer_process(&self) -> Option<i32> {
        self.peer
    }

    /// Sends bytes, and returns how many the kernel has taken.
    ///
    /// # Errors
    /// `WouldBlock` if the kernel takes none now; otherwise the error of the operating system.
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        calls::send(self.descriptor.file.get()?.as_fd(), bytes)
    }

    /// Receives bytes, and returns how many. Returns 0 once the other end is closed.
    ///
    /// # Errors
    /// `WouldBlock` if none have arrived; otherwise the error of the operating system.
    pub(crate) fn receive(&self, bytes: &mut [u8]) -> io::Result<usize> {
        let received = calls::receive(self.descriptor.file.get()?.as_fd(), bytes);
        // If the descriptor was replaced just before, the bytes are those of another socket.
        self.descriptor.file.get()?;
        received
    }

    /// Ends the connection in both directions. The descriptor stays open.
    pub(crate) fn shut_down(&self) {
        if let Ok(file) = self.descriptor.file.get() {
            let _ = calls::shut_down(file.as_fd(), libc::SHUT_RDWR);
        }
    }

    /// Tells the other end that nothing more is sent.
    pub(crate) fn end_sending(&self) {
        if let Ok(file) = self.descriptor.file.get() {
            let _ = calls::shut_down(file.as_fd(), libc::SHUT_WR);
        }
    }
}

/// Makes two ends of one connection.
///
/// # Errors
/// The error of the operating system.
pub(crate) fn socket_pair() -> io::Result<(Socket, Socket)> {
    let (one, other) = UnixStream::pair()?;
    Ok((
        Socket::of_own_user(one.into())?,
        Socket::of_own_user(other.into())?,
    ))
}

/// A socket to which others connect.
#[derive(Debug)]
pub(crate) struct ListeningSocket {
    descriptor: Descriptor,
    /// Whether only this user may connect.
    is_private: bool,
}

impl ListeningSocket {
    /// Begins to listen at this path, where no file is yet. Only this user may connect.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        const ONLY_OWNER: u32 = 0o600;
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        // The mask of the process may forbid the owner, too.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(ONLY_OWNER))?;
        Ok(Self {
            descriptor: Descriptor::new(listener.into())?,
            is_private: true,
        })
    }

    /// Begins to listen at this address of the network. Any user may connect. Returns the address
    /// with the port that the kernel has chosen.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn bind_tcp(
        address: std::net::SocketAddr,
    ) -> io::Result<(Self, std::net::SocketAddr)> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let bound = listener.local_addr()?;
        let listener = Self {
            descriptor: Descriptor::new(listener.into())?,
            is_private: false,
        };
        Ok((listener, bound))
    }

    /// Accepts a connection. Closes one of another user, unless any user may connect.
    ///
    /// # Errors
    /// `WouldBlock` if no process has connected, `PermissionDenied` for one of another user;
    /// otherwise the error of the operating system.
    pub(crate) fn accept(&self) -> io::Result<Socket> {
        let socket = calls::accept(self.descriptor.file.get()?.as_fd())?;
        if self.is_private {
            return Socket::of_own_user(socket);
        }
        Ok(Socket {
            descriptor: Descriptor::new(socket)?,
            peer: None,
        })
    }
}

/// Returns whether a process has the socket at this path open. Makes no connection, and never
/// waits.
pub(crate) fn is_socket_open(path: &Path) -> bool {
    // The kernel looks at the kind only after it has found the socket.
    let asked = UnixDatagram::unbound().and_then(|socket| socket.connect(path));
    asked.is_err_and(|error| error.raw_os_error() == Some(libc::EPROTOTYPE))
}

/// What a thread waits for at a socket.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Interest<'a> {
    Connection(&'a ListeningSocket),
    Bytes(&'a Socket),
    /// Bytes to receive, or space to send.
    BytesAndSpace(&'a Socket),
    Space(&'a Socket),
}

/// Waits until one of the sockets is ready or at its end, or for this time at most. Returns which
/// of them are.
///
/// # Errors
/// The error of the operating system, also if the application has closed one of the descriptors.
pub(crate) fn wait_for_sockets(
    interests: &[Interest<'_>],
    limit: Option<Duration>,
) -> io::Result<Vec<bool>> {
    let mut entries = Vec::with_capacity(interests.len());
    for interest in interests {
        let (descriptor, events) = match interest {
            Interest::Connection(listener) => (&listener.descriptor, libc::POLLIN),
            Interest::Bytes(socket) => (&socket.descriptor, libc::POLLIN),
            Interest::BytesAndSpace(socket) => (&socket.descriptor, libc::POLLIN | libc::POLLOUT),
            Interest::Space(socket) => (&socket.descriptor, libc::POLLOUT),
        };
        entries.push(libc::pollfd {
            fd: descriptor.file.get()?.as_raw_fd(),
            events,
            revents: 0,
        });
    }
    calls::poll(&mut entries, limit)?;
    Ok(entries.iter().map(|entry| entry.revents != 0).collect())
}

/// The receiving end of a mailbox, in the table of the thread that opened it.
#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    values: Receiver<T>,
    woken: Socket,
}

impl<T: Send + 'static> Mailbox<T> {
    /// Passes on the values of a channel, until its sender is gone.
    ///
    /// # Errors
    /// The error of the operating system, which refused a socket or a thread.
    pub(crate) fn open(values: Receiver<T>) -> io::Result<Self> {
        let (woken, wakes) = socket_pair()?;
        let (send, passed_on) = channel();
        let run = move || pass_on(&values, &send, &wakes);
        drop(spawn_profiler_thread(c"ProfilerMailbox", run)?);
        Ok(Self {
            values: passed_on,
            woken,
        })
    }

    /// Returns the socket that has bytes once there are values, and is at its end once the sender
    /// is gone.
    pub(crate) fn socket(&self) -> &Socket {
        &self.woken
    }

    /// Takes the values that have arrived. Returns `None` once the sender is gone and all were
    /// taken.
    pub(crate) fn take(&self) -> Option<Vec<T>> {
        let is_at_end = loop {
            match self.woken.receive(&mut [0; 64]) {
                Ok(0) => break true,
                Ok(_) => {}
                Err(error) => break error.kind() != io::ErrorKind::WouldBlock,
            }
        };
        let mut taken = Vec::new();
        while let Some(value) = self.values.receive_within(std::time::Duration::ZERO) {
            taken.push(value);
        }
        (!is_at_end || !taken.is_empty()).then_some(taken)
    }
}

fn pass_on<T>(values: &Receiver<T>, send: &Sender<T>, wakes: &Socket) {
    while let Some(value) = values.receive() {
        if !send.send(value) {
            return;
        }
        // A full socket wakes the other thread, too.
        let _ = wakes.send(&[0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::TestFolder;

    #[test]
    fn connection_carries_bytes_until_it_ends() {
        let folder = TestFolder::new("socket");
        let path = folder.path().join("s");
        let listener = ListeningSocket::bind(&path).expect("bound");
        let none = listener.accept().expect_err("nobody connects");
        assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
        assert!(is_socket_open(&path));
        let client = Socket::connect(&path).expect("connected");
        assert_eq!(client.peer_process(), Some(std::process::id() as i32));
        let ready = wait_for_sockets(&[Interest::Connection(&listener)], None).expect("ready");
        assert_eq!(ready, [true]);
        let server = listener.accept().expect("a connection");
        let mut bytes = [0; 8];
        let none = server.receive(&mut bytes).expect_err("no bytes");
        assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(client.send(b"hello").expect("sent"), 5);
        let interests = [Interest::Bytes(&client), Interest::Bytes(&server)];
        let ready = wait_for_sockets(&interests, None).expect("ready");
        assert_eq!(ready, [false, true]);
        assert_eq!(server.receive(&mut bytes).expect("received"), 5);
        client.shut_down();
        assert_eq!(server.receive(&mut bytes).expect("the end"), 0);
        drop(listener);
        assert!(!is_socket_open(&path) && path.exists());
        assert!(!is_socket_open(folder.path()));
        // Without `SIGPIPE`, which would end the test.
        drop(client);
        assert!(server.send(b"late").is_err());
    }

    #[test]
    fn full_socket_takes_no_more_until_it_is_read() {
        let (one, other) = socket_pair().expect("a pair");
        let part = [7; 4096];
        let full = loop {
            match one.send(&part) {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        let limit = Some(Duration::ZERO);
        let ready = wait_for_sockets(&[Interest::Space(&one)], limit).expect("an answer");
        assert_eq!(ready, [false]);
        while other.receive(&mut [0; 4096]).is_ok() {}
        let ready = wait_for_sockets(&[Interest::Space(&one)], None).expect("an answer");
        assert_eq!(ready, [true]);
    }

    #[test]
    fn values_wake_the_thread_and_the_end_does_too() {
        let (send, values) = channel();
        let mailbox = Mailbox::open(values).expect("a mailbox");
        assert_eq!(mailbox.take(), Some(Vec::new()));
        let wait = || wait_for_sockets(&[Interest::Bytes(mailbox.socket())], None).expect("ready");
        for number in 1..=3 {
            assert!(send.send(number));
        }
        let mut taken = Vec::new();
        while taken.len() < 3 {
            assert_eq!(wait(), [true]);
            taken.extend(mailbox.take().expect("the sender is there"));
        }
        assert_eq!(taken, [1, 2, 3]);
        drop(send);
        while mailbox.take().is_some() {
            assert_eq!(wait(), [true]);
        }
    }
}
