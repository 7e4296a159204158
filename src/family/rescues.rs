//! The children that have ended and whose last profiles are still being read, or rescued: a child
//! that was killed, for example, has not sent one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::family::hub_state::HubState;
use crate::family::jobs::ChildSnapshot;
use crate::family::member::{MemberState, Rescue};
use crate::family::messages::WHOLE;
use crate::family::readers::read_profile;
use crate::platform::{Receiver, channel, spawn_profiler_thread, with_signals_blocked};
use crate::session::{max_exit_profile_bytes, rescue_child};
use crate::state::ChildProfile;
use crate::util::SharedProgress;

/// What the log says of a child that has ended.
pub(super) const SENT: &str = "a child process has ended, and has sent its profile";
const RESCUED: &str = "a child process has ended without sending its profile, which was rescued";

/// Time between two looks at the profiles that are being rescued.
const RESCUE_LOOK: Duration = Duration::from_millis(20);

/// Maximum number of profiles that are rescued at the same time: each may need the debug
/// information of a large program, and many children may be killed at once when memory is short.
const MAX_RESCUES: usize = 2;

impl HubState {
    /// Reads or rescues the profile of a child that has ended, when it is its turn.
    pub(super) fn begin_departure(&mut self, mut state: MemberState) {
        self.ledger.remove(state.id);
        self.has_changed_chunks = true;
        self.rescues.push(Rescue {
            file: state.crash_file.take(),
            state,
            progress: SharedProgress::new(),
            rescued: None,
        });
        self.rescues_at = Some(Instant::now());
    }

    /// Keeps the profiles that were rescued, and begins to rescue others.
    pub(super) fn look_at_rescues(&mut self, now: Instant) {
        if self.rescues_at.is_none_or(|at| now < at) {
            return;
        }
        let mut left = Vec::new();
        let mut running = 0;
        for mut rescue in std::mem::take(&mut self.rescues) {
            if rescue.state.reading.is_pending() {
                if self.look_at_reading(&mut rescue.state) {
                    left.push(rescue);
                    continue;
                }
                if rescue.state.last_profile.is_some() {
                    rescue.state.log(SENT);
                    self.remember(&rescue.state);
                }
                self.forget(rescue.state.id);
                continue;
            }
            if rescue.rescued.is_none() && running < MAX_RESCUES {
                rescue.rescued = Some(begin(&mut rescue));
            }
            let Some(rescued) = &rescue.rescued else {
                self.note_waiting(&rescue);
                left.push(rescue);
                continue;
            };
            match rescued.receive_within(Duration::ZERO) {
                None => {
                    running += 1;
                    self.note_waiting(&rescue);
                    left.push(rescue);
                    continue;
                }
                Some(Some(profile)) => {
                    rescue.state.log(RESCUED);
                    self.keep_exit(&mut rescue.state, Some(profile), ChildSnapshot::Rescued);
                    self.remember(&rescue.state);
                }
                Some(None) => {
                    let event = "a child process has ended without sending its profile";
                    rescue.state.log(event);
                }
            }
            self.forget(rescue.state.id);
        }
        self.rescues_at = (!left.is_empty()).then(|| now + RESCUE_LOOK);
        self.rescues = left;
    }

    /// Tells the jobs that wait for a rescued profile how far it is. One that waits for its turn is
    /// making progress, too.
    fn note_waiting(&mut self, rescue: &Rescue) {
        let done = (rescue.progress.proportion() * f64::from(WHOLE)) as u32;
        for job in &mut self.jobs {
            match rescue.rescued {
                Some(_) => {
                    job.note_progress(rescue.state.id, done, rescue.progress.last_location());
                }
                None => job.note_part(rescue.state.id),
            }
        }
    }
}

/// Begins to rescue a profile, on a new thread. Returns the channel of the result, which is `None`
/// if no profile can be rescued.
fn begin(rescue: &mut Rescue) -> Receiver<Option<ChildProfile>> {
    let (send, rescued) = channel();
    let (file, peer) = (rescue.file.take(), rescue.state.peer);
    let max_bytes = max_exit_profile_bytes();
    let progress = rescue.progress.clone();
    let body = move || {
        let rescue = AssertUnwindSafe(|| {
            let text = rescue_child(&file?, peer?, max_bytes?, &progress).ok()?;
            read_profile(text)
        });
        send.send(catch_unwind(rescue).unwrap_or(None));
    };
    if with_signals_blocked(|| spawn_profiler_thread(c"ProfilerRescue", body)).is_err() {
        let (send, none) = channel();
        send.send(None);
        return none;
    }
    rescued
}
