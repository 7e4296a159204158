//! Hands the last profile to the parent process, whose family this process belongs to.
//!
//! The family belongs to a layer above this one, which fills the slot.

use once_cell::race::OnceBox;

use crate::session::snapshot::FrozenProfile;

/// Sends the profile to the parent process, within a bounded time. Returns whether that has it.
pub(crate) type HandOver = fn(FrozenProfile) -> bool;

static HAND_OVER: OnceBox<HandOver> = OnceBox::new();

/// Fills the slot. Only the first call has an effect.
pub(crate) fn set_hand_over(hand_over: HandOver) {
    HAND_OVER.get_or_init(|| Box::new(hand_over));
}

/// Hands the profile to the parent process. Returns whether that has it.
pub(super) fn hand_over(profile: FrozenProfile) -> bool {
    HAND_OVER.get().is_some_and(|hand_over| hand_over(profile))
}
