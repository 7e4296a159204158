//! The ranges of generated code that the application has registered.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::unwind::generated::code_map::{CodeMap, CodeRangeId, GeneratedCode};
use crate::util::{Guard, LockRank, NamedMutex, cut_at_character};

/// Maximum length of a name, in bytes; a longer one is truncated.
const MAX_NAME_BYTES: usize = 1024;
/// Maximum number of unregistered ranges that keep their names; beyond it the oldest is removed.
const MAX_RETIRED: usize = 64 << 10;

/// The registered ranges and those unregistered during the session.
#[derive(Debug)]
pub(crate) struct CodeRanges {
    map: CodeMap,
    /// The unregistered ranges, oldest first.
    retired: VecDeque<(CodeRangeId, Range<u64>)>,
    last_id: u64,
}

static RANGES: NamedMutex<Option<CodeRanges>> =
    NamedMutex::new("code ranges", LockRank::CodeRanges, None);

/// Number of changes, so that the unwinder copies the ranges only after a change.
static VERSION: AtomicU64 = AtomicU64::new(0);

/// Token with which a range is unregistered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CodeRangeToken {
    id: CodeRangeId,
    range: Range<u64>,
}

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
    let name = cut_at_character(name, MAX_NAME_BYTES).into();
    let mut ranges = RANGES.lock();
    let ranges = ranges.get_or_insert_with(CodeRanges::empty);
    ranges.last_id += 1;
    let id = CodeRangeId(ranges.last_id);
    ranges.map.put(GeneratedCode {
        id,
        range: range.clone(),
        live: true,
        name,
        script,
    });
    VERSION.fetch_add(1, Ordering::Release);
    Some(CodeRangeToken { id, range })
}

/// Unregisters a range. Its name is kept for the samples of the active session.
pub(crate) fn unregister_code_range(token: &CodeRangeToken) {
    let mut ranges = RANGES.lock();
    let Some(ranges) = ranges.as_mut() else {
        return;
    };
    ranges.map.retire(token.id, &token.range);
    ranges.retired.push_back((token.id, token.range.clone()));
    if ranges.retired.len() > MAX_RETIRED {
        ranges.forget_oldest();
    }
    VERSION.fetch_add(1, Ordering::Release);
}

/// Removes all unregistered ranges. Called at the start of a session, whose samples cannot lie in
/// them.
pub(crate) fn forget_unregistered_code() {
    let mut ranges = RANGES.lock();
    let Some(ranges) = ranges.as_mut() else {
        return;
    };
    while !ranges.retired.is_empty() {
        ranges.forget_oldest();
    }
    VERSION.fetch_add(1, Ordering::Release);
}

/// Returns a copy of all ranges.
pub(crate) fn registered_code() -> CodeMap {
    RANGES
        .lock()
        .as_ref()
        .map(|ranges| ranges.map.clone())
        .unwrap_or_default()
}

/// Returns the number of changes so far.
pub(crate) fn code_ranges_version() -> u64 {
    VERSION.load(Ordering::Acquire)
}

/// Locks the ranges while the process forks.
pub(crate) fn hold_code_ranges_for_fork() -> Guard<'static, Option<CodeRanges>> {
    RANGES.lock()
}

impl CodeRanges {
    fn empty() -> Self {
        Self {
            map: CodeMap::default(),
            retired: VecDeque::new(),
            last_id: 0,
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((id, range)) = self.retired.pop_front() {
            self.map.remove(id, &range);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unregistered_range_keeps_its_name_until_the_next_session() {
        // No other test registers this address.
        let start = 0x5eed_0000_1000;
        let name = |address| {
            registered_code()
                .find(address)
                .map(|code| (code.name.to_string(), code.live))
        };
        let before = code_ranges_version();
        let token = register_code_range(start, 16, "first", None).expect("a range");
        assert!(code_ranges_version() > before);
        assert_eq!(name(start + 15), Some(("first".to_owned(), true)));
        unregister_code_range(&token);
        assert_eq!(name(start), Some(("first".to_owned(), false)));
        let _second = register_code_range(start + 8, 8, &"é".repeat(1000), None).expect("a range");
        assert_eq!(name(start + 7), Some(("first".to_owned(), false)));
        assert_eq!(name(start + 8).expect("the newest").0.len(), MAX_NAME_BYTES);
        forget_unregistered_code();
        assert_eq!((name(start), name(start + 8).is_some()), (None, true));
    }

    #[test]
    fn register_rejects_ranges_that_cannot_hold_code() {
        for (start, bytes) in [(0, 16), (4096, 0), (u64::MAX - 1, 16)] {
            assert_eq!(register_code_range(start, bytes, "none", None), None);
        }
    }
}
