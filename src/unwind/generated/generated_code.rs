//! The unwinder's view of generated code: registered ranges and the perf map.

use std::sync::Arc;

use crate::platform::{current_process_id, monotonic_now};
use crate::unwind::generated::code_map::{CodeMap, GeneratedCode};
use crate::unwind::generated::code_ranges::registered_code_at;
use crate::unwind::generated::perf_map::PerfMap;

/// The registered ranges, which each lookup reads under their lock, and the perf map, which lookups
/// of addresses outside of all modules also read.
#[derive(Debug)]
pub(crate) struct KnownCode {
    perf_map: PerfMap,
    perf_map_changed: bool,
}

impl KnownCode {
    pub(crate) fn new() -> Self {
        Self {
            perf_map: PerfMap::of_process(current_process_id()),
            perf_map_changed: false,
        }
    }

    /// Limits the size of the perf map in memory, in bytes.
    pub(crate) fn limit_perf_map(&mut self, max_bytes: u64) {
        self.perf_map.limit(max_bytes);
    }

    pub(crate) fn perf_map(&self) -> &PerfMap {
        &self.perf_map
    }

    /// Returns the generated code at an address. `may_poll` allows reading the perf map.
    pub(crate) fn find(&mut self, address: u64, may_poll: bool) -> Option<Arc<GeneratedCode>> {
        let registered = registered_code_at(address).filter(|code| code.is_live());
        if registered.is_some() {
            return registered;
        }
        let is_listed = self.perf_map.code().find(address).is_some();
        if !is_listed && may_poll {
            self.perf_map_changed |= self.perf_map.poll(monotonic_now());
        }
        self.perf_map.code().find(address).cloned()
    }

    /// Returns the code that the perf map lists, if it grew since the last call.
    pub(crate) fn changed_perf_map(&mut self) -> Option<CodeMap> {
        std::mem::take(&mut self.perf_map_changed).then(|| self.perf_map.code().clone())
    }
}

/// Generated code with its names, as of one moment. Samples of a session may lie in it.
#[derive(Clone, Default, Debug)]
pub(crate) struct NamedCode {
    registered: CodeMap,
    perf_map: CodeMap,
}

impl NamedCode {
    /// Creates a map with one range.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn of_range(range: std::ops::Range<u64>) -> Self {
        Self::new(CodeMap::of_range(range), CodeMap::default())
    }

    /// Creates the map of a process that has ended, from ranges with their names and the numbers of
    /// their script functions. A later range covers the earlier ones that it overlaps.
    pub(crate) fn of_past_process(
        ranges: impl Iterator<Item = (std::ops::Range<u64>, String, Option<u32>)>,
    ) -> Self {
        let mut registered = CodeMap::default();
        for (range, name, script) in ranges {
            drop(registered.put(GeneratedCode::new(range, &name, script)));
        }
        Self::new(registered, CodeMap::default())
    }

    pub(crate) fn new(registered: CodeMap, perf_map: CodeMap) -> Self {
        Self {
            registered,
            perf_map,
        }
    }

    /// Returns the code at an address. Registered ranges cover those of the perf map.
    pub(crate) fn find(&self, address: u64) -> Option<&GeneratedCode> {
        let registered = self.registered.find(address);
        let found = registered.or_else(|| self.perf_map.find(address));
        found.map(|code| &**code)
    }
}
