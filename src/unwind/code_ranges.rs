//! The ranges of generated code that the application has registered.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use once_cell::race::OnceBox;

use crate::platform::monotonic_now;
use crate::types::{KeptLimits, TimeStamp};
use crate::unwind::code_map::{CodeMap, GeneratedCode};
use crate::util::{Guard, LockRank, NamedMutex, SMALL_TASK_BYTES, allocator_has, cut_at_character};

/// Maximum length of a name, in bytes; a longer one is truncated.
const MAX_NAME_BYTES: usize = 1024;
/// Maximum number of unregistered ranges that are removed under one lock, in about 0.1 ms: the
/// sampler may wait for it.
const MAX_REMOVED_AT_ONCE: usize = 64;

/// The registered ranges and those unregistered during the session.
#[derive(Debug)]
pub(crate) struct CodeRanges {
    map: CodeMap,
    /// The unregistered ranges whose names are kept, oldest first.
    retired: VecDeque<Retired>,
    retired_bytes: u64,
    limits: KeptLimits,
}

/// A range that was unregistered at this time.
#[derive(Debug)]
struct Retired {
    code: Arc<GeneratedCode>,
    at: TimeStamp,
}

static RANGES: NamedMutex<CodeRanges> =
    NamedMutex::new("code ranges", LockRank::CodeRanges, CodeRanges::EMPTY);

/// Whether a range was ever registered. Without one, the unwinder does not take the lock.
static HAS_RANGES: AtomicBool = AtomicBool::new(false);

/// Called with each range that is registered. Set once, by a higher layer.
static NEW_CODE_HOOK: OnceBox<fn(&GeneratedCode)> = OnceBox::new();

/// Sets the function that is called with each new range, on the thread that registers it. The first
/// one stays.
pub(crate) fn set_new_code_hook(hook: fn(&GeneratedCode)) {
    NEW_CODE_HOOK.get_or_init(|| Box::new(hook));
}

/// Size of the unregistered ranges, in bytes, as of the last change.
static RETIRED_BYTES: AtomicU64 = AtomicU64::new(0);
/// Number of unregistered ranges whose names were dropped because of their size, in this session.
static LOST_NAMES: AtomicU64 = AtomicU64::new(0);

/// Token with which a range is unregistered.
#[derive(Clone, Debug)]
pub(crate) struct CodeRangeToken(Arc<GeneratedCode>);

/// Registers a range of generated code. `script` is the number of the script function that the code
/// was compiled from, if any. Returns `None` if the range cannot hold code.
pub(crate) fn register_code_range(
    start: u64,
    bytes: u64,
    name: &str,
    script: Option<u32>,
) -> Option<CodeRangeToken> {
    let range = start..start.checked_add(bytes)?;
    if range.is_empty() || start == 0 {
        return None;
    }
    if !allocator_has(SMALL_TASK_BYTES) {
        LOST_NAMES.fetch_add(1, Ordering::Relaxed);
        return None;
    }
    let name = cut_at_character(name, MAX_NAME_BYTES);
    let code = GeneratedCode::new(range, name, script);
    let covered = RANGES.lock().map.put(Arc::clone(&code));
    HAS_RANGES.store(true, Ordering::Release);
    // Freed without the lock: the range may cover any number of others.
    drop(covered);
    if let Some(hook) = NEW_CODE_HOOK.get() {
        hook(&code);
    }
    Some(CodeRangeToken(code))
}

/// Unregisters a range. Its name is kept for the samples of the active session.
pub(crate) fn unregister_code_range(token: &CodeRangeToken) {
    token.0.retire();
    let now = monotonic_now();
    let mut ranges = RANGES.lock();
    if ranges.retired.try_reserve(1).is_err() {
        LOST_NAMES.fetch_add(1, Ordering::Relaxed);
        ranges.map.remove(&token.0);
        return;
    }
    ranges.retired_bytes += token.0.map_bytes();
    ranges.retired.push_back(Retired {
        code: Arc::clone(&token.0),
        at: now,
    });
    let lost = ranges.remove_excess(now);
    LOST_NAMES.fetch_add(lost, Ordering::Relaxed);
}

/// Begins to keep the names of ranges that are unregistered, for a session that starts now. Removes
/// the ranges that were unregistered earlier: no sample of the session can lie in them.
pub(crate) fn keep_unregistered_code(limits: KeptLimits) {
    forget_unregistered_code();
    LOST_NAMES.store(0, Ordering::Relaxed);
    RANGES.lock().limits = limits;
}

/// Removes all unregistered ranges and their names, and keeps no more of them. Called at the end of
/// a session.
pub(crate) fn forget_unregistered_code() {
    RANGES.lock().limits = KeptLimits::NOTHING;
    while !drop_old_unregistered_code(TimeStamp(u64::MAX)) {}
}

/// Removes unregistered ranges that are too old or too many, up to [`MAX_REMOVED_AT_ONCE`]. Returns
/// whether it has removed them all.
pub(crate) fn drop_old_unregistered_code(now: TimeStamp) -> bool {
    let mut ranges = RANGES.lock();
    let lost = ranges.remove_excess(now);
    LOST_NAMES.fetch_add(lost, Ordering::Relaxed);
    !ranges.has_excess(now)
}

/// Returns the size of the unregistered ranges that are kept, in bytes.
pub(crate) fn unregistered_code_bytes() -> u64 {
    RETIRED_BYTES.load(Ordering::Relaxed)
}

/// Returns how many names of unregistered ranges the running session has dropped because of their
/// size.
pub(crate) fn lost_code_names() -> u64 {
    LOST_NAMES.load(Ordering::Relaxed)
}

/// Returns a copy of all ranges, in constant time.
pub(crate) fn registered_code() -> CodeMap {
    RANGES.lock().map.clone()
}

/// Returns the range at an address.
pub(crate) fn registered_code_at(address: u64) -> Option<Arc<GeneratedCode>> {
    if !HAS_RANGES.load(Ordering::Acquire) {
        return None;
    }
    RANGES.lock().map.find(address).cloned()
}

/// Locks the ranges while the process forks.
pub(crate) fn hold_code_ranges_for_fork() -> Guard<'static, CodeRanges> {
    RANGES.lock()
}

impl CodeRanges {
    const EMPTY: Self = Self {
        map: CodeMap::EMPTY,
        retired: VecDeque::new(),
        retired_bytes: 0,
        limits: KeptLimits::NOTHING,
    };

    fn is_too_large(&self) -> bool {
        self.retired_bytes > self.limits.max_bytes
    }

    /// Returns whether the oldest unregistered range must be removed.
    fn has_excess(&self, now: TimeStamp) -> bool {
        self.retired
            .front()
            .is_some_and(|oldest| self.is_too_large() || self.limits.is_too_old(oldest.at, now))
    }

    /// Removes unregistered ranges that are too old or too many. Returns how many a session loses
    /// because they are too large together.
    fn remove_excess(&mut self, now: TimeStamp) -> u64 {
        let mut lost = 0;
        for _ in 0..MAX_REMOVED_AT_ONCE {
            if !self.has_excess(now) {
                break;
            }
            let is_lost = self.is_too_large() && self.limits != KeptLimits::NOTHING;
            lost += u64::from(is_lost);
            if let Some(oldest) = self.retired.pop_front() {
                self.retired_bytes -= oldest.code.map_bytes();
                self.map.remove(&oldest.code);
            }
        }
        RETIRED_BYTES.store(self.retired_bytes, Ordering::Relaxed);
        lost
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Returns ranges without any, with these limits.
    fn empty(max_bytes: u64, duration: Option<Duration>) -> CodeRanges {
        CodeRanges {
            limits: KeptLimits::new(max_bytes, duration),
            ..CodeRanges::EMPTY
        }
    }

    /// Registers and unregisters a range, and returns how many names are lost.
    fn add_retired(ranges: &mut CodeRanges, start: u64, at: TimeStamp) -> u64 {
        let code = GeneratedCode::new(start..start + 16, "a name", None);
        drop(ranges.map.put(Arc::clone(&code)));
        ranges.retired_bytes += code.map_bytes();
        ranges.retired.push_back(Retired { code, at });
        ranges.remove_excess(at)
    }

    #[test]
    fn unregistered_ranges_beyond_the_limits_lose_their_names() {
        let bytes = GeneratedCode::new(1..2, "a name", None).map_bytes();
        let mut ranges = empty(3 * bytes, Some(Duration::from_nanos(10)));
        let lost: u64 = (0..10)
            .map(|index| add_retired(&mut ranges, 1000 * (index + 1), TimeStamp(100)))
            .sum();
        assert_eq!((lost, ranges.retired.len()), (7, 3));
        assert_eq!(ranges.retired_bytes, 3 * bytes);
        let is_named = |ranges: &CodeRanges, start| ranges.map.find(start).is_some();
        assert!(!is_named(&ranges, 7000) && is_named(&ranges, 8000));
        // A name that is dropped by age is not lost: the session's duration says so.
        assert_eq!(ranges.remove_excess(TimeStamp(110)), 0);
        assert!(is_named(&ranges, 8000));
        assert_eq!(ranges.remove_excess(TimeStamp(111)), 0);
        assert!(!is_named(&ranges, 8000) && ranges.retired.is_empty());
    }

    #[test]
    fn many_unregistered_ranges_are_removed_in_parts() {
        let mut ranges = empty(u64::MAX, Some(Duration::from_nanos(10)));
        let count = MAX_REMOVED_AT_ONCE as u64 + 1;
        for index in 0..count {
            add_retired(&mut ranges, 1000 * (index + 1), TimeStamp(100));
        }
        ranges.remove_excess(TimeStamp(200));
        assert!(ranges.has_excess(TimeStamp(200)));
        assert_eq!(ranges.retired.len(), 1);
    }

    #[test]
    fn unregistered_range_keeps_its_name_until_the_session_ends() {
        // No other test registers this address, or sets the limits.
        let start = 0x5eed_0000_1000;
        let name = |address| {
            registered_code_at(address).map(|code| (code.name.to_string(), code.is_live()))
        };
        keep_unregistered_code(KeptLimits::new(1 << 20, None));
        let token = register_code_range(start, 16, "first", None).expect("a range");
        assert_eq!(name(start + 15), Some(("first".to_owned(), true)));
        let before = registered_code();
        unregister_code_range(&token);
        assert_eq!(name(start), Some(("first".to_owned(), false)));
        assert!(unregistered_code_bytes() > 0);
        let second = register_code_range(start + 8, 8, &"é".repeat(1000), None).expect("a range");
        assert_eq!(name(start + 7), Some(("first".to_owned(), false)));
        assert_eq!(name(start + 8).expect("the newest").0.len(), MAX_NAME_BYTES);
        forget_unregistered_code();
        assert_eq!((name(start), name(start + 8).is_some()), (None, true));
        assert_eq!(unregistered_code_bytes(), 0);
        assert_eq!(&*before.find(start).expect("as before").name, "first");
        // Without a session, a name is needed by no sample.
        unregister_code_range(&second);
        assert_eq!(name(start + 8), None);
        assert_eq!(lost_code_names(), 0);
    }

    #[test]
    fn register_rejects_ranges_that_cannot_hold_code() {
        for (start, bytes) in [(0, 16), (4096, 0), (u64::MAX - 1, 16)] {
            assert!(register_code_range(start, bytes, "none", None).is_none());
        }
    }
}
