//! A map of generated code by address. A newer range covers the older ones that it overlaps.
//!
//! The map is a persistent treap: a binary search tree of shared nodes, balanced by numbers that
//! are derived from the addresses. A clone takes constant time and shares all nodes. A change
//! copies only the shared nodes on its way down the tree, about 20 of 100,000. A `BTreeMap` would
//! be copied as a whole for each profile, while its lock is held.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::util::next_random;

/// A named range of generated code.
#[derive(Debug)]
pub(crate) struct GeneratedCode {
    /// The whole range, including parts that a newer range covers.
    pub(crate) range: Range<u64>,
    pub(crate) name: Box<str>,
    /// Number of the script function that the code was compiled from.
    pub(crate) script: Option<u32>,
    /// Whether the code may still run. Removed code keeps its name for the samples taken in it.
    is_live: AtomicBool,
}

impl GeneratedCode {
    pub(crate) fn new(range: Range<u64>, name: &str, script: Option<u32>) -> Arc<Self> {
        Arc::new(Self {
            range,
            name: name.into(),
            script,
            is_live: AtomicBool::new(true),
        })
    }

    /// Returns whether the code may still run.
    pub(crate) fn is_live(&self) -> bool {
        self.is_live.load(Ordering::Acquire)
    }

    /// Marks the code as removed, in all maps that contain it.
    pub(crate) fn retire(&self) {
        self.is_live.store(false, Ordering::Release);
    }

    /// Returns how much memory the range takes in a map, in bytes: the code, its name, and one
    /// node, with their reference counts and the allocator's overhead.
    pub(crate) fn map_bytes(&self) -> u64 {
        const OVERHEAD: usize = 2 * 16 + 3 * 16;
        (size_of::<Self>() + self.name.len() + size_of::<Node>() + OVERHEAD) as u64
    }
}

/// Generated code by address.
#[derive(Clone, Default, Debug)]
pub(crate) struct CodeMap {
    root: Link,
}

type Link = Option<Arc<Node>>;

/// A piece of a range, without overlaps with other pieces.
#[derive(Clone, Debug)]
struct Node {
    start: u64,
    end: u64,
    code: Arc<GeneratedCode>,
    /// The pieces at lower addresses.
    left: Link,
    /// The pieces at higher addresses.
    right: Link,
}

impl Node {
    fn link(start: u64, end: u64, code: Arc<GeneratedCode>) -> Link {
        let (left, right) = (None, None);
        Some(Arc::new(Self {
            start,
            end,
            code,
            left,
            right,
        }))
    }

    /// Returns the number by which the tree is balanced: a parent has a greater one than its
    /// children.
    fn priority(&self) -> u64 {
        let mut seed = self.start;
        next_random(&mut seed)
    }
}

/// Splits a tree into the pieces that start below `at`, and the others.
fn split(link: Link, at: u64) -> (Link, Link) {
    let Some(mut node) = link else {
        return (None, None);
    };
    let own = Arc::make_mut(&mut node);
    if own.start < at {
        let (low, high) = split(own.right.take(), at);
        own.right = low;
        (Some(node), high)
    } else {
        let (low, high) = split(own.left.take(), at);
        own.left = high;
        (low, Some(node))
    }
}

/// Joins two trees, all of whose pieces are in the order of the arguments.
fn join(low: Link, high: Link) -> Link {
    match (low, high) {
        (None, only) | (only, None) => only,
        (Some(mut low), Some(mut high)) => {
            if low.priority() > high.priority() {
                let own = Arc::make_mut(&mut low);
                own.right = join(own.right.take(), Some(high));
                Some(low)
            } else {
                let own = Arc::make_mut(&mut high);
                own.left = join(Some(low), own.left.take());
                Some(high)
            }
        }
    }
}

/// Returns the piece at the highest address.
fn last(link: &Link) -> Option<&Node> {
    let mut node = link.as_deref()?;
    while let Some(next) = node.right.as_deref() {
        node = next;
    }
    Some(node)
}

/// Lets the piece at the highest address end at `at`.
fn cut_last(link: &mut Link, at: u64) {
    let mut next = link.as_mut();
    while let Some(node) = next {
        let node = Arc::make_mut(node);
        if node.right.is_none() {
            node.end = at;
        }
        next = node.right.as_mut();
    }
}

/// Adds the first addresses of a range's pieces to `starts`.
fn collect_starts(link: &Link, code: &Arc<GeneratedCode>, starts: &mut Vec<u64>) {
    let Some(node) = link else { return };
    if node.start > code.range.start {
        collect_starts(&node.left, code, starts);
    }
    if Arc::ptr_eq(&node.code, code) {
        starts.push(node.start);
    }
    if node.start < code.range.end {
        collect_starts(&node.right, code, starts);
    }
}

fn visit(link: &Link, use_code: &mut dyn FnMut(&GeneratedCode)) {
    if let Some(node) = link {
        visit(&node.left, use_code);
        use_code(&node.code);
        visit(&node.right, use_code);
    }
}

impl CodeMap {
    pub(crate) const EMPTY: Self = Self { root: None };

    /// Creates a map with one range.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn of_range(range: Range<u64>) -> Self {
        let mut map = Self::default();
        drop(map.put(GeneratedCode::new(range, "generated", None)));
        map
    }

    /// Adds a range, which covers all older ranges at its addresses. Returns the pieces that it
    /// covers, which may be many: the caller drops them without holding a lock.
    #[must_use = "drop the pieces without holding a lock"]
    pub(crate) fn put(&mut self, code: Arc<GeneratedCode>) -> Self {
        let Range { start, end } = code.range;
        if start >= end {
            return Self::default();
        }
        let (mut low, rest) = split(self.root.take(), start);
        let (covered, high) = split(rest, end);
        let beyond = [&low, &covered]
            .into_iter()
            .filter_map(last)
            .find_map(|last| {
                (last.end > end).then(|| Node::link(end, last.end, Arc::clone(&last.code)))
            });
        if last(&low).is_some_and(|last| last.end > start) {
            cut_last(&mut low, start);
        }
        let low = join(low, Node::link(start, end, code));
        self.root = join(low, join(beyond.flatten(), high));
        Self { root: covered }
    }

    /// Removes a range and its name.
    pub(crate) fn remove(&mut self, code: &Arc<GeneratedCode>) {
        let mut starts = Vec::new();
        collect_starts(&self.root, code, &mut starts);
        starts
            .into_iter()
            .for_each(|start| self.remove_piece(start));
    }

    fn remove_piece(&mut self, start: u64) {
        let mut link = &mut self.root;
        while let Some(found) = link.as_ref().map(|node| node.start) {
            if found == start {
                let node = link.take().map(Arc::unwrap_or_clone);
                *link = node.and_then(|node| join(node.left, node.right));
                return;
            }
            let Some(node) = link else { return };
            let node = Arc::make_mut(node);
            link = if start < found {
                &mut node.left
            } else {
                &mut node.right
            };
        }
    }

    /// Calls `use_code` with the code of each piece, in the order of the addresses.
    pub(crate) fn for_each(&self, use_code: &mut dyn FnMut(&GeneratedCode)) {
        visit(&self.root, use_code);
    }

    pub(crate) fn find(&self, address: u64) -> Option<&Arc<GeneratedCode>> {
        let (mut next, mut nearest) = (self.root.as_deref(), None);
        while let Some(node) = next {
            next = if node.start <= address {
                nearest = Some(node);
                node.right.as_deref()
            } else {
                node.left.as_deref()
            };
        }
        nearest
            .filter(|nearest| address < nearest.end)
            .map(|nearest| &nearest.code)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashSet};

    use super::*;

    fn code(id: u64, range: Range<u64>) -> Arc<GeneratedCode> {
        GeneratedCode::new(range, &format!("f{id}"), None)
    }

    fn put(map: &mut CodeMap, id: u64, range: Range<u64>) -> Arc<GeneratedCode> {
        let code = code(id, range);
        drop(map.put(Arc::clone(&code)));
        code
    }

    fn names(map: &CodeMap, addresses: Range<u64>) -> String {
        let name = |address| {
            map.find(address)
                .map_or("-".to_owned(), |code| code.name.to_string())
        };
        addresses.map(name).collect::<Vec<_>>().join(" ")
    }

    /// Returns the addresses of the nodes in memory.
    fn nodes(map: &CodeMap) -> HashSet<*const Node> {
        let (mut nodes, mut links) = (HashSet::new(), vec![&map.root]);
        while let Some(link) = links.pop() {
            if let Some(node) = link {
                nodes.insert(Arc::as_ptr(node));
                links.extend([&node.left, &node.right]);
            }
        }
        nodes
    }

    #[test]
    fn newer_range_covers_older_ones() {
        let mut map = CodeMap::default();
        put(&mut map, 1, 10..16);
        assert_eq!(names(&map, 9..17), "- f1 f1 f1 f1 f1 f1 -");
        put(&mut map, 2, 12..14);
        assert_eq!(names(&map, 9..17), "- f1 f1 f2 f2 f1 f1 -");
        put(&mut map, 3, 14..20);
        assert_eq!(names(&map, 9..17), "- f1 f1 f2 f2 f3 f3 f3");
        put(&mut map, 4, 8..15);
        assert_eq!(names(&map, 7..17), "- f4 f4 f4 f4 f4 f4 f4 f3 f3");
        put(&mut map, 5, 8..9);
        put(&mut map, 6, 5..5);
        assert_eq!(names(&map, 7..17), "- f5 f4 f4 f4 f4 f4 f4 f3 f3");
        assert_eq!(nodes(&map).len(), 3);
    }

    #[test]
    fn retire_and_remove_affect_all_pieces_of_one_range_only() {
        let mut map = CodeMap::default();
        let first = put(&mut map, 1, 10..16);
        put(&mut map, 2, 12..14);
        first.retire();
        let live = |map: &CodeMap| {
            (10..16)
                .map(|at| map.find(at).is_some_and(|code| code.is_live()))
                .collect::<Vec<_>>()
        };
        assert_eq!(live(&map), [false, false, true, true, false, false]);
        map.remove(&first);
        assert_eq!(names(&map, 10..16), "- - f2 f2 - -");
    }

    #[test]
    fn random_changes_keep_each_address_as_an_array_has_it() {
        const ADDRESSES: usize = 64;
        let mut state = 7u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        let (mut map, mut expected) = (CodeMap::default(), vec![None; ADDRESSES]);
        let mut known = BTreeMap::new();
        let mut snapshots = Vec::new();
        for id in 0..2000 {
            if random(4) == 0 && !known.is_empty() {
                let chosen = random(known.len() as u64) as usize;
                let id = *known.keys().nth(chosen).expect("below the length");
                map.remove(&known.remove(&id).expect("a known range"));
                expected
                    .iter_mut()
                    .filter(|at| **at == Some(id))
                    .for_each(|at| *at = None);
            } else {
                let (one, other) = (random(ADDRESSES as u64), random(ADDRESSES as u64));
                let range = one.min(other)..one.max(other) + 1;
                expected[range.start as usize..range.end as usize].fill(Some(id));
                known.insert(id, put(&mut map, id, range));
            }
            let names_of = |expected: &[Option<u64>]| {
                let name = |id: &Option<u64>| id.map_or("-".to_owned(), |id| format!("f{id}"));
                expected.iter().map(name).collect::<Vec<_>>().join(" ")
            };
            assert_eq!(names(&map, 0..ADDRESSES as u64), names_of(&expected));
            snapshots.push((map.clone(), names_of(&expected)));
            if snapshots.len() > 5 {
                let (map, expected) = snapshots.remove(0);
                assert_eq!(names(&map, 0..ADDRESSES as u64), expected);
            }
        }
    }

    #[test]
    fn change_of_a_shared_map_copies_few_of_its_entries() {
        const RANGES: u64 = 100_000;
        let mut map = CodeMap::default();
        let codes: Vec<_> = (0..RANGES)
            .map(|id| put(&mut map, id, 256 * id..256 * id + 200))
            .collect();
        // A few times the logarithm of the number of ranges.
        let assert_few_copied = |before: &CodeMap, after: &CodeMap, change: &str| {
            let copied = nodes(after).difference(&nodes(before)).count();
            assert!(copied <= 100, "{change}: {copied} of {RANGES}");
        };
        for id in [0, 1, RANGES / 3, RANGES - 1, RANGES + 7] {
            let before = map.clone();
            put(&mut map, RANGES, 256 * id + 100..256 * id + 300);
            assert_few_copied(&before, &map, "a new range");
        }
        for id in [0, RANGES / 2, RANGES - 1] {
            let before = map.clone();
            map.remove(&codes[id as usize]);
            assert_few_copied(&before, &map, "a removed range");
        }
        let before = map.clone();
        codes[RANGES as usize / 4].retire();
        assert_few_copied(&before, &map, "an unregistered range");
    }
}
