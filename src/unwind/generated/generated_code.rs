//! The unwinder's view of generated code: registered ranges and the perf map.

use std::sync::Arc;

use crate::platform::{current_process_id, monotonic_now};
use crate::unwind::generated::code_map::{CodeMap, GeneratedCode};
use crate::unwind::generated::code_ranges::{code_ranges_version, registered_code};
use crate::unwind::generated::perf_map::PerfMap;

/// A copy of the registered ranges and of the perf map. Each lookup updates the ranges if they have
/// changed; lookups of addresses outside of all modules also read the perf map.
#[derive(Debug)]
pub(crate) struct KnownCode {
    registered: CodeMap,
    version: u64,
    perf_map: PerfMap,
    perf_map_changed: bool,
}

impl KnownCode {
    pub(crate) fn new() -> Self {
        Self {
            registered: CodeMap::default(),
            version: 0,
            perf_map: PerfMap::of_process(current_process_id()),
            perf_map_changed: false,
        }
    }

    /// Returns the generated code at an address. `may_poll` allows reading the perf map.
    pub(crate) fn find(&mut self, address: u64, may_poll: bool) -> Option<&GeneratedCode> {
        let version = code_ranges_version();
        if version != self.version {
            self.version = version;
            self.registered = registered_code();
        }
        let is_known = |map: &CodeMap| map.find(address).is_some_and(|code| code.live);
        if is_known(&self.registered) {
            return self.registered.find(address);
        }
        if !is_known(self.perf_map.code()) && may_poll {
            self.perf_map_changed |= self.perf_map.poll(monotonic_now());
        }
        self.perf_map.code().find(address)
    }

    /// Returns the code that the perf map lists, if it grew since the last call.
    pub(crate) fn changed_perf_map(&mut self) -> Option<Arc<CodeMap>> {
        std::mem::take(&mut self.perf_map_changed).then(|| Arc::clone(self.perf_map.code()))
    }
}
