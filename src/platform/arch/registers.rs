//! The register values that a stack is unwound from.

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
