//! Receives the profiles of children, and makes those of children that have ended without sending
//! one: a child that was killed, for example.

use std::time::Instant;

use crate::family::hub_state::{HubState, OUT_OF_ORDER, READING_LOOK, check};
use crate::family::jobs::ChildSnapshot;
use crate::family::member::{Arriving, Departed, Ending, MemberState, Reading};
use crate::family::messages::WHOLE;
use crate::family::orders::Order;
use crate::family::reports::{LAST_PROFILE, TextPart};
use crate::platform::{FileMapping, SpoolFile};
use crate::session::{child_profile, keep_child_profile, max_exit_profile_bytes, rescue_child};
use crate::state::{ChildProfile, ChildText};
use crate::types::TimeStamp;
use crate::util::SharedProgress;

/// Maximum size of a profile of a running child, in bytes: the viewer could not open a longer one.
const MAX_PROFILE_BYTES: u64 = 1 << 30;

/// What the log says of a child that has ended.
pub(super) const SENT: &str = "a child process has ended, and has sent its profile";
const RESCUED: &str = "a child process has ended without sending its profile, which was rescued";
pub(super) const NOT_SENT: &str = "a child process has ended without sending its profile";

impl HubState {
    /// Receives a step in the sending of a profile that is being gathered, or of the child's last
    /// one. That takes the place of those that are being gathered from this child, too.
    pub(super) fn receive_text(
        &mut self,
        state: &mut MemberState,
        id: u64,
        part: TextPart<'_>,
    ) -> Result<(), Ending> {
        const NO_SPACE: &str = "there is no space for its profile";
        let is_last = id == LAST_PROFILE;
        let at = state.texts.iter().position(|(known, _)| *known == id);
        let at = at.ok_or(OUT_OF_ORDER)?;
        let has_begun = !matches!(state.texts[at].1, Arriving::None);
        check(match part {
            TextPart::Begins => is_last || !has_begun,
            TextPart::Data(_) => has_begun,
            TextPart::Ends => has_begun && !(is_last && state.reading.is_pending()),
            TextPart::Failed(_) => true,
        })?;
        match part {
            TextPart::Begins => {
                if is_last {
                    // The child gives up the other profiles. Parts of them may still arrive.
                    for (_, arriving) in &mut state.texts {
                        if !matches!(arriving, Arriving::None) {
                            *arriving = Arriving::Dropped;
                        }
                    }
                }
                let is_wanted = match is_last {
                    true => max_exit_profile_bytes().is_some(),
                    false => self.jobs.iter().any(|job| job.id == id),
                };
                let file = is_wanted.then(SpoolFile::create);
                match &file {
                    Some(Err(_)) if is_last => {
                        state.log("cannot keep the profile of a child process: there is no space");
                    }
                    Some(Err(_)) => self.leave_out(state.id, id, NO_SPACE),
                    Some(Ok(_)) | None => {}
                }
                let file = file.and_then(Result::ok);
                state.texts[at].1 = file.map_or(Arriving::Dropped, Arriving::Spooled);
            }
            TextPart::Data(part) => {
                let Arriving::Spooled(file) = &mut state.texts[at].1 else {
                    return Ok(());
                };
                let max_bytes = match is_last {
                    true => max_exit_profile_bytes().unwrap_or(0),
                    false => MAX_PROFILE_BYTES,
                };
                let fits = file.bytes() + part.len() as u64 <= max_bytes;
                if !fits || file.append(part).is_err() {
                    state.texts[at].1 = Arriving::Dropped;
                    if is_last {
                        state.log("cannot keep the profile of a child process: it is too long");
                    } else {
                        self.leave_out(state.id, id, NO_SPACE);
                        state.order_with(id, Order::Cancel);
                    }
                }
                for job in &mut self.jobs {
                    if is_last || job.id == id {
                        job.note_part(state.id);
                    }
                }
            }
            TextPart::Ends => {
                if let Arriving::Spooled(file) = state.take_text(at) {
                    let text = file.into_mapping();
                    if is_last {
                        state.reading = match text {
                            Ok(text) => Reading::Waiting(Box::new(move || read_profile(text))),
                            Err(_) => Reading::Done(None),
                        };
                        self.look_at_reading(state, None);
                    } else if let Ok(text) = text {
                        if let Some(job) = self.jobs.iter_mut().find(|job| job.id == id) {
                            job.deliver_text(state.id, text);
                        }
                    } else {
                        self.leave_out(state.id, id, "its profile is empty");
                    }
                }
            }
            TextPart::Failed(reason) => {
                state.take_text(at);
                match is_last {
                    true => state.log("a child process could not write its last profile"),
                    false => self.leave_out(state.id, id, &reason),
                }
            }
        }
        self.remove_finished_jobs();
        Ok(())
    }

    fn leave_out(&mut self, member: u64, id: u64, reason: &str) {
        if let Some(job) = self.jobs.iter_mut().find(|job| job.id == id) {
            job.leave_out(member, reason);
        }
    }

    /// Reads or rescues the profile of a child that has ended, when it is its turn.
    pub(super) fn begin_departure(&mut self, mut state: MemberState) {
        self.memory.remove(state.id);
        let rescue = (!state.reading.is_pending()).then(SharedProgress::new);
        if let Some(progress) = rescue.clone() {
            let (file, peer) = (state.crash_file.take(), state.peer);
            state.reading = Reading::Waiting(Box::new(move || {
                let max_bytes = max_exit_profile_bytes()?;
                read_profile(rescue_child(&file?, peer?, max_bytes, &progress).ok()?)
            }));
        }
        self.departed.push(Departed { state, rescue });
        self.readings_at = Some(Instant::now());
    }

    /// Looks at the profiles of the children that have ended.
    pub(super) fn look_at_departed(&mut self, now: Instant) {
        if self.readings_at.is_none_or(|at| now < at) {
            return;
        }
        for mut departed in std::mem::take(&mut self.departed) {
            if self.look_at_reading(&mut departed.state, departed.rescue.as_ref()) {
                self.departed.push(departed);
                continue;
            }
            let Departed { state, rescue } = departed;
            if state.last_profile.is_some() && rescue.is_none() {
                state.log(SENT);
            }
            self.remember(&state);
            self.forget(state.id);
        }
        self.readings_at = (!self.departed.is_empty()).then(|| now + READING_LOOK);
    }

    /// Looks whether the last profile of a child was read or rescued, and keeps it then. Returns
    /// whether that still goes on. `rescue` is how far a rescue is.
    pub(super) fn look_at_reading(
        &mut self,
        state: &mut MemberState,
        rescue: Option<&SharedProgress>,
    ) -> bool {
        let readers = match rescue {
            Some(_) => &self.rescuers,
            None => &self.readers,
        };
        let reading = std::mem::replace(&mut state.reading, Reading::None);
        match (readers.look(reading), rescue) {
            (Reading::None, _) => return false,
            (Reading::Done(Some(profile)), None) => {
                self.keep_exit(state, profile, ChildSnapshot::Exited);
                return false;
            }
            (Reading::Done(Some(profile)), Some(_)) => {
                state.log(RESCUED);
                self.keep_exit(state, profile, ChildSnapshot::Rescued);
                return false;
            }
            (Reading::Done(None), None) => {
                state.log("cannot keep the profile of a child process: it cannot be read");
                return false;
            }
            (Reading::Done(None), Some(_)) => {
                state.log(NOT_SENT);
                return false;
            }
            (pending, _) => state.reading = pending,
        }
        // One that waits for its turn is making progress, too.
        let rescue = rescue.filter(|_| matches!(state.reading, Reading::Running(_)));
        for job in &mut self.jobs {
            match rescue {
                Some(progress) => {
                    let done = (progress.proportion() * f64::from(WHOLE)) as u32;
                    job.note_progress(state.id, done, progress.last_location());
                }
                None => job.note_part(state.id),
            }
        }
        true
    }

    /// Keeps the last profile of a child in the session, and gives it to the jobs that want one of
    /// the child.
    fn keep_exit(
        &mut self,
        state: &mut MemberState,
        profile: ChildProfile,
        snapshot: fn(ChildProfile) -> ChildSnapshot,
    ) {
        // Profiles of this process that were taken before do not have it.
        let kept_at = keep_child_profile(profile.clone()).unwrap_or_else(|_| {
            state.log("cannot keep the profile of a child process: it is too long");
            TimeStamp(u64::MAX)
        });
        state.last_profile = Some((kept_at, profile.clone()));
        self.set_snapshot(state.id, None, &snapshot(profile));
    }
}

/// Reads a profile that has arrived. Returns `None` for another text.
fn read_profile(text: FileMapping) -> Option<ChildProfile> {
    child_profile(ChildText::File(text)).ok()
}
