//! The labels of contexts: keys with values, each stored once, for the life of the process.
//!
//! Contexts, captures and buffer entries hold a label's number, which has the same meaning for the
//! life of the process. So neither entering a context nor the handler copies a text.

use std::collections::HashMap;

use crate::labels::thread_context::{MAX_CONTEXT_LABELS, MAX_CONTEXT_TEXT_BYTES};
use crate::util::{
    Guard, LockRank, NamedMutex, SMALL_TASK_BYTES, allocator_has, cut_at_character,
    is_any_lock_held_on_current_thread,
};

/// Maximum number of different labels: an application that exceeds it probably takes values from
/// data that never repeat. Every further label gets the value [`OTHER`], under its own key.
const MAX_LABELS: usize = 1 << 16;
/// Number of labels with the value [`OTHER`] beyond [`MAX_LABELS`]. Further ones are left out.
const MAX_OTHER_LABELS: usize = 256;
/// The value in place of one beyond [`MAX_LABELS`].
const OTHER: &str = "(other)";

/// A label of a context.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ContextLabel<'a> {
    pub(crate) key: &'a str,
    pub(crate) value: &'a str,
}

/// All labels that contexts have had. The number of a label is its index plus one.
#[derive(Debug)]
pub(crate) struct ContextLabels {
    by_text: HashMap<ContextLabel<'static>, u32>,
    by_number: Vec<ContextLabel<'static>>,
    max_labels: usize,
}

static LABELS: NamedMutex<Option<ContextLabels>> =
    NamedMutex::new("context labels", LockRank::ContextLabels, None);

/// Adds a label to those of a context, in place of the one with the same key. Drops the label if
/// the context has no space for it, if there are too many different labels, or if there is no
/// memory for another one. Does nothing inside of the profiler's own work, where the caller may
/// hold the lock.
///
/// Cost: a lock and a look into a table; for a new label, an allocation.
pub(crate) fn add_context_label(
    labels: [u32; MAX_CONTEXT_LABELS],
    key: &str,
    value: &str,
) -> [u32; MAX_CONTEXT_LABELS] {
    if is_any_lock_held_on_current_thread() {
        return labels;
    }
    let [key, value] = [key, value].map(|text| cut_at_character(text, MAX_CONTEXT_TEXT_BYTES));
    let mut guard = LABELS.lock();
    let all = guard.get_or_insert_with(|| ContextLabels::empty(MAX_LABELS));
    all.add_to(labels, ContextLabel { key, value })
}

/// Returns the label with this number.
pub(crate) fn context_label(number: u32) -> Option<ContextLabel<'static>> {
    let index = (number as usize).checked_sub(1)?;
    LABELS.lock().as_ref()?.by_number.get(index).copied()
}

/// Calls `use_label` with each label but the first `known` ones, in the order of their numbers.
/// Cost: a lock, and nothing else without new labels.
pub(crate) fn context_labels_from(
    known: usize,
    mut use_label: impl FnMut(u32, ContextLabel<'static>),
) {
    let new: Vec<_> = match LABELS.lock().as_ref() {
        Some(labels) if labels.by_number.len() > known => labels.by_number[known..].to_vec(),
        _ => return,
    };
    for (number, label) in (known as u32 + 1..).zip(new) {
        use_label(number, label);
    }
}

/// Locks the labels while the process forks.
pub(crate) fn hold_context_labels_for_fork() -> Guard<'static, Option<ContextLabels>> {
    LABELS.lock()
}

impl ContextLabels {
    fn empty(max_labels: usize) -> Self {
        Self {
            by_text: HashMap::new(),
            by_number: Vec::new(),
            max_labels,
        }
    }

    fn add_to(
        &mut self,
        mut labels: [u32; MAX_CONTEXT_LABELS],
        label: ContextLabel<'_>,
    ) -> [u32; MAX_CONTEXT_LABELS] {
        let has_key = |number: &u32| {
            let index = (*number as usize).checked_sub(1);
            let known = index.and_then(|index| self.by_number.get(index));
            known.is_some_and(|known| known.key == label.key)
        };
        let place = labels.iter().position(has_key);
        let place = place.or_else(|| labels.iter().position(|number| *number == 0));
        if let Some(place) = place {
            // 0 without space for the label: the older value would be wrong.
            labels[place] = self.get_or_add(label);
        }
        labels
    }

    fn get_or_add(&mut self, label: ContextLabel<'_>) -> u32 {
        if let Some(known) = find(&self.by_text, &label) {
            return known;
        }
        let count = self.by_number.len();
        if count >= self.max_labels && label.value != OTHER {
            return self.get_or_add(ContextLabel {
                value: OTHER,
                ..label
            });
        }
        if count >= self.max_labels + MAX_OTHER_LABELS
            || self.by_text.try_reserve(1).is_err()
            || self.by_number.try_reserve(1).is_err()
            || !allocator_has(SMALL_TASK_BYTES)
        {
            return 0;
        }
        let [key, value] = [label.key, label.value].map(|text| &*String::leak(text.to_owned()));
        let number = count as u32 + 1;
        self.by_number.push(ContextLabel { key, value });
        self.by_text.insert(ContextLabel { key, value }, number);
        number
    }
}

/// Finds a label, whose texts need not live as long as those in the map.
fn find<'a>(map: &HashMap<ContextLabel<'a>, u32>, label: &ContextLabel<'a>) -> Option<u32> {
    map.get(label).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_labels_have_one_number_and_too_many_become_other() {
        let mut labels = ContextLabels::empty(2);
        let mut add = |key: &str, value: &str| labels.get_or_add(ContextLabel { key, value });
        assert_eq!(add("route", "/a"), 1);
        assert_eq!(add("route", "/b"), 2);
        assert_eq!(add("route", "/a"), 1);
        assert_eq!(add("route", "/c"), 3);
        assert_eq!(add("route", "/d"), 3);
        assert_eq!(add("tenant", "x"), 4);
        for number in 0..MAX_OTHER_LABELS - 2 {
            assert_ne!(add(&number.to_string(), "x"), 0);
        }
        assert_eq!(add("one more", "x"), 0);
        assert_eq!(labels.by_number[2].value, OTHER);
    }

    #[test]
    fn label_replaces_the_one_with_its_key_also_if_there_are_too_many() {
        let mut labels = ContextLabels::empty(0);
        labels.max_labels = 1;
        let label = |key, value| ContextLabel { key, value };
        let one = labels.add_to([0; MAX_CONTEXT_LABELS], label("tenant", "x"));
        assert_eq!(one, [1, 0, 0, 0]);
        for number in 0..=MAX_OTHER_LABELS {
            let key = number.to_string();
            labels.get_or_add(ContextLabel {
                key: &key,
                value: "x",
            });
        }
        labels.by_text.clear();
        let none = labels.add_to(one, label("tenant", "y"));
        assert_eq!(none, [0; MAX_CONTEXT_LABELS], "not the older value");
    }

    #[test]
    fn label_is_found_by_its_number() {
        let long = "é".repeat(100);
        let [number, ..] = add_context_label([0; MAX_CONTEXT_LABELS], "long", &long);
        let label = context_label(number).expect("a label");
        assert_eq!((label.key, label.value), ("long", &*"é".repeat(64)));
        assert_eq!(context_label(0), None);
        assert_eq!(context_label(u32::MAX), None);
    }
}
