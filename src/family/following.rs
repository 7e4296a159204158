//! Lets the children follow the session of the parent.

use crate::family::folded_chunks::end_folded_chunks;
use crate::family::followed_session::FollowedSession;
use crate::family::hub_state::{HubState, States};
use crate::family::invitation::is_same_token;
use crate::family::member::{ChildStart, Ending, MemberState, Stage};
use crate::family::messages::VERSION;
use crate::family::orders::Order;
use crate::family::reports::Hello;
use crate::session::{SessionEvent, running_session};
use crate::state::PauseKind;

/// Returns whether a session with children runs. If the hub does not know it, an event is on its
/// way.
fn is_session_about_to_be_known() -> bool {
    running_session().is_some_and(|(_, session)| session.settings.has_children)
}

impl HubState {
    /// Lets the children follow a change of the session.
    pub(super) fn follow(&mut self, event: SessionEvent, states: States<'_, '_>) {
        match event {
            SessionEvent::Started(settings) => {
                let session = FollowedSession {
                    settings,
                    is_paused: false,
                    is_sampling_paused: false,
                };
                for state in states {
                    if let Stage::Child { process, .. } = state.stage {
                        // A child that has just joined keeps its recording.
                        let is_new = std::mem::take(&mut state.waits_for_session);
                        if session.selects(process) {
                            let of_child = session.of_child();
                            if !is_new {
                                state.crash_file = None;
                            }
                            state.start = ChildStart::Asked(state.order(match is_new {
                                true => Order::EnsureStarted(of_child),
                                false => Order::Start(of_child),
                            }));
                        } else {
                            state.order(state.order_to_end());
                            state.start = ChildStart::NotAsked;
                            state.crash_file = None;
                        }
                    }
                }
                self.ended.clear();
                self.session = Some(session);
                self.ledger.clear();
                self.folds_chunks = false;
                end_folded_chunks();
                self.rescues.clear();
            }
            SessionEvent::Stopped => {
                self.session = None;
                self.balances_at = None;
                self.folds_chunks = false;
                end_folded_chunks();
                for state in states {
                    let is_new = std::mem::take(&mut state.waits_for_session);
                    if state.takes_part() || is_new {
                        state.order(state.order_to_end());
                        state.start = ChildStart::NotAsked;
                        state.crash_file = None;
                    }
                }
            }
            SessionEvent::Paused(kind, pauses) => {
                if let Some(session) = &mut self.session {
                    match kind {
                        PauseKind::All => session.is_paused = pauses,
                        PauseKind::Sampling => session.is_sampling_paused = pauses,
                    }
                }
                order_all(
                    states,
                    &match (kind, pauses) {
                        (PauseKind::All, true) => Order::Pause,
                        (PauseKind::All, false) => Order::Resume,
                        (PauseKind::Sampling, true) => Order::PauseSampling,
                        (PauseKind::Sampling, false) => Order::ResumeSampling,
                    },
                );
            }
            SessionEvent::PagesCleared => order_all(states, &Order::ClearPages),
        }
    }

    /// Accepts a child, and lets it follow the session.
    pub(super) fn welcome(&mut self, state: &mut MemberState, hello: Hello) -> Result<(), Ending> {
        if !is_same_token(&hello.token, &self.token) {
            return Err("a connection was refused: the process does not know the family's token");
        }
        if hello.version != VERSION {
            return Err("a connection was refused: the process has another version of gekkota");
        }
        let process = hello.process;
        state.stage = Stage::Child {
            process,
            name: hello.name,
        };
        state.order(Order::Welcome);
        // Whether it takes part may be decided by an event that the hub has not handled yet.
        state.log("a child process has joined");
        match &self.session {
            Some(session) if session.selects(process) => {
                let order = Order::EnsureStarted(session.of_child());
                state.start = ChildStart::Asked(state.order(order));
                if session.is_paused {
                    state.order(Order::Pause);
                }
                if session.is_sampling_paused {
                    state.order(Order::PauseSampling);
                }
            }
            None if is_session_about_to_be_known() => state.waits_for_session = true,
            _ => {
                state.order(state.order_to_end());
            }
        }
        Ok(())
    }
}

/// Gives an order to each child that takes part in the session.
fn order_all(states: States<'_, '_>, order: &Order) {
    for state in states.filter(|state| state.takes_part()) {
        state.order(order.clone());
    }
}
