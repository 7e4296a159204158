//! Starts, reads and stops the profiler every 50 ms, in every way, while the crew works.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gekkota::{Features, Profile, ProfilerSession, StartParams};

use crate::crew::Post;
use crate::peer::Peer;
use crate::random::Random;
use crate::{always_on, proof, reader, saver, settings, tally};

const INTERVAL: Duration = Duration::from_micros(100);
const SESSION: Duration = Duration::from_millis(50);
/// Minimum length of the last session of a round, whose profile is checked most closely. It also
/// lasts until every worker has worked and added a marker in it, and a minimum number of samples
/// per worker was captured.
const LAST_SESSION: Duration = Duration::from_millis(400);
const SAMPLES_EACH: u64 = 12;
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum time until every worker has worked in the last session. Saving with names takes long on
/// a busy machine.
const MOST_PATIENCE: Duration = Duration::from_secs(40);
/// pprof runs in the last part of a round: the round's length divided by this.
const PEER_PART: u32 = 3;
const PEER_SESSIONS: u64 = 6;

/// The control of a round.
pub struct Control<'a> {
    pub post: &'a Post,
    pub crew: Vec<Arc<Post>>,
    pub random: Random,
}

impl Control<'_> {
    /// Runs sessions until the time is over. Returns the profile of the last one.
    #[inline(never)]
    pub fn reign(&mut self, length: Duration) -> Profile {
        if always_on::is_on() {
            return self.reign_always_on(length);
        }
        let start = Instant::now();
        let mut peer: Option<Peer> = None;
        let mut sessions = 0;
        while start.elapsed() < length {
            if start.elapsed() > length - length / PEER_PART && sessions % PEER_SESSIONS == 0 {
                // Alternates, so that sessions begin with and without pprof, and see it start and
                // stop.
                peer = if peer.is_some() { None } else { Peer::start() };
            }
            sessions += 1;
            self.session();
            self.post.beat();
            self.count_workers();
        }
        drop(peer);
        self.last_session()
    }

    /// Starts and stops sessions while the clients of the server and the pusher keep asking for one.
    /// Returns the profile of the last session.
    fn reign_always_on(&mut self, length: Duration) -> Profile {
        let begin = Instant::now();
        let pusher = always_on::push(self.post);
        while begin.elapsed() < length / 2 {
            start(self.params_always_on());
            tally::SESSIONS.one();
            std::thread::sleep(SESSION + Duration::from_millis(self.random.below(500)));
            if self.random.once_in(2) {
                gekkota::profiler_stop();
                std::thread::sleep(Duration::from_millis(self.random.below(100)));
            }
            self.post.beat();
            self.count_workers();
        }
        always_on::end_push(pusher);
        gekkota::profiler_stop();
        let session = self.start_beside_clients();
        let pusher = always_on::push(self.post);
        let profile = self.watch_last(session);
        always_on::end_push(pusher);
        profile
    }

    /// Starts a session as soon as no client's session runs.
    fn start_beside_clients(&mut self) -> ProfilerSession {
        let begin = Instant::now();
        loop {
            match ProfilerSession::start(self.params_always_on()) {
                Ok(session) => return session,
                Err(error) => assert!(begin.elapsed() < PATIENCE, "{error}"),
            }
            std::thread::sleep(SESSION / 10);
            self.post.beat();
        }
    }

    fn params_always_on(&mut self) -> StartParams {
        StartParams::always_on()
    }

    fn session(&mut self) {
        let params = self.params();
        tally::SESSIONS.one();
        match self.random.below(10) {
            0..=4 => self.guarded(params),
            5..=7 => {
                start(params);
                std::thread::sleep(SESSION / 2);
                assert!(gekkota::profiler_is_active(), "no thread has stopped it");
                assert!(reader::stream_to_nowhere(), "no thread has stopped it");
                std::thread::sleep(SESSION / 2);
                gekkota::profiler_stop();
                assert!(!gekkota::profiler_is_active(), "no thread has started it");
            }
            8 => {
                start(params);
                std::thread::sleep(SESSION / 2);
                start(self.params());
                tally::RESTARTS.one();
                std::thread::sleep(SESSION / 2);
                gekkota::profiler_stop();
            }
            _ => {
                start(params);
                gekkota::profiler_stop();
                gekkota::profiler_stop();
            }
        }
    }

    fn guarded(&mut self, params: StartParams) {
        let session = ProfilerSession::start(params).unwrap_or_else(|error| panic!("{error}"));
        std::thread::sleep(SESSION / 2);
        session.snapshot().unwrap_or_else(|error| panic!("{error}"));
        self.post.beat();
        std::thread::sleep(SESSION / 2);
        let profile = session.finish().unwrap_or_else(|error| panic!("{error}"));
        count(&profile);
        if self.random.once_in(4) {
            saver::save_taken(&profile);
        }
        if self.random.once_in(8) {
            let found = proof::read(&profile, proof::Names::No);
            let problems = found.problems();
            assert!(problems.is_empty(), "a profile has problems: {problems:#?}");
        }
    }

    fn params(&mut self) -> StartParams {
        let features = match self.random.below(8) {
            0 => Features::NO_STACK_SAMPLING | Features::CPU,
            1 => Features::CPU | Features::PROCESS_CPU,
            2 => Features::STACK_WALK,
            _ => Features::default(),
        };
        let capacity_bytes = [256 << 10, 4 << 20, 128 << 20][self.random.below(3) as usize];
        let [usual, others @ ..] = settings::sampling_signals();
        let signal = if self.random.below(10) < 7 {
            usual
        } else {
            others[self.random.below(2) as usize]
        };
        let filters: &[&str] = if self.random.once_in(8) {
            &["malloc", "PANIC", "brood"]
        } else {
            &[]
        };
        StartParams::default()
            .interval(INTERVAL)
            .features(features)
            .capacity_bytes(capacity_bytes)
            .signal(signal)
            .filters(filters.iter().copied())
    }

    /// Runs an ordinary session in which each worker does some steps.
    fn last_session(&mut self) -> Profile {
        let session = ProfilerSession::start(StartParams::default().interval(INTERVAL));
        self.watch_last(session.unwrap_or_else(|error| panic!("{error}")))
    }

    /// Lets each worker do some steps in a session, and returns its profile.
    fn watch_last(&mut self, session: ProfilerSession) -> Profile {
        tally::SESSIONS.one();
        let start = Instant::now();
        let done = |post: &Arc<Post>| (post.beats(), post.markers());
        let has_worked = |(post, before): (&Arc<Post>, &(u64, u64))| {
            // The first marker may have been added just before the session.
            post.beats() > before.0 + 2 && post.markers() > before.1 + 1
        };
        // Not from before the start, which can take as long as many steps on a busy machine.
        let before: Vec<_> = self.crew.iter().map(done).collect();
        let all_worked = || self.crew.iter().zip(&before).all(has_worked);
        let enough_samples = || {
            session
                .snapshot()
                .is_ok_and(|profile| captured(&profile) > SAMPLES_EACH * before.len() as u64)
        };
        let is_enough = || {
            let elapsed = start.elapsed();
            elapsed >= LAST_SESSION
                && (elapsed > MOST_PATIENCE || all_worked())
                && (elapsed > PATIENCE || enough_samples())
        };
        while !is_enough() {
            std::thread::sleep(SESSION);
            self.post.beat();
        }
        let late = self
            .crew
            .iter()
            .zip(&before)
            .filter(|one| !has_worked(*one));
        for (post, _) in late {
            post.give_up();
            tally::LATE_WORKERS.one();
        }
        let profile = session.finish().unwrap_or_else(|error| panic!("{error}"));
        count(&profile);
        profile
    }

    fn count_workers(&self) {
        let working = self.crew.iter().filter(|post| post.is_on_duty()).count() as u64;
        tally::FEWEST_WORKERS.least(working);
    }
}

/// Lets this copy of the profiler install its handler for each signal of the storm, before another
/// copy chooses a signal that has none.
pub fn install_handlers() {
    for signal in settings::sampling_signals() {
        start(StartParams::default().signal(signal));
        gekkota::profiler_stop();
    }
}

fn start(params: StartParams) {
    gekkota::profiler_start(params).unwrap_or_else(|error| panic!("{error}"));
}

/// Returns the number of samples that a signal handler captured.
pub fn captured(profile: &Profile) -> u64 {
    profile
        .sampler_counts()
        .iter()
        .find(|(name, _)| *name == "captured_samples")
        .map_or(0, |count| count.1)
}

/// Adds the sampler's counts to those of the storm.
fn count(profile: &Profile) {
    for (name, number) in profile.sampler_counts() {
        match name {
            "ticks" => tally::TICKS.add(number),
            "missed_ticks" => tally::MISSED_TICKS.add(number),
            "captured_samples" => tally::SAMPLES_CAPTURED.add(number),
            "same_samples" => tally::SAMPLES_SAME.add(number),
            "truncated_samples" => tally::SAMPLES_TRUNCATED.add(number),
            "unanswered_ticks" => tally::UNANSWERED.add(number),
            "refused_signals" => tally::REFUSED_SIGNALS.add(number),
            "threads_found_dead" => tally::FOUND_DEAD.add(number),
            "dropped_samples" => tally::DROPPED_SAMPLES.add(number),
            "sampler_panics" => assert_eq!(number, 0, "the sampler panicked"),
            _ => {}
        }
    }
}
