//! Single stacks that a caller asks for, outside of the tick.

mod stack_sampler;
mod suspend;

pub(crate) use stack_sampler::{IdleUnwinders, SampledStack, hold_unwinders_for_fork};
pub(crate) use suspend::suspend_and_capture;
