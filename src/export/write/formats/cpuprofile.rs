//! Writes Chrome's `.cpuprofile`: the samples of one thread, as V8's profiler writes them.
//!
//! DevTools computes the time of a function from `hitCount` and the mean interval. So idle samples
//! are ticks of a node `(idle)`, and the end is one mean interval after the last sample.

use std::io;

use crate::export::options::ExportOptions;
use crate::export::write::formats::profile_nodes::{
    FIXED_NODES, PROGRAM, ProfileNodes, ROOT, id_of_call, parent_id,
};
use crate::export::write::formats::ticks::{Activity, MicroClock, TickRange, Ticks};
use crate::json::JsonWriter;
use crate::model::{NodeId, ProfileModel, Thread};
use crate::util::{FailureLatch, NumberMap, pair_key};

/// Writes the busiest thread of those that the options choose.
///
/// # Errors
/// The sink's first failure, or [`io::ErrorKind::InvalidInput`] if no thread is chosen.
pub(crate) fn write_cpuprofile(
    profile: &ProfileModel,
    options: &ExportOptions,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let thread = options.one_thread(profile, "a .cpuprofile")?;
    let ticks = || Ticks::new(profile, thread, options);
    let mut nodes = ProfileNodes::new(profile, options);
    let hits = Hits::count(profile, thread, options, &mut nodes);
    let clock = MicroClock::new(hits.range.first_ns);

    let mut json = JsonWriter::for_job(out, FailureLatch::fallible());
    json.object(|json| {
        json.key("nodes");
        write_nodes(json, &mut nodes, &hits);
        let start_us = clock.us(hits.range.first_ns);
        json.key("startTime").signed(start_us);
        json.key("endTime")
            .signed(clock.us(hits.range.end_ns(profile)));
        json.key("samples").array(|json| {
            for tick in ticks() {
                json.unsigned(nodes.id_of(tick.activity).into());
            }
        });
        json.key("timeDeltas").array(|json| {
            let mut previous_us = start_us;
            for tick in ticks() {
                let time_us = clock.us(tick.time_ns);
                json.signed(time_us - previous_us);
                previous_us = time_us;
            }
        });
    });
    json.finish()
}

/// How often each node, and each line in it, was the innermost one.
struct Hits {
    range: TickRange,
    /// By the id of the node.
    by_node: Vec<u64>,
    /// The id of the node and a line, with their number of ticks, in ascending order.
    by_line: Vec<(u64, u64)>,
}

impl Hits {
    fn count(
        profile: &ProfileModel,
        thread: &Thread,
        options: &ExportOptions,
        nodes: &mut ProfileNodes<'_>,
    ) -> Self {
        let (mut range, mut by_node) = (TickRange::default(), Vec::new());
        let mut lines: NumberMap<u64> = NumberMap::default();
        for tick in Ticks::new(profile, thread, options) {
            range.add(&tick);
            let id = nodes.id_of(tick.activity);
            if by_node.len() <= id as usize {
                by_node.resize(id as usize + 1, 0);
            }
            by_node[id as usize] += 1;
            if let Activity::Ran(stack) = tick.activity
                && id != PROGRAM
                && let Some(line) = profile.frame(profile.stack(stack).1).line
            {
                *lines.entry(pair_key(id, line)).or_default() += 1;
            }
        }
        let mut by_line: Vec<_> = lines.into_iter().collect();
        by_line.sort_unstable();
        Self {
            range,
            by_node,
            by_line,
        }
    }

    fn of_node(&self, id: u32) -> u64 {
        self.by_node.get(id as usize).copied().unwrap_or(0)
    }

    /// Returns the lines of a node with their ticks.
    fn lines(&self, id: u32) -> impl Iterator<Item = (u64, u64)> + '_ {
        let from = self
            .by_line
            .partition_point(|(key, _)| *key < pair_key(id, 0));
        let of_node = self.by_line[from..].iter();
        let of_node = of_node.take_while(move |(key, _)| key >> 32 == u64::from(id));
        of_node.map(|(key, ticks)| (key & u64::from(u32::MAX), *ticks))
    }
}

fn write_nodes(json: &mut JsonWriter<'_>, nodes: &mut ProfileNodes<'_>, hits: &Hits) {
    let children = Children::of(nodes);
    let write_rest = |json: &mut JsonWriter<'_>, id: u32| {
        json.key("hitCount").unsigned(hits.of_node(id));
        json.key("children").array(|json| {
            children
                .of_id(id)
                .for_each(|child| json.unsigned(child.into()));
        });
        let mut lines = hits.lines(id).peekable();
        if lines.peek().is_some() {
            json.key("positionTicks").array(|json| {
                for (line, ticks) in lines {
                    json.object(|json| {
                        json.key("line").unsigned(line);
                        json.key("ticks").unsigned(ticks);
                    });
                }
            });
        }
    };
    json.array(|json| {
        for (id, name) in FIXED_NODES {
            json.object(|json| {
                json.key("id").unsigned(id.into());
                ProfileNodes::write_fixed_frame(json, name);
                write_rest(json, id);
            });
        }
        for index in 0..nodes.calls.nodes().len() as u32 {
            let node = NodeId(index);
            let function = nodes.calls.get(node).function;
            json.object(|json| {
                json.key("id").unsigned(id_of_call(node).into());
                nodes.write_frame(json, function);
                write_rest(json, id_of_call(node));
            });
        }
    });
}

/// The children of all nodes, as linked lists.
struct Children {
    /// By the id of a node, the id of its first child; 0 for none.
    first: Vec<u32>,
    /// By the id of a node, the id of the next child of the same parent; 0 for none.
    next: Vec<u32>,
}

impl Children {
    fn of(nodes: &ProfileNodes<'_>) -> Self {
        let calls = nodes.calls.nodes();
        let fixed = FIXED_NODES.len() + 1;
        let mut children = Self {
            first: vec![0; calls.len() + fixed],
            next: vec![0; calls.len() + fixed],
        };
        // In reverse, because each child becomes the first one.
        for (index, node) in calls.iter().enumerate().rev() {
            children.prepend(parent_id(node), (index + fixed) as u32);
        }
        for (id, _) in FIXED_NODES.iter().rev().filter(|(id, _)| *id != ROOT) {
            children.prepend(ROOT, *id);
        }
        children
    }

    fn prepend(&mut self, parent: u32, child: u32) {
        self.next[child as usize] = self.first[parent as usize];
        self.first[parent as usize] = child;
    }

    fn of_id(&self, id: u32) -> impl Iterator<Item = u32> + '_ {
        let existing = |id: u32| Some(id).filter(|id| *id != 0);
        std::iter::successors(existing(self.first[id as usize]), move |child| {
            existing(self.next[*child as usize])
        })
    }
}

#[cfg(test)]
#[path = "cpuprofile_tests.rs"]
mod tests;
