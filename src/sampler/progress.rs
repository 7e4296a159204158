//! Whether a thread gets on between two signals.
//!
//! A long call into the kernel that a signal breaks off is begun again by the kernel or by its caller; interrupted once an
//! interval it may never end (golang #55243, gperftools #281). A thread that is found at the very same place again and
//! again is left alone for longer and longer. Its CPU time is charged to its next sample.

use crate::platform::Registers;

/// Chance, and loops of one instruction, make that many.
const SAME_BY_CHANCE: u32 = 3;
const MOST_TICKS_ALONE: u32 = 16;

/// Where a thread was captured last, and for how long it has not left that.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Program counter and stack pointer.
    last: (u64, u64),
    same: u32,
    /// Ticks on which it is to be left alone still.
    alone: u32,
}

impl Progress {
    /// Notes where the thread was captured; `in_call` is asked whether that is a call into the kernel.
    pub(super) fn add_capture(&mut self, registers: &Registers, in_call: impl FnOnce() -> bool) {
        let is_same = (registers.pc, registers.sp) == self.last;
        self.last = (registers.pc, registers.sp);
        self.same = if is_same { self.same.saturating_add(1) } else { 0 };
        // A loop of few instructions is found at the same place as well, and gets on.
        if self.same > SAME_BY_CHANCE && !in_call() {
            self.same = 0;
        }
        let doublings = self.same.saturating_sub(SAME_BY_CHANCE).min(MOST_TICKS_ALONE.ilog2() + 1);
        self.alone = (1 << doublings >> 1).min(MOST_TICKS_ALONE);
    }

    /// Whether the thread is to be left alone on this tick.
    pub(super) fn is_to_wait(&mut self) -> bool {
        let waits = self.alone > 0;
        self.alone = self.alone.saturating_sub(1);
        waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(pc: u64) -> Registers {
        Registers { pc, ..Registers::default() }
    }

    #[test]
    fn who_does_not_get_on_is_left_alone_for_longer_and_longer() {
        let mut progress = Progress::default();
        let mut alone_after = |pc| {
            progress.add_capture(&at(pc), || pc != 9);
            (0..100).filter(|_| progress.is_to_wait()).count()
        };
        let alone: Vec<usize> = [7; 12].map(&mut alone_after).to_vec();
        assert_eq!(alone, [0, 0, 0, 0, 1, 2, 4, 8, 16, 16, 16, 16]);
        assert_eq!([9; 12].map(&mut alone_after), [0; 12], "not in the kernel");
        assert_eq!(alone_after(7), 0);
    }
}
