//! The session that clients of endpoints share.
//!
//! A client that asks for a profile uses the running session. Without one, the client starts one,
//! and later clients share it. The last client that leaves stops it. A session that the application
//! has started is never stopped here.

use std::time::Duration;

use crate::platform::monotonic_now;
use crate::session::life_cycle::start_stop::{StartOutcome, start_if_inactive, stop_generation};
use crate::session::running::{running_generation, running_session};
use crate::session::saving::snapshot::{FrozenProfile, freeze};
use crate::types::{Generation, ProfilerTime, StartError, StartParams, TimeStamp};
use crate::util::{PsCell, PsLock};

/// The clients of a session.
struct Clients {
    session: Generation,
    count: usize,
    /// Whether a client has started the session.
    is_theirs: bool,
    /// Whether the application wants the session, too.
    is_wanted: bool,
    /// Whether the last client has left a session that was only theirs. It stops, so no client can
    /// join it.
    is_left: bool,
}

static CLIENTS: PsCell<Option<Clients>> = PsCell::new(None);

/// A client of a session. Dropping it lets the client leave.
#[derive(Debug)]
pub(crate) struct SessionClient {
    pub(crate) session: Generation,
    since: TimeStamp,
}

/// Lets a client use the running session. Starts a session with these parameters if none runs.
///
/// # Errors
/// Those of `profiler_start`.
pub(crate) fn join_session(params: &StartParams) -> Result<SessionClient, StartError> {
    loop {
        let before = monotonic_now();
        let (session, is_theirs) = match running_generation() {
            Some(running) => (running, false),
            None => match start_if_inactive(params)? {
                Some(started) => (started, true),
                // Another thread has started one in the meantime.
                None => continue,
            },
        };
        if add_client(session, is_theirs) {
            // A client that has started the session gets all of it.
            let since = if is_theirs { before } else { monotonic_now() };
            return Ok(SessionClient { session, since });
        }
        // Does nothing if the client that left it has stopped it already.
        stop_generation(session);
    }
}

/// Returns the clients of a session; `None` if there has been a later session.
fn clients_of(session: Generation, lock: &mut PsLock) -> Option<&mut Clients> {
    let clients = CLIENTS.get_mut(lock);
    if clients
        .as_ref()
        .is_none_or(|clients| session.is_after(clients.session))
    {
        *clients = Some(Clients {
            session,
            count: 0,
            is_theirs: false,
            is_wanted: false,
            is_left: false,
        });
    }
    clients
        .as_mut()
        .filter(|clients| clients.session == session)
}

/// Adds a client to a session. Returns false if the last one has left it.
fn add_client(session: Generation, is_theirs: bool) -> bool {
    let mut lock = PsLock::acquire();
    let clients = clients_of(session, &mut lock).filter(|clients| !clients.is_left);
    clients.is_some_and(|clients| {
        clients.count += 1;
        clients.is_theirs |= is_theirs;
        true
    })
}

/// Starts a session for the application by `start`, which may keep the running one. Then the last
/// client that leaves does not stop it. Starts again if it stops already.
///
/// # Errors
/// Those of `start`.
pub(crate) fn start_for_application(
    start: impl Fn() -> Result<StartOutcome, StartError>,
) -> Result<StartOutcome, StartError> {
    loop {
        match start()? {
            StartOutcome::Kept(kept) if !keep_for_application(kept) => stop_generation(kept),
            outcome => return Ok(outcome),
        }
    }
}

/// Notes that the application wants this session, too. Returns false if the last client has left it.
fn keep_for_application(session: Generation) -> bool {
    let mut lock = PsLock::acquire();
    clients_of(session, &mut lock).is_none_or(|clients| {
        clients.is_wanted = true;
        !clients.is_left
    })
}

impl SessionClient {
    /// Takes a snapshot of the session, and leaves: the session need not go on while the profile is
    /// written. Returns `None` if the session has ended.
    pub(crate) fn leave_with_profile(self) -> Option<FrozenProfile> {
        freeze(Some(self.session))
    }

    /// Lets no one join the session from here on, if no one else wants it: it ends when the client
    /// leaves. Returns false if others want it.
    pub(crate) fn close_if_alone(&self) -> bool {
        let mut lock = PsLock::acquire();
        let clients = CLIENTS.get_mut(&mut lock).as_mut();
        let own = clients.filter(|clients| clients.session == self.session);
        own.is_none_or(|clients| {
            clients.is_left |= clients.count == 1 && clients.is_theirs && !clients.is_wanted;
            clients.is_left
        })
    }

    /// Returns the time at which the client joined, or just before it started the session.
    pub(crate) fn since(&self) -> ProfilerTime {
        ProfilerTime::from_monotonic_ns(self.since.0)
    }

    /// Returns whether the session still runs.
    pub(crate) fn is_running(&self) -> bool {
        running_generation() == Some(self.session)
    }

    /// Returns the interval between two samples of the session, if it still runs.
    pub(crate) fn interval(&self) -> Option<Duration> {
        let (_, session) = running_session().filter(|(running, _)| *running == self.session)?;
        Some(session.settings.interval)
    }
}

impl Drop for SessionClient {
    fn drop(&mut self) {
        let is_last = {
            let mut lock = PsLock::acquire();
            let clients = CLIENTS.get_mut(&mut lock).as_mut();
            let own = clients.filter(|clients| clients.session == self.session);
            own.is_some_and(|clients| {
                clients.count -= 1;
                let is_last = clients.count == 0;
                clients.is_left |= is_last && clients.is_theirs && !clients.is_wanted;
                is_last && clients.is_left
            })
        };
        if is_last {
            stop_generation(self.session);
        }
    }
}
