//! A future that is polled on one thread, is pending, and is polled to completion on another.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use gekkota::register_thread;

pub(crate) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Is pending once, and ready when it is polled again.
pub(crate) async fn wait() {
    let mut was_polled = false;
    std::future::poll_fn(|_| match std::mem::replace(&mut was_polled, true) {
        false => Poll::Pending,
        true => Poll::Ready(()),
    })
    .await;
}

/// Polls the task on a new thread, which then calls `something_else`. Returns the task if it is
/// pending.
pub(crate) fn poll_on(name: &'static str, mut task: Task, something_else: fn()) -> Option<Task> {
    let body = move || {
        register_thread(name);
        let answer = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let task = answer.is_pending().then_some(task);
        something_else();
        task
    };
    std::thread::spawn(body).join().expect("thread")
}
