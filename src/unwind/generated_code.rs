//! The sampler's view of generated code: what the host registered, and what the perf map says.

use std::sync::Arc;

use crate::platform::{current_process_id, monotonic_now};
use crate::unwind::code_map::{CodeMap, GeneratedCode};
use crate::unwind::code_ranges::{code_ranges_version, registered_code};
use crate::unwind::perf_map::PerfMap;

/// Both, as they were when somebody last asked for an address outside of every module.
#[derive(Debug)]
pub(super) struct KnownCode {
    registered: CodeMap,
    version: u64,
    perf_map: PerfMap,
    perf_map_changed: bool,
}

impl KnownCode {
    pub(super) fn new() -> Self {
        Self {
            registered: CodeMap::default(),
            version: 0,
            perf_map: PerfMap::of_process(current_process_id()),
            perf_map_changed: false,
        }
    }

    /// The generated code at an address. `may_look` allows a look at the file.
    pub(super) fn find(&mut self, address: u64, may_look: bool) -> Option<&GeneratedCode> {
        let version = code_ranges_version();
        if version != self.version {
            self.version = version;
            self.registered = registered_code();
        }
        let is_known = |map: &CodeMap| map.find(address).is_some_and(|code| code.live);
        if is_known(&self.registered) {
            return self.registered.find(address);
        }
        if !is_known(self.perf_map.code()) && may_look {
            self.perf_map_changed |= self.perf_map.look(monotonic_now());
        }
        self.perf_map.code().find(address)
    }

    /// What the perf map says, if it says more than when this was last asked.
    pub(super) fn changed_perf_map(&mut self) -> Option<Arc<CodeMap>> {
        std::mem::take(&mut self.perf_map_changed).then(|| Arc::clone(self.perf_map.code()))
    }
}
