//! Telling the profiler of code that the program has generated.

use crate::api::engine;

/// Generated code that the profiler knows of while this lives.
#[derive(Debug)]
#[must_use = "the code is unregistered when this is dropped"]
pub struct CodeRange(Option<engine::CodeRangeToken>);

/// Tells the profiler of machine code that the program has generated, `len` bytes from `start` on, so that stacks are
/// followed through it and its frames have a name, as `name (in [jit])`.
///
/// The code must keep frame pointers: each of its functions begins with `push rbp; mov rbp, rsp` (on aarch64
/// `stp x29, x30, [sp, #-n]!; mov x29, sp`) and leaves `rbp` (`x29`) alone until it returns. Code that does not makes
/// stacks that end in it as `(truncated)`, or lack callers. A range can be one function, or hold many under one name.
///
/// May be called from any thread, whether the profiler is active or not; the memory is never read through `start`, and no
/// byte of it need be there. The name is copied, 1,024 bytes of it at most. A range that is empty or null is none. Where
/// ranges overlap, the newest one names the addresses of both, also those of samples that were taken before: so give
/// memory that is used again a new registration. A range that is dropped keeps its name in the running session's profiles,
/// until another takes its addresses; its code is no longer followed.
///
/// Cost: a lock, an allocation and a place in a tree, about a µs; about 200 bytes a range. The sampler copies the
/// list when it has changed and a stack leads into code that belongs to no library. Programs that write
/// `/tmp/perf-PID.map` for `perf` need not call this: the sampler reads that file, too.
///
/// ```
/// # let code: [u8; 0] = [];
/// let range = gekkota::jit::profiler_register_code_range(code.as_ptr(), code.len(), "regex #3");
/// // The code may run now.
/// drop(range);
/// ```
#[doc(alias = "PerfMap")]
pub fn profiler_register_code_range(start: *const u8, len: usize, name: &str) -> CodeRange {
    CodeRange(engine::register_code_range(start as u64, len as u64, name))
}

impl CodeRange {
    /// Keeps the code registered for the life of the process.
    pub fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for CodeRange {
    fn drop(&mut self) {
        if let Some(token) = &self.0 {
            engine::unregister_code_range(token);
        }
    }
}
