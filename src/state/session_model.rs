//! Threads that register, mark and unregister beside a sampler and beside a stop and a new start, tried in the orders of
//! `explore_model`.
//!
//! Of the real code only [`ProfilingWord`] and [`ChangeCount`] run here. All else is written down again, in the steps in which
//! `registration.rs`, `profiled_threads.rs`, `sampler_thread.rs` and `life_cycle.rs` do it, and what lies under their locks
//! lies under loom's: the life cycle, the lists of threads with their data, the sampler's loop and the buffer. Neither
//! `PsLock`, `ThreadRegistry`, the data lock, `ProfiledThreads`, `Session`, nor the chunked buffer is run, and there are no
//! pauses, callbacks, forks nor captures. So a change there must be made here by hand: that they say the same nobody checks.
//!
//! Run by `RUSTFLAGS="--cfg loom" cargo test --release --lib session_model`.

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc as Shared, Mutex as LoomMutex};
use loom::thread::spawn;

use crate::base::{ChangeCount, Generation, ThreadProfilingFeatures, explore_model};
use crate::threads::ProfilingWord;

const FIRST: Generation = Generation::from_number(1);
const SECOND: Generation = Generation::from_number(2);

/// What a session's sampler shares with it.
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

/// What lies under the `PsLock`: who is registered, and the session with its threads. There is one thread.
#[derive(Default)]
struct UnderPsLock {
    is_registered: bool,
    active: Option<ModelActive>,
}

struct ModelActive {
    session: Shared<ModelSession>,
    lives: bool,
    dead: Option<Dead>,
}

/// A thread that has ended, and where the buffer ended when nothing of it was to be written any more.
#[derive(Clone, Copy, Default)]
struct Dead {
    end_position: Option<usize>,
}

/// An entry of a session: a marker of the thread's, or a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Entry {
    Marker,
    Sample,
}

struct World {
    ps: LoomMutex<UnderPsLock>,
    word: ProfilingWord,
    /// The core buffer: the session that it is in, and the entries of that.
    buffer: LoomMutex<Option<(Generation, Vec<(Generation, Entry)>)>>,
}

impl World {
    /// The first session runs; the thread is registered or not.
    fn new(is_registered: bool) -> (Shared<Self>, Shared<ModelSession>) {
        let world = Shared::new(Self {
            ps: LoomMutex::default(),
            word: ProfilingWord::new(),
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
            lives: false,
            dead: None,
        };
        if ps.is_registered {
            self.take_up(&mut active);
        }
        ps.active = Some(active);
        session
    }

    fn take_up(&self, active: &mut ModelActive) {
        self.word
            .set(active.session.generation, ThreadProfilingFeatures::ANY);
        active.lives = true;
        active.session.changes.raise();
    }

    fn register(&self) {
        let mut ps = self.ps.lock().unwrap();
        ps.is_registered = true;
        if let Some(active) = &mut ps.active {
            self.take_up(active);
        }
    }

    fn unregister(&self) {
        let mut ps = self.ps.lock().unwrap();
        ps.is_registered = false;
        if let Some(active) = ps.active.as_mut().filter(|active| active.lives) {
            active.lives = false;
            active.dead = Some(Dead::default());
            active.session.changes.raise();
        }
    }

    /// What the thread's marker is put into; `None` when the session that it was asked for runs no more.
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

    /// Ends the session, up to the join of its sampler.
    fn stop(&self) -> Option<Shared<ModelSession>> {
        let mut ps = self.ps.lock().unwrap();
        let active = ps.active.take()?;
        if active.lives || active.dead.is_some() {
            self.word.clear();
        }
        active.session.stop.store(true, Ordering::Release);
        Some(active.session)
    }

    /// The session's threads, for its own sampler alone.
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

/// A session's sampler, and what it keeps from tick to tick.
struct ModelSampler {
    world: Shared<World>,
    session: Shared<ModelSession>,
    seen_changes: u64,
    knows: bool,
    samples: usize,
}

impl ModelSampler {
    fn new(world: &Shared<World>, session: &Shared<ModelSession>) -> Self {
        let (world, session) = (Shared::clone(world), Shared::clone(session));
        Self {
            world,
            session,
            seen_changes: 0,
            knows: false,
            samples: 0,
        }
    }

    /// So many ticks, or fewer when it is stopped.
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
            knows,
            samples,
        } = self;
        let changes = session.changes.read();
        if changes != *seen_changes {
            *seen_changes = changes;
            let lives = world
                .with_session_threads(session, |active| active.lives)
                .unwrap_or(false);
            if *knows && !lives {
                // What was not written yet of it.
                assert!(
                    world.put(session.generation, Entry::Sample),
                    "before its end the buffer is its own"
                );
            }
            *knows = lives;
            let end = world.range_end();
            world.with_session_threads(session, |active| {
                if let Some(dead) = active
                    .dead
                    .as_mut()
                    .filter(|dead| dead.end_position.is_none() && !lives)
                {
                    dead.end_position = Some(end);
                }
            });
        }
        if *knows && world.put(session.generation, Entry::Sample) {
            *samples += 1;
        }
    }
}

#[test]
fn a_marker_is_in_the_session_that_it_was_asked_for_or_in_none() {
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
fn who_registers_is_sampled_from_the_next_look_on() {
    explore_model(["sampled at once", "sampled from then on"], || {
        // There is a change before, which may make the sampler look while the thread comes.
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
        // Whatever was seen of the change before, the next tick samples the thread.
        assert_eq!(
            sampler.ticks(1).samples,
            before + 1,
            "it is registered, and the session runs"
        );
        if before > 0 {
            "sampled at once"
        } else {
            "sampled from then on"
        }
    });
}

#[test]
fn a_thread_that_comes_and_goes_beside_a_stop_leaves_nothing_to_the_next_session() {
    explore_model(
        ["all in the first", "some in the second", "nothing"],
        || {
            let (world, session) = World::new(false);
            let lives = Shared::clone(&world);
            let thread = spawn(move || {
                lives.register();
                let marked = lives.mark();
                lives.unregister();
                marked
            });
            let sampler = ModelSampler::new(&world, &session);
            let sampler = spawn(move || sampler.ticks(2));
            world.stop();
            // As the life cycle does it: first the sampler has ended, then the buffer is the next session's.
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
fn after_the_end_of_a_dead_thread_nothing_of_it_is_written() {
    explore_model(
        [
            "its end is known",
            "the sampler has not come by",
            "it was never seen",
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
                (Some(_), true) => "its end is known",
                (Some(_), false) => "it was never seen",
                (None, _) => "the sampler has not come by",
            }
        },
    );
}
