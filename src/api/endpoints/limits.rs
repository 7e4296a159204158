//! What a client may ask for.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::api::endpoints::answer::EndpointError;

/// Limits of what clients may ask for.
///
/// A client costs the program the samples that it asks for, and memory while its profile is
/// written. So the longest time, the highest rate and the number of clients at the same time are
/// limited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct EndpointLimits {
    /// Longest time that a client may ask for. Default: 5 minutes.
    pub max_duration: Duration,
    /// Highest rate that a client may ask for, in samples a second of each thread. Default: 1,000.
    pub max_hz: u32,
    /// Maximum number of clients at the same time. Default: 32.
    pub max_clients: usize,
}

impl Default for EndpointLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl EndpointLimits {
    const DEFAULT: Self = Self {
        max_duration: Duration::from_secs(300),
        max_hz: 1000,
        max_clients: 32,
    };

    /// Sets the longest time that a client may ask for.
    #[must_use]
    pub fn max_duration(mut self, max_duration: Duration) -> Self {
        self.max_duration = max_duration;
        self
    }

    /// Sets the highest rate that a client may ask for, in samples a second of each thread.
    #[must_use]
    pub fn max_hz(mut self, max_hz: u32) -> Self {
        self.max_hz = max_hz;
        self
    }

    /// Sets the maximum number of clients at the same time.
    #[must_use]
    pub fn max_clients(mut self, max_clients: usize) -> Self {
        self.max_clients = max_clients;
        self
    }

    pub(super) fn current() -> Self {
        Self {
            max_duration: Duration::from_nanos(MAX_DURATION_NS.load(Ordering::Relaxed)),
            max_hz: MAX_HZ.load(Ordering::Relaxed),
            max_clients: MAX_CLIENTS.load(Ordering::Relaxed),
        }
    }
}

// Atomics, because another thread of the parent may hold a lock during a fork.
static MAX_DURATION_NS: AtomicU64 =
    AtomicU64::new(EndpointLimits::DEFAULT.max_duration.as_nanos() as u64);
static MAX_HZ: AtomicU32 = AtomicU32::new(EndpointLimits::DEFAULT.max_hz);
static MAX_CLIENTS: AtomicUsize = AtomicUsize::new(EndpointLimits::DEFAULT.max_clients);

/// Sets the limits for all clients from now on. May be called from any thread.
pub fn set_endpoint_limits(limits: EndpointLimits) {
    let max_ns = u64::try_from(limits.max_duration.as_nanos()).unwrap_or(u64::MAX);
    MAX_DURATION_NS.store(max_ns, Ordering::Relaxed);
    MAX_HZ.store(limits.max_hz, Ordering::Relaxed);
    MAX_CLIENTS.store(limits.max_clients, Ordering::Relaxed);
}

/// The process, and the number of its clients in the lower half. The child of a fork has none of
/// its parent's clients.
static CLIENTS: AtomicU64 = AtomicU64::new(0);

/// A client's place among the clients that are answered at the same time.
#[derive(Debug)]
pub(super) struct Place {
    process: u32,
}

impl Place {
    /// Takes a place.
    ///
    /// # Errors
    /// [`EndpointError::Busy`] if all are taken.
    pub(super) fn take() -> Result<Self, EndpointError> {
        let max_clients = EndpointLimits::current().max_clients;
        let process = std::process::id();
        let none = u64::from(process) << 32;
        let taken = CLIENTS.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |clients| {
            let clients = u32::try_from(clients.saturating_sub(none)).unwrap_or(0);
            ((clients as usize) < max_clients).then_some(none | u64::from(clients + 1))
        });
        match taken {
            Ok(_) => Ok(Self { process }),
            Err(_) => Err(EndpointError::Busy { max_clients }),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let none = u64::from(self.process) << 32;
        let _ = CLIENTS.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |clients| {
            (clients > none && clients - none <= u64::from(u32::MAX)).then(|| clients - 1)
        });
    }
}
