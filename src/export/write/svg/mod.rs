//! The flame graph as one SVG file, which needs nothing else and works without a network.
//!
//! The file is a picture of the whole graph: a box for each node, which lies below that of its
//! caller, with a hue for each library, and shades by name. In a browser, the script of the file
//! adds zoom, search and use by keyboard.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Write as _};
use std::io::{self, BufWriter, Write};

use crate::export::options::ExportOptions;
use crate::export::write::flame_tree::{FlameLabel, FlameTree, FlameUnit};
use crate::model::{FunctionKind, ProfileModel};
use crate::util::SharedSort;

const STYLE: &str = include_str!("flame_graph.css");
const SCRIPT: &str = include_str!("flame_graph.js");

/// Width of the picture. In a browser, the script fits the boxes to the window.
const WIDTH_PX: f64 = 1200.0;
const MARGIN_PX: f64 = 10.0;
const ROW_PX: f64 = 17.0;
/// Where the first row of boxes begins.
const TOP_PX: f64 = 122.0;
const BOTTOM_PX: f64 = 30.0;

/// Width of a character in the file's font, and space around a box's name.
const CHARACTER_PX: f64 = 7.25;
const PADDING_PX: f64 = 4.0;
/// A shorter text would say nothing.
const MIN_CHARACTERS: usize = 3;
/// Width below which a box is left out: such boxes are invisible, and there may be millions.
const NARROWEST_PX: f64 = 0.1;

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
            at += 16.0 + width_px(name.0) + 14.0;
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
            let own = self.format_value(node.own);
            let share = format_share(node.own, self.total);
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
            let (functions, are) = match hidden {
                1 => ("function", "is"),
                _ => ("functions", "are"),
            };
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

/// A node that is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FlameBox {
    /// Index of the tree's node.
    node: usize,
    /// Number of samples to the left of the box.
    start: u64,
}

/// The boxes of a tree, in its order. A box lies below that of its caller.
struct Layout {
    boxes: Vec<FlameBox>,
    /// Number of nodes that are too narrow.
    hidden_count: usize,
    row_count: usize,
    px_per_sample: f64,
}

impl Layout {
    fn of(tree: &FlameTree<'_>, width_px: f64) -> Self {
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
    fn place(&self, flame_box: &FlameBox, total: u64) -> (f64, f64) {
        let px = |samples: u64| samples as f64 * self.px_per_sample;
        (px(flame_box.start), px(total))
    }
}

/// A text without the characters that XML reserves or forbids, and in one line.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => out.write_str("&amp;")?,
                '<' => out.write_str("&lt;")?,
                '>' => out.write_str("&gt;")?,
                '"' => out.write_str("&quot;")?,
                '\'' => out.write_str("&#39;")?,
                '\n' | '\r' | '\t' => out.write_char(' ')?,
                '\u{fffe}' | '\u{ffff}' => out.write_char('\u{fffd}')?,
                character if character.is_control() => out.write_char('\u{fffd}')?,
                character => out.write_char(character)?,
            }
        }
        Ok(())
    }
}

/// Returns the width of a text without its margins.
fn width_px(text: &str) -> f64 {
    text.chars().count() as f64 * CHARACTER_PX
}

/// Returns the part of a name that fits in a box of this width.
fn cut_to_width(name: &str, width_px: f64) -> Cow<'_, str> {
    let space = ((width_px - PADDING_PX) / CHARACTER_PX).max(0.0) as usize;
    if space < MIN_CHARACTERS {
        return Cow::Borrowed("");
    }
    if name.chars().nth(space).is_none() {
        return Cow::Borrowed(name);
    }
    let part: String = name.chars().take(space - 1).collect();
    Cow::Owned(part + "…")
}

/// Formats a number with a comma between groups of three digits.
fn format_count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a part of a whole in percent.
fn format_share(part: u64, whole: u64) -> String {
    format!("{:.2} %", 100.0 * part as f64 / whole.max(1) as f64)
}

/// Formats a duration with at most three decimals, in its greatest unit.
fn format_duration(ns: u64) -> String {
    let (unit_ns, unit) = match ns {
        1_000_000_000.. => (1e9, "s"),
        1_000_000.. => (1e6, "ms"),
        1_000.. => (1e3, "µs"),
        _ => (1.0, "ns"),
    };
    let text = format!("{:.3}", ns as f64 / unit_ns);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text} {unit}")
}

/// Hues of the libraries with the most samples of their own, in degrees.
const LIBRARY_HUES: [f64; 6] = [28.0, 205.0, 140.0, 52.0, 175.0, 340.0];

/// What has a color, in the order of the legend.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Group {
    /// A library with a hue of its own, by its place in `Palette::libraries`.
    Library(usize),
    OtherLibrary,
    Unknown,
    Label,
    Script,
    /// Threads and placeholders.
    Structure,
}

/// The colors of a graph: a hue for each library, and shades by name.
struct Palette<'a> {
    profile: &'a ProfileModel,
    /// Names of the libraries, by the samples in them.
    libraries: Vec<&'a str>,
    /// The groups of all functions of the graph.
    groups: BTreeSet<Group>,
}

impl<'a> Palette<'a> {
    fn of(profile: &'a ProfileModel, tree: &FlameTree<'_>) -> Self {
        let mut own_samples: BTreeMap<&str, u64> = BTreeMap::new();
        for node in &tree.nodes {
            if let FlameLabel::Function(function) = node.label
                && let Some(module) = profile.function(function).module
            {
                let sum = own_samples.entry(&profile.module(module).name);
                let sum = sum.or_default();
                *sum = sum.saturating_add(node.own);
            }
        }
        let mut libraries: Vec<_> = own_samples.into_iter().collect();
        libraries.shared_sort_by_key(|(_, own)| std::cmp::Reverse(*own));
        let mut palette = Self {
            profile,
            libraries: libraries.into_iter().map(|(name, _)| name).collect(),
            groups: BTreeSet::new(),
        };
        let groups = tree.nodes.iter().map(|node| palette.group(node.label));
        palette.groups = groups.filter(|group| *group != Group::Structure).collect();
        palette
    }

    fn group(&self, label: FlameLabel) -> Group {
        let FlameLabel::Function(function) = label else {
            return Group::Structure;
        };
        let function = self.profile.function(function);
        match (function.kind, function.module) {
            (FunctionKind::Native, Some(module)) => {
                let name = &self.profile.module(module).name;
                let mut with_hue = self.libraries.iter().take(LIBRARY_HUES.len());
                let place = with_hue.position(|library| library == name);
                place.map_or(Group::OtherLibrary, Group::Library)
            }
            (FunctionKind::Native, None) => Group::Unknown,
            (FunctionKind::Label, _) => Group::Label,
            (FunctionKind::Script, _) => Group::Script,
            (FunctionKind::Structure, _) => Group::Structure,
        }
    }

    /// Returns a group's name in the legend, its hue in degrees, and its saturation.
    fn look(&self, group: Group) -> (&'a str, f64, f64) {
        match group {
            Group::Library(place) => (self.libraries[place], LIBRARY_HUES[place], 0.75),
            Group::OtherLibrary => ("other libraries", 220.0, 0.2),
            Group::Unknown => ("no library", 10.0, 0.7),
            Group::Label => ("labels", 265.0, 0.6),
            Group::Script => ("scripts", 95.0, 0.55),
            Group::Structure => ("no code", 0.0, 0.0),
        }
    }

    /// Returns a color that is light enough for black text. Bits of the hash vary it, so that
    /// neighbors differ.
    fn shade(&self, group: Group, hash: u32) -> String {
        // From -1 to 1.
        let vary = |byte: u32| f64::from(hash >> (8 * byte) & 0xff) / 127.5 - 1.0;
        let (_, hue, saturation) = self.look(group);
        color_of(hue + 9.0 * vary(0), saturation, 0.74 + 0.06 * vary(1))
    }

    /// Returns the color of a node.
    fn color(&self, label: FlameLabel, name: &str) -> String {
        self.shade(self.group(label), name_hash(name))
    }

    /// Returns the groups of the graph: a color in the middle of all shades, and a name.
    fn legend(&self) -> impl Iterator<Item = (String, &str)> {
        let groups = self.groups.iter();
        groups.map(|group| (self.shade(*group, 0x8080), self.look(*group).0))
    }
}

/// Converts a hue in degrees, a saturation and a lightness to `#rrggbb`.
fn color_of(hue: f64, saturation: f64, lightness: f64) -> String {
    let reach = saturation * lightness.min(1.0 - lightness);
    let channel = |offset: f64| {
        let place = (offset + hue.rem_euclid(360.0) / 30.0) % 12.0;
        let value = lightness - reach * (place - 3.0).min(9.0 - place).clamp(-1.0, 1.0);
        (value * 255.0).round() as u8
    };
    format!(
        "#{:02x}{:02x}{:02x}",
        channel(0.0),
        channel(8.0),
        channel(4.0)
    )
}

/// Returns the FNV-1a hash of a name, mixed so that its low bytes depend on all characters.
fn name_hash(name: &str) -> u32 {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = name.bytes().fold(0x811c_9dc5, step);
    hash ^ hash >> 16
}

#[cfg(test)]
#[path = "svg_tests.rs"]
mod tests;
