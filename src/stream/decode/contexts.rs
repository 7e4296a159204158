//! The contexts of samples: what each one says, and from when to when a thread was seen in it.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use crate::labels::{ContextWords, context_label};
use crate::stream::decode::source::ProfileSource;

/// Keys of the fields that are not labels.
const TRACE_ID: &str = "trace_id";
const SPAN_ID: &str = "span_id";
/// Keys that the formats give a meaning to. A label with such a key gets an underscore.
const TAKEN_KEYS: &[&str] = &[
    TRACE_ID,
    SPAN_ID,
    "type",
    "stack",
    "cause",
    "innerWindowID",
    "futures",
];
/// Time from a thread's last sample in a context to the end of its interval, in ns: an interval
/// without length would contain no sample.
const AFTER_LAST_SAMPLE_NS: u64 = 1_000;
/// Maximum number of keys of labels that the schema of contexts lists. The viewer shows no others.
const MAX_LISTED_KEYS: usize = 64;

/// The contexts of a profile. They are numbered from 1.
#[derive(Debug, Default)]
pub(crate) struct Contexts {
    all: Vec<ContextWords>,
    numbers: HashMap<ContextWords, u32>,
}

/// A context's fields: keys with values.
pub(crate) type ContextFields = Vec<(Cow<'static, str>, Cow<'static, str>)>;

impl Contexts {
    /// Returns the number of a context, and adds it if it is new.
    pub(crate) fn add(&mut self, context: ContextWords) -> u32 {
        let next = self.all.len() as u32 + 1;
        let number = *self.numbers.entry(context).or_insert(next);
        if number == next {
            self.all.push(context);
        }
        number
    }

    /// Returns how much memory the contexts take if their number doubles.
    pub(super) fn growth_bytes(&self) -> usize {
        // The list, and a hash table that is half full.
        6 * size_of::<ContextWords>() * self.all.len()
    }

    /// Returns the fields of the context with this number.
    pub(crate) fn fields(&self, source: &ProfileSource, number: u32) -> ContextFields {
        let index = (number as usize).wrapping_sub(1);
        let context = self.all.get(index).copied().unwrap_or_default();
        let mut fields = ContextFields::new();
        if context.trace != [0; 2] {
            let id = format!("{:016x}{:016x}", context.trace[0], context.trace[1]);
            fields.push((TRACE_ID.into(), id.into()));
        }
        if context.span != 0 {
            fields.push((SPAN_ID.into(), format!("{:016x}", context.span).into()));
        }
        let numbers = context.labels.iter().filter(|number| **number != 0);
        for (key, value) in numbers.filter_map(|number| label(source, *number)) {
            // Only a damaged buffer has two labels with one key.
            if !fields.iter().any(|(known, _)| *known == key) {
                fields.push((key, value));
            }
        }
        fields
    }

    /// Returns the keys of all fields, in the order in which a viewer lists them.
    pub(crate) fn keys(&self, source: &ProfileSource) -> Vec<Cow<'static, str>> {
        let numbers = self.all.iter().flat_map(|context| context.labels);
        let numbers: BTreeSet<u32> = numbers.filter(|number| *number != 0).collect();
        let mut keys = vec![TRACE_ID.into(), SPAN_ID.into()];
        for number in numbers {
            if keys.len() - 2 == MAX_LISTED_KEYS {
                break;
            }
            match label(source, number) {
                Some((key, _)) if !keys.contains(&key) => keys.push(key),
                _ => {}
            }
        }
        keys
    }
}

/// Returns the key and the value of the label with this number.
fn label(source: &ProfileSource, number: u32) -> Option<(Cow<'static, str>, Cow<'static, str>)> {
    let (key, value): (Cow<'static, str>, Cow<'static, str>) = match &source.past {
        Some(past) => {
            let (key, value) = past.context_labels.get(&number.into())?;
            (key.clone().into(), value.clone().into())
        }
        None => {
            let label = context_label(number)?;
            (label.key.into(), label.value.into())
        }
    };
    let is_taken = TAKEN_KEYS.contains(&key.trim_end_matches('_'));
    Some(match is_taken {
        true => (format!("{key}_").into(), value),
        false => (key, value),
    })
}

/// A time in which each sample of a thread was in one context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ContextInterval {
    /// The context's number.
    pub(crate) context: u32,
    /// Time of the first sample, in ns since the process began.
    pub(crate) start_ns: u64,
    /// Shortly after the last sample.
    pub(crate) end_ns: u64,
}

/// The intervals of a thread, in order of time.
#[derive(Debug, Default)]
pub(crate) struct ContextIntervals {
    pub(crate) all: Vec<ContextInterval>,
    /// Whether the thread's last sample was in the last interval's context.
    is_open: bool,
}

impl ContextIntervals {
    /// Records a sample, or a run of samples up to `last_ns`. `context` is 0 for none.
    #[inline(always)]
    pub(crate) fn add_sample(&mut self, context: u32, time_ns: u64, last_ns: u64) {
        if context == 0 {
            self.is_open = false;
        } else {
            self.add_sample_in(context, time_ns, last_ns);
        }
    }

    #[inline(never)]
    fn add_sample_in(&mut self, context: u32, time_ns: u64, last_ns: u64) {
        let end_ns = last_ns.max(time_ns).saturating_add(AFTER_LAST_SAMPLE_NS);
        match self.all.last_mut() {
            Some(last) if self.is_open && last.context == context => {
                last.end_ns = last.end_ns.max(end_ns);
            }
            _ => self.all.push(ContextInterval {
                context,
                start_ns: time_ns,
                end_ns,
            }),
        }
        self.is_open = true;
    }

    /// Returns how much memory the intervals take if their number doubles.
    pub(super) fn growth_bytes(&self) -> usize {
        2 * size_of_val(self.all.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_contexts_have_one_number() {
        let mut contexts = Contexts::default();
        let of_span = |span| ContextWords {
            span,
            ..ContextWords::NONE
        };
        assert_eq!(contexts.add(of_span(7)), 1);
        assert_eq!(contexts.add(of_span(8)), 2);
        assert_eq!(contexts.add(of_span(7)), 1);
    }

    #[test]
    fn samples_of_one_context_are_one_interval() {
        let mut intervals = ContextIntervals::default();
        for (context, time_ns, last_ns) in [
            (0, 10, 10),
            (1, 20, 20),
            (1, 30, 90),
            (2, 100, 100),
            (0, 110, 110),
            (2, 120, 120),
        ] {
            intervals.add_sample(context, time_ns, last_ns);
        }
        let all = intervals.all.iter();
        let all: Vec<_> = all
            .map(|interval| (interval.context, interval.start_ns, interval.end_ns))
            .collect();
        assert_eq!(all, [(1, 20, 1090), (2, 100, 1100), (2, 120, 1120)]);
    }
}
