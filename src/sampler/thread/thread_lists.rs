//! The threads that the sampler samples. Long-idle threads are kept in a separate list.

use crate::sampler::encode::Tick;
use crate::sampler::thread::thread_sampler::ThreadSampler;
use crate::threads::OffThreadRef;
use crate::util::try_vec;

/// The sampled threads of the session.
#[derive(Default)]
pub(crate) struct Threads {
    pub(crate) active: Vec<ThreadSampler>,
    /// In the order in which they became idle.
    pub(crate) idle: Vec<ThreadSampler>,
}

/// Maximum number of threads that are moved one by one.
const MAX_SINGLE_MOVES: usize = 16;

/// Which threads of the idle list have run.
#[derive(Debug)]
pub(crate) enum Woken {
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
    pub(crate) const NONE: Self = Self::Few {
        places: [0; MAX_SINGLE_MOVES],
        count: 0,
    };

    /// Adds a place. No place comes twice.
    pub(crate) fn add(&mut self, place: usize) {
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

impl Threads {
    pub(crate) fn all(&mut self) -> impl Iterator<Item = &mut ThreadSampler> {
        self.active.iter_mut().chain(&mut self.idle)
    }

    /// Moves long-idle threads to the idle list, and returns threads that have run to the active
    /// list. A thread stays where it is if memory for a longer list is lacking.
    pub(crate) fn regroup(&mut self, tick: Tick, woken: Woken) {
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
        self.idle[before..].iter_mut().for_each(ThreadSampler::rest);
    }
}

/// Returns the threads of a session that have ended unnoticed: the system has given their ids to
/// other threads of the session, which registered later. Otherwise each thread would get the
/// other's samples. `registered` is sorted by serial numbers. Returns `None` if memory is lacking.
pub(crate) fn find_outlived(registered: &[OffThreadRef]) -> Option<Vec<OffThreadRef>> {
    let mut by_id = try_vec(registered.len())?;
    let tid_of = |thread: &OffThreadRef| {
        thread
            .unlocked_const_reader_and_atomic_rw()
            .tid()
            .to_number()
    };
    by_id.extend(
        registered
            .iter()
            .enumerate()
            .map(|(index, thread)| (tid_of(thread), index)),
    );
    by_id.sort_unstable();
    let is_same = |pair: &&[(i32, usize)]| pair[0].0 == pair[1].0;
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
