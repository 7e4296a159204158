//! Rules by address, for as many addresses as a large program's samples have.
//!
//! framehop's cache has 509 places, and one generation for all modules, so that a `dlopen` makes all of it cold. This
//! one grows with what is asked of it, up to 4 MiB, and forgets the addresses of a module that goes and no others. Four
//! places that an address may have lie in one line of the processor's cache.

use std::ops::Range;

use crate::unwind::rule::Rule;

const WAYS: usize = 4;
const FIRST_SETS: usize = 1 << 8;
const MAX_SETS: usize = 1 << 16;

/// An address whose rule is asked for: that of an instruction, and whether it is the one that runs next. A caller's is
/// that of the last byte of its call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RuleKey(u64);

impl RuleKey {
    pub(super) fn new(address: u64, exact: bool) -> Self {
        Self(address << 1 | u64::from(exact))
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

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Set([Entry; WAYS]);

const _: () = assert!(size_of::<Set>() == 64);

/// The cache.
#[derive(Debug)]
pub(super) struct RuleCache {
    sets: Box<[Set]>,
    entries: usize,
    /// Which place of a full set goes next.
    next_way: usize,
}

impl RuleCache {
    pub(super) fn new() -> Self {
        Self {
            sets: empty_sets(FIRST_SETS),
            entries: 0,
            next_way: 0,
        }
    }

    #[inline]
    pub(super) fn get(&self, key: RuleKey) -> Option<Rule> {
        let set = &self.sets[set_of(key, self.sets.len())];
        set.0
            .iter()
            .find(|entry| entry.key == key)
            .map(|entry| entry.rule)
    }

    /// Puts a rule that is not in it.
    pub(super) fn put(&mut self, key: RuleKey, rule: Rule) {
        // A quarter full, four in a thousand find their set full.
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

    /// Forgets all addresses in a range, whose code has changed or gone.
    pub(super) fn forget(&mut self, range: &Range<u64>) {
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
        for entry in before
            .iter()
            .flat_map(|set| &set.0)
            .filter(|entry| entry.key != EMPTY.key)
        {
            let index = set_of(entry.key, self.sets.len());
            // A set splits into two, so there is room.
            if let Some(free) = self.sets[index]
                .0
                .iter_mut()
                .find(|entry| entry.key == EMPTY.key)
            {
                *free = *entry;
                self.entries += 1;
            }
        }
    }
}

fn empty_sets(count: usize) -> Box<[Set]> {
    vec![Set([EMPTY; WAYS]); count].into_boxed_slice()
}

/// Mixes twice, since addresses come in steady strides.
#[inline]
fn set_of(key: RuleKey, sets: usize) -> usize {
    let mixed = key.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let hash = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (((hash >> 32) * sets as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::rule::CodeShape;

    fn rule(number: u64) -> Rule {
        Rule::Uncovered(CodeShape::Framed {
            function: number as u16,
        })
    }

    #[test]
    fn what_was_put_is_found_while_the_cache_grows() {
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
            "the next instruction is another key"
        );
    }

    #[test]
    fn a_module_that_goes_is_forgotten_and_no_other() {
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
