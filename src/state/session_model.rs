//! A loom model of threads that register, record markers and unregister while a sampler runs and
//! the session is stopped and started anew. `explore_model` tries the interleavings.
//!
//! Only [`AtomicProfilingState`] and [`ChangeCount`] are the real types. Everything else is a copy
//! of the steps in `registration.rs`, `profiled_threads.rs`, `sampler_thread.rs` and
//! `start_stop.rs`: the life cycle, the lists of threads with their data, the sampler's loop and
//! the buffer. Loom's locks replace the real ones. `PsLock`, `ThreadRegistry`, `ProfiledThreads`,
//! `Session` and the chunked buffer do not run here, and there are no pauses, callbacks, forks or
//! captures. No test checks that the model matches the code, so a change there must be repeated
//! here by hand.
//!
//! Run it with `RUSTFLAGS="--cfg loom" cargo test --release --lib session_model`.

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc as Shared, Mutex as LoomMutex};
use loom::thread::spawn;

use crate::threads::AtomicProfilingState;
use crate::types::{Generation, ThreadProfilingFeatures};
use crate::util::{ChangeCount, explore_model};

const FIRST: Generation = Generation::from_number(1);
const SECOND: Generation = Generation::from_number(2);

/// The data that a session shares with its sampler.
struct ModelSession {
    generation: Generation,
    changes: ChangeCount,
    stop: AtomicBool,
}

impl ModelSession {
    fn new(generation: Generation) -> Shared<Self> {
        Shared::new(Self {
            generation,
            changes: ChangeCount::new(),
            stop: AtomicBool::new(false),
        })
    }
}

/// The data behind the `PsLock`: the registration of the only thread, and the session with that
/// thread.
#[derive(Default)]
struct UnderPsLock {
    is_registered: bool,
    active: Option<ModelActive>,
}

struct ModelActive {
    session: Shared<ModelSession>,
    is_live: bool,
    dead: Option<Dead>,
}

/// An ended thread. Its end position is the end of the buffer once all of its data was written.
#[derive(Clone, Copy, Default)]
struct Dead {
    end_position: Option<usize>,
}

/// An entry of a session: a marker recorded by the thread, or a sample of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Entry {
    Marker,
    Sample,
}

struct World {
    ps: LoomMutex<UnderPsLock>,
    word: AtomicProfilingState,
    /// The core buffer: the session that it serves, and the entries of that session.
    buffer: LoomMutex<Option<(Generation, Vec<(Generation, Entry)>)>>,
}

impl World {
    /// Creates a world in which the first session runs and the thread is or is not registered.
    fn new(is_registered: bool) -> (Shared<Self>, Shared<ModelSession>) {
        let world = Shared::new(Self {
            ps: LoomMutex::default(),
            word: AtomicProfilingState::new(),
            buffer: LoomMutex::new(None),
        });
        if is_registered {
            world.register();
        }
        let session = world.start(FIRST);
        (world, session)
    }

    fn start(&self, generation: Generation) -> Shared<ModelSession> {
        *self.buffer.lock().unwrap() = Some((generation, Vec::new()));
        let session = ModelSession::new(generation);
        let mut ps = self.ps.lock().unwrap();
        let mut active = ModelActive {
            session: Shared::clone(&session),
            is_live: false,
            dead: None,
        };
        if ps.is_registered {
            self.add_thread(&mut active);
        }
        ps.active = Some(active);
        session
    }

    /// Adds the thread to the session.
    fn add_thread(&self, active: &mut ModelActive) {
        self.word
            .set(active.session.generation, ThreadProfilingFeatures::ANY);
        active.is_live = true;
        active.session.changes.raise();
    }

    fn register(&self) {
        let mut ps = self.ps.lock().unwrap();
        ps.is_registered = true;
        if let Some(active) = &mut ps.active {
            self.add_thread(active);
        }
    }

    fn unregister(&self) {
        let mut ps = self.ps.lock().unwrap();
        ps.is_registered = false;
        if let Some(active) = ps.active.as_mut().filter(|active| active.is_live) {
            active.is_live = false;
            active.dead = Some(Dead::default());
            active.session.changes.raise();
        }
    }

    /// Records a marker, and returns its session. Returns `None` if no session records markers, or
    /// if that session has ended since.
    fn mark(&self) -> Option<Generation> {
        let session = self
            .word
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

    fn range_end(&self) -> usize {
        self.buffer
            .lock()
            .unwrap()
            .as_ref()
            .map_or(0, |(_, entries)| entries.len())
    }

    /// Ends the session, except for joining its sampler.
    fn stop(&self) -> Option<Shared<ModelSession>> {
        let mut ps = self.ps.lock().unwrap();
        let active = ps.active.take()?;
        if active.is_live || active.dead.is_some() {
            self.word.clear();
        }
        active.session.stop.store(true, Ordering::Release);
        Some(active.session)
    }

    /// Runs `body` with the threads of `session`, if it is the current session.
    fn with_session_threads<T>(
        &self,
        session: &ModelSession,
        body: impl FnOnce(&mut ModelActive) -> T,
    ) -> Option<T> {
        let mut ps = self.ps.lock().unwrap();
        let active = ps.active.as_mut()?;
        (active.session.generation == session.generation).then(|| body(active))
    }
}

/// The sampler of a session, and its state between ticks.
struct ModelSampler {
    world: Shared<World>,
    session: Shared<ModelSession>,
    seen_changes: u64,
    has_thread: bool,
    samples: usize,
}

impl ModelSampler {
    fn new(world: &Shared<World>, session: &Shared<ModelSession>) -> Self {
        let (world, session) = (Shared::clone(world), Shared::clone(session));
        Self {
            world,
            session,
            seen_changes: 0,
            has_thread: false,
            samples: 0,
        }
    }

    /// Runs `ticks` ticks, or fewer if the session stops.
    fn ticks(mut self, ticks: usize) -> Self {
        for _ in 0..ticks {
            if self.session.stop.load(Ordering::Acquire) {
                break;
            }
            self.tick();
        }
        self
    }

    fn tick(&mut self) {
        let Self {
            world,
            session,
            seen_changes,
            has_thread,
            samples,
        } = self;
        let changes = session.changes.read();
        if changes != *seen_changes {
            *seen_changes = changes;
            let is_live = world
                .with_session_threads(session, |active| active.is_live)
                .unwrap_or(false);
            if *has_thread && !is_live {
                // Writes the samples that were held back.
                assert!(
                    world.put(session.generation, Entry::Sample),
                    "the buffer belongs to the session until its sampler has ended"
                );
            }
            *has_thread = is_live;
            let end = world.range_end();
            world.with_session_threads(session, |active| {
                if let Some(dead) = active
                    .dead
                    .as_mut()
                    .filter(|dead| dead.end_position.is_none() && !is_live)
                {
                    dead.end_position = Some(end);
                }
            });
        }
        if *has_thread && world.put(session.generation, Entry::Sample) {
            *samples += 1;
        }
    }
}

#[test]
fn marker_is_in_its_own_session_or_in_none() {
    explore_model(["in the first", "in the second", "in none"], || {
        let (world, _) = World::new(true);
        let marks = Shared::clone(&world);
        let marker = spawn(move || marks.mark());
        let restarts = Shared::clone(&world);
        let restart = spawn(move || {
            restarts.stop();
            *restarts.buffer.lock().unwrap() = None;
            restarts.start(SECOND);
        });
        restart.join().unwrap();
        let marked = marker.join().unwrap();
        let buffer = world.buffer.lock().unwrap();
        let (current, entries) = buffer.as_ref().expect("the second session runs");
        assert_eq!(*current, SECOND);
        assert!(
            entries.iter().all(|(session, _)| session == current),
            "{entries:?}"
        );
        assert_eq!(
            entries.len(),
            usize::from(marked == Some(SECOND)),
            "{entries:?}"
        );
        match marked {
            Some(FIRST) => "in the first",
            Some(_) => "in the second",
            None => "in none",
        }
    });
}

#[test]
fn registered_thread_is_sampled_from_the_next_read_on() {
    explore_model(["sampled at once", "sampled afterwards"], || {
        // An earlier change may make the sampler read the threads while the thread registers.
        let (world, session) = World::new(true);
        let registers = Shared::clone(&world);
        let thread = spawn(move || {
            registers.unregister();
            registers.register();
        });
        let sampler = ModelSampler::new(&world, &session);
        let sampler = spawn(move || sampler.ticks(2));
        thread.join().unwrap();
        let sampler = sampler.join().unwrap();
        let before = sampler.samples;
        // Whichever change the sampler has seen, its next tick samples the thread.
        assert_eq!(
            sampler.ticks(1).samples,
            before + 1,
            "the thread is registered and the session runs"
        );
        if before > 0 {
            "sampled at once"
        } else {
            "sampled afterwards"
        }
    });
}

#[test]
fn thread_that_registers_during_a_stop_leaves_no_entries_to_the_next_session() {
    explore_model(
        ["all in the first", "some in the second", "nothing"],
        || {
            let (world, session) = World::new(false);
            let is_live = Shared::clone(&world);
            let thread = spawn(move || {
                is_live.register();
                let marked = is_live.mark();
                is_live.unregister();
                marked
            });
            let sampler = ModelSampler::new(&world, &session);
            let sampler = spawn(move || sampler.ticks(2));
            world.stop();
            // As in the life cycle: the sampler ends first, then the buffer goes to the next
            // session.
            let has_sampled = sampler.join().unwrap().samples > 0;
            *world.buffer.lock().unwrap() = None;
            world.start(SECOND);
            let marked = thread.join().unwrap();
            let buffer = world.buffer.lock().unwrap();
            let (_, entries) = buffer.as_ref().expect("the second session runs");
            assert!(
                entries.iter().all(|(session, _)| *session == SECOND),
                "{entries:?}"
            );
            assert!(
                entries.iter().all(|(_, entry)| *entry == Entry::Marker),
                "the first session's sampler has ended"
            );
            match (marked, has_sampled) {
                (Some(SECOND), _) => "some in the second",
                (None, false) => "nothing",
                _ => "all in the first",
            }
        },
    );
}

#[test]
fn no_entry_follows_the_end_of_an_ended_thread() {
    explore_model(
        [
            "its end is recorded",
            "the sampler has not seen the end",
            "the thread was never sampled",
        ],
        || {
            let (world, session) = World::new(true);
            let ends = Shared::clone(&world);
            let thread = spawn(move || ends.unregister());
            let sampler = ModelSampler::new(&world, &session);
            let sampler = spawn(move || sampler.ticks(3));
            thread.join().unwrap();
            let has_sampled = sampler.join().unwrap().samples > 0;
            let end = world
                .with_session_threads(&session, |active| active.dead.map(|dead| dead.end_position));
            let end = end.flatten().expect("it has ended");
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
