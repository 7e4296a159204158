//! Ranges of generated code by address: whatever was put last covers what was there before.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Which of the ranges that were put; a later one has a greater number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct CodeRangeId(pub(super) u64);

/// Code that has one name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct GeneratedCode {
    pub(super) id: CodeRangeId,
    /// All of it, also where something newer covers a part.
    pub(super) range: Range<u64>,
    /// Whether it may still run; code that is gone keeps its name for the samples that were taken in it.
    pub(super) live: bool,
    pub(crate) name: Arc<str>,
}

/// What covers which addresses.
#[derive(Clone, Default, Debug)]
pub(crate) struct CodeMap {
    /// Pieces without overlaps, by their first address: where each ends, and what it is of.
    pieces: BTreeMap<u64, (u64, GeneratedCode)>,
}

impl CodeMap {
    /// Code at all these addresses.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn of_range(range: Range<u64>) -> Self {
        let mut map = Self::default();
        map.put(GeneratedCode {
            id: CodeRangeId(0),
            range,
            live: true,
            name: "generated".into(),
        });
        map
    }

    /// Puts a range over all that is there.
    pub(super) fn put(&mut self, code: GeneratedCode) {
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

    /// Makes two of the piece that begins at `first`, before `at`.
    fn split(&mut self, first: u64, at: u64) {
        let Some((end, code)) = self.pieces.get_mut(&first) else {
            return;
        };
        let rest = (std::mem::replace(end, at), code.clone());
        self.pieces.insert(at, rest);
    }

    fn pieces_of(&self, id: CodeRangeId, range: &Range<u64>) -> Vec<u64> {
        let within = self.pieces.range(range.clone());
        within
            .filter(|(_, (_, code))| code.id == id)
            .map(|(&first, _)| first)
            .collect()
    }

    /// Says that a range's code is gone.
    pub(super) fn retire(&mut self, id: CodeRangeId, range: &Range<u64>) {
        for first in self.pieces_of(id, range) {
            if let Some((_, code)) = self.pieces.get_mut(&first) {
                code.live = false;
            }
        }
    }

    pub(super) fn remove(&mut self, id: CodeRangeId, range: &Range<u64>) {
        for first in self.pieces_of(id, range) {
            self.pieces.remove(&first);
        }
    }

    /// Puts all of another map over this one.
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
    fn the_newest_covers_what_was_there() {
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
    fn a_range_goes_with_all_its_pieces_and_no_other() {
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
