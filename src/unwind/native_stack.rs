//! What an unwinder works on: the copy of a stack, the known registers of a frame, and the frames
//! that it has found.

use gimli::Register;

use crate::platform::{GENERAL_REGISTERS, Registers};
use crate::types::{CodeAddress, StackAddress, TimeStamp};

/// A copy of a part of a stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StackCopy<'a> {
    /// Stack address of the first byte.
    pub(crate) start: u64,
    pub(crate) bytes: &'a [u8],
}

impl StackCopy<'_> {
    /// Returns the word that was at `address`, if it was copied.
    pub(crate) fn word_at(&self, address: u64) -> Option<u64> {
        let offset = usize::try_from(address.checked_sub(self.start)?).ok()?;
        let word = self.bytes.get(offset..offset.checked_add(8)?)?;
        Some(u64::from_ne_bytes(word.try_into().ok()?))
    }
}

/// A captured stack and the registers to unwind it with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Captured<'a> {
    pub(crate) registers: Registers,
    pub(crate) stack: StackCopy<'a>,
    /// Time at which both were copied.
    pub(crate) time: TimeStamp,
}

/// A native frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NativeFrame {
    /// Address of the next instruction in the innermost frame, and the return address in every
    /// other frame.
    pub(crate) address: CodeAddress,
    /// Stack pointer of the innermost frame; in other frames, the stack pointer at the call.
    pub(crate) stack_address: StackAddress,
}

/// A stack, innermost frame first. Reused from sample to sample to keep its memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NativeStack {
    pub(crate) frames: Vec<NativeFrame>,
    /// Whether older frames are missing.
    pub(crate) truncated: bool,
    /// Whether frames are missing because other code may have been loaded at their addresses when
    /// the stack was captured. Another capture of the same stack may succeed.
    pub(crate) doubtful: bool,
}

/// DWARF register numbers of this architecture, and its callee-saved registers.
#[cfg(target_arch = "x86_64")]
mod abi {
    pub(crate) const SP: u16 = 7;
    pub(crate) const FP: u16 = 6;
    /// Number of the return address, which is not in a register.
    pub(crate) const RETURN_ADDRESS: u16 = 16;
    /// `rbx`, `rbp`, `r12` to `r15`.
    pub(crate) const CALLEE_SAVED: u64 = 1 << 3 | 1 << 6 | 0b1111 << 12;
    /// Number of registers, from 0 on, that pass data to an exception's handler: `rax` and `rdx`.
    pub(crate) const EXCEPTION_DATA: u16 = 2;
    pub(crate) const ADDRESS_BITS: u32 = 64;
}

/// DWARF register numbers of this architecture, and its callee-saved registers.
#[cfg(target_arch = "aarch64")]
mod abi {
    pub(crate) const SP: u16 = 31;
    pub(crate) const FP: u16 = 29;
    /// `x30`, which holds the return address until it is saved.
    pub(crate) const RETURN_ADDRESS: u16 = 30;
    /// `x19` to `x30`; `x30` is unchanged only in a function that makes no call.
    pub(crate) const CALLEE_SAVED: u64 = 0xfff << 19;
    /// Number of registers, from 0 on, that pass data to an exception's handler.
    pub(crate) const EXCEPTION_DATA: u16 = 4;
    /// Number of address bits; the bits above hold the signature of a signed pointer.
    pub(crate) const ADDRESS_BITS: u32 = 48;
}

pub(crate) const SP: Register = Register(abi::SP);
pub(crate) const FP: Register = Register(abi::FP);
pub(crate) const RETURN_ADDRESS: Register = Register(abi::RETURN_ADDRESS);
pub(crate) const EXCEPTION_DATA: u16 = abi::EXCEPTION_DATA;

/// Whether calls put the return address in a register instead of on the stack.
pub(crate) const HAS_LINK_REGISTER: bool = (abi::RETURN_ADDRESS as usize) < GENERAL_REGISTERS;

/// Returns a code address without the signature of pointer authentication.
pub(crate) fn strip_pointer_signature(address: u64) -> u64 {
    address & (u64::MAX >> (64 - abi::ADDRESS_BITS))
}

/// A frame's registers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegisterFile {
    values: [u64; GENERAL_REGISTERS],
    /// A bit for each register whose value is known.
    known: u64,
}

impl RegisterFile {
    pub(crate) fn new(registers: &Registers) -> Self {
        let mut file = match registers.general {
            Some(values) => Self {
                values,
                known: u64::MAX >> (64 - GENERAL_REGISTERS),
            },
            None => Self {
                values: [0; GENERAL_REGISTERS],
                known: 0,
            },
        };
        file.set(FP, Some(registers.fp));
        file.set(SP, Some(registers.sp));
        if HAS_LINK_REGISTER {
            file.set(RETURN_ADDRESS, Some(registers.lr));
        }
        file
    }

    /// Replaces the registers with a caller's, of which only the stack pointer and `fp` are known.
    pub(crate) fn reset_to(&mut self, sp: u64, fp: Option<u64>) {
        self.known = 0;
        self.set(FP, fp);
        self.set(SP, Some(sp));
    }

    pub(crate) fn sp(&self) -> u64 {
        self.values[usize::from(abi::SP)]
    }

    pub(crate) fn fp(&self) -> Option<u64> {
        self.get(FP)
    }

    pub(crate) fn get(&self, register: Register) -> Option<u64> {
        let index = usize::from(register.0);
        (index < GENERAL_REGISTERS && self.known & 1 << index != 0).then(|| self.values[index])
    }

    pub(crate) fn set(&mut self, register: Register, value: Option<u64>) {
        let index = usize::from(register.0);
        match value {
            Some(value) => {
                self.values[index] = value;
                self.known |= 1 << index;
            }
            None => self.known &= !(1 << index),
        }
    }

    /// Returns every register, and whether it is callee-saved.
    pub(crate) fn all() -> impl Iterator<Item = (Register, bool)> {
        (0..GENERAL_REGISTERS as u16)
            .map(|number| (Register(number), abi::CALLEE_SAVED & 1 << number != 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_at_reads_only_copied_words() {
        let bytes: Vec<u8> = [1u64, 2]
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        let stack = StackCopy {
            start: 1000,
            bytes: &bytes,
        };
        assert_eq!(
            (stack.word_at(1000), stack.word_at(1008)),
            (Some(1), Some(2))
        );
        for address in [0, 992, 999, 1009, 1016, u64::MAX] {
            assert_eq!(stack.word_at(address), None);
        }
    }
}
