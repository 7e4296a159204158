//! Compact unwind rules, and a cache of them by address, sized for the samples of a large program.

use std::ops::Range;

use crate::unwind::native_stack::{
    HAS_LINK_REGISTER, RETURN_ADDRESS, RegisterFile, StackCopy, strip_pointer_signature,
};

/// How to find the caller of a frame at one code address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    /// The frame has no caller, according to call frame information.
    Root,
    /// The caller's frame starts at an offset from the stack pointer.
    FromStackPointer(FrameOffsets),
    /// The caller's frame starts at an offset from the frame pointer.
    FromFramePointer(FrameOffsets),
    /// The call frame information needs more than the two rules above can express.
    Evaluate,
    /// The code to which a signal handler returns. Its call frame information is evaluated, too.
    SignalTrampoline,
    /// The function is about to jump to an exception's handler. It may have replaced the registers
    /// and the return address that it saved with the handler's, so its caller is unknown.
    JumpsToHandler,
    /// Call frame information does not cover the address.
    Uncovered(CodeShape),
    /// The address lies in generated code that the application or the perf map announced.
    Generated,
}

const _: () = assert!(size_of::<Rule>() == 8);

/// Offsets around the start of the caller's frame, the *canonical frame address* (CFA), in words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameOffsets {
    /// Offset of the CFA from the rule's register.
    pub(crate) frame: u16,
    /// Offset of the saved frame pointer from the CFA; 0 if the register still holds it.
    pub(crate) fp: i16,
    /// Offset of the return address from the CFA; 0 if the link register still holds it.
    pub(crate) return_address: i16,
}

/// State of the frame at an instruction without call frame information, derived from machine code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CodeShape {
    Unknown,
    /// Before the function's first instruction or its return, or at the jump of a linkage table:
    /// the return address is where a call puts it.
    NoFrame,
    /// The frame pointer has been pushed but not yet set.
    FramePointerPushed,
    /// Inside a function that keeps a frame pointer.
    Framed {
        /// Distance from the function's start, in bytes.
        function: u16,
    },
}

impl FrameOffsets {
    /// Changes `registers` to the caller's and returns the return address. `base` is the value of
    /// the rule's register. `is_pc` means that the frame was interrupted and made no call.
    #[inline]
    pub(crate) fn follow(
        self,
        base: u64,
        registers: &mut RegisterFile,
        stack: StackCopy<'_>,
        is_pc: bool,
    ) -> Option<u64> {
        let frame = base.checked_add(u64::from(self.frame) * 8)?;
        let word = |words: i16| stack.word_at(frame.wrapping_add_signed(i64::from(words) * 8));
        let return_address = match self.return_address {
            0 => registers.get(RETURN_ADDRESS)?,
            words => word(words)?,
        };
        let fp = match self.fp {
            0 => registers.fp(),
            words => Some(word(words)?),
        };
        // A call uses stack space, except when a register holds the return address.
        let may_stay = HAS_LINK_REGISTER && is_pc;
        if frame < registers.sp() || (frame == registers.sp() && !may_stay) {
            return None;
        }
        registers.reset_to(frame, fp);
        Some(strip_pointer_signature(return_address))
    }
}

const WAYS: usize = 4;
const FIRST_SETS: usize = 1 << 8;
const MAX_SETS: usize = 1 << 16;

/// Key of a rule: an address, and whether it is the next instruction to run. For a caller, the
/// address is that of the last byte of its call instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RuleKey(u64);

impl RuleKey {
    pub(crate) fn new(address: u64, is_pc: bool) -> Self {
        Self(address << 1 | u64::from(is_pc))
    }

    fn address(self) -> u64 {
        self.0 >> 1
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: RuleKey,
    rule: Rule,
}

const EMPTY: Entry = Entry {
    key: RuleKey(0),
    rule: Rule::Root,
};

/// Fills one cache line, so a lookup reads one. `CachePadded` would double the cache's size: it
/// separates what different threads write, and aligns to two lines for that.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Set([Entry; WAYS]);

const _: () = assert!(size_of::<Set>() == 64);

/// A cache of rules by address. framehop's cache has 509 entries, and one generation for all
/// modules, so each `dlopen` invalidates all of it. This cache grows on demand, up to 4 MiB. When a
/// module is unloaded, only that module's addresses are removed. The cache is 4-way associative,
/// with one set per cache line.
#[derive(Debug)]
pub(crate) struct RuleCache {
    sets: Box<[Set]>,
    entries: usize,
    /// The way of a full set that was replaced last.
    next_way: usize,
}

impl RuleCache {
    pub(crate) fn new() -> Self {
        Self {
            sets: empty_sets(FIRST_SETS),
            entries: 0,
            next_way: 0,
        }
    }

    #[inline]
    pub(crate) fn get(&self, key: RuleKey) -> Option<Rule> {
        let set = &self.sets[set_of(key, self.sets.len())];
        set.0
            .iter()
            .find(|entry| entry.key == key)
            .map(|entry| entry.rule)
    }

    /// Adds a rule that the cache does not hold.
    pub(crate) fn put(&mut self, key: RuleKey, rule: Rule) {
        // At a load of a quarter, about 0.4 % of the keys find their set full.
        if self.entries * 4 >= self.sets.len() * WAYS && self.sets.len() < MAX_SETS {
            self.grow();
        }
        let index = set_of(key, self.sets.len());
        let set = &mut self.sets[index].0;
        match set.iter_mut().find(|entry| entry.key == EMPTY.key) {
            Some(free) => {
                *free = Entry { key, rule };
                self.entries += 1;
            }
            None => {
                self.next_way = (self.next_way + 1) % WAYS;
                set[self.next_way] = Entry { key, rule };
            }
        }
    }

    /// Removes all addresses in the range of a module that was unloaded.
    pub(crate) fn forget(&mut self, range: &Range<u64>) {
        for entry in self.sets.iter_mut().flat_map(|set| &mut set.0) {
            if entry.key != EMPTY.key && range.contains(&entry.key.address()) {
                *entry = EMPTY;
                self.entries -= 1;
            }
        }
    }

    fn grow(&mut self) {
        let sets = empty_sets(self.sets.len() * 2);
        let before = std::mem::replace(&mut self.sets, sets);
        self.entries = 0;
        for entry in before.iter().flat_map(|set| &set.0) {
            if entry.key != EMPTY.key {
                self.put(entry.key, entry.rule);
            }
        }
    }
}

fn empty_sets(count: usize) -> Box<[Set]> {
    vec![Set([EMPTY; WAYS]); count].into_boxed_slice()
}

/// Returns the index of a key's set. Mixes twice, because addresses have regular strides.
#[inline]
fn set_of(key: RuleKey, sets: usize) -> usize {
    let mixed = key.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let hash = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (((hash >> 32) * sets as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(number: u64) -> Rule {
        Rule::Uncovered(CodeShape::Framed {
            function: number as u16,
        })
    }

    #[test]
    fn get_finds_rules_after_the_cache_has_grown() {
        let mut cache = RuleCache::new();
        let addresses = || (0..20_000u64).map(|number| 0x7f00_0000_0000 + number * 7);
        for address in addresses() {
            assert_eq!(cache.get(RuleKey::new(address, false)), None);
            cache.put(RuleKey::new(address, false), rule(address));
        }
        let found = addresses()
            .filter(|&address| cache.get(RuleKey::new(address, false)) == Some(rule(address)));
        let found = found.count();
        assert!(found >= 19_800, "{found} of 20,000");
        assert_eq!(cache.entries, found);
        assert_eq!(
            cache.get(RuleKey::new(0x7f00_0000_0000, true)),
            None,
            "a key with `is_pc` differs"
        );
    }

    #[test]
    fn forget_removes_only_the_addresses_in_the_range() {
        let mut cache = RuleCache::new();
        let keys: Vec<_> = (1..200)
            .map(|number| RuleKey::new(number * 16, false))
            .collect();
        keys.iter().for_each(|&key| cache.put(key, rule(key.0)));
        let mut present: Vec<_> = keys
            .into_iter()
            .filter(|&key| cache.get(key).is_some())
            .collect();
        assert!(present.len() > 190);
        cache.forget(&(320..640));
        present.retain(|key| !(320..640).contains(&key.address()));
        assert!(
            present
                .iter()
                .all(|&key| cache.get(key) == Some(rule(key.0)))
        );
        assert_eq!(cache.entries, present.len());
    }
}
