//! Unwinding by frame pointers where a call instruction proves the frame.

#[cfg_attr(target_arch = "x86_64", path = "machine_code_x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "machine_code_aarch64.rs")]
mod machine_code_arch;
pub(super) mod walk;

/// A call instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    /// Calls this address.
    Direct(u64),
    /// Calls the address stored in the word at this address.
    Through(u64),
    /// Calls an address that the instruction alone does not reveal.
    Indirect,
}

/// Offsets in a function's first instructions, in bytes from its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Prologue {
    /// Offset of the instruction that may push the frame pointer.
    pub(crate) push_at: usize,
    /// Offset after the push of the frame pointer, if the function pushes it.
    pub(crate) pushed_at: Option<usize>,
    /// Offset after the new frame pointer is set, if the function sets it.
    pub(crate) framed_at: Option<usize>,
}
