//! The threads that the sampler samples, and what a tick does with all of them. Long-idle threads are
//! kept in a separate list.

use std::sync::atomic::Ordering;

use crate::platform::monotonic_now;
use crate::sampler::activity::{ActivityHint, SeenThreads};
use crate::sampler::encode::Tick;
use crate::sampler::thread_sampler::ThreadSampler;
use crate::sampler::thread_sampler::switch_recorder::{DueThreads, SwitchReadings};
use crate::sampler::tick_context::TickContext;
use crate::state::{ActivePs, REGISTRATION_HOOKS, Session, SessionCounts};
use crate::threads::{OffThreadRef, unregister};
use crate::types::{Features, ThreadId};
use crate::util::try_vec;

/// The sampled threads of the session.
#[derive(Default)]
pub(crate) struct Threads {
    active: Vec<ThreadSampler>,
    /// In the order in which they became idle.
    idle: Vec<ThreadSampler>,
    /// Sum of the last readings of the sampled threads' clocks, including ended threads, in ns.
    known_cpu_ns: u64,
    /// Registered threads whose end was found while the list of threads was updated.
    outlived: Vec<OffThreadRef>,
    activity: ActivityHint,
    switch_readings: SwitchReadings,
}

impl Threads {
    pub(crate) fn all(&mut self) -> impl Iterator<Item = &mut ThreadSampler> {
        self.active.iter_mut().chain(&mut self.idle)
    }

    /// Begins to sample the threads that are new in the list, which is sorted by serial numbers,
    /// and ends the sampling of threads that are no longer in the list. Returns `None` if memory for
    /// all threads is lacking. Unregistered threads were last searched for `unseen_ns` ago.
    pub(crate) fn set(
        &mut self,
        sampled: &[OffThreadRef],
        unseen_ns: u64,
        context: &mut TickContext<'_>,
    ) -> Option<()> {
        // For each thread of the list, whether it is known.
        let mut known = try_vec(sampled.len())?;
        known.resize(sampled.len(), false);
        let outlived = find_outlived(sampled)?;
        let is_outlived = |serial| outlived.iter().any(|thread| thread.serial() == serial);
        for list in [&mut self.active, &mut self.idle] {
            let mut is_gone = |thread: &mut ThreadSampler| {
                let serial = thread.registration.serial();
                match sampled.binary_search_by_key(&serial, OffThreadRef::serial) {
                    Ok(index) => {
                        known[index] = true;
                        is_outlived(serial)
                    }
                    Err(_) => true,
                }
            };
            for mut gone in list.extract_if(.., &mut is_gone) {
                gone.end(context.tick_before, context);
            }
        }
        let new = known.iter().filter(|is_known| !**is_known).count();
        self.active.try_reserve(new).ok()?;
        let listed = sampled.iter().zip(known);
        for (registration, _) in listed.filter(|(_, is_known)| !is_known) {
            if !is_outlived(registration.serial()) {
                let thread = registration.unlocked_const_reader_and_atomic_rw();
                let unseen_ns = if thread.is_registered() { 0 } else { unseen_ns };
                let registration = registration.clone();
                let thread = ThreadSampler::new(registration, context.session, unseen_ns);
                self.known_cpu_ns = self.known_cpu_ns.wrapping_add(thread.known_cpu_ns);
                self.active.push(thread);
            }
        }
        self.outlived = outlived;
        Some(())
    }

    /// Samples the threads. Returns whether any of them has ended.
    pub(crate) fn sample(&mut self, context: &mut TickContext<'_>) -> bool {
        let session = context.session;
        let mut dead = std::mem::take(&mut self.outlived);
        let woken = self.sample_all(&mut dead, context);
        for registration in &dead {
            let thread = registration.unlocked_const_reader_and_atomic_rw();
            if !thread.is_registered() {
                let now = monotonic_now();
                ActivePs::with(session, |active, lock| {
                    active.end_unregistered(registration, now, lock);
                });
            } else if thread.unregistered_at().is_none() {
                // Otherwise, the thread has unregistered during this tick before it exited.
                SessionCounts::add(&session.counts.threads_found_dead, 1);
                unregister(registration, REGISTRATION_HOOKS);
            }
        }
        self.regroup(context.tick, woken);
        !dead.is_empty()
    }

    /// Samples the threads until the session stops. Adds those that have ended to `dead`. Returns which
    /// of the idle ones have run.
    fn sample_all(&mut self, dead: &mut Vec<OffThreadRef>, context: &mut TickContext<'_>) -> Woken {
        let session = context.session;
        let (tick, before) = (context.tick, context.tick_before);
        let Self { active, idle, .. } = self;
        let round = session.counts.ticks.load(Ordering::Relaxed);
        // Each tick begins with a different thread, so that no thread is always first (JuliaLang
        // #33490).
        let count = active.len();
        active.rotate_left(usize::from(count > 1));
        let mut woken = Woken::NONE;
        let features = session.settings.features;
        let mut readings = match features.contains(Features::CONTEXT_SWITCHES) {
            true => self.switch_readings.allowed_at(tick.time),
            false => 0,
        };
        // Returns for how long the thread has run since its clock was last read.
        let mut step = |thread: &mut ThreadSampler, context: &mut TickContext<'_>| {
            let known_before_ns = thread.known_cpu_ns;
            // Without memory, a later tick finds the thread dead.
            if thread.tick(context).is_err() && dead.try_reserve(1).is_ok() {
                dead.push(thread.registration.clone());
            }
            thread.known_cpu_ns.wrapping_sub(known_before_ns)
        };
        for thread in active.iter_mut() {
            // The thread that stops the session waits for this loop to end.
            if session.is_stopping() {
                return woken;
            }
            let ran_ns = step(thread, context);
            self.known_cpu_ns = self.known_cpu_ns.wrapping_add(ran_ns);
        }
        let seen = SeenThreads {
            idle: idle.len(),
            known_cpu_ns: self.known_cpu_ns,
            has_gap: tick.number - before.number > 1,
            since_last_ns: tick.time.since_ns(before.time),
            round,
        };
        let mut checks = self.activity.checks(seen, context.interval_ns());
        while let Some(place) = checks.next_place() {
            if session.is_stopping() {
                return woken;
            }
            let thread = &mut idle[place];
            let ran_ns = step(thread, context);
            self.known_cpu_ns = self.known_cpu_ns.wrapping_add(ran_ns);
            checks.explain(ran_ns);
            if !thread.is_idle() {
                woken.add(place);
            }
        }
        self.activity.end_tick(&checks);
        if readings > 0 {
            let due_since = |thread: &ThreadSampler| thread.switches.as_ref()?.due_since(tick.time);
            let due = DueThreads::find(active.iter().map(due_since));
            for place in due.places() {
                if readings == 0 || session.is_stopping() {
                    break;
                }
                readings -= u64::from(active[place].record_switches(context));
            }
        }
        let turn = (round as usize).checked_rem(idle.len());
        if let Some(thread) = turn.and_then(|turn| idle.get_mut(turn)) {
            thread.write_overdue_idle(context);
        }
        woken
    }

    /// Resumes sampling on this tick.
    pub(crate) fn resume(&mut self, tick: Tick, session: &Session) {
        self.all().for_each(|thread| thread.resume(tick, session));
        self.regroup(tick, Woken::Any);
    }

    /// Moves long-idle threads to the idle list, and returns threads that have run to the active
    /// list. A thread stays where it is if memory for a longer list is lacking.
    fn regroup(&mut self, tick: Tick, woken: Woken) {
        match woken {
            Woken::Few { mut places, count } => {
                let places = &mut places[..count];
                places.sort_unstable();
                move_places(&mut self.idle, &mut self.active, places);
            }
            Woken::Any => {
                move_some(&mut self.idle, &mut self.active, |thread| !thread.is_idle());
            }
        }
        let is_long_idle = |thread: &ThreadSampler| thread.is_long_idle(tick);
        let before = self.idle.len();
        move_some(&mut self.active, &mut self.idle, is_long_idle);
        self.idle[before..]
            .iter_mut()
            .for_each(|thread| thread.own.rest());
    }
}

/// Maximum number of threads that are moved one by one.
const MAX_SINGLE_MOVES: usize = 16;

/// Which threads of the idle list have run.
#[derive(Debug)]
enum Woken {
    /// Those at these places of the list.
    Few {
        places: [usize; MAX_SINGLE_MOVES],
        count: usize,
    },
    /// Any of them.
    Any,
}

impl Woken {
    /// No thread has run.
    const NONE: Self = Self::Few {
        places: [0; MAX_SINGLE_MOVES],
        count: 0,
    };

    /// Adds a place. No place comes twice.
    fn add(&mut self, place: usize) {
        let Self::Few { places, count } = self else {
            return;
        };
        match places.get_mut(*count) {
            Some(free) => {
                *free = place;
                *count += 1;
            }
            None => *self = Self::Any,
        }
    }
}

/// Returns the threads of a session that have ended unnoticed: the system has given their ids to
/// other threads of the session, which registered later. Otherwise each thread would get the
/// other's samples. `registered` is sorted by serial numbers. Returns `None` if memory is lacking.
fn find_outlived(registered: &[OffThreadRef]) -> Option<Vec<OffThreadRef>> {
    let mut by_id = try_vec(registered.len())?;
    let threads = registered.iter().enumerate();
    by_id.extend(threads.map(|(index, thread)| (thread.tid(), index)));
    by_id.sort_unstable();
    let is_same = |pair: &&[(ThreadId, usize)]| pair[0].0 == pair[1].0;
    let pairs = || by_id.windows(2).filter(is_same);
    let mut outlived = try_vec(pairs().count())?;
    outlived.extend(pairs().map(|pair| registered[pair[0].1].clone()));
    Some(outlived)
}

/// Moves the threads at these places, which are in ascending order. Those that became idle last are
/// near the end of the list, so that few others have to move up.
fn move_places<T>(from: &mut Vec<T>, to: &mut Vec<T>, places: &[usize]) {
    if to.try_reserve(places.len()).is_ok() {
        to.extend(places.iter().rev().map(|place| from.remove(*place)));
    }
}

fn move_some(
    from: &mut Vec<ThreadSampler>,
    to: &mut Vec<ThreadSampler>,
    moves: impl Fn(&ThreadSampler) -> bool,
) {
    let count = from.iter().filter(|thread| moves(thread)).count();
    if count > 0 && to.try_reserve(count).is_ok() {
        to.extend(from.extract_if(.., |thread| moves(thread)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn woken_threads_are_moved_and_the_others_keep_their_order() {
        let mut woken = Woken::NONE;
        [5, 1, 4].iter().for_each(|&place| woken.add(place));
        let Woken::Few { mut places, count } = woken else {
            panic!("only three");
        };
        places[..count].sort_unstable();
        let (mut idle, mut active) = ((0..7).collect::<Vec<_>>(), vec![10]);
        move_places(&mut idle, &mut active, &places[..count]);
        assert_eq!((idle, active), (vec![0, 2, 3, 6], vec![10, 5, 4, 1]));
    }

    #[test]
    fn many_woken_threads_are_moved_at_once() {
        let mut woken = Woken::NONE;
        (0..MAX_SINGLE_MOVES).for_each(|place| woken.add(place));
        assert!(matches!(woken, Woken::Few { count: 16, .. }));
        woken.add(16);
        woken.add(17);
        assert!(matches!(woken, Woken::Any));
    }

    #[test]
    fn all_but_the_last_thread_of_an_id_are_outlived() {
        // All have the id of the thread that runs this test.
        let threads = [3, 5, 9].map(|serial| OffThreadRef::scripted(serial, "", false, None));
        let outlived = |threads: &[OffThreadRef]| -> Vec<u64> {
            let outlived = find_outlived(threads).expect("memory");
            outlived.iter().map(OffThreadRef::serial).collect()
        };
        assert_eq!(outlived(&threads), [3, 5]);
        assert_eq!(outlived(&threads[1..]), [5]);
        assert!(outlived(&threads[..1]).is_empty());
    }
}
