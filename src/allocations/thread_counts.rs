//! The bytes and calls that each thread has allocated and freed.
//!
//! A thread writes a place of its own, so counting needs no atomic read-modify-write. The places of
//! threads that have ended keep their numbers, and go to new threads, which add to them: what counts
//! is the sum of all places.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use once_cell::race::OnceBox;

use crate::platform::{AtThreadExit, KeptErrno, ThreadExitKey, is_current_thread_own};
use crate::util::{allocator_has, is_any_lock_held_on_current_thread};

/// Maximum number of times that the numbers of a busy thread are read again.
const MAX_READS: usize = 4;
/// Number of places in a block.
const PLACES: usize = 16;

/// Sums over the whole process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct AllocationCounts {
    /// Allocated bytes, less freed ones.
    pub(crate) bytes: i64,
    /// Number of allocations and frees by the application.
    pub(crate) operations: u64,
}

/// Bytes, and the number of operations that they belong to.
#[derive(Debug)]
struct Sum {
    bytes: AtomicU64,
    operations: AtomicU64,
}

impl Sum {
    const fn new() -> Self {
        Self {
            bytes: AtomicU64::new(0),
            operations: AtomicU64::new(0),
        }
    }

    /// Returns the new sum of bytes.
    #[inline(always)]
    fn add(&self, sharing: Sharing, bytes: u64, operations: u64) -> u64 {
        let add = |number: &AtomicU64, change: u64| {
            if sharing == Sharing::OneThread {
                let changed = number.load(Ordering::Relaxed).wrapping_add(change);
                number.store(changed, Ordering::Relaxed);
                changed
            } else {
                let before = number.fetch_add(change, Ordering::Relaxed);
                before.wrapping_add(change)
            }
        };
        add(&self.operations, operations);
        add(&self.bytes, bytes)
    }

    fn read(&self) -> (u64, u64) {
        let bytes = self.bytes.load(Ordering::Relaxed);
        (bytes, self.operations.load(Ordering::Relaxed))
    }
}

/// The numbers of one thread, or of all threads that share a place.
///
/// Allocations and frees have sums of their own: a processor would have to finish a change before it
/// could begin the next one of the same sum.
#[derive(Debug)]
pub(super) struct ThreadCounts {
    allocated: Sum,
    freed: Sum,
    /// The sum of allocated bytes at which an allocation is sampled.
    sample_at: AtomicU64,
    /// Whether that was chosen by chance.
    is_by_chance: AtomicBool,
    /// State of the random numbers of the place; 0 before the first one.
    random: AtomicU64,
    is_taken: AtomicBool,
    sharing: Sharing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sharing {
    /// Only the thread that took the place writes it.
    OneThread,
    /// Any thread writes it.
    Shared,
    /// The profiler's threads write it, and others while they record a sample.
    Profilers,
}

impl ThreadCounts {
    const fn new(sharing: Sharing) -> Self {
        Self {
            allocated: Sum::new(),
            freed: Sum::new(),
            sample_at: AtomicU64::new(0),
            is_by_chance: AtomicBool::new(false),
            random: AtomicU64::new(0),
            is_taken: AtomicBool::new(false),
            sharing,
        }
    }

    /// Returns the new sum of allocated bytes.
    pub(super) fn count_allocation(&self, bytes: usize) -> u64 {
        self.allocated.add(self.sharing, bytes as u64, 1)
    }

    pub(super) fn count_free(&self, bytes: usize) {
        self.freed.add(self.sharing, bytes as u64, 1);
    }

    /// Takes back a counted free.
    pub(super) fn uncount_free(&self, bytes: usize) {
        let (bytes, one) = (bytes as u64, 1u64);
        self.freed
            .add(self.sharing, bytes.wrapping_neg(), one.wrapping_neg());
    }

    /// Returns what the place has counted.
    fn read(&self) -> AllocationCounts {
        // What the thread allocates and frees between the reads must not count as freed only.
        let mut freed = self.freed.read();
        let mut allocated = self.allocated.read();
        for _ in 0..MAX_READS {
            let now_freed = self.freed.read();
            if now_freed == freed {
                break;
            }
            freed = now_freed;
            allocated = self.allocated.read();
        }
        AllocationCounts {
            bytes: allocated.0.wrapping_sub(freed.0).cast_signed(),
            operations: match self.sharing {
                Sharing::Profilers => 0,
                _ => allocated.1.wrapping_add(freed.1),
            },
        }
    }

    /// Returns whether the allocation is sampled that has brought the sum of allocated bytes to `sum`.
    /// If so, the caller calls [`Self::set_next`] afterwards.
    #[inline(always)]
    pub(super) fn is_chosen(&self, sum: u64) -> bool {
        sum.wrapping_sub(self.sample_at.load(Ordering::Relaxed))
            .cast_signed()
            >= 0
    }

    /// Chooses the next sample, and returns whether the allocation of the last `bytes` bytes stays
    /// one. `next` returns the number of bytes to the next sample, and changes the state of the random
    /// numbers.
    pub(super) fn set_next(&self, bytes: u64, mut next: impl FnMut(&mut u64) -> u64) -> bool {
        let mut random = match self.random.load(Ordering::Relaxed) {
            // Each place, process and session has other numbers.
            0 => std::ptr::from_ref(self) as u64 ^ SEED.load(Ordering::Relaxed),
            state => state,
        };
        let sum = self.allocated.bytes.load(Ordering::Relaxed);
        let mut stays = self.is_by_chance.swap(true, Ordering::Relaxed);
        if !stays {
            // This allocation was not chosen by chance. So the choice begins before it.
            let distance = next(&mut random);
            stays = distance <= bytes;
            let begin = sum.wrapping_sub(bytes);
            self.sample_at
                .store(begin.wrapping_add(distance), Ordering::Relaxed);
        }
        if stays {
            let distance = next(&mut random);
            self.sample_at
                .store(sum.wrapping_add(distance), Ordering::Relaxed);
        }
        self.random.store(random.max(1), Ordering::Relaxed);
        stays
    }

    /// Forgets the next sample, which depends on the session's interval.
    fn restart(&self) {
        let sum = self.allocated.bytes.load(Ordering::Relaxed);
        self.sample_at.store(sum, Ordering::Relaxed);
        self.is_by_chance.store(false, Ordering::Relaxed);
    }
}

/// The numbers of the calling thread, which no other thread writes. It need not look at `sharing`, so
/// it counts with fewer instructions than [`ThreadCounts`].
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnCounts(&'static ThreadCounts);

impl OwnCounts {
    #[inline(always)]
    pub(super) fn count_allocation(self, bytes: usize) -> u64 {
        self.0.allocated.add(Sharing::OneThread, bytes as u64, 1)
    }

    #[inline(always)]
    pub(super) fn count_free(self, bytes: usize) {
        self.0.freed.add(Sharing::OneThread, bytes as u64, 1);
    }

    /// See [`ThreadCounts::is_chosen`].
    #[inline(always)]
    pub(super) fn is_chosen(self, sum: u64) -> bool {
        self.0.is_chosen(sum)
    }
}

/// Makes the random numbers of places differ between processes.
static SEED: AtomicU64 = AtomicU64::new(0);

/// Places for threads. A block stays for the rest of the process.
#[derive(Debug)]
struct Block {
    places: [CachePadded<ThreadCounts>; PLACES],
    next: OnceBox<Block>,
}

impl Block {
    const fn new() -> Self {
        Self {
            places: [const { CachePadded::new(ThreadCounts::new(Sharing::OneThread)) }; PLACES],
            next: OnceBox::new(),
        }
    }
}

static FIRST: Block = Block::new();
/// The place of threads that cannot have one of their own: while they take one, and while they end.
static SHARED: CachePadded<ThreadCounts> = CachePadded::new(ThreadCounts::new(Sharing::Shared));
/// The place of the profiler's own work. Its bytes count, because what the profiler allocates on one
/// thread it may free on another. Its operations do not.
static OF_PROFILER: CachePadded<ThreadCounts> =
    CachePadded::new(ThreadCounts::new(Sharing::Profilers));

thread_local! {
    // They have no destructors, so destructors of other thread-locals can still use them.
    /// The place that only this thread writes, if it has one and may write it now.
    static OWN: Cell<Option<OwnCounts>> = const { Cell::new(None) };
    /// The place that this thread writes otherwise. `None` until the thread has looked for its own.
    static OTHER: Cell<Option<&'static ThreadCounts>> = const { Cell::new(None) };
}

/// Gives a place back when its thread ends. A thread-local with a destructor would wait for the
/// loader, which another thread may hold while it waits for this one.
static AT_EXIT: ThreadExitKey<ThreadCounts> = ThreadExitKey::new();

impl AtThreadExit for ThreadCounts {
    fn at_thread_exit(&'static self) {
        OWN.set(None);
        OTHER.set(Some(&SHARED));
        self.is_taken.store(false, Ordering::Release);
    }
}

/// Returns the place that only the calling thread writes. `None` if it has none, also if it has not
/// looked for one yet.
#[inline(always)]
pub(super) fn own_counts() -> Option<OwnCounts> {
    OWN.get()
}

/// Returns the place of the calling thread, which it may share with others.
pub(super) fn counts() -> &'static ThreadCounts {
    match (OWN.get(), OTHER.get()) {
        (Some(OwnCounts(own)), _) => own,
        (None, Some(other)) => other,
        (None, None) => take_place(),
    }
}

#[cold]
fn take_place() -> &'static ThreadCounts {
    // The allocations of this function itself go there.
    OTHER.set(Some(&SHARED));
    let _errno = KeptErrno::new();
    if is_current_thread_own() {
        OTHER.set(Some(&OF_PROFILER));
        return &OF_PROFILER;
    }
    let Some(place) = free_place() else {
        return &SHARED;
    };
    // Without this, the place would never be given back.
    if !AT_EXIT.call(place) {
        place.is_taken.store(false, Ordering::Release);
        return &SHARED;
    }
    OWN.set(Some(OwnCounts(place)));
    place
}

/// Takes a place that no thread has. Makes a block of places if no place is free.
fn free_place() -> Option<&'static ThreadCounts> {
    let mut block = &FIRST;
    loop {
        for place in &block.places {
            let taken =
                place
                    .is_taken
                    .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
            if taken.is_ok() {
                return Some(place);
            }
        }
        block = match block.next.get() {
            Some(next) => next,
            // The box cannot be allocated fallibly.
            None if allocator_has(size_of::<Block>()) => {
                block.next.get_or_init(|| Box::new(Block::new()))
            }
            None => return None,
        };
    }
}

/// Keeps allocations of the thread from being sampled, and from counting as the application's, while
/// it records one: gives the thread the place of the profiler's work until this is dropped.
#[derive(Debug)]
pub(crate) struct HookUse {
    own_before: Option<OwnCounts>,
    other_before: Option<&'static ThreadCounts>,
}

impl HookUse {
    /// Returns `None` inside the profiler's own work.
    pub(crate) fn begin() -> Option<Self> {
        if is_any_lock_held_on_current_thread() || counts().sharing == Sharing::Profilers {
            return None;
        }
        Some(Self {
            own_before: OWN.take(),
            other_before: OTHER.replace(Some(&OF_PROFILER)),
        })
    }
}

impl Drop for HookUse {
    fn drop(&mut self) {
        OWN.set(self.own_before);
        OTHER.set(self.other_before);
    }
}

fn for_each_place(mut visit: impl FnMut(&ThreadCounts)) {
    visit(&SHARED);
    visit(&OF_PROFILER);
    let mut next = Some(&FIRST);
    while let Some(block) = next {
        block.places.iter().for_each(|place| visit(place));
        next = block.next.get();
    }
}

/// Returns the sums over all threads. Costs some nanoseconds for each thread that exists or existed
/// at the same time as others.
pub(crate) fn all_counts() -> AllocationCounts {
    let mut sums = AllocationCounts::default();
    for_each_place(|place| {
        let counts = place.read();
        sums.bytes = sums.bytes.wrapping_add(counts.bytes);
        sums.operations = sums.operations.wrapping_add(counts.operations);
    });
    sums
}

/// Prepares for threads to take places.
pub(super) fn prepare_places() {
    AT_EXIT.prepare();
}

/// Lets every thread begin anew with its distance to the next sample.
pub(super) fn restart_sampling(seed: u64) {
    SEED.store(seed, Ordering::Relaxed);
    for_each_place(ThreadCounts::restart);
}

/// Frees the places of the parent's other threads, in the child of a fork.
pub(super) fn free_places_of_other_threads() {
    let own = OWN.get();
    for_each_place(|place| {
        place.random.store(0, Ordering::Relaxed);
        if !own.is_some_and(|OwnCounts(own)| std::ptr::eq(own, place)) {
            place.is_taken.store(false, Ordering::Relaxed);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Allocates `bytes`, and returns whether that is sampled. The distance to the next sample is
    /// `distance`.
    fn allocate(counts: &ThreadCounts, bytes: usize, distance: u64) -> bool {
        let sum = counts.count_allocation(bytes);
        counts.is_chosen(sum) && counts.set_next(bytes as u64, |_| distance)
    }

    #[test]
    fn bytes_are_sampled_at_the_chosen_distances() {
        for sharing in [Sharing::OneThread, Sharing::Shared, Sharing::Profilers] {
            let counts = ThreadCounts::new(sharing);
            // The first distance begins before the first byte, the others after a sample.
            assert!(!allocate(&counts, 1, 100));
            assert!(!allocate(&counts, 98, 5));
            assert!(allocate(&counts, 1, 5));
            assert!(!allocate(&counts, 4, 5));
            assert!(allocate(&counts, 1000, 5));
            assert!(!allocate(&counts, 4, 5));
            counts.restart();
            assert!(!allocate(&counts, 4, 5));
            assert!(allocate(&counts, 1, 5));
            counts.restart();
            assert!(
                allocate(&counts, 5, 5),
                "the first allocation may be a sample"
            );
        }
    }

    #[test]
    fn counts_of_ended_threads_stay_and_their_places_are_used_again() {
        let count = || {
            std::thread::spawn(|| {
                let own = counts();
                own.count_allocation(4);
                own.count_free(7);
                own.count_free(9);
                own.uncount_free(9);
                std::ptr::from_ref(own) as usize
            })
            .join()
            .expect("a thread")
        };
        prepare_places();
        let before = all_counts();
        let places: std::collections::HashSet<_> = (0..200).map(|_| count()).collect();
        let after = all_counts();
        // Other tests count nothing: no allocator of this binary calls the hook.
        assert_eq!(after.bytes - before.bytes, -600);
        assert_eq!(after.operations - before.operations, 400);
        assert!(places.len() < 200, "{}", places.len());
    }

    #[test]
    fn profilers_bytes_count_and_its_operations_do_not() {
        for (sharing, operations) in [
            (Sharing::OneThread, 2),
            (Sharing::Shared, 2),
            (Sharing::Profilers, 0),
        ] {
            let counts = ThreadCounts::new(sharing);
            counts.count_allocation(10);
            counts.count_free(3);
            let expected = AllocationCounts {
                bytes: 7,
                operations,
            };
            assert_eq!(counts.read(), expected, "{sharing:?}");
        }
    }

    #[test]
    fn profiler_place_is_taken_once_and_given_back() {
        prepare_places();
        let before = counts();
        let place = HookUse::begin().expect("not taken before");
        assert_eq!(counts().sharing, Sharing::Profilers);
        assert!(HookUse::begin().is_none());
        assert_eq!(counts().sharing, Sharing::Profilers);
        drop(place);
        assert!(std::ptr::eq(counts(), before));
    }

    #[test]
    fn more_threads_than_places_of_a_block_have_places_of_their_own() {
        prepare_places();
        let barrier = std::sync::Barrier::new(2 * PLACES);
        let places: Vec<_> = std::thread::scope(|scope| {
            let spawn = |_| {
                scope.spawn(|| {
                    let own = std::ptr::from_ref(counts()) as usize;
                    barrier.wait();
                    own
                })
            };
            let threads: Vec<_> = (0..2 * PLACES).map(spawn).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("a thread"))
                .collect()
        });
        let distinct: std::collections::HashSet<_> = places.iter().collect();
        assert_eq!(distinct.len(), places.len());
    }
}
