//! A map of generated code by address. A newer range covers the older ones that it overlaps.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Identifies a range of a map. A later range has a greater number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct CodeRangeId(pub(crate) u64);

/// A named range of generated code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct GeneratedCode {
    pub(crate) id: CodeRangeId,
    /// The whole range, including parts that a newer range covers.
    pub(crate) range: Range<u64>,
    /// Whether the code may still run. Removed code keeps its name for the samples taken in it.
    pub(crate) live: bool,
    pub(crate) name: Arc<str>,
    /// Number of the script function that the code was compiled from.
    pub(crate) script: Option<u32>,
}

/// Generated code by address.
#[derive(Clone, Default, Debug)]
pub(crate) struct CodeMap {
    /// Pieces without overlaps, by their first address: the end of each piece and its code.
    pieces: BTreeMap<u64, (u64, GeneratedCode)>,
}

impl CodeMap {
    /// Creates a map with one range.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn of_range(range: Range<u64>) -> Self {
        let mut map = Self::default();
        map.put(GeneratedCode {
            id: CodeRangeId(0),
            range,
            live: true,
            name: "generated".into(),
            script: None,
        });
        map
    }

    /// Adds a range, which covers all older ranges at its addresses.
    pub(crate) fn put(&mut self, code: GeneratedCode) {
        let Range { start, end } = code.range;
        if start >= end {
            return;
        }
        if let Some((&first, &(last, _))) = self.pieces.range(..start).next_back()
            && last > start
        {
            self.split(first, start);
        }
        if let Some((&first, &(last, _))) = self.pieces.range(..end).next_back()
            && last > end
        {
            self.split(first, end);
        }
        let covered: Vec<u64> = self
            .pieces
            .range(start..end)
            .map(|(&first, _)| first)
            .collect();
        for first in covered {
            self.pieces.remove(&first);
        }
        self.pieces.insert(start, (end, code));
    }

    /// Splits the piece that starts at `first` into two, the second of which starts at `at`.
    fn split(&mut self, first: u64, at: u64) {
        let Some((end, code)) = self.pieces.get_mut(&first) else {
            return;
        };
        let rest = (std::mem::replace(end, at), code.clone());
        self.pieces.insert(at, rest);
    }

    /// Returns the first addresses of a range's pieces.
    fn pieces_of(&self, id: CodeRangeId, range: &Range<u64>) -> Vec<u64> {
        let within = self.pieces.range(range.clone());
        within
            .filter(|(_, (_, code))| code.id == id)
            .map(|(&first, _)| first)
            .collect()
    }

    /// Marks the code of a range as removed.
    pub(crate) fn retire(&mut self, id: CodeRangeId, range: &Range<u64>) {
        for first in self.pieces_of(id, range) {
            if let Some((_, code)) = self.pieces.get_mut(&first) {
                code.live = false;
            }
        }
    }

    /// Removes a range and its name.
    pub(crate) fn remove(&mut self, id: CodeRangeId, range: &Range<u64>) {
        for first in self.pieces_of(id, range) {
            self.pieces.remove(&first);
        }
    }

    /// Adds all ranges of another map, which cover those of this one.
    pub(crate) fn put_all(&mut self, other: &CodeMap) {
        for (&first, (last, code)) in &other.pieces {
            self.put(GeneratedCode {
                range: first..*last,
                ..code.clone()
            });
        }
    }

    pub(crate) fn find(&self, address: u64) -> Option<&GeneratedCode> {
        let (_, (end, code)) = self.pieces.range(..=address).next_back()?;
        (address < *end).then_some(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(id: u64, range: Range<u64>) -> GeneratedCode {
        GeneratedCode {
            id: CodeRangeId(id),
            range,
            live: true,
            name: format!("f{id}").into(),
            script: None,
        }
    }

    fn names(map: &CodeMap, addresses: Range<u64>) -> String {
        let name = |address| {
            map.find(address)
                .map_or("-".to_owned(), |code| code.name.to_string())
        };
        addresses.map(name).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn newer_range_covers_older_ones() {
        let mut map = CodeMap::default();
        map.put(code(1, 10..16));
        assert_eq!(names(&map, 9..17), "- f1 f1 f1 f1 f1 f1 -");
        map.put(code(2, 12..14));
        assert_eq!(names(&map, 9..17), "- f1 f1 f2 f2 f1 f1 -");
        map.put(code(3, 14..20));
        assert_eq!(names(&map, 9..17), "- f1 f1 f2 f2 f3 f3 f3");
        map.put(code(4, 8..15));
        assert_eq!(names(&map, 7..17), "- f4 f4 f4 f4 f4 f4 f4 f3 f3");
        map.put(code(5, 8..9));
        map.put(code(6, 5..5));
        assert_eq!(names(&map, 7..17), "- f5 f4 f4 f4 f4 f4 f4 f3 f3");
        assert_eq!(map.pieces.len(), 3);
    }

    #[test]
    fn retire_and_remove_affect_all_pieces_of_one_range_only() {
        let mut map = CodeMap::default();
        map.put(code(1, 10..16));
        map.put(code(2, 12..14));
        map.retire(CodeRangeId(1), &(10..16));
        let live = |map: &CodeMap| {
            (10..16)
                .map(|at| map.find(at).is_some_and(|code| code.live))
                .collect::<Vec<_>>()
        };
        assert_eq!(live(&map), [false, false, true, true, false, false]);
        map.remove(CodeRangeId(1), &(10..16));
        assert_eq!(names(&map, 10..16), "- - f2 f2 - -");
    }
}
