//! A loom model of threads that register, record markers and unregister while a sampler runs and
//! the session is stopped and started anew. `explore_model` tries the interleavings.
//!
//! These are the real types and functions: [`PsLock`], whose mutex is loom's, the
//! `ThreadRegistry`, the registrations with their profiling state, [`ActivePs`] with its
//! `ProfiledThreads`, and [`Session`]. The registration of a thread, the begin and the end of a
//! session, and the sampler's update of its threads run as they do outside the model.
//!
//! Three things are copied. The buffer is a list under loom's lock, because the real one has models
//! of its own. The order of the steps of a start and a stop is that of `session/start_stop.rs`. The
//! sampler's loop reduces a tick to one entry for each thread. There are no pauses, callbacks,
//! forks or captures.
//!
//! Run it with `RUSTFLAGS="--cfg loom" cargo test --release --lib session_model`.

use std::sync::Arc;

use loom::sync::{Arc as Shared, Mutex as LoomMutex};
use loom::thread::spawn;

use crate::state::{ActivePs, REGISTRATION_HOOKS, RunningSampler, Session, SessionSettings};
use crate::threads::{OffThreadRef, ThreadRegistry, register, unregister};
use crate::types::{Generation, ThreadFilter, ThreadProfilingFeatures, TimeStamp};
use crate::util::{PsLock, explore_model};

/// Runs a model that uses the profiler's statics, so no other one may run meanwhile.
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
    /// Creates a world in which a session runs.
    fn new() -> (Shared<Self>, Arc<Session>) {
        let world = Shared::new(Self {
            buffer: LoomMutex::new(None),
        });
        let session = world.start();
        (world, session)
    }

    /// Begins a session, as `SessionPlan::start_under_lock` does.
    fn start(&self) -> Arc<Session> {
        let now = TimeStamp::default();
        let settings = SessionSettings::for_tests();
        let session = Arc::new(Session::new(settings, now, now, Vec::new()));
        *self.buffer.lock().unwrap() = Some((session.generation, Vec::new()));
        let active = ActivePs::new(
            Arc::clone(&session),
            ThreadFilter::new(&[]),
            Box::new(JoinedByModel),
        );
        active.begin(&mut PsLock::acquire());
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
        let session = thread
            .unlocked_const_reader_and_atomic_rw()
            .session_that_records(ThreadProfilingFeatures::MARKERS)?;
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
    samples: usize,
}

impl ModelSampler {
    fn new(world: &Shared<World>, session: &Arc<Session>) -> Self {
        Self {
            world: Shared::clone(world),
            session: Arc::clone(session),
            seen_changes: 0,
            threads: Vec::new(),
            samples: 0,
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
            },
            || 0..world.range_end(),
        );
        for _ in &self.threads {
            if self.world.put(generation, Entry::Sample) {
                self.samples += 1;
            }
        }
    }
}

#[test]
fn marker_is_in_its_own_session_or_in_none() {
    explore_alone(["in the first", "in the second", "in none"], || {
        let thread = register_thread();
        let (world, first) = World::new();
        let marks = Shared::clone(&world);
        let marker = spawn(move || marks.mark(&thread));
        let restarts = Shared::clone(&world);
        let restart = spawn(move || {
            restarts.stop();
            restarts.end_buffer();
            restarts.start()
        });
        let second = restart.join().unwrap().generation;
        let marked = marker.join().unwrap();
        world.close();
        let buffer = world.buffer.lock().unwrap();
        let (current, entries) = buffer.as_ref().expect("the second session runs");
        assert_eq!(*current, second);
        assert!(
            entries.iter().all(|(session, _)| session == current),
            "{entries:?}"
        );
        assert_eq!(
            entries.len(),
            usize::from(marked == Some(second)),
            "{entries:?}"
        );
        match marked {
            Some(session) if session == first.generation => "in the first",
            Some(_) => "in the second",
            None => "in none",
        }
    });
}

#[test]
fn registered_thread_is_sampled_from_the_next_read_on() {
    explore_alone(["sampled at once", "sampled afterwards"], || {
        // An earlier change may make the sampler read the threads while the thread registers.
        let before = register_thread();
        let (world, session) = World::new();
        let thread = spawn(move || {
            unregister_thread(&before);
            register_thread();
        });
        let sampler = ModelSampler::new(&world, &session);
        let sampler = spawn(move || sampler.ticks(2));
        thread.join().unwrap();
        let sampler = sampler.join().unwrap();
        let sampled = sampler.samples;
        // Whichever change the sampler has seen, its next tick samples the thread.
        assert_eq!(
            sampler.ticks(1).samples,
            sampled + 1,
            "the thread is registered and the session runs"
        );
        world.close();
        if sampled > 0 {
            "sampled at once"
        } else {
            "sampled afterwards"
        }
    });
}

#[test]
fn thread_that_registers_during_a_stop_leaves_no_entries_to_the_next_session() {
    explore_alone(
        ["all in the first", "some in the second", "nothing"],
        || {
            let (world, session) = World::new();
            let marks = Shared::clone(&world);
            let thread = spawn(move || {
                let thread = register_thread();
                let marked = marks.mark(&thread);
                unregister_thread(&thread);
                marked
            });
            let sampler = ModelSampler::new(&world, &session);
            let sampler = spawn(move || sampler.ticks(2));
            world.stop();
            // As in the life cycle: the sampler ends first, then the buffer goes to the next
            // session.
            let has_sampled = sampler.join().unwrap().samples > 0;
            world.end_buffer();
            let second = world.start().generation;
            let marked = thread.join().unwrap();
            world.close();
            let buffer = world.buffer.lock().unwrap();
            let (_, entries) = buffer.as_ref().expect("the second session runs");
            assert!(
                entries.iter().all(|(session, _)| *session == second),
                "{entries:?}"
            );
            assert!(
                entries.iter().all(|(_, entry)| *entry == Entry::Marker),
                "the first session's sampler has ended"
            );
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
            let ends = register_thread();
            let (world, session) = World::new();
            let ended = ends.clone();
            let thread = spawn(move || unregister_thread(&ends));
            let sampler = ModelSampler::new(&world, &session);
            let sampler = spawn(move || sampler.ticks(3));
            thread.join().unwrap();
            let has_sampled = sampler.join().unwrap().samples > 0;
            let end = ended
                .unlocked_rw_for_locked_profiler()
                .profiled_thread_data(&PsLock::acquire())
                .expect("the session keeps the ended thread")
                .end_position;
            world.close();
            assert!(
                end.is_none_or(|end| end == world.range_end()),
                "{end:?} of {}",
                world.range_end()
            );
            match (end, has_sampled) {
                (Some(_), true) => "its end is recorded",
                (Some(_), false) => "the thread was never sampled",
                (None, _) => "the sampler has not seen the end",
            }
        },
    );
}
