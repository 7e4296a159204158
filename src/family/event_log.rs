//! What the family tells the log of the running session.

use std::borrow::Cow;

use crate::session::running_session;

/// Adds an event to the log of the running session.
pub(super) fn log_event(event: impl Into<Cow<'static, str>>) {
    if let Some((_, session)) = running_session() {
        session.log.add(event);
    }
}

/// Names a process.
pub(super) fn describe_process(process: i32, name: &str) -> String {
    match name.is_empty() {
        true => format!("process {process}"),
        false => format!("process {process} ({name})"),
    }
}
