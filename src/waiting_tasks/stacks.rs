//! The stacks of names of wrapped futures, each stored once.
//!
//! All memory is allocated in advance: the table is used under a lock that threads of the
//! application take wherever they poll.

use crate::types::TimeStamp;
use crate::util::{Search, UniqueIndex, cut_at_character, try_vec};

/// Maximum length of each part of a name, in bytes.
pub(super) const MAX_PART_BYTES: usize = 128;
/// Average space for the texts of a stack, in bytes.
const TEXT_BYTES: usize = 48;
/// Name that replaces all names that find no space.
pub(super) const OTHER: &str = "(other)";
/// Number of the stack with the name [`OTHER`] alone. 0 is the empty stack.
pub(super) const OTHER_STACK: u32 = 1;

/// The name of a wrapped future: a label, and a text that was made at run time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct TaskName<'a> {
    pub(crate) label: &'a str,
    pub(crate) dynamic: &'a str,
}

/// A stack: a name on top of another stack.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stack {
    below: u32,
    /// Where the name's label and its other text begin and end in the texts.
    texts: [u32; 3],
    /// What futures with this stack have waited, in ns, and how much of it rows have.
    pub(super) waited_ns: u64,
    pub(super) written_ns: u64,
    /// Up to when they have waited.
    pub(super) last: TimeStamp,
}

/// The stacks of a session.
#[derive(Debug)]
pub(super) struct TaskStacks {
    stacks: Vec<Stack>,
    by_name: UniqueIndex,
    texts: String,
}

impl TaskStacks {
    /// Returns a table with space for so many stacks; `None` without memory.
    pub(super) fn with_space(max_stacks: usize) -> Option<Self> {
        let mut texts = String::new();
        texts.try_reserve_exact(max_stacks * TEXT_BYTES).ok()?;
        let mut stacks = Self {
            stacks: try_vec(max_stacks)?,
            by_name: UniqueIndex::with_space(max_stacks)?,
            texts,
        };
        for label in ["", OTHER] {
            stacks.add(0, TaskName { label, dynamic: "" });
        }
        Some(stacks)
    }

    pub(super) fn len(&self) -> u32 {
        self.stacks.len() as u32
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Stack> {
        self.stacks.get_mut(number as usize)
    }

    /// Returns the number of the stack with this name on top of `below`.
    ///
    /// Beyond half of the space, a new name lacks its text that was made at run time: that may be a
    /// different one for each request. Without space, the stack is [`OTHER_STACK`].
    pub(super) fn number(&mut self, below: u32, name: TaskName<'_>) -> u32 {
        let name = TaskName {
            label: cut_at_character(name.label, MAX_PART_BYTES),
            dynamic: cut_at_character(name.dynamic, MAX_PART_BYTES),
        };
        if below == OTHER_STACK || below >= self.len() {
            return OTHER_STACK;
        }
        let is_half_full = self.stacks.len() >= self.stacks.capacity() / 2
            || self.texts.len() >= self.texts.capacity() / 2;
        if let Some(known) = self.add_if(below, name, !is_half_full || name.dynamic.is_empty()) {
            return known;
        }
        let name = TaskName {
            dynamic: "",
            ..name
        };
        self.add_if(below, name, true).unwrap_or(OTHER_STACK)
    }

    /// Returns the number of a stack. Adds it if it is new, `adds` is true and there is space.
    fn add_if(&mut self, below: u32, name: TaskName<'_>, adds: bool) -> Option<u32> {
        let Self {
            stacks,
            by_name,
            texts,
        } = self;
        let has_space = stacks.len() < stacks.capacity()
            && texts.capacity() - texts.len() >= name.label.len() + name.dynamic.len();
        let is_at = |at: u32| {
            let known = &stacks[at as usize];
            known.below == below && name_in(texts, known) == name
        };
        match by_name.search(&(below, name), is_at) {
            Search::Found(known) => Some(known),
            Search::Missing(slot) if adds && has_space => {
                slot.fill(stacks.len() as u32);
                Some(self.add(below, name))
            }
            Search::Missing(_) => None,
        }
    }

    fn add(&mut self, below: u32, name: TaskName<'_>) -> u32 {
        let begin = self.texts.len();
        self.texts.push_str(name.label);
        let middle = self.texts.len();
        self.texts.push_str(name.dynamic);
        self.stacks.push(Stack {
            below,
            texts: [begin, middle, self.texts.len()].map(|at| at as u32),
            waited_ns: 0,
            written_ns: 0,
            last: TimeStamp(0),
        });
        self.len() - 1
    }

    /// Calls `visit` with each name of a stack, innermost first.
    pub(super) fn visit_names(&self, mut number: u32, mut visit: impl FnMut(TaskName<'_>)) {
        while let Some(stack) = self.stacks.get(number as usize).filter(|_| number != 0) {
            visit(name_in(&self.texts, stack));
            number = stack.below;
        }
    }

    #[cfg(test)]
    pub(super) fn text(&self, number: u32) -> String {
        let mut names = Vec::new();
        self.visit_names(number, |name| {
            names.push(format!("{} {}", name.label, name.dynamic).trim().to_owned());
        });
        names.reverse();
        names.join(" → ")
    }
}

fn name_in<'a>(texts: &'a str, stack: &Stack) -> TaskName<'a> {
    let [begin, middle, end] = stack.texts.map(|at| at as usize);
    TaskName {
        label: texts.get(begin..middle).unwrap_or_default(),
        dynamic: texts.get(middle..end).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(label: &str) -> TaskName<'_> {
        TaskName { label, dynamic: "" }
    }

    #[test]
    fn equal_stacks_share_a_number_and_too_many_become_other() {
        let mut stacks = TaskStacks::with_space(5).expect("memory");
        let outer = stacks.number(0, name("outer"));
        let inner = stacks.number(outer, name("inner"));
        assert_eq!(stacks.number(0, name("outer")), outer);
        assert_eq!(stacks.number(outer, name("inner")), inner);
        assert_ne!(stacks.number(0, name("inner")), inner);
        assert_eq!(stacks.text(inner), "outer → inner");
        let other = stacks.number(outer, name("new"));
        assert_eq!(stacks.text(other), OTHER);
        assert_eq!(stacks.number(other, name("inner")), other);
        assert_eq!(stacks.number(outer, name("inner")), inner);
    }

    #[test]
    fn texts_made_at_run_time_leave_space_for_labels() {
        let mut stacks = TaskStacks::with_space(100).expect("memory");
        let mut last = 0;
        for number in 0..1_000 {
            let dynamic = &format!("request {number}");
            let label = "look_up";
            last = stacks.number(0, TaskName { label, dynamic });
        }
        assert_eq!(stacks.text(last), "look_up");
        let known = TaskName {
            label: "look_up",
            dynamic: "request 7",
        };
        let known = stacks.number(0, known);
        assert_eq!(stacks.text(known), "look_up request 7");
        let inner = stacks.number(last, name("pool.get"));
        assert_eq!(stacks.text(inner), "look_up → pool.get");
    }

    #[test]
    fn long_texts_are_cut_and_nothing_is_allocated() {
        let mut stacks = TaskStacks::with_space(1_000).expect("memory");
        let space = |stacks: &TaskStacks| {
            let slots = stacks.by_name.slots();
            (stacks.stacks.capacity(), stacks.texts.capacity(), slots)
        };
        let before = space(&stacks);
        for number in 0..2_000 {
            let long = format!("{number} {}", "µ".repeat(200));
            let stack = stacks.number(
                0,
                TaskName {
                    label: &long,
                    dynamic: &long,
                },
            );
            assert!(stacks.text(stack).len() <= 2 * MAX_PART_BYTES + 1);
        }
        assert_eq!(before, space(&stacks));
    }
}
