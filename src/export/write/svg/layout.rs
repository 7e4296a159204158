//! Where the boxes of a flame graph are.

use crate::export::write::flame_tree::FlameTree;

/// Width below which a box is left out: such boxes are invisible, and there may be millions.
pub(crate) const NARROWEST_PX: f64 = 0.1;

/// A node that is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FlameBox {
    /// Index of the tree's node.
    pub(crate) node: usize,
    /// Number of samples to the left of the box.
    pub(crate) start: u64,
}

/// The boxes of a tree, in its order. A box lies below that of its caller.
pub(crate) struct Layout {
    pub(crate) boxes: Vec<FlameBox>,
    /// Number of nodes that are too narrow.
    pub(crate) hidden_count: usize,
    pub(crate) row_count: usize,
    px_per_sample: f64,
}

impl Layout {
    pub(crate) fn of(tree: &FlameTree<'_>, width_px: f64) -> Self {
        let mut layout = Self {
            boxes: Vec::new(),
            hidden_count: 0,
            row_count: 0,
            px_per_sample: width_px / tree.total().max(1) as f64,
        };
        // Where the next box of each depth begins.
        let mut starts = vec![0_u64];
        for (index, node) in tree.nodes.iter().enumerate() {
            starts.truncate(node.depth + 1);
            let start = starts[node.depth];
            starts[node.depth] = start.saturating_add(node.total);
            starts.push(start);
            let flame_box = FlameBox { node: index, start };
            if layout.place(&flame_box, node.total).1 < NARROWEST_PX {
                layout.hidden_count += 1;
                continue;
            }
            layout.row_count = layout.row_count.max(node.depth + 1);
            layout.boxes.push(flame_box);
        }
        layout
    }

    /// Returns the left end and the width of a box, in pixels.
    pub(crate) fn place(&self, flame_box: &FlameBox, total: u64) -> (f64, f64) {
        let px = |samples: u64| samples as f64 * self.px_per_sample;
        (px(flame_box.start), px(total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::options::ExportOptions;
    use crate::export::sample_profile::{ProfileBuilder, two_threads};

    #[test]
    fn boxes_lie_below_their_caller_from_left_to_right() {
        let profile = two_threads();
        let tree = FlameTree::of(&profile, &ExportOptions::default());
        let layout = Layout::of(&tree, 900.0);
        let starts: Vec<_> = layout.boxes.iter().map(|at| at.start).collect();
        // main, run, parse, alloc, wait, worker, wait.
        assert_eq!(starts, [0, 0, 0, 0, 3, 7, 7]);
        assert_eq!((layout.row_count, layout.hidden_count), (4, 0));
        assert_eq!(layout.place(&layout.boxes[4], 3), (300.0, 300.0));
    }

    #[test]
    fn narrow_boxes_are_counted_and_left_out() {
        let mut builder = ProfileBuilder::new();
        let thread = builder.thread("main");
        for time_ms in 0..2000 {
            builder.sample(thread, time_ms, &["run"]);
        }
        builder.sample(thread, 2000, &["rare", "rarer"]);
        let tree = FlameTree::of(&builder.profile, &ExportOptions::default());
        let layout = Layout::of(&tree, 200.0);
        assert_eq!((layout.boxes.len(), layout.hidden_count), (2, 2));
        assert_eq!(layout.row_count, 2);
        assert_eq!(Layout::of(&tree, 201.0).hidden_count, 0);
    }
}
