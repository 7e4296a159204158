//! A channel whose ends wait for each other and for nothing else.
//!
//! A thread that waits for the standard library's channel first registers the destructor of a
//! thread-local. The C library waits for the loader then, whose lock the thread at the other end
//! may hold: it may be in a library's constructor.
//!
//! The mutex is the standard library's: a thread that waits for `parking_lot`'s condition variable
//! can hang in the child of a fork (`util/lock/fork_safe.rs`). A channel belongs to one call, so no
//! code that interrupts the call can wait for the mutex.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Debug)]
struct Queue<T> {
    state: Mutex<State<T>>,
    has_changed: Condvar,
}

#[derive(Debug)]
struct State<T> {
    values: VecDeque<T>,
    /// Whether both ends exist.
    is_open: bool,
}

impl<T> Queue<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        self.lock().is_open = false;
        self.has_changed.notify_all();
    }
}

/// The end that sends.
#[derive(Debug)]
pub(crate) struct Sender<T>(Arc<Queue<T>>);

/// The end that receives.
#[derive(Debug)]
pub(crate) struct Receiver<T>(Arc<Queue<T>>);

/// Creates a channel. It is closed when either end is dropped.
pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let state = State {
        values: VecDeque::new(),
        is_open: true,
    };
    let queue = Arc::new(Queue {
        state: Mutex::new(state),
        has_changed: Condvar::new(),
    });
    (Sender(Arc::clone(&queue)), Receiver(queue))
}

impl<T> Sender<T> {
    /// Sends a value. Returns false if the receiver is gone.
    pub(crate) fn send(&self, value: T) -> bool {
        let mut state = self.0.lock();
        if state.is_open {
            state.values.push_back(value);
        }
        self.0.has_changed.notify_all();
        state.is_open
    }
}

impl<T> Receiver<T> {
    /// Waits for a value. Returns `None` if the sender is gone and has left none.
    pub(crate) fn receive(&self) -> Option<T> {
        let is_empty = |state: &mut State<T>| state.values.is_empty() && state.is_open;
        let waited = self.0.has_changed.wait_while(self.0.lock(), is_empty);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        state.values.pop_front()
    }

    /// Waits for a value like [`Self::receive`], for this time at most.
    pub(crate) fn receive_within(&self, time: Duration) -> Option<T> {
        let is_empty = |state: &mut State<T>| state.values.is_empty() && state.is_open;
        let changed = &self.0.has_changed;
        let waited = changed.wait_timeout_while(self.0.lock(), time, is_empty);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.values.pop_front()
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<T> Drop for Receiver<T> {
    /// Also drops the values that have not been received, because other threads may wait for their
    /// drop.
    fn drop(&mut self) {
        self.0.close();
        let unreceived = std::mem::take(&mut self.0.lock().values);
        drop(unreceived);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_arrive_in_order_until_an_end_is_gone() {
        let (send, receive) = channel();
        assert_eq!(receive.receive_within(Duration::ZERO), None);
        let other = std::thread::spawn(move || (1..=3).all(|number| send.send(number)));
        let received = [1, 2, 3].map(|_| receive.receive());
        assert_eq!(received, [Some(1), Some(2), Some(3)]);
        assert!(other.join().expect("no panic"));
        assert_eq!(receive.receive(), None, "the sender is gone");
        let (send, receive) = channel();
        drop(receive);
        assert!(!send.send(1), "the receiver is gone");
    }

    #[test]
    fn value_that_nobody_receives_is_dropped_with_the_receiver() {
        let (send, receive) = channel();
        let (answer, answered) = channel::<()>();
        assert!(send.send(answer));
        drop(receive);
        assert_eq!(answered.receive(), None, "the end that answers is gone");
    }
}
