//! Polls the answers that are being prepared, on a thread that shares the application's descriptor
//! table.

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use crate::http::answer::HttpAnswer;
use crate::http::request::Asked;
use crate::platform::{Receiver, Sender};
use crate::session::notify;

/// An answer that is being prepared. If it is dropped, the client has left.
pub(crate) type Answering = Pin<Box<dyn Future<Output = HttpAnswer> + Send>>;

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
    /// Nothing more is asked; for which reason, if nothing has asked the server to end.
    End(Option<&'static str>),
}

struct WakeUp {
    id: u64,
    work: Arc<Sender<Work>>,
}

impl Wake for WakeUp {
    fn wake(self: Arc<Self>) {
        self.work.send(Work::Wake(self.id));
    }
}

/// Prepares answers until [`Work::End`] arrives.
pub(super) fn run(
    receiver: &Receiver<Work>,
    work: &Arc<Sender<Work>>,
    answers: &Sender<(u64, HttpAnswer)>,
    answer: fn(Asked) -> Answering,
) {
    let mut pending = BTreeMap::new();
    while let Some(next) = receiver.receive() {
        let id = match next {
            Work::Ask { id, asked } => {
                pending.insert(id, answer(asked));
                id
            }
            Work::Wake(id) => id,
            Work::Leave(id) => {
                pending.remove(&id);
                continue;
            }
            Work::End(reason) => {
                if let Some(reason) = reason {
                    notify(reason);
                }
                return;
            }
        };
        let Some(answering) = pending.get_mut(&id) else {
            continue;
        };
        let wake_up = WakeUp {
            id,
            work: Arc::clone(work),
        };
        let waker = Waker::from(Arc::new(wake_up));
        let poll = || answering.as_mut().poll(&mut Context::from_waker(&waker));
        let answer = match catch_unwind(AssertUnwindSafe(poll)) {
            Ok(Poll::Pending) => continue,
            Ok(Poll::Ready(answer)) => answer,
            Err(_) => HttpAnswer::of_words(500, "cannot answer: the profiler panicked"),
        };
        pending.remove(&id);
        answers.send((id, answer));
    }
}
