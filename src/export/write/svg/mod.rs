//! The flame graph as one SVG file, which needs nothing else and works without a network.
//!
//! The file is a picture of the whole graph. In a browser, its script adds zoom, search and use by
//! keyboard.

mod colors;
mod layout;
mod text;

use std::io::{self, BufWriter, Write};

use crate::export::options::ExportOptions;
use crate::export::write::flame_tree::{FlameLabel, FlameTree, FlameUnit};
use crate::export::write::svg::colors::Palette;
use crate::export::write::svg::layout::{FlameBox, Layout, NARROWEST_PX};
use crate::export::write::svg::text::{
    Escaped, cut_to_width, format_count, format_duration, format_share,
};
use crate::model::ProfileModel;

const STYLE: &str = include_str!("flame_graph.css");
const SCRIPT: &str = include_str!("flame_graph.js");

/// Width of the picture. In a browser, the script fits the boxes to the window.
const WIDTH_PX: f64 = 1200.0;
const MARGIN_PX: f64 = 10.0;
const ROW_PX: f64 = 17.0;
/// Where the first row of boxes begins.
const TOP_PX: f64 = 122.0;
const BOTTOM_PX: f64 = 30.0;

/// How many threads the heading names.
const NAMED_THREADS: usize = 4;

/// Writes the flame graph of all threads that the options choose, with the threads as first row.
pub(crate) fn write_svg(
    profile: &ProfileModel,
    options: &ExportOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let tree = FlameTree::of(profile, options);
    let graph = Graph {
        profile,
        layout: Layout::of(&tree, WIDTH_PX - 2.0 * MARGIN_PX),
        palette: Palette::of(profile, &tree),
        total: tree.total(),
        tree,
    };
    let mut out = BufWriter::new(out);
    graph.write_head(&mut out)?;
    for flame_box in &graph.layout.boxes {
        graph.write_box(&mut out, flame_box)?;
    }
    graph.write_foot(&mut out)?;
    out.flush()
}

struct Graph<'a> {
    profile: &'a ProfileModel,
    layout: Layout,
    palette: Palette<'a>,
    total: u64,
    tree: FlameTree<'a>,
}

impl Graph<'_> {
    fn bottom_px(&self) -> f64 {
        TOP_PX + self.layout.row_count as f64 * ROW_PX
    }

    fn write_head(&self, out: &mut dyn Write) -> io::Result<()> {
        let height = self.bottom_px() + BOTTOM_PX;
        let program = match self.profile.meta.product.as_str() {
            "" => "Flame graph".to_owned(),
            product => format!("Flame graph of {product}"),
        };
        let program = Escaped(&program);
        writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH_PX}\" height=\"{height}\">\n\
             <title>{program}</title>\n<style>\n{STYLE}</style>"
        )?;
        let x = MARGIN_PX;
        let subtitle = self.subtitle();
        writeln!(
            out,
            "<text class=\"heading\" x=\"{x}\" y=\"24\">{program}</text>"
        )?;
        writeln!(
            out,
            "<text x=\"{x}\" y=\"44\">{}</text>",
            Escaped(&subtitle)
        )?;
        writeln!(
            out,
            "<foreignObject id=\"control-area\" x=\"{x}\" y=\"52\" width=\"800\" height=\"24\" \
             visibility=\"hidden\"><div xmlns=\"http://www.w3.org/1999/xhtml\" id=\"controls\">\
             <input id=\"search\" type=\"search\" placeholder=\"search functions ( / )\" \
             aria-label=\"search functions\"/>\
             <button id=\"reset\" type=\"button\">reset zoom (Esc)</button>\
             <span id=\"matched\" role=\"status\"></span></div></foreignObject>"
        )?;
        let mut at = x;
        for (color, name) in self.palette.legend() {
            let name = Escaped(name);
            writeln!(
                out,
                "<rect x=\"{at}\" y=\"82\" width=\"12\" height=\"12\" fill=\"{color}\"/>\
                 <text class=\"note\" x=\"{}\" y=\"92\">{name}</text>",
                at + 16.0
            )?;
            at += 16.0 + text::width_px(name.0) + 14.0;
        }
        writeln!(out, "<text id=\"details\" x=\"{x}\" y=\"112\"></text>")?;
        let (total, hidden) = (self.total, self.layout.hidden_count);
        writeln!(
            out,
            "<g id=\"boxes\" data-total=\"{total}\" data-hidden=\"{hidden}\">"
        )
    }

    /// Returns the threads, the number of samples, and the interval.
    fn subtitle(&self) -> String {
        let threads = self.tree.nodes.iter().filter(|node| node.depth == 0);
        let names: Vec<_> = threads.map(|node| self.tree.name(node.label)).collect();
        let mut subtitle = match names.as_slice() {
            [] => "no threads".to_owned(),
            [name] => format!("thread {name}"),
            names => format!(
                "threads {}",
                names[..names.len().min(NAMED_THREADS)].join(", ")
            ),
        };
        if let Some(more @ 1..) = names.len().checked_sub(NAMED_THREADS) {
            subtitle += &format!(" and {more} more");
        }
        let interval_ns = self.profile.meta.interval_ns;
        subtitle += &format!(" · {}", self.format_value(self.total));
        if interval_ns > 0 {
            subtitle += &format!(" · interval {}", format_duration(interval_ns));
        }
        subtitle
    }

    fn format_value(&self, value: u64) -> String {
        match self.tree.unit {
            FlameUnit::Samples if value == 1 => "1 sample".to_owned(),
            FlameUnit::Samples => format!("{} samples", format_count(value)),
            FlameUnit::CpuIntervals(interval_ns) => {
                let time = format_duration(value.saturating_mul(interval_ns));
                format!("{time} of CPU time")
            }
            FlameUnit::Milliseconds => format!("{} ms", format_count(value)),
            FlameUnit::Bytes => format!("{} bytes", format_count(value)),
        }
    }

    fn write_box(&self, out: &mut dyn Write, flame_box: &FlameBox) -> io::Result<()> {
        let node = &self.tree.nodes[flame_box.node];
        let name = self.tree.name(node.label);
        let FlameBox { start, .. } = *flame_box;
        let (left, width) = self.layout.place(flame_box, node.total);
        let (x, y) = (MARGIN_PX + left, TOP_PX + node.depth as f64 * ROW_PX);
        let tooltip = self.tooltip(name, flame_box);
        let color = self.palette.color(node.label, name);
        // Neighbors of one color stay apart.
        let gap = if width > 2.0 { 0.5 } else { 0.0 };
        writeln!(
            out,
            "<g class=\"box\" data-range=\"{start},{},{}\"><title>{tooltip}</title>\
             <rect x=\"{x:.2}\" y=\"{y}\" width=\"{:.2}\" height=\"{}\" fill=\"{color}\"/>\
             <text x=\"{:.2}\" y=\"{}\">{}</text></g>",
            node.total,
            node.depth,
            width - gap,
            ROW_PX - 1.0,
            x + 3.0,
            y + 12.0,
            Escaped(&cut_to_width(name, width)),
        )
    }

    /// Returns the name, samples, shares and library of a box, in lines.
    fn tooltip(&self, name: &str, flame_box: &FlameBox) -> String {
        let node = &self.tree.nodes[flame_box.node];
        let total = self.format_value(node.total);
        let share = format_share(node.total, self.total);
        let mut tooltip = format!("{}\n{total}, {share}", Escaped(name));
        if node.own > 0 && node.own < node.total {
            let (own, share) = (
                self.format_value(node.own),
                format_share(node.own, self.total),
            );
            tooltip += &format!("; itself {own}, {share}");
        }
        if let FlameLabel::Function(function) = node.label
            && let Some(module) = self.profile.function(function).module
        {
            tooltip += &format!("\n{}", Escaped(&self.profile.module(module).name));
        }
        tooltip
    }

    fn write_foot(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "</g>")?;
        let hidden = self.layout.hidden_count;
        if hidden > 0 {
            let functions = if hidden == 1 { "function" } else { "functions" };
            let are = if hidden == 1 { "is" } else { "are" };
            writeln!(
                out,
                "<text class=\"note\" x=\"{MARGIN_PX}\" y=\"{}\">{} {functions} narrower than \
                 {NARROWEST_PX} px {are} not shown</text>",
                self.bottom_px() + 20.0,
                format_count(hidden as u64),
            )?;
        }
        writeln!(out, "<script><![CDATA[\n{SCRIPT}]]></script>\n</svg>")
    }
}

#[cfg(test)]
#[path = "svg_tests.rs"]
mod tests;
