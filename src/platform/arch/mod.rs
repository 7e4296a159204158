//! Registers of the processor: those in a signal's context, and those of the calling thread.

mod registers;
#[cfg_attr(target_arch = "x86_64", path = "registers_x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "registers_aarch64.rs")]
mod registers_arch;
#[cfg(test)]
mod registers_tests;

pub(crate) use registers::{GENERAL_REGISTERS, Registers};
pub(crate) use registers_arch::{
    RESULT_REGISTER, SYSTEM_CALL, copy_words_in_handler, current_registers, current_stack_pointer,
    registers_in_handler, thread_pointer,
};
