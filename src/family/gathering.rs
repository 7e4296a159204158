//! Gathers the profiles of the children for a profile of this process.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::family::hub::HubCommand;
use crate::family::jobs::GatherEvent;
use crate::family::member::next_id;
use crate::family::messages::WHOLE;
use crate::family::orders::GatherOrder;
use crate::family::parent::give_to_hub;
use crate::platform::{Receiver, channel, monotonic_now};
use crate::session::child_profile;
use crate::state::{ChildProfile, ChildText};
use crate::stream::{FrozenChildren, GatherRequest, Gathering, GatheringLog};
use crate::types::{Generation, TimeStamp};
use crate::util::{PsLock, is_any_lock_held_on_current_thread};

/// Asks all children for snapshots. Returns `None` if this process has no hub.
pub(super) fn freeze_children(
    _session: Generation,
    at: TimeStamp,
) -> Option<Arc<dyn FrozenChildren>> {
    if is_any_lock_held_on_current_thread() {
        return None;
    }
    let id = next_id();
    let is_asked = give_to_hub(HubCommand::Freeze { id, at }, &PsLock::acquire());
    is_asked.then(|| Arc::new(Snapshots { id }) as Arc<dyn FrozenChildren>)
}

/// The snapshots that the children hold.
#[derive(Debug)]
struct Snapshots {
    id: u64,
}

impl FrozenChildren for Snapshots {
    fn gather(&self, request: &GatherRequest) -> Box<dyn Gathering> {
        let (send, events) = channel();
        let proportion = Arc::new(AtomicU32::new(0));
        let command = HubCommand::Gather {
            order: GatherOrder {
                frozen: self.id,
                since: request.since,
                max_rows: request.max_rows,
                symbolicate: request.symbolicate,
                child_timeout: request.child_timeout,
                merges_alike: request.merges_alike,
                clock: request.clock,
            },
            events: send,
            proportion: Arc::clone(&proportion),
        };
        if !is_any_lock_held_on_current_thread() {
            give_to_hub(command, &PsLock::acquire());
        }
        Box::new(RunningGathering {
            events,
            proportion,
            begun: monotonic_now(),
            arrived: VecDeque::new(),
            log: Vec::new(),
        })
    }
}

impl Drop for Snapshots {
    fn drop(&mut self) {
        if !is_any_lock_held_on_current_thread() {
            give_to_hub(HubCommand::Release { id: self.id }, &PsLock::acquire());
        }
    }
}

/// A gathering, on the thread that writes the profile. The hub gives it up once this is dropped.
#[derive(Debug)]
struct RunningGathering {
    events: Receiver<GatherEvent>,
    proportion: Arc<AtomicU32>,
    begun: TimeStamp,
    /// Profiles that arrived while the thread waited for the times.
    arrived: VecDeque<GatherEvent>,
    log: Vec<(TimeStamp, String)>,
}

impl RunningGathering {
    fn note(&mut self, event: String) {
        self.log.push((monotonic_now(), event));
    }
}

impl Gathering for RunningGathering {
    fn times(&mut self) -> Option<(TimeStamp, TimeStamp)> {
        // The hub tells them within the time-out, or is gone.
        while let Some(event) = self.events.receive() {
            match event {
                GatherEvent::Times(times) => return times,
                GatherEvent::Happened(at, event) => self.log.push((at, event)),
                profile => self.arrived.push_back(profile),
            }
        }
        None
    }

    fn next_profile(&mut self) -> Option<ChildProfile> {
        loop {
            let arrived = self.arrived.pop_front();
            match arrived.or_else(|| self.events.receive())? {
                GatherEvent::Times(_) => {}
                GatherEvent::Happened(at, event) => self.log.push((at, event)),
                GatherEvent::Profile(profile) => return Some(profile),
                GatherEvent::Text(process, text) => match child_profile(ChildText::File(text)) {
                    Ok(profile) => return Some(profile),
                    Err(error) => self.note(format!("{process}: left out, because {error}")),
                },
            }
        }
    }

    fn proportion(&self) -> f32 {
        self.proportion.load(Ordering::Relaxed) as f32 / WHOLE as f32
    }

    fn take_log(&mut self) -> GatheringLog {
        while let Some(event) = self.events.receive_within(std::time::Duration::ZERO) {
            if let GatherEvent::Happened(at, event) = event {
                self.log.push((at, event));
            }
        }
        GatheringLog {
            begun: self.begun,
            ended: monotonic_now(),
            events: std::mem::take(&mut self.log),
        }
    }
}
