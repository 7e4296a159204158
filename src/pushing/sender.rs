//! The thread that sends profiles, one at a time, and waits for no server.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::platform::{
    Interest, Mailbox, Sender as ChannelSender, spawn_profiler_thread, wait_for_sockets,
};
use crate::pushing::back_off::BackOff;
use crate::pushing::exchange::{Answer, Exchange};
use crate::pushing::item::Item;
use crate::pushing::messages::{Job, Resolved};
use crate::pushing::progress::Progress;
use crate::pushing::queue::Queue;
use crate::pushing::target::Target;
use crate::pushing::transport::Transport;

/// Maximum length of the reason in a notice.
const MAX_REASON_CHARS: usize = 300;

/// What the sender does for the oldest profile.
enum Stage {
    /// There is none.
    Idle,
    /// A thread looks up the addresses, or reads the trusted certificates.
    Resolving,
    Sending(Exchange),
    /// The next attempt begins then.
    Waiting(Instant),
}

pub(super) struct Sender {
    target: Target,
    transport: Transport,
    mailbox: Mailbox<Job>,
    /// For threads that look up addresses.
    jobs: Arc<ChannelSender<Job>>,
    queue: Queue,
    progress: Arc<Progress>,
    stage: Stage,
    /// The oldest profile, while it is being sent.
    current: Option<Item>,
    /// The addresses that were looked up and not tried for the current attempt.
    addresses: VecDeque<SocketAddr>,
    /// What TLS has refused in the current attempt. It says more than that another address does not
    /// answer.
    refused: Option<String>,
    back_off: BackOff,
    /// The sender ends then.
    until: Option<Instant>,
    /// Whether a notice has said that the server cannot be reached, since it has last answered.
    is_away_told: bool,
    /// The status of the last refusal that a notice has told, since the last profile that was accepted.
    refusal_told: Option<u16>,
    /// Whether a notice has said that a collector has rejected a part of a request.
    #[cfg(feature = "otlp-unstable")]
    is_rejection_told: bool,
    /// For the cutter, which prints them. Dropped last: it tells that this thread has ended.
    notices: ChannelSender<String>,
}

impl Sender {
    pub(super) fn new(
        (target, transport): (Target, Transport),
        mailbox: Mailbox<Job>,
        jobs: Arc<ChannelSender<Job>>,
        queue: Queue,
        progress: Arc<Progress>,
        notices: ChannelSender<String>,
        seed: u64,
    ) -> Self {
        Self {
            target,
            transport,
            mailbox,
            jobs,
            queue,
            progress,
            stage: Stage::Idle,
            current: None,
            addresses: VecDeque::new(),
            refused: None,
            back_off: BackOff::new(seed),
            until: None,
            is_away_told: false,
            refusal_told: None,
            #[cfg(feature = "otlp-unstable")]
            is_rejection_told: false,
            notices,
        }
    }

    /// Runs until a job ends it, or until the application has closed its descriptors.
    pub(super) fn run(mut self) {
        loop {
            let now = Instant::now();
            self.begin_if_idle(now);
            self.progress.waiting.set(self.queue.len() as u64);
            if self.is_done(now) {
                break;
            }
            let Ok(ready) = self.wait(now) else {
                let notice = "profiles are not pushed any more: the program closed the connections";
                self.notify(notice.to_owned());
                break;
            };
            let now = Instant::now();
            let mut ready = ready.into_iter();
            let (has_mail, is_ready) = (ready.next(), ready.next());
            self.go_on(is_ready.unwrap_or(false), now);
            if has_mail.unwrap_or(false) && !self.handle_mail(now) {
                break;
            }
        }
        // The server has this profile.
        if let Stage::Sending(exchange) = &mut self.stage
            && let Some(answer) = exchange.take_without_body()
        {
            self.handle_answer(answer, Instant::now());
        }
        self.progress.dropped.add(self.queue.in_memory());
        let left = self.queue.len() as u64 - self.queue.in_memory();
        self.progress.waiting.set(left);
    }

    fn is_done(&self, now: Instant) -> bool {
        let is_idle = matches!(self.stage, Stage::Idle);
        self.until.is_some_and(|until| is_idle || until <= now)
    }

    fn wait(&self, now: Instant) -> io::Result<Vec<bool>> {
        let mut interests = vec![Interest::Bytes(self.mailbox.socket())];
        let stage_until = match &self.stage {
            Stage::Idle | Stage::Resolving => None,
            Stage::Sending(exchange) => {
                interests.push(exchange.interest());
                Some(exchange.until())
            }
            Stage::Waiting(until) => Some(*until),
        };
        let until = stage_until.into_iter().chain(self.until).min();
        wait_for_sockets(
            &interests,
            until.map(|until| until.saturating_duration_since(now)),
        )
    }

    /// Returns false if the sender is to end.
    fn handle_mail(&mut self, now: Instant) -> bool {
        let Some(jobs) = self.mailbox.take() else {
            return false;
        };
        for job in jobs {
            match job {
                Job::Send(item) => {
                    self.progress.handed_over.subtract(item.bytes());
                    let dropped = self.queue.push(item, self.current.is_some());
                    self.progress.dropped.add(dropped);
                    if let Some(notice) = self.queue.take_notice() {
                        self.notify(notice);
                    }
                }
                Job::Resolved(resolved) if matches!(self.stage, Stage::Resolving) => match resolved
                {
                    Ok(Resolved {
                        addresses,
                        transport,
                    }) => {
                        self.addresses = addresses.into();
                        self.transport = transport;
                        self.try_next_address(now, None);
                    }
                    Err(error) => self.fail(&error.to_string(), None, now),
                },
                Job::Resolved(_) => {}
                Job::End(until) => {
                    self.until = Some(until);
                    // One more attempt.
                    if matches!(self.stage, Stage::Waiting(_)) {
                        self.stage = Stage::Waiting(now);
                    }
                }
            }
        }
        true
    }

    /// Begins to send the oldest profile, if its time has come.
    fn begin_if_idle(&mut self, now: Instant) {
        match self.stage {
            Stage::Idle => {}
            Stage::Waiting(until) if until <= now => {}
            _ => return,
        }
        if self.current.is_none() {
            match self.queue.first() {
                Ok((first, dropped)) => {
                    self.progress.dropped.add(dropped);
                    self.current = first;
                }
                Err(error) => {
                    self.fail(
                        &format!("\"{error}\" from the folder of the queue"),
                        None,
                        now,
                    );
                    return;
                }
            }
        }
        if self.current.is_none() {
            self.stage = Stage::Idle;
            return;
        }
        self.refused = None;
        let address = &self.target.address;
        if let Ok(ip) = address.host.parse::<IpAddr>()
            && self.transport.is_ready(now)
        {
            self.addresses = [SocketAddr::new(ip, address.port)].into();
            return self.try_next_address(now, None);
        }
        self.stage = Stage::Resolving;
        let (host, port, jobs) = (address.host.clone(), address.port, Arc::clone(&self.jobs));
        let (transport, is_ready) = (self.transport.clone(), self.transport.is_ready(now));
        let resolve = move || {
            let find = || {
                Ok(Resolved {
                    transport: if is_ready {
                        transport
                    } else {
                        transport.renewed()?
                    },
                    // An address stays itself.
                    addresses: (&*host, port).to_socket_addrs()?.collect(),
                })
            };
            jobs.send(Job::Resolved(find()));
        };
        if let Err(error) = spawn_profiler_thread(c"ProfilerResolve", resolve) {
            self.fail(&error.to_string(), None, now);
        }
    }

    /// Sends the profile to the next address. `failed` is why the one before did not work.
    fn try_next_address(&mut self, now: Instant, failed: Option<io::Error>) {
        let mut failed = failed;
        let reads_body = self.target.reads_answers();
        while let (Some(address), Some(item)) = (self.addresses.pop_front(), &self.current) {
            let request = self.target.request(item);
            match Exchange::begin(&self.transport, address, request, reads_body, now) {
                Ok(exchange) => {
                    self.stage = Stage::Sending(exchange);
                    return;
                }
                Err(error) => failed = Some(error),
            }
        }
        let words = self.refused.take();
        let words = words.or_else(|| failed.map(|error| error.to_string()));
        self.fail(&words.unwrap_or_else(|| "no address".to_owned()), None, now);
    }

    fn go_on(&mut self, is_ready: bool, now: Instant) {
        let Stage::Sending(exchange) = &mut self.stage else {
            return;
        };
        match exchange.go_on(is_ready, now) {
            Ok(None) => {}
            Ok(Some(answer)) => self.handle_answer(answer, now),
            Err(error) if exchange.is_connecting() => {
                if self.transport.note_failure(&error) {
                    self.refused = Some(error.to_string());
                }
                self.try_next_address(now, Some(error));
            }
            Err(error) => self.fail(&error.to_string(), None, now),
        }
    }

    fn handle_answer(&mut self, answer: Answer, now: Instant) {
        let status = answer.status;
        match status {
            200..=299 => {
                let item = self.current.take();
                let bytes = item.map_or(0, |item| item.body.len() as u64);
                self.queue.remove_first();
                self.progress.sent_bytes.add(bytes);
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
                self.current = None;
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
        // While it waits, it may be dropped for later ones.
        self.current = None;
        if !std::mem::replace(&mut self.is_away_told, true) {
            // The server has a say in what TLS refuses.
            let reason: String = reason.chars().take(MAX_REASON_CHARS).collect();
            self.notify(format!(
                "cannot push profiles to {}: got {reason}, expected an answer; they wait",
                self.server()
            ));
        }
        self.stage = Stage::Waiting(now + self.back_off.next(asked));
        // After the last attempt, nothing is left to wait for.
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
