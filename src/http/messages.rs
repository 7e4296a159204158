//! What the threads of the server tell each other.

use crate::http::answer::HttpAnswer;
use crate::http::request::Asked;

/// What other threads tell the server.
#[derive(Debug)]
pub(super) enum Command {
    /// An answer is ready.
    Answered {
        id: u64,
        answer: HttpAnswer,
    },
    End,
}

/// What the asker does next.
#[derive(Debug)]
pub(super) enum Work {
    Ask {
        id: u64,
        asked: Asked,
    },
    /// The client has left.
    Leave(u64),
    /// An answer may be ready.
    Wake(u64),
    /// The server has ended; for which reason, if nothing has asked it to.
    End(Option<&'static str>),
}
