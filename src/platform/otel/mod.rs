//! What OpenTelemetry's enhancement proposals 4719 and 4947 let a reader outside of the process find.

mod process_context;
mod thread_slot;

pub(crate) use process_context::{MAX_PAYLOAD_BYTES, ProcessContext};
pub(crate) use thread_slot::set_thread_record;
