//! Writes Chrome's `.cpuprofile`: the samples of one thread, as V8's profiler writes them.
//!
//! DevTools computes the time of a function from `hitCount` and the mean interval. So idle samples
//! are ticks of a node `(idle)`, and the end is one mean interval after the last sample.

use std::io;

use crate::export::options::ExportOptions;
use crate::export::write::formats::v8_profile::{
    Activity, MicroClock, PROGRAM, ProfileNodes, TickRange, Ticks,
};
use crate::json::JsonWriter;
use crate::model::{ProfileModel, Thread};
use crate::util::{NumberMap, SharedSort, pair_key};

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

    let mut json = JsonWriter::new(out);
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
        let first = pair_key(id, 0);
        let from = self.by_line.partition_point(|(key, _)| *key < first);
        let of_node = self.by_line[from..].iter();
        let of_node = of_node.take_while(move |(key, _)| key >> 32 == u64::from(id));
        of_node.map(|(key, ticks)| (key & u64::from(u32::MAX), *ticks))
    }
}

fn write_nodes(json: &mut JsonWriter<'_>, nodes: &mut ProfileNodes<'_>, hits: &Hits) {
    // Each node's id after that of its parent.
    let pairs = nodes.ids().map(|id| (nodes.parent_of(id), id));
    let mut pairs: Vec<(Option<u32>, u32)> = pairs.collect();
    pairs.shared_sort_by_key(|(parent, _)| *parent);
    json.array(|json| {
        for id in nodes.ids() {
            let first_child = pairs.partition_point(|(parent, _)| *parent < Some(id));
            let children = pairs[first_child..].iter();
            let children = children.take_while(|(parent, _)| *parent == Some(id));
            let mut lines = hits.lines(id).peekable();
            json.object(|json| {
                json.key("id").unsigned(id.into());
                nodes.write_frame(json, id);
                json.key("hitCount").unsigned(hits.of_node(id));
                json.key("children")
                    .array(|json| children.for_each(|(_, child)| json.unsigned((*child).into())));
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
            });
        }
    });
}

#[cfg(test)]
#[path = "cpuprofile_tests.rs"]
mod tests;
