//! The frame pointer of a thread where it sleeps.
//!
//! The kernel tells the stack pointer and the program counter of a thread that is blocked, and not the frame pointer.
//! Where a caller keeps its frame by that, the thread is interrupted once, and the frame pointer that its handler found is
//! remembered. When the thread sleeps there again, with the same frames up to that caller, it is the same, if the caller's
//! frame has a fixed size. Where it has not, or where another register matters, the stack ends there, marked as truncated.

use crate::platform::{BlockedAt, Registers};
use crate::unwind::{Captured, NativeFrame, NativeStack, Unwinder};

/// Most threads sleep in few places.
const MAX_PLACES: usize = 8;
/// No frame is at such an address, so that a stack for which it mattered is not found whole.
const UNKNOWN: u64 = 16;

/// Where calls leave the return address in a register, hardly any sleeping stack goes far without it.
const KEEPS_RETURN_ADDRESS: bool = cfg!(target_arch = "aarch64");

/// What is known of a sleeping thread's stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outside {
    /// All that can be.
    AsFarAsItGoes,
    /// Its own handler would know more, and that would be remembered.
    AskThread,
}

#[derive(Debug)]
struct Place {
    at: BlockedAt,
    fp: u64,
    stack: NativeStack,
}

/// The places at which a thread was found asleep.
#[derive(Debug, Default)]
pub(super) struct SleepingPlaces {
    places: Vec<Place>,
    /// The one that is forgotten next.
    oldest: usize,
}

/// The registers of a blocked thread, as far as the kernel tells.
pub(super) fn registers_at(at: BlockedAt) -> Registers {
    Registers {
        pc: at.pc,
        sp: at.sp,
        fp: UNKNOWN,
        lr: UNKNOWN,
        general: None,
    }
}

/// Whether a thread that is in a call to the kernel at both is in the same one. A call that is begun again stands before the
/// instruction that calls, another behind it; so a thread that was just woken by a signal, and waits for a processor, is found
/// a little before where it slept.
fn is_same_call(one: BlockedAt, other: BlockedAt) -> bool {
    const LONGEST_INSTRUCTION: u64 = 4;
    one.sp == other.sp && one.pc.abs_diff(other.pc) <= LONGEST_INSTRUCTION
}

impl SleepingPlaces {
    /// Unwinds the stack of a thread that is blocked there, as far as the registers lead that the kernel tells.
    pub(super) fn unwind(
        &self,
        at: BlockedAt,
        captured: &Captured<'_>,
        unwinder: &mut Unwinder,
        out: &mut NativeStack,
    ) -> Outside {
        unwinder.unwind(captured, out);
        if !out.truncated || out.doubtful {
            return Outside::AsFarAsItGoes;
        }
        let Some(asks) = out.frames.last().copied() else {
            return Outside::AsFarAsItGoes;
        };
        let known = out.frames.len();
        let place = self.find(at, &out.frames);
        if !unwinder.has_fixed_frame(&asks, known == 1) {
            return if KEEPS_RETURN_ADDRESS {
                Outside::AskThread
            } else {
                Outside::AsFarAsItGoes
            };
        }
        let Some(place) = place else {
            return Outside::AskThread;
        };
        let registers = Registers {
            fp: place.fp,
            ..captured.registers
        };
        unwinder.unwind(
            &Captured {
                registers,
                ..*captured
            },
            out,
        );
        Outside::AsFarAsItGoes
    }

    /// The place where a thread is blocked, with these frames and maybe older ones.
    fn find(&self, at: BlockedAt, frames: &[NativeFrame]) -> Option<&Place> {
        let callers = frames.get(1..)?;
        let is_same = |place: &&Place| {
            is_same_call(place.at, at) && place.stack.frames.get(1..frames.len()) == Some(callers)
        };
        self.places.iter().find(is_same)
    }

    /// Remembers what the handler of a thread found that was blocked there when it was signalled.
    pub(super) fn remember(&mut self, at: BlockedAt, registers: &Registers, stack: &NativeStack) {
        if !is_same_call(
            at,
            BlockedAt {
                pc: registers.pc,
                sp: registers.sp,
            },
        ) {
            return;
        }
        let place = Place {
            at,
            fp: registers.fp,
            stack: stack.clone(),
        };
        let known = self
            .places
            .iter()
            .position(|known| known.at == at && known.stack == place.stack);
        match known {
            Some(index) => self.places[index] = place,
            None if self.places.len() < MAX_PLACES => self.places.push(place),
            None => {
                self.places[self.oldest] = place;
                self.oldest = (self.oldest + 1) % MAX_PLACES;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{CodeAddress, StackAddress};

    fn stack(addresses: &[u64]) -> NativeStack {
        let frame = |&address: &u64| NativeFrame {
            address: CodeAddress::new(address),
            stack_address: StackAddress(address),
        };
        NativeStack {
            frames: addresses.iter().map(frame).collect(),
            truncated: false,
            doubtful: false,
        }
    }

    #[test]
    fn only_what_was_found_at_the_place_is_remembered_and_the_oldest_goes() {
        let mut places = SleepingPlaces::default();
        let at = BlockedAt { pc: 1000, sp: 50 };
        let found = |pc, sp| Registers {
            pc,
            sp,
            fp: 70,
            lr: 0,
            general: None,
        };
        places.remember(at, &found(1005, 50), &stack(&[1]));
        places.remember(at, &found(1000, 58), &stack(&[1]));
        assert!(places.places.is_empty(), "it ran on");
        places.remember(at, &found(998, 50), &stack(&[1]));
        places.remember(at, &found(1000, 50), &stack(&[1]));
        assert_eq!(places.places.len(), 1);
        for number in 2..=MAX_PLACES as u64 + 1 {
            places.remember(at, &found(1000, 50), &stack(&[number]));
        }
        assert!(places.find(at, &stack(&[9]).frames).is_some());
        let firsts = places
            .places
            .iter()
            .map(|place| place.stack.frames[0].address.get());
        assert_eq!(firsts.collect::<Vec<_>>(), [9, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn a_place_is_found_again_wherever_its_call_was_met() {
        let asleep = BlockedAt { pc: 1000, sp: 50 };
        // It was on its way to the handler.
        let woken = BlockedAt { pc: 998, sp: 50 };
        let registers = |pc| Registers {
            pc,
            sp: 50,
            fp: 70,
            lr: 0,
            general: None,
        };
        for (asked_at, found_at) in [(woken, 998), (woken, 1000), (asleep, 998), (asleep, 1000)] {
            let mut places = SleepingPlaces::default();
            places.remember(asked_at, &registers(found_at), &stack(&[found_at, 2, 3]));
            let fp = |at, addresses| {
                places
                    .find(at, &stack(addresses).frames)
                    .map(|place| place.fp)
            };
            assert_eq!(
                (fp(asleep, &[1000, 2]), fp(woken, &[998, 2, 3])),
                (Some(70), Some(70))
            );
            assert_eq!(
                (fp(asleep, &[1000, 9]), fp(asleep, &[1000, 2, 3, 4])),
                (None, None)
            );
            assert_eq!(
                fp(BlockedAt { sp: 58, ..asleep }, &[1000, 2]),
                None,
                "another call of the same function"
            );
            assert_eq!(
                fp(BlockedAt { pc: 1020, ..asleep }, &[1020, 2]),
                None,
                "another call"
            );
        }
    }
}
