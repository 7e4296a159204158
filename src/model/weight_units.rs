//! Converts the weights of rows to a coarser unit, without loss in a stack's sum.

use std::collections::HashMap;
use std::hash::Hash;

/// Takes whole units out of what each stack has, and keeps the rest for the stack's next row.
#[derive(Debug)]
pub(crate) struct WeightUnits<K> {
    unit: u64,
    rests: HashMap<K, u64>,
}

impl<K: Hash + Eq> WeightUnits<K> {
    pub(crate) fn new(unit: u64) -> Self {
        Self {
            unit: unit.max(1),
            rests: HashMap::new(),
        }
    }

    /// Returns the number of units in `amount` and what was left of the stack before.
    pub(crate) fn take(&mut self, stack: K, amount: u64) -> u64 {
        let rest = self.rests.entry(stack).or_default();
        *rest = rest.saturating_add(amount);
        let units = *rest / self.unit;
        *rest %= self.unit;
        units
    }
}
