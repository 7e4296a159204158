//! A loom model of threads that register, record markers and unregister while a sampler runs and
//! the session is stopped and started anew. `explore_model` tries the interleavings.
//!
//! These are the real types and functions: [`PsLock`], whose mutex is loom's, the
//! `ThreadRegistry`, the registrations with their profiling state, [`ActivePs`] with its
//! `ProfiledThreads`, and [`Session`]. The registration of a thread, the begin and the end of a
//! session, and the sampler's update of its threads run as they do outside the model.
//!
//! Three things are copied. The buffer is a list under loom's lock, because the real one has models
//! of its own. The order of the steps of a start and a stop is that of
//! `session/life_cycle/start_stop.rs`. The sampler's loop reduces a tick to one entry for each
//! thread. There are no pauses, callbacks, forks or captures.
//!
//! Loom explores the `PsLock`, the profiling state of each thread, the count of changes, the
//! request to stop and the model's buffer. It does not see accesses to other data: the registry's
//! lock and the contents of a `PsCell` are used under the `PsLock` only.
//!
//! Run it with `RUSTFLAGS="--cfg loom" cargo test --release --lib session_model`.

use std::sync::Arc;

use loom::sync::{Arc as Shared, Mutex as LoomMutex};
use loom::thread::spawn;

use crate::state::{ActivePs, REGISTRATION_HOOKS, RunningSampler, Session, SessionSettings};
use crate::threads::{OffThreadRef, ThreadRegistry, register, unregister};
use crate::types::{Generation, ThreadFilter, ThreadProfilingFeatures, TimeStamp};
use crate::util::{PsLock, explore_model};

/// Runs a model that uses the profiler's statics, while no other such model runs.
fn explore_alone<const N: usize>(
    outcomes: [&'static str; N],
    model: impl Fn() -> &'static str + Send + Sync + 'static,
) {
    static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = ONE_AT_A_TIME
        .lock()
        .expect("the models before this one pass");
    explore_model(outcomes, model);
}

/// The models join their samplers themselves.
struct JoinedByModel;

impl RunningSampler for JoinedByModel {
    fn join(self: Box<Self>) {}
}

/// An entry of a session: a marker recorded by the thread, or a sample of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Entry {
    Marker,
    Sample,
}

/// The core buffer: the session that it serves, and the entries of that session.
type Buffer = Option<(Generation, Vec<(Generation, Entry)>)>;

struct World {
    buffer: LoomMutex<Buffer>,
}

impl World {
    fn new() -> Shared<Self> {
        Shared::new(Self {
            buffer: LoomMutex::new(None),
        })
    }

    /// Creates a session, which its sampler may already use.
    fn prepare(&self) -> Arc<Session> {
        let now = TimeStamp::default();
        let settings = SessionSettings::for_tests();
        let session = Arc::new(Session::new(settings, now, now, Vec::new()));
        *self.buffer.lock().unwrap() = Some((session.generation, Vec::new()));
        session
    }

    /// Makes the session the running one.
    fn begin(session: &Arc<Session>) {
        let active = ActivePs::new(
            Arc::clone(session),
            ThreadFilter::new(&[]),
            Box::new(JoinedByModel),
        );
        active.begin(&mut PsLock::acquire());
    }

    fn start(&self) -> Arc<Session> {
        let session = self.prepare();
        Self::begin(&session);
        session
    }

    /// Ends the session as `end_session` does, up to the join of its sampler.
    fn stop(&self) {
        let ended = ActivePs::end(&mut PsLock::acquire());
        ended.expect("a session runs").session.request_stop();
    }

    /// Ends a stop, after the sampler was joined.
    fn end_buffer(&self) {
        *self.buffer.lock().unwrap() = None;
    }

    /// Removes what this world has put into the profiler's statics.
    fn close(&self) {
        drop(ActivePs::end(&mut PsLock::acquire()));
        let mut registered = Vec::new();
        ThreadRegistry::for_each(&PsLock::acquire(), |thread| registered.push(thread.clone()));
        registered
            .iter()
            .for_each(|thread| unregister(thread, REGISTRATION_HOOKS));
    }

    /// Records a marker of the thread, and returns its session. Returns `None` if no session
    /// records markers, or if that session has ended since.
    fn mark(&self, thread: &OffThreadRef) -> Option<Generation> {
        let session = recording_session(thread)?;
        self.put(session, Entry::Marker).then_some(session)
    }

    fn put(&self, session: Generation, entry: Entry) -> bool {
        match self.buffer.lock().unwrap().as_mut() {
            Some((current, entries)) if *current == session => {
                entries.push((session, entry));
                true
            }
            _ => false,
        }
    }

    fn range_end(&self) -> u64 {
        let buffer = self.buffer.lock().unwrap();
        buffer
            .as_ref()
            .map_or(0, |(_, entries)| entries.len() as u64)
    }
}

/// Returns the session that records markers of the thread.
fn recording_session(thread: &OffThreadRef) -> Option<Generation> {
    thread
        .unlocked_const_reader_and_atomic_rw()
        .session_that_records(ThreadProfilingFeatures::MARKERS)
}

fn has_session_data(thread: &OffThreadRef) -> bool {
    let thread = thread.unlocked_rw_for_locked_profiler();
    thread.profiled_thread_data(&PsLock::acquire()).is_some()
}

/// Asserts that no session records the thread or keeps data of it.
fn assert_not_recorded(thread: &OffThreadRef) {
    assert_eq!(recording_session(thread), None);
    assert!(!has_session_data(thread));
}

/// Registers a thread.
fn register_thread() -> OffThreadRef {
    let thread = OffThreadRef::scripted(ThreadRegistry::next_serial(), "thread", false, None);
    register(&thread, REGISTRATION_HOOKS);
    thread
}

fn unregister_thread(thread: &OffThreadRef) {
    unregister(thread, REGISTRATION_HOOKS);
}

/// The sampler of a session, and its state between ticks.
struct ModelSampler {
    world: Shared<World>,
    session: Arc<Session>,
    seen_changes: u64,
    threads: Vec<OffThreadRef>,
    /// For each sample, the serial number of the thread.
    samples: Vec<u64>,
}

impl ModelSampler {
    fn new(world: &Shared<World>, session: &Arc<Session>) -> Self {
        Self {
            world: Shared::clone(world),
            session: Arc::clone(session),
            seen_changes: 0,
            threads: Vec::new(),
            samples: Vec::new(),
        }
    }

    /// Runs `ticks` ticks, or fewer if the session stops.
    fn ticks(mut self, ticks: usize) -> Self {
        for _ in 0..ticks {
            if self.session.is_stopping() {
                break;
            }
            self.tick();
        }
        self
    }

    fn tick(&mut self) {
        let generation = self.session.generation;
        let (world, known) = (&self.world, &mut self.threads);
        ActivePs::follow_threads(
            &self.session,
            &mut self.seen_changes,
            |sampled| {
                for known in known.iter() {
                    if !sampled.iter().any(|thread| thread.is(known)) {
                        // Writes the samples that were held back.
                        assert!(
                            world.put(generation, Entry::Sample),
                            "the buffer belongs to the session until its sampler has ended"
                        );
                    }
                }
                *known = sampled.to_vec();
                true
            },
            || 0..world.range_end(),
        );
        for thread in &self.threads {
            if self.world.put(generation, Entry::Sample) {
                self.samples.push(thread.serial());
            }
        }
    }

    fn samples_of(&self, thread: &OffThreadRef) -> usize {
        let serial = thread.serial();
        self.samples.iter().filter(|one| **one == serial).count()
    }
}

#[test]
fn marker_is_in_its_own_session_or_in_none() {
    explore_alone(["in the first", "in the second", "in none"], || {
        let world = World::new();
        let thread = register_thread();
        let first = world.start().generation;
        let (marks, marking) = (Shared::clone(&world), thread.clone());
        let marker = spawn(move || marks.mark(&marking));
        let restarts = Shared::clone(&world);
        let restart = spawn(move || {
            restarts.stop();
            restarts.end_buffer();
            restarts.start()
        });
        let second = restart.join().unwrap().generation;
        let marked = marker.join().unwrap();
        assert_eq!(recording_session(&thread), Some(second));
        world.close();
        assert_not_recorded(&thread);
        match marked {
            Some(session) if session == first => "in the first",
            Some(session) if session == second => "in the second",
            Some(other) => panic!("{other:?} has not run"),
            None => "in none",
        }
    });
}

#[test]
fn registered_thread_is_sampled_from_the_next_read_on() {
    explore_alone(["sampled at once", "sampled afterwards"], || {
        let world = World::new();
        // An earlier change may make the sampler read the threads while the thread registers.
        let before = register_thread();
        let session = world.prepare();
        let sampler = ModelSampler::new(&world, &session);
        let sampler = spawn(move || sampler.ticks(2));
        World::begin(&session);
        let thread = spawn(move || {
            unregister_thread(&before);
            register_thread()
        });
        let thread = thread.join().unwrap();
        let sampler = sampler.join().unwrap();
        let sampled = sampler.samples_of(&thread);
        // Whichever change the sampler has seen, its next tick samples the thread.
        let sampler = sampler.ticks(1);
        assert_eq!(sampler.samples_of(&thread), sampled + 1);
        world.close();
        assert_not_recorded(&thread);
        if sampled > 0 {
            "sampled at once"
        } else {
            "sampled afterwards"
        }
    });
}

#[test]
fn thread_that_registers_during_a_stop_leaves_nothing_to_the_next_session() {
    explore_alone(
        ["all in the first", "some in the second", "nothing"],
        || {
            let world = World::new();
            let session = world.start();
            let marks = Shared::clone(&world);
            let thread = spawn(move || {
                let thread = register_thread();
                let marked = marks.mark(&thread);
                unregister_thread(&thread);
                (thread, marked)
            });
            let sampler = ModelSampler::new(&world, &session);
            let sampler = spawn(move || sampler.ticks(2));
            world.stop();
            // As in the life cycle: the sampler ends first, then the buffer goes to the next
            // session.
            let has_sampled = !sampler.join().unwrap().samples.is_empty();
            world.end_buffer();
            let second = world.start().generation;
            let (thread, marked) = thread.join().unwrap();
            let recording = recording_session(&thread);
            assert!(
                recording.is_none_or(|session| session == second),
                "{recording:?} has ended"
            );
            world.close();
            assert_not_recorded(&thread);
            match (marked, has_sampled) {
                (Some(session), _) if session == second => "some in the second",
                (None, false) => "nothing",
                _ => "all in the first",
            }
        },
    );
}

#[test]
fn no_entry_follows_the_end_of_an_ended_thread() {
    explore_alone(
        [
            "its end is recorded",
            "the sampler has not seen the end",
            "the thread was never sampled",
        ],
        || {
            let world = World::new();
            let thread = register_thread();
            let session = world.start();
            let ends = thread.clone();
            let ending = spawn(move || unregister_thread(&ends));
            let sampler = ModelSampler::new(&world, &session);
            let sampler = spawn(move || sampler.ticks(3));
            ending.join().unwrap();
            let has_sampled = !sampler.join().unwrap().samples.is_empty();
            let end = thread
                .unlocked_rw_for_locked_profiler()
                .profiled_thread_data(&PsLock::acquire())
                .expect("the session keeps the ended thread")
                .end_position;
            assert!(
                end.is_none_or(|end| end == world.range_end()),
                "{end:?} of {}",
                world.range_end()
            );
            world.close();
            assert_not_recorded(&thread);
            match (end, has_sampled) {
                (Some(_), true) => "its end is recorded",
                (Some(_), false) => "the thread was never sampled",
                (None, _) => "the sampler has not seen the end",
            }
        },
    );
}
