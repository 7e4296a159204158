//! Writes pprof profiles: `profile.proto` of google/pprof, compressed with gzip.
//!
//! Values: `samples/count` is the number of samples, `wall/nanoseconds` one interval for each of
//! them, idle ones included, and `cpu/nanoseconds` the part of the thread's CPU time that is charged
//! to the sample: see `charged_cpu.rs` of the model. `cpu` is left out if the profile has no CPU times. `space/bytes`, for threads whose samples are
//! weighted by bytes, is left out if there are none. The last value is the one that readers show.
//! It is `cpu`, or `wall` without CPU times. All values are written, so `ExportOptions::weight`
//! changes nothing.
//!
//! Sampled allocations add the values of a heap profile: `alloc_objects/count`, `alloc_space/bytes`,
//! `inuse_objects/count` and `inuse_space/bytes`. They are first, or the only ones if the profile has
//! no samples.
//!
//! Labels: `thread` and `thread_id`; `process` and `process_id` if the profile has several;
//! `label`, the application's labels in the stack, joined by `;`, the outermost first; `marker`,
//! the name of the innermost interval of the thread's markers that contains the sample; and
//! `TYPE.FIELD` for the texts in the innermost such interval of each marker type. `contexts.rs` has
//! the limits of the last ones.
//!
//! The profile has no `drop_frames`: a reader would remove all frames that a matching function
//! calls. It would match names only up to their first parenthesis, so that `<(A, B) as T>::f` is
//! `<`. No frame of the profiler is in the stacks, so none has to be dropped.

mod contexts;
mod heap;
mod messages;
mod profile;
mod tables;

pub(in crate::export::write) use messages::{
    Function, Label, Location, Mapping, Profile, ValueType,
};
pub(in crate::export::write) use profile::to_message;
pub(crate) use profile::write_pprof;

#[cfg(test)]
mod pprof_tests;
