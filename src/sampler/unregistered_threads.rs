//! Finds the threads of the process that have not registered, so that they are sampled, too.
//!
//! The system says how many threads there are in one call, which the sampler makes on each tick. It
//! reads the list of threads when that number has changed, when a thread that it samples has ended,
//! and now and then. So it finds a thread on the first tick of its life, unless the list is so long
//! that it is not read on each tick. With a thousand sleeping threads, a tick costs only the one
//! call.
//!
//! A thread that the application has registered and unregistered is not recorded until the next
//! session.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use crate::platform::{
    ProbeResult, TaskList, ThreadProbe, is_own_thread, is_own_thread_beginning, main_thread_id,
    monotonic_now, read_thread_name, thread_cpu_ns,
};
use crate::state::{ActivePs, Session, SessionCounts};
use crate::threads::{MAIN_THREAD_NAME, OffThreadRef, ThreadRegistrationInfo, ThreadRegistry};
use crate::types::{Features, ThreadFilter, ThreadId, TimeStamp};
use crate::util::{PsLock, allocator_has};

/// Minimum time between two reads of the list, as a multiple of how long the last one took: about
/// 5 % of a processor while many threads begin and end, and many others live longer.
const MIN_PAUSE_FACTOR: u64 = 20;
/// Maximum time between two reads: as a multiple of how long the last one took, which is 0.1 % of a
/// processor, and in ns.
const MAX_PAUSE_FACTOR: u64 = 1000;
const MAX_PAUSE_NS: u64 = 1_000_000_000;
/// Time until the list is read again after the system has refused it, in ns.
const REFUSED_PAUSE_NS: u64 = 1_000_000_000;
/// Maximum time between two reads of a thread's name, in ns.
const MAX_NAME_AGE_NS: u64 = 10_000_000_000;
/// Growth of the time between two checks of a thread's name. Four checks are within 0.1 s.
const NAME_WAIT_FACTOR: u64 = 4;
/// Time between two checks from which on the name of a thread that has not run in between is not
/// read, in ns: such a thread cannot rename itself. Another one can, and mostly does so at once.
const NAMED_BY_OTHERS_NS: u64 = 100_000_000;
/// CPU time after which a new thread has surely named itself, in ns. A thread that has run for less
/// and sleeps has done so, too, because threads name themselves first.
const NAMED_CPU_NS: u64 = 200_000;
/// Time until the sampler asks whether a new thread sleeps, in ns.
const MIN_SLEEP_CHECK_NS: u64 = 20_000_000;
/// Memory that a new thread takes in the lists of the sampler and of the session, in bytes. Each list
/// doubles while its old memory is still in use.
const NEW_THREAD_BYTES: usize = 1024;
/// Number of new threads up to which each is searched for among the registered ones.
const MAX_SINGLE_SEARCHES: usize = 4;
/// Maximum number of names that are checked on a tick. Reading one takes some 6 µs.
const NAMES_PER_TICK: usize = 16;

/// What the sampler knows of a thread in the system's list.
#[derive(Debug)]
enum Known {
    /// It is one of the profiler's own.
    Own,
    Registered,
    /// It has unregistered: it is ending, or is not to be recorded.
    Left,
    /// It has not registered, or had not when it was found, and the session records it.
    Recorded(OffThreadRef),
    /// It has not registered, and the session's filters do not select it.
    NotSelected(OffThreadRef),
}

/// A thread whose name is to be checked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct NameCheck {
    due: TimeStamp,
    thread: ThreadId,
    /// Time between the last check and this one, in ns.
    wait_ns: u64,
    /// The thread's CPU clock at the last check; 0 if it could not be read.
    cpu_ns: u64,
    /// Whether the filters have been applied.
    is_selected: bool,
}

/// The search for threads that have not registered. Used by the sampler.
#[derive(Debug, Default)]
pub(crate) struct UnregisteredThreads {
    list: TaskList,
    /// Whether the threads are sampled. Otherwise they are only found.
    samples: bool,
    known: HashMap<ThreadId, Known>,
    names: BinaryHeap<Reverse<NameCheck>>,
    /// Number of threads when the list was last read.
    count: u64,
    /// Whether the list is known to be out of date.
    is_stale: bool,
    read_at: Option<TimeStamp>,
    /// The list is read again not before the first time, and not after the second.
    not_before: TimeStamp,
    not_after: TimeStamp,
    /// Memory that is reused from list to list.
    listed: Vec<ThreadId>,
    registered: Vec<ThreadId>,
}

impl UnregisteredThreads {
    /// Searches for new threads and ended threads, and updates the session's threads. Returns how
    /// long ago the previous search was, in ns: a new thread may have run for that long.
    pub(crate) fn follow(&mut self, session: &Session, now: TimeStamp) -> u64 {
        let features = session.settings.features;
        self.samples = !features.contains(Features::NO_UNREGISTERED_SAMPLING);
        if !self.samples && !features.contains(Features::UNREGISTERED_THREADS) {
            return 0;
        }
        self.read_due_names(session, now);
        if now < self.not_before || !self.has_changed(now) {
            return 0;
        }
        let unseen_ns = self.read_at.map_or(0, |read_at| now.since_ns(read_at));
        if self.read_list(session, now) {
            // A list with threads that are left for a later one does not count.
            if !self.is_stale {
                self.read_at = Some(now);
            }
            let took_ns = monotonic_now().since_ns(now);
            self.not_before = now.plus_ns(took_ns * MIN_PAUSE_FACTOR);
            self.not_after = now.plus_ns((took_ns * MAX_PAUSE_FACTOR).max(MAX_PAUSE_NS));
        } else {
            SessionCounts::add(&session.counts.refused_thread_lists, 1);
            self.not_before = now.plus_ns(REFUSED_PAUSE_NS);
        }
        unseen_ns
    }

    /// Returns the threads that have not registered, except the profiler's own.
    pub(crate) fn threads(&self) -> impl Iterator<Item = &OffThreadRef> {
        self.known.values().filter_map(Known::unregistered)
    }

    /// Returns whether threads are still missing that have been there since the session began.
    pub(crate) fn is_first_search_open(&self) -> bool {
        self.samples && self.read_at.is_none()
    }

    /// Notes that a sampled thread has ended or registered, so that another one may have its place in
    /// the list.
    pub(crate) fn expect_change(&mut self) {
        self.is_stale = true;
    }

    /// Reads the names of all threads that have not registered, for a profile.
    pub(crate) fn read_all_names(&mut self, session: &Session) {
        let threads = self.known.values().filter_map(Known::unregistered);
        let renamed: Vec<_> = threads
            .filter(|thread| read_name(thread))
            .cloned()
            .collect();
        self.select_renamed(session, &renamed);
    }

    fn has_changed(&mut self, now: TimeStamp) -> bool {
        std::mem::take(&mut self.is_stale)
            || now >= self.not_after
            || self.list.count().is_ok_and(|count| count != self.count)
    }

    /// Reads the list. Returns false if the system refuses it, or if memory for it is lacking.
    fn read_list(&mut self, session: &Session, now: TimeStamp) -> bool {
        if self.list.read(&mut self.listed).is_err() {
            return false;
        }
        let listed_at = monotonic_now();
        // Asked after the list was read, and before the threads are classified.
        let has_unknown_own = is_own_thread_beginning();
        self.listed.sort_unstable();
        self.count = self.listed.len() as u64;
        let listed = self.listed.len();
        if !ThreadRegistry::list_ids(&mut self.registered)
            || self.known.try_reserve(listed).is_err()
            || self.names.try_reserve(listed).is_err()
        {
            return false;
        }
        self.forget_ended(session, now);
        let mut new = Vec::new();
        for &thread in &self.listed {
            let is_registered = self.registered.binary_search(&thread).is_ok();
            let known = self.known.get_mut(&thread);
            match known.filter(|known| !known.is_outlived()) {
                Some(known) => known.follow(is_registered),
                None if is_registered => {
                    self.known.insert(thread, Known::Registered);
                }
                None if is_own_thread(thread) => {
                    self.known.insert(thread, Known::Own);
                }
                // It may be the profiler's.
                None if has_unknown_own => self.is_stale = true,
                None => new.push(thread),
            }
        }
        self.add_new(session, &new, (now, listed_at));
        true
    }

    /// Forgets the threads that are no longer listed, and ends those that the session records.
    fn forget_ended(&mut self, session: &Session, now: TimeStamp) {
        let listed = &self.listed;
        let is_listed = |thread: &ThreadId| listed.binary_search(thread).is_ok();
        let ended = self.known.extract_if(|thread, _| !is_listed(thread));
        let ended: Vec<_> = ended
            .filter_map(|(_, known)| known.into_recorded())
            .collect();
        if !ended.is_empty() {
            ActivePs::with(session, |active, lock| {
                for thread in &ended {
                    active.end_unregistered(thread, now, lock);
                }
            });
        }
    }

    /// Adds threads that were found on a tick, in a list that was read a little later.
    fn add_new(
        &mut self,
        session: &Session,
        new: &[ThreadId],
        (now, listed_at): (TimeStamp, TimeStamp),
    ) {
        let needed_bytes = new.len() * NEW_THREAD_BYTES + ThreadRegistry::growth_bytes();
        if !new.is_empty() && !allocator_has(needed_bytes) {
            self.is_stale = true;
            return;
        }
        let is_first = self.read_at.is_none();
        let found_at = if is_first { session.started_at } else { now };
        // A new thread has the name of the one that created it, and gets its own soon. A filter that
        // looks at names waits for that. Most threads of the first list are older.
        let selects_all = ThreadFilter::new(&session.settings.filters).selects_all();
        let has_own_name = |thread| {
            is_first && is_named(thread_cpu_ns(thread), MIN_SLEEP_CHECK_NS, || sleeps(thread))
        };
        let found = new.iter().filter_map(|&thread| {
            // Asked before the name is read.
            let selects_at_once = selects_all || thread == main_thread_id() || has_own_name(thread);
            Some((selects_at_once, found_thread(thread, found_at, listed_at)?))
        });
        // Their names are read without a lock.
        let found: Vec<_> = found.collect();
        if found.is_empty() {
            return;
        }
        let samples = self.samples;
        let mut registered = std::mem::take(&mut self.registered);
        let read_before = self.read_at.unwrap_or(session.started_at);
        let known = ActivePs::with(session, |active, lock| {
            let mut threads = active.threads.borrow_mut();
            let left = threads.unregistered_since(read_before);
            // The lock prevents registrations. A search for each of many threads would take as many
            // steps as there are threads, each time.
            let is_listed =
                found.len() > MAX_SINGLE_SEARCHES && ThreadRegistry::list_ids(&mut registered);
            let is_registered = |id| match is_listed {
                true => registered.binary_search(&id).is_ok(),
                false => ThreadRegistry::find(id).is_some(),
            };
            let tell = |(selects_at_once, thread): (bool, OffThreadRef)| {
                let id = thread.tid();
                // The thread may have registered since the list was read, and may have unregistered
                // again.
                let known = if is_registered(id) {
                    Known::Registered
                } else if left.contains(&id) {
                    Known::Left
                } else if samples && selects_at_once && threads.add(&thread, lock) {
                    SessionCounts::add(&session.counts.unregistered_threads, 1);
                    Known::Recorded(thread)
                } else {
                    // If unregistered threads are not sampled, no session has them.
                    Known::NotSelected(thread)
                };
                (id, known, selects_at_once)
            };
            found.into_iter().map(tell).collect::<Vec<_>>()
        });
        self.registered = registered;
        let Some(known) = known else {
            // The session is not set up yet, or has ended.
            self.is_stale = true;
            return;
        };
        for (id, known, is_selected) in known {
            self.known.insert(id, known);
            let wait_ns = session.settings.interval.as_nanos() as u64;
            self.names.push(Reverse(NameCheck {
                due: now.plus_ns(wait_ns),
                thread: id,
                wait_ns,
                cpu_ns: 0,
                is_selected,
            }));
        }
    }

    /// Reads the names that are due. The older a thread is, the more rarely its name is read.
    fn read_due_names(&mut self, session: &Session, now: TimeStamp) {
        let mut renamed = Vec::new();
        for _ in 0..NAMES_PER_TICK {
            let due = self.names.peek().filter(|check| check.0.due <= now);
            let Some(&Reverse(check)) = due else { break };
            self.names.pop();
            // Another thread may have the id by now; then its name is checked once more.
            let thread = self.known.get(&check.thread).and_then(Known::unregistered);
            let Some(thread) = thread.cloned() else {
                continue;
            };
            let clock = thread_cpu_ns(check.thread);
            let known_for_ns = now.since_ns(thread.unlocked_const_reader().info().registered_at);
            if !check.is_selected && !is_named(clock, known_for_ns, || sleeps(check.thread)) {
                let due = now.plus_ns(check.wait_ns);
                self.names.push(Reverse(NameCheck { due, ..check }));
                continue;
            }
            let cpu_ns = clock.unwrap_or(0);
            let is_renamed = check.may_have_another_name(cpu_ns) && read_name(&thread);
            if is_renamed || !check.is_selected {
                renamed.push(thread);
            }
            self.names.push(Reverse(check.next(now, cpu_ns)));
        }
        self.select_renamed(session, &renamed);
    }

    /// Applies the filters to threads with new names.
    fn select_renamed(&mut self, session: &Session, renamed: &[OffThreadRef]) {
        if renamed.is_empty() || !self.samples {
            return;
        }
        ActivePs::with(session, |active, lock| {
            for thread in renamed {
                let is_selected = active.threads.borrow_mut().add(thread, lock);
                let id = thread.tid();
                let known = self.known.get_mut(&id);
                if let Some(known @ Known::NotSelected(_)) = known.filter(|_| is_selected) {
                    SessionCounts::add(&session.counts.unregistered_threads, 1);
                    *known = Known::Recorded(thread.clone());
                }
            }
        });
    }
}

impl NameCheck {
    /// Returns whether the name is worth a read. `cpu_ns` is the thread's CPU clock, or 0.
    fn may_have_another_name(&self, cpu_ns: u64) -> bool {
        let has_run = cpu_ns == 0 || cpu_ns != self.cpu_ns;
        has_run || !(NAMED_BY_OTHERS_NS..MAX_NAME_AGE_NS).contains(&self.wait_ns)
    }

    /// Returns the check after this one.
    fn next(self, now: TimeStamp, cpu_ns: u64) -> Self {
        let wait_ns = self.wait_ns.saturating_mul(NAME_WAIT_FACTOR);
        let wait_ns = wait_ns.min(MAX_NAME_AGE_NS);
        Self {
            due: now.plus_ns(wait_ns),
            wait_ns,
            cpu_ns,
            is_selected: true,
            ..self
        }
    }
}

impl Known {
    /// Returns a thread that had not registered when it was found.
    fn unregistered(&self) -> Option<&OffThreadRef> {
        match self {
            Self::Recorded(thread) | Self::NotSelected(thread) => Some(thread),
            Self::Own | Self::Registered | Self::Left => None,
        }
    }

    fn into_recorded(self) -> Option<OffThreadRef> {
        match self {
            Self::Recorded(thread) => Some(thread),
            _ => None,
        }
    }

    /// Returns whether a sampled thread was found to have ended, so that the listed one is another
    /// thread, to which the system has given the same id.
    fn is_outlived(&self) -> bool {
        self.unregistered().is_some_and(|thread| {
            let thread = thread.unlocked_const_reader_and_atomic_rw();
            thread.unregistered_at().is_some() && !thread.is_registered()
        })
    }

    /// Follows a thread that is still listed.
    fn follow(&mut self, is_registered: bool) {
        let has_registered =
            |thread: &OffThreadRef| thread.unlocked_const_reader_and_atomic_rw().is_registered();
        match self {
            Self::Own => {}
            _ if is_registered => *self = Self::Registered,
            Self::Registered => *self = Self::Left,
            Self::Recorded(thread) | Self::NotSelected(thread) if has_registered(thread) => {
                *self = Self::Left;
            }
            Self::Left | Self::Recorded(_) | Self::NotSelected(_) => {}
        }
    }
}

/// Returns a thread that has not registered, with the system's name. `None` if it has ended.
fn found_thread(
    thread: ThreadId,
    found_at: TimeStamp,
    listed_at: TimeStamp,
) -> Option<OffThreadRef> {
    let name = read_thread_name(thread)?;
    let is_main = thread == main_thread_id();
    let info = ThreadRegistrationInfo {
        serial: ThreadRegistry::next_serial(),
        is_main,
        registered_at: found_at,
    };
    let name = match is_main {
        true => MAIN_THREAD_NAME,
        false => &name,
    };
    Some(OffThreadRef::of_found_thread(
        info,
        name,
        (thread, listed_at),
    ))
}

/// Returns whether a new thread has had the time to name itself, which it does at once. `clock` is its
/// CPU time, or `None` if the system does not tell it.
fn is_named(clock: Option<u64>, known_for_ns: u64, sleeps: impl FnOnce() -> bool) -> bool {
    clock.is_none_or(|cpu_ns| {
        // A thread without CPU time has not begun: it waits for a processor.
        cpu_ns >= NAMED_CPU_NS || (cpu_ns > 0 && known_for_ns >= MIN_SLEEP_CHECK_NS && sleeps())
    })
}

/// Returns whether a thread neither runs nor waits for a processor, or whether the system does not
/// tell it.
fn sleeps(thread: ThreadId) -> bool {
    match ThreadProbe::new(thread).probe() {
        ProbeResult::Blocked(_) | ProbeResult::Hidden => true,
        ProbeResult::FallingAsleep | ProbeResult::NotBlocked => false,
    }
}

/// Reads the name of a thread. Returns whether it is another one than before.
fn read_name(thread: &OffThreadRef) -> bool {
    if thread.unlocked_const_reader().info().is_main {
        return false;
    }
    let reader = thread.unlocked_const_reader_and_atomic_rw();
    let before = reader.system_name();
    let name = read_thread_name(reader.tid()).filter(|name| *name != before);
    name.is_some_and(|name| {
        let lock = PsLock::acquire();
        // If the thread has registered itself since then, it has read a newer name.
        reader.system_name() == before
            && thread
                .unlocked_rw_for_locked_profiler()
                .set_system_name(&name, &lock)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::current_thread_id;

    /// Returns how often a name is read in a minute if the thread's clock shows these times.
    fn reads_in_a_minute(mut cpu_ns: impl FnMut() -> u64) -> usize {
        let begin = TimeStamp(1);
        let mut check = NameCheck {
            due: begin.plus_ns(1_000_000),
            thread: current_thread_id(),
            wait_ns: 1_000_000,
            cpu_ns: 0,
            is_selected: true,
        };
        let mut reads = 0;
        while check.due.since_ns(begin) < 60_000_000_000 {
            let now_ns = cpu_ns();
            reads += usize::from(check.may_have_another_name(now_ns));
            check = check.next(check.due, now_ns);
        }
        reads
    }

    #[test]
    fn new_thread_is_named_when_it_has_run_for_a_while() {
        let (sleeps, runs) = (|| true, || false);
        assert!(!is_named(Some(0), u64::MAX, sleeps), "it has not begun");
        assert!(!is_named(Some(50_000), 1_000_000, sleeps));
        assert!(is_named(Some(50_000), 20_000_000, sleeps));
        assert!(
            !is_named(Some(50_000), u64::MAX, runs),
            "it waits for a processor"
        );
        assert!(is_named(Some(200_000), 0, runs));
        assert!(
            is_named(None, 0, runs),
            "nothing tells whether it has begun"
        );
    }

    #[test]
    fn name_of_a_thread_that_does_not_run_is_read_rarely() {
        let mut clock = 0;
        let running = reads_in_a_minute(|| {
            clock += 1;
            clock
        });
        let without_clock = reads_in_a_minute(|| 0);
        // Four within 0.1 s, then none until the name is 10 s old.
        let sleeping = reads_in_a_minute(|| 500);
        assert_eq!([running, without_clock, sleeping], [12, 12, 9]);
    }
}
