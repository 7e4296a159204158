//! The registers of a frame, as far as they are known, by their numbers in call frame information.

use gimli::Register;

use crate::platform::{GENERAL_REGISTERS, Registers};

/// How this machine numbers its registers, and which of them a call keeps.
#[cfg(target_arch = "x86_64")]
mod abi {
    pub(super) const SP: u16 = 7;
    pub(super) const FP: u16 = 6;
    /// Stands for the return address; no register holds it.
    pub(super) const RETURN_ADDRESS: u16 = 16;
    /// `rbx`, `rbp`, `r12` to `r15`.
    pub(super) const KEPT: u64 = 1 << 3 | 1 << 6 | 0b1111 << 12;
    pub(super) const ADDRESS_BITS: u32 = 64;
}

/// How this machine numbers its registers, and which of them a call keeps.
#[cfg(target_arch = "aarch64")]
mod abi {
    pub(super) const SP: u16 = 31;
    pub(super) const FP: u16 = 29;
    /// `x30`, which holds the return address until it is saved.
    pub(super) const RETURN_ADDRESS: u16 = 30;
    /// `x19` to `x30`: the last as long as no call overwrote it.
    pub(super) const KEPT: u64 = 0xfff << 19;
    /// Above stands what signs a pointer.
    pub(super) const ADDRESS_BITS: u32 = 48;
}

pub(super) const SP: Register = Register(abi::SP);
pub(super) const FP: Register = Register(abi::FP);
pub(super) const RETURN_ADDRESS: Register = Register(abi::RETURN_ADDRESS);

/// Whether a register holds the return address of a function that has not saved it.
pub(super) const HAS_LINK_REGISTER: bool = (abi::RETURN_ADDRESS as usize) < GENERAL_REGISTERS;

/// An address without what signs it.
pub(super) fn without_signature(address: u64) -> u64 {
    address & (u64::MAX >> (64 - abi::ADDRESS_BITS))
}

/// A frame's registers.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegisterFile {
    values: [u64; GENERAL_REGISTERS],
    /// A bit for each register whose value is known.
    known: u64,
}

impl RegisterFile {
    pub(super) fn new(registers: &Registers) -> Self {
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

    /// The registers of a caller of which only these are known.
    pub(super) fn forget_but(&mut self, sp: u64, fp: Option<u64>) {
        self.known = 0;
        self.set(FP, fp);
        self.set(SP, Some(sp));
    }

    pub(super) fn sp(&self) -> u64 {
        self.values[usize::from(abi::SP)]
    }

    pub(super) fn fp(&self) -> Option<u64> {
        self.get(FP)
    }

    pub(super) fn get(&self, register: Register) -> Option<u64> {
        let index = usize::from(register.0);
        (index < GENERAL_REGISTERS && self.known & 1 << index != 0).then(|| self.values[index])
    }

    pub(super) fn set(&mut self, register: Register, value: Option<u64>) {
        let index = usize::from(register.0);
        match value {
            Some(value) => {
                self.values[index] = value;
                self.known |= 1 << index;
            }
            None => self.known &= !(1 << index),
        }
    }

    /// Every register, and whether the ABI has a function give it back as it was.
    pub(super) fn all() -> impl Iterator<Item = (Register, bool)> {
        (0..GENERAL_REGISTERS as u16).map(|number| (Register(number), abi::KEPT & 1 << number != 0))
    }
}
