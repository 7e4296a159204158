//! The parts of a tick that all sampled threads share: context, schedule, budget, activity
//! hint and overheads.

mod activity;
mod counter_sampler;
mod cpu_budget;
mod energy_sampler;
mod even_ticks;
mod event_probe_recorder;
mod malloc_counter;
mod marker_stacks;
mod schedule;
mod tick_context;
mod tick_overheads;

pub(crate) use activity::{ActivityHint, SeenThreads};
pub(crate) use counter_sampler::{CounterSampler, CounterWriter};
pub(crate) use cpu_budget::CpuBudget;
pub(crate) use energy_sampler::EnergySampler;
pub(crate) use even_ticks::EvenTicks;
pub(crate) use event_probe_recorder::EventProbeRecorder;
pub(crate) use malloc_counter::{MallocCounter, less_own_chunks};
pub(crate) use marker_stacks::write_pending_stacks;
pub(crate) use schedule::{LeftOut, Schedule};
#[cfg(feature = "unwind_benchmark")]
pub use tick_context::repeat_unwinding;
pub(crate) use tick_context::{
    Scratch, TickContext, captured_by, captured_of_backtrace, unwind_copy, unwind_counted,
};
pub(crate) use tick_overheads::TickOverheads;
