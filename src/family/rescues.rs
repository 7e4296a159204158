//! Rescues the profiles of children that have ended without sending them: by a kill, for example.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::family::hub_state::{HubState, log_event};
use crate::family::jobs::ChildSnapshot;
use crate::family::member::{MemberState, Rescue};
use crate::family::messages::WHOLE;
use crate::platform::{channel, spawn_profiler_thread, with_signals_blocked};
use crate::session::{max_exit_profile_bytes, rescue_child};
use crate::state::ChildText;
use crate::util::SharedProgress;

const RESCUED: &str = "a child process has ended without sending its profile, which was rescued";

/// Time between two looks at the profiles that are being rescued.
const RESCUE_LOOK: Duration = Duration::from_millis(20);

impl HubState {
    /// Begins to rescue the profile of a child that has ended without sending it. A thread of its own
    /// does that: it may have to read debug information.
    pub(super) fn begin_rescue(&mut self, mut state: MemberState) {
        let (file, max_bytes) = (state.crash_file.take(), max_exit_profile_bytes());
        let (Some(file), Some(max_bytes)) = (file, max_bytes) else {
            return self.forget(state.id);
        };
        self.ledger.remove(state.id);
        let progress = SharedProgress::new();
        let (send, text) = channel();
        let body = {
            let progress = progress.clone();
            move || {
                let rescue = AssertUnwindSafe(|| rescue_child(&file, max_bytes, &progress).ok());
                send.send(catch_unwind(rescue).unwrap_or(None));
            }
        };
        if with_signals_blocked(|| spawn_profiler_thread(c"ProfilerRescue", body)).is_err() {
            return self.forget(state.id);
        }
        self.rescues.push(Rescue {
            state,
            progress,
            text,
        });
        self.rescues_at = Some(Instant::now());
    }

    /// Keeps the profiles that were rescued.
    pub(super) fn look_at_rescues(&mut self, now: Instant) {
        if self.rescues_at.is_none_or(|at| now < at) {
            return;
        }
        let mut running = Vec::new();
        for mut rescue in std::mem::take(&mut self.rescues) {
            let Some(text) = rescue.text.receive_within(Duration::ZERO) else {
                let done = (rescue.progress.proportion() * f64::from(WHOLE)) as u32;
                for job in &mut self.jobs {
                    job.note_progress(rescue.state.id, done, rescue.progress.last_location());
                }
                running.push(rescue);
                continue;
            };
            match text {
                Some(text) => {
                    log_event(RESCUED);
                    let text = Some(ChildText::File(text));
                    self.keep_exit(&mut rescue.state, text, ChildSnapshot::Rescued);
                }
                None => log_event("a child process has ended without sending its profile"),
            }
            self.forget(rescue.state.id);
        }
        self.rescues_at = (!running.is_empty()).then(|| now + RESCUE_LOOK);
        self.rescues = running;
    }
}
