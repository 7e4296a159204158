//! A future whose polls run inside a closure.
//!
//! **Contract** (cited below):
//! - *pinned field*: the inner future is structurally pinned. Nothing moves it out, the wrapper has
//!   no `Drop`, and the wrapper is `Unpin` only if the inner future is.

use std::pin::Pin;
use std::task::{Context, Poll};

/// A future together with the closure that polls it.
#[derive(Debug)]
#[must_use = "futures do nothing unless they are polled"]
pub(crate) struct PolledWith<F, P> {
    future: F,
    poll: P,
}

impl<F: Future, P: FnMut(Pin<&mut F>, &mut Context<'_>) -> Poll<F::Output> + Unpin>
    PolledWith<F, P>
{
    /// Wraps `future`. The result is no larger than the future and the closure together.
    pub(crate) const fn new(future: F, poll: P) -> Self {
        Self { future, poll }
    }
}

impl<F, P> Future for PolledWith<F, P>
where
    F: Future,
    P: FnMut(Pin<&mut F>, &mut Context<'_>) -> Poll<F::Output> + Unpin,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: *pinned field*: the future is not moved, and the closure is `Unpin`.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: *pinned field*.
        let future = unsafe { Pin::new_unchecked(&mut this.future) };
        (this.poll)(future, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polled_with_calls_closure_at_each_poll_and_stores_future_once() {
        let large = [7u8; 1024];
        let inner = async move {
            let mut polled = false;
            std::future::poll_fn(|_| {
                if std::mem::replace(&mut polled, true) {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
            .await;
            large[3]
        };
        let inner_bytes = size_of_val(&inner);
        let mut polls = 0;
        let counted = &mut polls;
        let around = PolledWith::new(
            inner,
            move |future: Pin<&mut _>, context: &mut Context<'_>| {
                *counted += 1;
                Future::poll(future, context)
            },
        );
        assert!(size_of_val(&around) <= inner_bytes + 16);
        let mut around = std::pin::pin!(around);
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert_eq!(around.as_mut().poll(&mut context), Poll::Pending);
        assert_eq!(around.as_mut().poll(&mut context), Poll::Ready(7));
        assert_eq!(polls, 2);
    }
}
