//! What the layer above does for a session whose child processes take part in it.

use std::sync::Arc;

use once_cell::race::OnceBox;

use crate::stream::FrozenChildren;
use crate::types::{Generation, TimeStamp};

/// Freezes the profiles of all running children for a profile of this session that was taken at
/// this time. Returns `None` if there are none.
pub(crate) type FreezeChildren = fn(Generation, TimeStamp) -> Option<Arc<dyn FrozenChildren>>;

static FREEZE: OnceBox<FreezeChildren> = OnceBox::new();

/// Sets the function that [`freeze_children`] calls. Only the first call has an effect.
pub(crate) fn set_freeze_children(freeze: FreezeChildren) {
    FREEZE.get_or_init(|| Box::new(freeze));
}

/// Freezes the profiles of the children of this session, if any. The caller holds no lock.
pub(super) fn freeze_children(
    session: Generation,
    taken_at: TimeStamp,
) -> Option<Arc<dyn FrozenChildren>> {
    FREEZE.get().and_then(|freeze| freeze(session, taken_at))
}
