//! The two threads that send: the *sender* has the queue, and decides when the oldest profile is
//! sent. The *connector* connects to the server and waits for its answers.

use std::io;
use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::platform::{Receiver, Sender as ChannelSender, random_bytes};
use crate::pushing::exchange::{Answer, Exchange, Transport};
use crate::pushing::queue::{Item, Queue};
use crate::pushing::target::Target;
use crate::types::PushCounts;

/// Maximum length of the reason in a notice.
const MAX_REASON_CHARS: usize = 300;
/// Maximum time until the connector has given up.
const MAX_UNTIL_GIVEN_UP: Duration = Duration::from_millis(100);

/// What the sender does for the oldest profile.
#[derive(Clone, Copy)]
pub(super) enum Stage {
    /// No profile waits.
    Idle,
    /// The connector has it. Its body has so many bytes.
    Sending(u64),
    /// The next attempt begins then.
    Waiting(Instant),
}

pub(super) struct Sender {
    pub(super) target: Target,
    pub(super) jobs: Receiver<Job>,
    /// For the connector.
    pub(super) items: ChannelSender<Item>,
    pub(super) queue: Queue,
    pub(super) progress: Arc<Progress>,
    pub(super) stage: Stage,
    pub(super) back_off: BackOff,
    /// The sender ends then.
    pub(super) until: Option<Instant>,
    /// Whether a notice has said that the server cannot be reached, since it has last answered.
    pub(super) is_away_told: bool,
    /// The status of the last refusal that a notice has reported since the last accepted profile.
    pub(super) refusal_told: Option<u16>,
    /// Whether a notice has said that a collector has rejected a part of a request.
    #[cfg(feature = "otlp-unstable")]
    pub(super) is_rejection_told: bool,
    /// For the cutter, which prints them. Dropped last: it tells that this thread has ended.
    pub(super) notices: ChannelSender<String>,
}

impl Sender {
    /// Runs until a job ends it.
    pub(super) fn run(mut self) {
        loop {
            let now = Instant::now();
            self.begin_if_idle(now);
            self.progress.waiting.set(self.queue.len() as u64);
            let is_idle = matches!(self.stage, Stage::Idle);
            if self.until.is_some_and(|until| is_idle || until <= now) {
                break;
            }
            let attempt = match self.stage {
                Stage::Waiting(until) => Some(until),
                Stage::Idle | Stage::Sending(_) => None,
            };
            let job = match attempt.into_iter().chain(self.until).min() {
                Some(until) => {
                    let rest = until.saturating_duration_since(now);
                    self.jobs.receive_within(rest)
                }
                None => self.jobs.receive(),
            };
            if let Some(job) = job {
                self.handle(job, Instant::now());
            }
        }
        self.progress.is_over.store(true, Ordering::Release);
        while matches!(self.stage, Stage::Sending(_))
            && let Some(job) = self.jobs.receive_within(MAX_UNTIL_GIVEN_UP)
        {
            match job {
                // The server has this profile, although the whole answer has not arrived.
                Job::Answered(Ok(answer)) => self.handle_answer(answer, Instant::now()),
                Job::Answered(Err(_)) => self.stage = Stage::Idle,
                Job::Send(_) | Job::End(_) => {}
            }
        }
        self.progress.dropped.add(self.queue.in_memory());
        let left = self.queue.len() as u64 - self.queue.in_memory();
        self.progress.waiting.set(left);
    }

    fn handle(&mut self, job: Job, now: Instant) {
        match job {
            Job::Send(item) => {
                self.progress.handed_over.subtract(item.bytes());
                let is_sending = matches!(self.stage, Stage::Sending(_));
                let dropped = self.queue.push(item, is_sending);
                self.progress.dropped.add(dropped);
                if let Some(notice) = self.queue.take_notice() {
                    self.notify(notice);
                }
            }
            Job::Answered(Ok(answer)) => self.handle_answer(answer, now),
            Job::Answered(Err(error)) => self.fail(&error.to_string(), None, now),
            Job::End(until) => {
                self.until = Some(until);
                // One more attempt.
                if matches!(self.stage, Stage::Waiting(_)) {
                    self.stage = Stage::Waiting(now);
                }
            }
        }
    }

    /// Begins to send the oldest profile, if its time has come.
    fn begin_if_idle(&mut self, now: Instant) {
        match self.stage {
            Stage::Idle => {}
            Stage::Waiting(until) if until <= now => {}
            _ => return,
        }
        match self.queue.first() {
            Ok((first, dropped)) => {
                self.progress.dropped.add(dropped);
                self.stage = Stage::Idle;
                if let Some(item) = first {
                    self.stage = Stage::Sending(item.body.len() as u64);
                    self.items.send(item);
                }
            }
            Err(error) => {
                let reason = format!("\"{error}\" from the folder of the queue");
                self.fail(&reason, None, now);
            }
        }
    }

    fn handle_answer(&mut self, answer: Answer, now: Instant) {
        let status = answer.status;
        match status {
            200..=299 => {
                if let Stage::Sending(bytes) = self.stage {
                    self.progress.sent_bytes.add(bytes);
                }
                self.queue.remove_first();
                self.progress.sent.add(1);
                self.back_off.reset();
                self.refusal_told = None;
                #[cfg(feature = "otlp-unstable")]
                self.count_rejected(&answer.body);
                if std::mem::take(&mut self.is_away_told) {
                    self.notify(format!("profiles are pushed to {} again", self.server()));
                }
                self.stage = Stage::Idle;
            }
            408 | 429 | 500..=599 => {
                self.fail(&format!("the status {status}"), answer.retry_after, now);
            }
            _ => {
                self.queue.remove_first();
                self.progress.refused.add(1);
                self.is_away_told = false;
                if self.refusal_told.replace(status) != Some(status) {
                    self.notify(format!(
                        "cannot push profiles to {}: got the status {status}, expected 200; such profiles \
                         are dropped",
                        self.server()
                    ));
                }
                self.stage = Stage::Idle;
            }
        }
    }

    /// Counts what a collector has rejected of a request that it has accepted.
    #[cfg(feature = "otlp-unstable")]
    fn count_rejected(&mut self, body: &[u8]) {
        let Some(rejection) = self.target.rejection(body) else {
            return;
        };
        self.progress.rejected.add(rejection.profiles);
        if !std::mem::replace(&mut self.is_rejection_told, true) {
            self.notify(format!(
                "the collector {} has rejected {} profiles of a request: {}",
                self.server(),
                rejection.profiles,
                rejection.reason
            ));
        }
    }

    /// Waits for the next attempt.
    fn fail(&mut self, reason: &str, asked: Option<Duration>, now: Instant) {
        self.progress.retried.add(1);
        if !std::mem::replace(&mut self.is_away_told, true) {
            // The server has a say in what TLS refuses.
            let reason: String = reason.chars().take(MAX_REASON_CHARS).collect();
            self.notify(format!(
                "cannot push profiles to {}: got {reason}, expected an answer; they wait",
                self.server()
            ));
        }
        // While it waits, it may be dropped for later ones.
        self.stage = Stage::Waiting(now + self.back_off.next(asked));
        // A sender that is to end ends after its last attempt.
        if self.until.is_some() {
            self.until = Some(now);
        }
    }

    /// Lets the cutter print a notice: the standard streams of this thread lead nowhere.
    fn notify(&self, notice: String) {
        self.notices.send(notice);
    }

    fn server(&self) -> String {
        self.target.address.server()
    }
}

/// Tells the sender to end when it is dropped. After a panic, no answer would arrive.
struct EndOfConnector<'a>(&'a ChannelSender<Job>);

impl Drop for EndOfConnector<'_> {
    fn drop(&mut self) {
        self.0.send(Job::End(Instant::now()));
    }
}

pub(super) struct Connector {
    pub(super) target: Target,
    pub(super) transport: Transport,
    pub(super) progress: Arc<Progress>,
}

impl Connector {
    /// Sends the profiles that it gets, and reports each answer, until the sender has ended.
    pub(super) fn run(mut self, items: &Receiver<Item>, jobs: &ChannelSender<Job>) {
        let _end = EndOfConnector(jobs);
        while let Some(item) = items.receive() {
            jobs.send(Job::Answered(self.send(&item)));
        }
    }

    /// Sends a profile to the first address of the server that can be reached.
    fn send(&mut self, item: &Item) -> io::Result<Answer> {
        self.transport.renew()?;
        let server = &self.target.address;
        // An address stays itself.
        let addresses = (&*server.host, server.port).to_socket_addrs()?;
        let request = self.target.request(item);
        let reads_body = self.target.reads_answers();
        // What TLS refuses says more than that another address does not answer.
        let (mut refused, mut failed) = (None, None);
        for address in addresses {
            let now = Instant::now();
            match Exchange::begin(&self.transport, address, &request, reads_body, now) {
                Ok(mut exchange) => match exchange.finish(&self.progress.is_over) {
                    Err(error) if exchange.is_connecting() => {
                        match self.transport.note_failure(&error) {
                            true => refused = Some(error),
                            false => failed = Some(error),
                        }
                    }
                    answered => return answered,
                },
                Err(error) => failed = Some(error),
            }
        }
        let error = refused.or(failed);
        Err(error.unwrap_or_else(|| io::Error::other("no address")))
    }
}

/// What other threads tell the sender.
pub(super) enum Job {
    Send(Item),
    /// What has become of the profile that the connector has.
    Answered(io::Result<Answer>),
    /// Send what can be sent until this time, and end.
    End(Instant),
}

/// The counts of a pusher.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) sent: Count,
    pub(super) sent_bytes: Count,
    pub(super) retried: Count,
    pub(super) dropped: Count,
    pub(super) refused: Count,
    pub(super) rejected: Count,
    pub(super) incomplete: Count,
    pub(super) waiting: Count,
    /// Size of the profiles that the sender has not put into the queue yet, in bytes.
    pub(super) handed_over: Count,
    /// Whether no further window may be cut.
    pub(super) has_ended: AtomicBool,
    /// Whether the connector may wait for the server no longer.
    pub(super) is_over: AtomicBool,
}

#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn set(&self, number: u64) {
        self.0.store(number, Ordering::Relaxed);
    }

    pub(super) fn subtract(&self, less: u64) {
        self.0.fetch_sub(less, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Progress {
    pub(super) fn counts(&self) -> PushCounts {
        PushCounts {
            sent: self.sent.get(),
            sent_bytes: self.sent_bytes.get(),
            retried: self.retried.get(),
            dropped: self.dropped.get(),
            refused: self.refused.get(),
            rejected: self.rejected.get(),
            incomplete: self.incomplete.get(),
            waiting: self.waiting.get(),
        }
    }
}

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// Doubles the time with each failure, and adds up to a quarter at random, so that the processes of
/// a fleet do not all come back at the same moment.
#[derive(Default, Debug)]
pub(super) struct BackOff {
    failures: u32,
}

impl BackOff {
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// Returns the time to wait after one more failure. `asked` is the time that the server has asked
    /// for.
    pub(super) fn next(&mut self, asked: Option<Duration>) -> Duration {
        let doubled = FIRST.saturating_mul(1 << self.failures.min(6));
        self.failures = self.failures.saturating_add(1);
        let wait = doubled
            .min(LONGEST)
            .max(asked.unwrap_or_default().min(LONGEST));
        // Without a part at random before the kernel has gathered randomness.
        let random = random_bytes().map_or(0, u16::from_ne_bytes);
        wait + (wait / 4).mul_f64(f64::from(random) / 65536.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_doubles_to_a_minute_with_a_random_part() {
        let mut back_off = BackOff::default();
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60, 60] {
            let least = Duration::from_secs(seconds);
            let wait = back_off.next(None);
            assert!((least..=least * 5 / 4).contains(&wait), "{wait:?}");
        }
        back_off.reset();
        let asked = |seconds| Some(Duration::from_secs(seconds));
        assert!(back_off.next(asked(9)) >= Duration::from_secs(9));
        assert!(back_off.next(asked(9999)) <= Duration::from_secs(75));
        let waits: Vec<_> = (0..8).map(|_| back_off.next(asked(60))).collect();
        assert!(waits.windows(2).any(|pair| pair[0] != pair[1]), "{waits:?}");
    }
}
