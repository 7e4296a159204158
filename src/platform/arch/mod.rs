//! Registers of the processor: those in a signal's context, and those of the calling thread.

#[cfg_attr(target_arch = "x86_64", path = "registers_x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "registers_aarch64.rs")]
mod registers_arch;
#[cfg(test)]
mod registers_tests;

pub(crate) use registers_arch::{
    RESULT_REGISTER, SYSTEM_CALL, copy_words_in_handler, current_registers, current_stack_pointer,
    registers_in_handler, thread_pointer,
};

/// Number of general-purpose registers. Call frame information numbers them from 0.
pub(crate) const GENERAL_REGISTERS: usize = if cfg!(target_arch = "aarch64") {
    // `x0` to `x30`, then `sp`.
    32
} else {
    16
};

/// The register values that an unwinder starts from.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Registers {
    /// Address of the next instruction to execute.
    pub(crate) pc: u64,
    pub(crate) sp: u64,
    pub(crate) fp: u64,
    /// Return address of a function that has not saved it to the stack yet. 0 on machines without a
    /// link register.
    pub(crate) lr: u64,
    /// All general-purpose registers, indexed by their numbers in call frame information. `None` if
    /// unknown.
    pub(crate) general: Option<[u64; GENERAL_REGISTERS]>,
}

/// Compares the position in the code and on the stack. The contents of the other general-purpose
/// registers are ignored.
impl PartialEq for Registers {
    fn eq(&self, other: &Self) -> bool {
        (self.pc, self.sp, self.fp, self.lr) == (other.pc, other.sp, other.fp, other.lr)
    }
}

impl Eq for Registers {}
