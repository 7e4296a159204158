//! Threads that sleep alike, which a file shows as one track.
//!
//! A server may have thousands of threads that wait in a pool. A track for each would fill a file and
//! the viewer's window, and say nothing more than one of them says.

use std::collections::HashMap;
use std::hash::Hash;

/// Minimum number of threads that are shown as one track.
const MIN_ALIKE: usize = 64;

/// How a file shows a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shown {
    /// By a track for this thread only.
    Alone,
    /// By a track that represents this many threads, its own included.
    For(usize),
    /// By the track of another thread.
    ByAnother,
}

impl Shown {
    /// Returns the name of the thread's track.
    pub(crate) fn name(self, thread: &str) -> String {
        match self {
            Self::For(threads) => format!("{thread} (1 of {threads} asleep alike)"),
            _ => thread.to_owned(),
        }
    }
}

/// Returns how a file shows each thread. The caller gives the name of a thread that slept throughout,
/// and the place where it slept, and `None` for any other thread. Threads sleep alike if their names
/// differ by numbers only, and they slept at the same place.
pub(crate) fn show_threads<'a, Place: Eq + Hash + Copy>(
    asleep: impl Iterator<Item = Option<(&'a str, Place)>>,
) -> Vec<Shown> {
    let mut groups: HashMap<(String, Place), Vec<usize>> = HashMap::new();
    let mut shown = Vec::new();
    for (index, thread) in asleep.enumerate() {
        shown.push(Shown::Alone);
        if let Some((name, place)) = thread {
            let name = name.replace(|letter: char| letter.is_ascii_digit(), "");
            groups.entry((name, place)).or_default().push(index);
        }
    }
    for group in groups.into_values().filter(|all| all.len() >= MIN_ALIKE) {
        group
            .iter()
            .for_each(|&index| shown[index] = Shown::ByAnother);
        shown[group[0]] = Shown::For(group.len());
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_threads_that_sleep_alike_have_one_track() {
        let names: Vec<String> = (0..300)
            .map(|index| format!("pool-{index}-worker"))
            .collect();
        // The first hundred sleep at place 7, of which one has another name, and one has run; 63 sleep
        // at place 8, and the others have run.
        let asleep = |index: usize| match index {
            50 => Some(("main", 7)),
            60 => None,
            0..100 => Some((names[index].as_str(), 7)),
            100..163 => Some((names[index].as_str(), 8)),
            _ => None,
        };
        let shown = show_threads((0..300).map(asleep));
        let expected = |index| match index {
            0 => Shown::For(98),
            50 | 60 | 100.. => Shown::Alone,
            _ => Shown::ByAnother,
        };
        assert_eq!(shown, (0..300).map(expected).collect::<Vec<_>>());
        assert_eq!(shown[0].name("pool-0"), "pool-0 (1 of 98 asleep alike)");
        assert_eq!(shown[1].name("pool-1"), "pool-1");
    }
}
