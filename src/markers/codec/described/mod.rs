//! Types that describe themselves, so that a program without them can print their payloads: the
//! rescuer of another process's data.

mod describe;
mod described_type;
mod shape;
mod tracer;

pub(crate) use describe::describe;
pub(crate) use described_type::DescribedType;
