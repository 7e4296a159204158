//! What a client may ask for.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::api::endpoints::answer::EndpointError;

/// Limits of what clients may ask for.
///
/// A client costs the program the samples that it asks for, and memory while its profile is written.
/// So the longest time, the highest rate and the number of clients at the same time are limited.
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
        *LIMITS
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

static LIMITS: Mutex<EndpointLimits> = Mutex::new(EndpointLimits::DEFAULT);

/// Sets the limits for all clients from now on. May be called from any thread.
pub fn set_endpoint_limits(limits: EndpointLimits) {
    *LIMITS
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner()) = limits;
}

static CLIENTS: AtomicUsize = AtomicUsize::new(0);

/// A client's place among those that are answered at the same time.
#[derive(Debug)]
pub(super) struct Place(());

impl Place {
    /// Takes a place.
    ///
    /// # Errors
    /// [`EndpointError::Busy`] if all are taken.
    pub(super) fn take() -> Result<Self, EndpointError> {
        let max_clients = EndpointLimits::current().max_clients;
        let taken = CLIENTS.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |clients| {
            (clients < max_clients).then_some(clients + 1)
        });
        match taken {
            Ok(_) => Ok(Self(())),
            Err(_) => Err(EndpointError::Busy { max_clients }),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        CLIENTS.fetch_sub(1, Ordering::AcqRel);
    }
}
