//! Receives the profiles of children.

use crate::family::hub_state::{HubState, OUT_OF_ORDER, take_answered};
use crate::family::jobs::ChildSnapshot;
use crate::family::member::{Arriving, Ending, MemberState};
use crate::family::orders::Order;
use crate::family::readers::Reading;
use crate::family::reports::Report;
use crate::platform::SpoolFile;
use crate::session::{keep_child_profile, max_exit_profile_bytes};
use crate::state::ChildProfile;
use crate::types::TimeStamp;

/// Maximum size of a profile of a running child, in bytes: the viewer could not open a longer one.
const MAX_PROFILE_BYTES: u64 = 1 << 30;

impl HubState {
    /// Receives a profile that is being gathered.
    pub(super) fn receive_profile(
        &mut self,
        state: &mut MemberState,
        report: Report<'_>,
    ) -> Result<(), Ending> {
        const NO_SPACE: &str = "there is no space for its profile";
        match report {
            Report::ProfileBegins { id } => {
                take_answered(state, id)?;
                let is_wanted = self.jobs.iter().any(|job| job.id == id);
                let arriving = match is_wanted.then(SpoolFile::create) {
                    Some(Ok(file)) => Arriving::Spooled(file),
                    Some(Err(_)) => {
                        self.leave_out(state.id, id, NO_SPACE);
                        Arriving::Dropped
                    }
                    None => Arriving::Dropped,
                };
                state.profiles.push((id, arriving));
            }
            Report::ProfileData { id, part } => {
                let known = state.profiles.iter_mut().find(|(known, _)| *known == id);
                let (_, arriving) = known.ok_or(OUT_OF_ORDER)?;
                if let Arriving::Spooled(file) = arriving {
                    let fits = file.bytes() + part.len() as u64 <= MAX_PROFILE_BYTES;
                    if !fits || file.append(part).is_err() {
                        *arriving = Arriving::Dropped;
                        self.leave_out(state.id, id, NO_SPACE);
                        state.order_with(id, Order::Cancel);
                        return Ok(());
                    }
                }
                for job in self.jobs.iter_mut().filter(|job| job.id == id) {
                    job.note_part(state.id);
                }
            }
            Report::ProfileEnds { id } => {
                let arriving = state.take_profile(id).ok_or(OUT_OF_ORDER)?;
                if let Arriving::Spooled(file) = arriving {
                    match file.into_mapping() {
                        Ok(text) => {
                            if let Some(job) = self.jobs.iter_mut().find(|job| job.id == id) {
                                job.deliver_text(state.id, text);
                            }
                        }
                        Err(_) => self.leave_out(state.id, id, "its profile is empty"),
                    }
                }
            }
            Report::ProfileFailed { id, reason } => {
                if state.take_profile(id).is_none() {
                    take_answered(state, id)?;
                }
                self.leave_out(state.id, id, &reason);
            }
            _ => return Err(OUT_OF_ORDER),
        }
        self.remove_finished_jobs();
        Ok(())
    }

    fn leave_out(&mut self, member: u64, id: u64, reason: &str) {
        if let Some(job) = self.jobs.iter_mut().find(|job| job.id == id) {
            job.leave_out(member, reason);
        }
    }

    /// Receives the last profile of a child. It takes the place of a profile that is being gathered
    /// from this child, too.
    pub(super) fn receive_exit(
        &mut self,
        state: &mut MemberState,
        report: Report<'_>,
    ) -> Result<(), Ending> {
        match report {
            Report::ExitBegins => {
                // The child gives up the other profiles. Parts of them may still arrive.
                for (_, arriving) in &mut state.profiles {
                    *arriving = Arriving::Dropped;
                }
                state.exit = match max_exit_profile_bytes().map(|_| SpoolFile::create()) {
                    Some(Ok(file)) => Arriving::Spooled(file),
                    Some(Err(_)) => {
                        state.log("cannot keep the profile of a child process: there is no space");
                        Arriving::Dropped
                    }
                    None => Arriving::Dropped,
                };
            }
            Report::ExitData(part) => match &mut state.exit {
                Arriving::None => return Err(OUT_OF_ORDER),
                Arriving::Dropped => {}
                Arriving::Spooled(file) => {
                    let max_bytes = max_exit_profile_bytes().unwrap_or(0);
                    let fits = file.bytes() + part.len() as u64 <= max_bytes;
                    if !fits || file.append(part).is_err() {
                        state.exit = Arriving::Dropped;
                        state.log("cannot keep the profile of a child process: it is too long");
                    }
                    for job in &mut self.jobs {
                        job.note_part(state.id);
                    }
                }
            },
            Report::ExitEnds if state.reading.is_pending() => return Err(OUT_OF_ORDER),
            Report::ExitEnds => match std::mem::replace(&mut state.exit, Arriving::None) {
                Arriving::None => return Err(OUT_OF_ORDER),
                Arriving::Dropped => {}
                Arriving::Spooled(file) => {
                    state.reading = match file.into_mapping() {
                        Ok(text) => Reading::Waiting(text),
                        Err(_) => Reading::Done(None),
                    };
                    self.look_at_reading(state);
                }
            },
            Report::ExitFailed { .. } => {
                state.exit = Arriving::None;
                state.log("a child process could not write its last profile");
            }
            _ => return Err(OUT_OF_ORDER),
        }
        Ok(())
    }

    /// Looks whether the last profile of a child was read, and keeps it then. Returns whether it is
    /// still being read.
    pub(super) fn look_at_reading(&mut self, state: &mut MemberState) -> bool {
        let reading = std::mem::replace(&mut state.reading, Reading::None);
        match self.readers.look(reading) {
            Reading::None => false,
            Reading::Done(profile) => {
                self.keep_exit(state, profile, ChildSnapshot::Exited);
                false
            }
            pending => {
                state.reading = pending;
                for job in &mut self.jobs {
                    job.note_part(state.id);
                }
                true
            }
        }
    }

    /// Keeps the last profile of a child in the session, and gives it to the jobs that want one of
    /// the child.
    pub(super) fn keep_exit(
        &mut self,
        state: &mut MemberState,
        profile: Option<ChildProfile>,
        snapshot: fn(ChildProfile) -> ChildSnapshot,
    ) {
        let Some(profile) = profile else {
            return state.log("cannot keep the profile of a child process: it cannot be read");
        };
        // Profiles of this process that were taken before do not have it.
        let kept_at = keep_child_profile(profile.clone()).unwrap_or_else(|_| {
            state.log("cannot keep the profile of a child process: it is too long");
            TimeStamp(u64::MAX)
        });
        state.last_profile = Some((kept_at, profile.clone()));
        let snapshot = snapshot(profile);
        for child in self
            .freezes
            .iter_mut()
            .flat_map(|freeze| &mut freeze.children)
        {
            if child.member == state.id {
                child.snapshot = snapshot.clone();
            }
        }
        for job in &mut self.jobs {
            job.set_snapshot(state.id, &snapshot);
        }
        self.remove_finished_jobs();
    }
}
