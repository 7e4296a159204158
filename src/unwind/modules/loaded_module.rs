//! A module of the session, and the comparison of two modules.

use std::sync::Arc;

use crate::platform::ModuleImage;

/// A module of the session.
#[derive(Clone, Debug)]
pub(crate) struct LoadedModule {
    pub(crate) image: Arc<ModuleImage>,
    /// Whether the module was unloaded, so that its addresses may belong to other code now.
    pub(crate) unloaded: bool,
}

/// Returns whether both are the same file at the same address.
pub(crate) fn is_same_module(one: &ModuleImage, other: &ModuleImage) -> bool {
    one.range == other.range && one.path == other.path && one.build_id == other.build_id
}
