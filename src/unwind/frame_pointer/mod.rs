//! Unwinding by frame pointers where a call instruction proves the frame.

mod instructions;
mod machine_code;
#[cfg_attr(target_arch = "x86_64", path = "machine_code_x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "machine_code_aarch64.rs")]
mod machine_code_arch;
mod walk;

pub(crate) use machine_code::{
    call_with_result_at, direct_callees, has_fixed_frame, shape_in_function, shape_in_generated,
};
pub(crate) use walk::{CallProof, follow_frame};
