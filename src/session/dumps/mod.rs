//! Dumps: the last seconds of a session, written when something went wrong.

pub(crate) mod causes;
pub(crate) mod dump;
