//! How long no request has been running.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// Counts the requests that are running.
#[derive(Debug)]
pub(crate) struct Activity {
    running: watch::Sender<usize>,
}

/// Counts as one running request until it is dropped.
pub(crate) struct RunningRequest<'activity>(&'activity Activity);

impl Activity {
    pub(crate) fn new() -> Self {
        Self {
            running: watch::Sender::new(0),
        }
    }

    pub(crate) fn begin(&self) -> RunningRequest<'_> {
        self.running.send_modify(|count| *count += 1);
        RunningRequest(self)
    }

    /// Returns once no request has begun, run or ended for so long.
    pub(crate) async fn wait_until_idle_for(&self, limit: Duration) {
        let mut running = self.running.subscribe();
        while timeout(limit, running.changed()).await.is_ok() || *running.borrow() > 0 {}
    }
}

impl Drop for RunningRequest<'_> {
    fn drop(&mut self) {
        self.0.running.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    // The clock of these tests is a simulated one, which jumps to the next timeout.
    #[tokio::test(start_paused = true)]
    async fn idle_time_begins_when_the_last_request_ends() {
        let (activity, start) = (Activity::new(), Instant::now());
        let requests = async {
            sleep(LIMIT / 2).await;
            let long = activity.begin();
            let short = activity.begin();
            sleep(LIMIT * 3).await;
            drop(short);
            sleep(LIMIT * 3).await;
            drop(long);
            Instant::now()
        };
        let (ended, ()) = tokio::join!(requests, activity.wait_until_idle_for(LIMIT));
        assert_eq!(ended - start, LIMIT / 2 + LIMIT * 6);
        assert_eq!(Instant::now() - ended, LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn server_without_requests_is_idle_after_the_limit() {
        let start = Instant::now();
        Activity::new().wait_until_idle_for(LIMIT).await;
        assert_eq!(Instant::now() - start, LIMIT);
    }
}
