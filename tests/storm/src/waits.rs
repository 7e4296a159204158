//! Waits in the kernel. Checks how long each wait lasts, and counts interruptions by signals.

use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::crew::{self, Context};
use crate::gate;
use crate::tally::{self, Tally};

/// Maximum delay of a wait's return. The machine is busy, perhaps also with other work.
const MOST_LATE: Duration = Duration::from_secs(10);

/// Waits with `wait`, which receives the remaining time, until the time is over.
fn wait_out(time: Duration, interrupted: &Tally, mut wait: impl FnMut(Duration) -> libc::c_int) {
    let start = Instant::now();
    loop {
        let left = time.saturating_sub(start.elapsed());
        let answer = wait(left);
        let error = std::io::Error::last_os_error();
        match answer {
            0 => break,
            -1 if error.raw_os_error() == Some(libc::EINTR) => interrupted.one(),
            other => panic!("a wait returned {other}: {error}"),
        }
    }
    let took = start.elapsed();
    // The kernel rounds to ticks of its clock.
    assert!(
        took + Duration::from_micros(100) >= time,
        "a wait of {time:?} took {took:?}"
    );
    let late = took.saturating_sub(time);
    assert!(late < MOST_LATE, "a wait of {time:?} took {took:?}");
    tally::LATEST_MS.greatest(late.as_millis() as u64);
    tally::WAITS.one();
}

fn whole_ms(time: Duration) -> libc::c_int {
    time.as_micros().div_ceil(1000) as libc::c_int
}

/// Returns a descriptor that is never ready for reading.
fn silent() -> OwnedFd {
    // SAFETY: takes two numbers, and returns a new descriptor.
    gate::with_descriptors(|| unsafe { own(libc::eventfd(0, libc::EFD_CLOEXEC)) })
}

/// # Safety
/// - The descriptor must be negative, or owned by the caller.
unsafe fn own(descriptor: libc::c_int) -> OwnedFd {
    assert!(
        descriptor >= 0,
        "cannot create a descriptor: {}",
        std::io::Error::last_os_error()
    );
    // SAFETY: the caller owns the descriptor.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

pub fn epoll_worker(context: &mut Context) {
    let silent = silent();
    // SAFETY: takes a number, and returns a new descriptor.
    let create = || unsafe { own(libc::epoll_create1(libc::EPOLL_CLOEXEC)) };
    let epoll = gate::with_descriptors(create);
    let mut event = libc::epoll_event {
        events: libc::EPOLLIN as u32,
        u64: 7,
    };
    // SAFETY: the event is a local.
    let added = unsafe {
        libc::epoll_ctl(
            epoll.as_raw_fd(),
            libc::EPOLL_CTL_ADD,
            silent.as_raw_fd(),
            &mut event,
        )
    };
    assert_eq!(added, 0, "epoll_ctl: {}", std::io::Error::last_os_error());
    while context.goes_on() {
        let time = Duration::from_millis(1 + context.random.below(30));
        wait_out(time, &tally::EINTR_EPOLL, |left| {
            // SAFETY: the array of one event is a local.
            unsafe { libc::epoll_wait(epoll.as_raw_fd(), &mut event, 1, whole_ms(left)) }
        });
    }
}

pub fn poll_worker(context: &mut Context) {
    let silent = silent();
    while context.goes_on() {
        let time = Duration::from_millis(1 + context.random.below(30));
        wait_out(time, &tally::EINTR_POLL, |left| {
            let mut polled = libc::pollfd {
                fd: silent.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: the array of one descriptor is a local.
            unsafe { libc::poll(&mut polled, 1, whole_ms(left)) }
        });
    }
}

pub fn nanosleep_worker(context: &mut Context) {
    while context.goes_on() {
        let time = Duration::from_micros(50 + context.random.below(5000));
        wait_out(time, &tally::EINTR_NANOSLEEP, |left| {
            let asked = libc::timespec {
                tv_sec: 0,
                tv_nsec: left.as_nanos() as libc::c_long,
            };
            // SAFETY: the time is a local.
            unsafe { libc::nanosleep(&asked, std::ptr::null_mut()) }
        });
    }
}

/// Reads bytes from a pipe, into which another thread writes a few at a time.
pub fn pipe_worker(context: &mut Context) {
    let (reader, mut writer) = gate::with_descriptors(std::io::pipe).expect("a pipe");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut next = 0u8;
            while !crew::is_stopping() {
                let bytes: [u8; 7] = std::array::from_fn(|index| next.wrapping_add(index as u8));
                next = next.wrapping_add(7);
                writer.write_all(&bytes).expect("the reader is open");
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        let mut next = 0u8;
        let mut bytes = [0u8; 5];
        loop {
            context.goes_on();
            // SAFETY: the buffer is a local.
            let answer =
                unsafe { libc::read(reader.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len()) };
            let error = std::io::Error::last_os_error();
            match answer {
                // The writer has ended.
                0 => break,
                -1 if error.raw_os_error() == Some(libc::EINTR) => tally::EINTR_READ.one(),
                -1 => panic!("read: {error}"),
                read => {
                    for byte in &bytes[..read as usize] {
                        assert_eq!(*byte, next, "the pipe's bytes are out of order");
                        next = next.wrapping_add(1);
                    }
                    tally::PIPE_BYTES.add(read as u64);
                }
            }
        }
    });
}
