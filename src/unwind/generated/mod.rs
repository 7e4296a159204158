//! Code without a module: ranges that the application registers, and the perf map.

mod code_map;
mod code_ranges;
mod generated_code;
mod perf_map;

pub(crate) use code_map::{CodeMap, GeneratedCode};
pub(crate) use code_ranges::{
    CodeRangeToken, CodeRanges, drop_old_unregistered_code, forget_unregistered_code,
    hold_code_ranges_for_fork, keep_unregistered_code, lost_code_names, register_code_range,
    registered_code, set_new_code_hook, unregister_code_range, unregistered_code_bytes,
};
pub(crate) use generated_code::{KnownCode, NamedCode};
