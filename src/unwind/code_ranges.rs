//! The ranges of generated code that the host has registered.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::{Guard, LockRank, NamedMutex, cut_at_character};
use crate::unwind::code_map::{CodeMap, CodeRangeId, GeneratedCode};

/// A name longer than this is cut.
const MAX_NAME_BYTES: usize = 1024;
/// So many ranges that are gone keep their names; beyond, the oldest are forgotten.
const MAX_RETIRED: usize = 64 << 10;

/// All ranges, and those of them that are gone, oldest first.
#[derive(Debug)]
pub(crate) struct CodeRanges {
    map: CodeMap,
    retired: VecDeque<(CodeRangeId, Range<u64>)>,
    last_id: u64,
}

static RANGES: NamedMutex<Option<CodeRanges>> =
    NamedMutex::new("code ranges", LockRank::CodeRanges, None);

/// Moves with every change, so that the sampler looks only then.
static VERSION: AtomicU64 = AtomicU64::new(0);

/// What is needed to take a registration back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CodeRangeToken {
    id: CodeRangeId,
    range: Range<u64>,
}

/// Notes that machine code stands in a range; `None` when no code can.
pub(crate) fn register_code_range(start: u64, bytes: u64, name: &str) -> Option<CodeRangeToken> {
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
    });
    VERSION.fetch_add(1, Ordering::Release);
    Some(CodeRangeToken { id, range })
}

/// Takes a registration back. The name stays for the samples of the running session.
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

/// Forgets what is gone: no sample of a session that begins lies in it.
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

/// All ranges as they are now.
pub(crate) fn registered_code() -> CodeMap {
    RANGES
        .lock()
        .as_ref()
        .map(|ranges| ranges.map.clone())
        .unwrap_or_default()
}

/// The number of changes so far.
pub(super) fn code_ranges_version() -> u64 {
    VERSION.load(Ordering::Acquire)
}

/// Holds changes off while the process forks.
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
    fn a_range_has_its_name_until_a_session_begins_without_it() {
        // An address that no other test registers.
        let start = 0x5eed_0000_1000;
        let name = |address| {
            registered_code()
                .find(address)
                .map(|code| (code.name.to_string(), code.live))
        };
        let before = code_ranges_version();
        let token = register_code_range(start, 16, "first").expect("a range");
        assert!(code_ranges_version() > before);
        assert_eq!(name(start + 15), Some(("first".to_owned(), true)));
        unregister_code_range(&token);
        assert_eq!(name(start), Some(("first".to_owned(), false)));
        let _second = register_code_range(start + 8, 8, &"é".repeat(1000)).expect("a range");
        assert_eq!(name(start + 7), Some(("first".to_owned(), false)));
        assert_eq!(name(start + 8).expect("the newest").0.len(), MAX_NAME_BYTES);
        forget_unregistered_code();
        assert_eq!((name(start), name(start + 8).is_some()), (None, true));
    }

    #[test]
    fn what_can_hold_no_code_is_refused() {
        for (start, bytes) in [(0, 16), (4096, 0), (u64::MAX - 1, 16)] {
            assert_eq!(register_code_range(start, bytes, "none"), None);
        }
    }
}
