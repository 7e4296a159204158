//! The colors of a flame graph: a hue for each library, and shades by name.

use std::collections::{BTreeMap, BTreeSet};

use crate::export::write::flame_tree::{FlameLabel, FlameTree};
use crate::model::{FunctionId, FunctionKind, ProfileModel};
use crate::util::SharedSort;

/// Hues of the libraries with the most samples of their own, in degrees.
const LIBRARY_HUES: [f64; 6] = [28.0, 205.0, 140.0, 52.0, 175.0, 340.0];
const LABEL_HUE: f64 = 265.0;
const SCRIPT_HUE: f64 = 95.0;
/// Hue of functions whose library is unknown.
const UNKNOWN_HUE: f64 = 10.0;

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

pub(crate) struct Palette<'a> {
    profile: &'a ProfileModel,
    /// Names of the libraries, by the samples in them.
    libraries: Vec<&'a str>,
    /// The groups of all functions of the graph.
    groups: Vec<Group>,
}

impl<'a> Palette<'a> {
    pub(crate) fn of(profile: &'a ProfileModel, tree: &FlameTree<'_>) -> Self {
        let mut is_shown = vec![false; profile.functions().len()];
        let mut of_modules: Vec<Option<u64>> = vec![None; profile.modules.len()];
        for node in &tree.nodes {
            let FlameLabel::Function(function) = node.label else {
                continue;
            };
            is_shown[function.0 as usize] = true;
            if let Some(module) = profile.function(function).module {
                let sum = of_modules[module.0 as usize].get_or_insert_default();
                *sum = sum.saturating_add(node.own);
            }
        }
        let mut own_samples: BTreeMap<&str, u64> = BTreeMap::new();
        for (module, own) in profile.modules.iter().zip(of_modules) {
            if let Some(own) = own {
                let sum = own_samples.entry(&module.name).or_default();
                *sum = sum.saturating_add(own);
            }
        }
        let mut libraries: Vec<_> = own_samples.into_iter().collect();
        libraries.shared_sort_by_key(|(_, own)| std::cmp::Reverse(*own));
        let mut palette = Self {
            profile,
            libraries: libraries.into_iter().map(|(name, _)| name).collect(),
            groups: Vec::new(),
        };
        let shown = (0..).zip(is_shown).filter(|(_, is_shown)| *is_shown);
        let groups = shown.map(|(id, _)| palette.group(FlameLabel::Function(FunctionId(id))));
        let groups: BTreeSet<_> = groups.filter(|group| *group != Group::Structure).collect();
        palette.groups = groups.into_iter().collect();
        palette
    }

    fn group(&self, label: FlameLabel) -> Group {
        let FlameLabel::Function(function) = label else {
            return Group::Structure;
        };
        let function = self.profile.function(function);
        match (function.kind, function.module) {
            (FunctionKind::Native, Some(module)) => {
                let name = self.profile.module(module).name.as_str();
                let place = self.libraries.iter().take(LIBRARY_HUES.len());
                let place = place.clone().position(|library| *library == name);
                place.map_or(Group::OtherLibrary, Group::Library)
            }
            (FunctionKind::Native, None) => Group::Unknown,
            (FunctionKind::Label, _) => Group::Label,
            (FunctionKind::Script, _) => Group::Script,
            (FunctionKind::Structure, _) => Group::Structure,
        }
    }

    /// Returns the color of a node.
    pub(crate) fn color(&self, label: FlameLabel, name: &str) -> String {
        shade(self.group(label), name_hash(name))
    }

    /// Returns the groups of the graph: a color, and a name.
    pub(crate) fn legend(&self) -> impl Iterator<Item = (String, &str)> {
        self.groups.iter().map(|group| {
            let name = match *group {
                Group::Library(place) => self.libraries[place],
                Group::OtherLibrary => "other libraries",
                Group::Unknown => "no library",
                Group::Label => "labels",
                Group::Script => "scripts",
                Group::Structure => "no code",
            };
            // The middle of all shades.
            (shade(*group, 0x8080), name)
        })
    }
}

/// Returns a color that is light enough for black text. Bits of the hash vary it, so that
/// neighbors differ.
fn shade(group: Group, hash: u32) -> String {
    // From -1 to 1.
    let vary = |byte: u32| f64::from(hash >> (8 * byte) & 0xff) / 127.5 - 1.0;
    let (hue, saturation) = match group {
        Group::Library(place) => (LIBRARY_HUES[place], 0.75),
        Group::OtherLibrary => (220.0, 0.2),
        Group::Unknown => (UNKNOWN_HUE, 0.7),
        Group::Label => (LABEL_HUE, 0.6),
        Group::Script => (SCRIPT_HUE, 0.55),
        Group::Structure => (0.0, 0.0),
    };
    color_of(hue + 9.0 * vary(0), saturation, 0.74 + 0.06 * vary(1))
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
mod tests {
    use super::*;
    use crate::export::options::ExportOptions;
    use crate::export::sample_profile::ProfileBuilder;

    #[test]
    fn hues_convert_to_colors() {
        let colors = [0.0, 120.0, 240.0, 480.0].map(|hue| color_of(hue, 1.0, 0.5));
        assert_eq!(colors, ["#ff0000", "#00ff00", "#0000ff", "#00ff00"]);
        assert_eq!(color_of(77.0, 0.0, 1.0), "#ffffff");
    }

    #[test]
    fn busiest_libraries_have_hues_of_their_own() {
        let mut builder = ProfileBuilder::new();
        let thread = builder.thread("main");
        for library in 0..8 {
            builder.module = builder.add_module(&format!("lib{library}.so"));
            for time_ms in 0..=library {
                builder.sample(thread, 10 * library + time_ms, &["work"]);
            }
            let name = format!("work{library}");
            builder.sample(thread, 10 * library + 9, &[&name]);
        }
        builder.module = None;
        builder.sample(thread, 100, &["[vdso]"]);
        let tree = FlameTree::of(&builder.profile, &ExportOptions::default());
        let palette = Palette::of(&builder.profile, &tree);
        let names: Vec<_> = palette.legend().map(|(_, name)| name).collect();
        // All samples of `work` count for the first library.
        let expected = [
            "lib0.so",
            "lib1.so",
            "lib2.so",
            "lib3.so",
            "lib4.so",
            "lib5.so",
            "other libraries",
            "no library",
        ];
        assert_eq!(names, expected);
        let color = |index: usize| {
            let label = tree.nodes[index].label;
            palette.color(label, tree.name(label))
        };
        assert_eq!(color(1), color(1));
        assert_ne!(color(3), color(4));
    }
}
