//! The second sampling engine: each running thread has its own timer, which interrupts it.
//!
//! A signal from another processor costs an inter-processor interrupt. A timer costs a timer
//! interrupt, and a little on each switch to or from its thread.

use crate::capture::SlotHandle;
use crate::platform::{CpuTimer, ThreadTimer, current_process_id, thread_exists};
use crate::sampler::handler::ticket_of_timers;
use crate::state::{Session, SessionCounts};
use crate::types::{SamplingEngine, ThreadId};

/// The timer of a thread, made on first use.
#[derive(Debug, Default)]
pub(crate) enum TimerState {
    #[default]
    NotYet,
    Runs {
        #[expect(dead_code, reason = "it runs as long as it is kept")]
        timer: Timer,
    },
    /// The system refused to create one.
    Refused,
}

/// A timer, deleted on drop.
#[derive(Debug)]
#[expect(dead_code, reason = "it runs as long as it is kept")]
pub(crate) enum Timer {
    /// Interrupts the thread exactly, and costs a little on each switch of threads.
    Event(ThreadTimer),
    /// Interrupts the thread on a tick of the kernel, and costs nothing otherwise.
    OnTicks(CpuTimer),
}

impl TimerState {
    /// Makes the timer on the first call. Returns false if the system refuses.
    pub(crate) fn ensure(
        &mut self,
        thread: ThreadId,
        slot: &SlotHandle,
        session: &Session,
    ) -> bool {
        if matches!(self, Self::NotYet) {
            let settings = &session.settings;
            let interval_ns = settings.interval.as_nanos() as u64;
            let note = |number| slot.set_timer(number);
            let ticket = ticket_of_timers(slot.number(), session.generation);
            let timer = match settings.engine == SamplingEngine::BatchedTimers {
                true => CpuTimer::start(thread, interval_ns, settings.signal, ticket)
                    .map(Timer::OnTicks),
                false => {
                    ThreadTimer::start(thread, interval_ns, settings.signal, note).map(Timer::Event)
                }
            };
            *self = match timer {
                Ok(timer) => {
                    session.note_timer();
                    Self::Runs { timer }
                }
                // The thread has just ended.
                Err(_) if !thread_exists(current_process_id(), thread) => Self::Refused,
                Err(_) => {
                    SessionCounts::add(&session.counts.refused_timers, 1);
                    Self::Refused
                }
            };
        }
        self.runs()
    }

    pub(crate) fn is_refused(&self) -> bool {
        matches!(self, Self::Refused)
    }

    pub(crate) fn runs(&self) -> bool {
        matches!(self, Self::Runs { .. })
    }

    /// Ends the timer. The slot keeps the number of an event until the next session, so that a signal
    /// already on its way is still recognized.
    pub(crate) fn end(&mut self) {
        if self.runs() {
            *self = Self::NotYet;
        }
    }
}
