//! Categories: Gecko's list, in one table that defines the Rust enums and the profile's
//! `meta.categories`, and those that the application adds.
//!
//! A category of the application gets its number on first use, because no part of a program knows the
//! categories of all its libraries in advance.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};

macro_rules! categories {
    ($($name:ident $label:literal $color:ident {
        $default:ident $default_label:literal
        $(, $sub:ident $sub_label:literal $(= $alias:ident)?)*
    })+) => {
        /// The category of a label or marker, with an optional subcategory. The category determines
        /// the color.
        ///
        /// `None` means the category's first subcategory. The list is Gecko's, with the names of
        /// Mozilla's crate. An application defines its own categories by
        /// [`profiler_categories!`](crate::profiler_categories).
        #[doc(alias = "JS::ProfilingCategoryPair")]
        #[allow(clippy::upper_case_acronyms, reason = "Mozilla's names")]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum ProfilingCategoryPair {
            $(
                #[doc = concat!("“", $label, "”, shown in ", stringify!($color), ".")]
                $name(Option<subcategories::$name>),
            )+
            /// A category of the application.
            Host(HostCategory),
        }

        /// A category of Gecko, without a subcategory.
        #[doc(alias = "JS::ProfilingCategory")]
        #[allow(clippy::upper_case_acronyms, reason = "Mozilla's names")]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u32)]
        pub enum ProfilingCategory {
            $(#[doc = concat!("“", $label, "”.")] $name,)+
        }

        impl ProfilingCategory {
            /// Returns the category's index in Gecko's list.
            pub const fn to_cpp_enum_value(&self) -> u32 {
                *self as u32
            }
        }

        /// The subcategories, with one enum per category. The first variant is the default.
        pub(crate) mod subcategories {
            $(
                #[doc = concat!("Subcategories of “", $label, "”.")]
                #[allow(clippy::upper_case_acronyms, reason = "Mozilla's names")]
                #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
                pub enum $name {
                    #[doc = concat!("“", $default_label, "”.")]
                    #[default]
                    $default,
                    $(
                        #[doc = concat!("“", $sub_label, "”.")]
                        $sub,
                    )*
                }

                impl $name {
                    #[inline(always)]
                    pub(crate) const fn label(self) -> &'static str {
                        match self {
                            Self::$default => $default_label,
                            $(Self::$sub => $sub_label,)*
                        }
                    }

                    $($(
                        #[doc = concat!(
                            "Alias of [`Self::", stringify!($sub), "`], spelled like its label."
                        )]
                        #[allow(non_upper_case_globals, reason = "an alias of an enum variant")]
                        pub const $alias: Self = Self::$sub;
                    )?)*
                }
            )+
        }

        impl ProfilingCategoryPair {
            /// Returns the subcategory's label, as the viewer shows it.
            #[inline(always)]
            pub fn label(self) -> &'static str {
                match self {
                    $(Self::$name(sub) => sub.unwrap_or_default().label(),)+
                    Self::Host(category) => category.label(),
                }
            }

            /// Returns the category's index in the profile, and the subcategory's index in the
            /// category.
            // Inlined, so that the indices of a label's category are constants in the caller.
            #[inline(always)]
            pub fn indices(self) -> (u8, u8) {
                match self {
                    $(Self::$name(sub) => (
                        ProfilingCategory::$name as u8,
                        match sub { Some(sub) => sub as u8, None => 0 },
                    ),)+
                    Self::Host(category) => category.indices(),
                }
            }
        }

        /// The names of the variants.
        #[cfg(test)]
        pub(crate) const CATEGORY_NAMES: &[&str] = &[$(stringify!($name),)+];

        pub(crate) const CATEGORIES: &[CategoryInfo] = &[
            $(CategoryInfo {
                label: $label,
                color: stringify!($color),
                subcategories: &[$default_label $(, $sub_label)*],
            },)+
        ];
    };
}

// The name after `=` is an alias spelled like the label, where Mozilla's crate uses a different name.
categories! {
    Idle "Idle" transparent { Other "Other" }
    Other "Other" grey { Other "Other", PreferenceRead "Preference Read", Profiling "Profiling" }
    Test "Test" darkgrey { Test "Test" }
    Layout "Layout" purple {
        Other "Other", FrameConstruction "Frame construction" = Frameconstruction, Reflow "Reflow",
        CSSParsing "CSS parsing" = CSSparsing, SelectorQuery "Selector query" = Selectorquery,
        StyleComputation "Style computation" = Stylecomputation, Destroy "Layout cleanup" = Layoutcleanup,
        Printing "Printing"
    }
    JavaScript "JavaScript" yellow {
        Other "Other", Parsing "Parsing", BaselineCompilation "JIT Compile (baseline)" = JITCompilebaseline,
        IonCompilation "JIT Compile (ion)" = JITCompileion, Interpreter "Interpreter",
        BaselineInterpret "JIT (baseline-interpreter)" = JITbaselineinterpreter,
        Baseline "JIT (baseline)" = JITbaseline, IonMonkey "JIT (ion)" = JITion,
        Builtin "Builtin API" = BuiltinAPI, WasmIon "Wasm (ion)" = Wasmion,
        WasmBaseline "Wasm (baseline)" = Wasmbaseline, WasmOther "Wasm (other)" = Wasmother
    }
    GCCC "GC / CC" orange {
        Other "Other", MinorGC "Minor GC", MajorGC "Major GC (Other)" = MajorGCOther,
        MajorGCMark "Major GC (Mark)", MajorGCSweep "Major GC (Sweep)", MajorGCCompact "Major GC (Compact)",
        UnmarkGray "Unmark Gray", Barrier "Barrier", FreeSnowWhite "CC (Free Snow White)" = CCFreeSnowWhite,
        BuildGraph "CC (Build Graph)" = CCBuildGraph, ScanRoots "CC (Scan Roots)" = CCScanRoots,
        CollectWhite "CC (Collect White)" = CCCollectWhite, Finalize "CC (Finalize)" = CCFinalize
    }
    Network "Network" lightblue { Other "Other" }
    Graphics "Graphics" green {
        Other "Other", DisplayListBuilding "DisplayList building" = DisplayListbuilding,
        DisplayListMerging "DisplayList merging" = DisplayListmerging,
        LayerBuilding "Layer building" = Layerbuilding, TileAllocation "Tile allocation" = Tileallocation,
        WRDisplayList "WebRender display list" = WebRenderdisplaylist, Rasterization "Rasterization",
        FlushingAsyncPaints "Flushing async paints" = Flushingasyncpaints,
        ImageDecoding "Image decoding" = Imagedecoding, WebGPU "WebGPU",
        VSyncTriggeredAnimation "VSync triggered animation" = VSynctriggeredanimation
    }
    DOM "DOM" blue { Other "Other" }
    Android "Android" yellow { Other "Other" }
    AndroidX "AndroidX" orange { Other "Other" }
    Java "Java" blue { Other "Other" }
    Mozilla "Mozilla" green { Other "Other" }
    Kotlin "Kotlin" purple { Other "Other" }
    Blocked "Blocked" lightblue { Other "Other" }
    Mailnews "Mailnews" brown { Other "Other" }
    IPC "IPC" lightgreen { Other "Other" }
    Media "Media" orange {
        Other "Other", CUBEB "Cubeb" = Cubeb, PLAYBACK "Playback" = Playback,
        RT "Real-time rendering" = Realtimerendering
    }
    Accessibility "Accessibility" brown { Other "Other" }
    Profiler "Profiler" lightred { Other "Other" }
    Timer "Timer" grey { Other "Other" }
    RemoteProtocol "Remote-Protocol" grey { Other "Other" }
    Sandbox "Sandbox" grey { Other "Other" }
    Telemetry "Telemetry" grey { Other "Other" }
    ML "ML" magenta { Other "Other", INFERENCE "Inference" = Inference, SETUP "Setup" = Setup }
}

const _: () = assert!(CATEGORIES.len() == GECKO_CATEGORIES);

/// “Idle” in a profile, with what a thread waits for. Gecko's category has the first subcategory only.
/// `types/wait.rs` has the numbers of the others.
static IDLE: CategoryInfo = CategoryInfo {
    label: "Idle",
    color: "transparent",
    subcategories: &["Other", "Lock", "I/O", "Timer", "Work", "Processor"],
};

/// Returns all categories that a profile may refer to: Gecko's, then those of the application that
/// were used. “Idle”, the first one, has more subcategories than Gecko's.
pub(crate) fn all_categories() -> Vec<&'static CategoryInfo> {
    let registered = registered_categories()
        .map(|info| info.unwrap_or(&CATEGORIES[usize::from(OTHER_CATEGORY)]));
    let geckos = [&IDLE].into_iter().chain(&CATEGORIES[1..]);
    geckos.chain(registered).collect()
}

impl ProfilingCategoryPair {
    /// Returns the pair's index among all pairs of Gecko's list. For a category of the application,
    /// returns the index of “Other”.
    pub fn to_cpp_enum_value(&self) -> u32 {
        let (category, subcategory) = match self {
            Self::Host(_) => Self::Other(None).indices(),
            pair => pair.indices(),
        };
        let before = CATEGORIES[..usize::from(category)]
            .iter()
            .map(|info| info.subcategories.len() as u32);
        before.sum::<u32>() + u32::from(subcategory)
    }
}

/// Number of Gecko's categories. The categories of the application are numbered from here.
pub(crate) const GECKO_CATEGORIES: usize = 25;
/// Index of Gecko's category “Other”, used for categories beyond the maximum.
pub(crate) const OTHER_CATEGORY: u8 = 1;

/// One row of `meta.categories`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CategoryInfo {
    pub(crate) label: &'static str,
    pub(crate) color: &'static str,
    pub(crate) subcategories: &'static [&'static str],
}

impl CategoryInfo {
    /// Returns a category whose texts are never freed. Allocates.
    pub(crate) fn leaked(label: &str, color: &str, subcategories: &[String]) -> &'static Self {
        Box::leak(Box::new(Self::with_leaked(label, color, subcategories)))
    }

    fn with_leaked(label: &str, color: &str, subcategories: &[impl AsRef<str>]) -> Self {
        fn leak(text: &str) -> &'static str {
            Box::leak(Box::from(text))
        }
        let subcategories = subcategories.iter().map(|name| leak(name.as_ref()));
        Self {
            label: leak(label),
            color: leak(color),
            subcategories: subcategories.collect::<Vec<_>>().leak(),
        }
    }
}

/// The colors that the viewer supports for categories.
const COLORS: [&str; 14] = [
    "transparent",
    "blue",
    "brown",
    "darkgrey",
    "green",
    "grey",
    "lightblue",
    "lightgreen",
    "lightred",
    "magenta",
    "orange",
    "purple",
    "red",
    "yellow",
];

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    if one.len() != other.len() {
        return false;
    }
    let mut index = 0;
    while index < one.len() {
        if one[index] != other[index] {
            return false;
        }
        index += 1;
    }
    true
}

const fn place_of(words: &[&str], word: &str) -> Option<u8> {
    let mut index = 0;
    while index < words.len() {
        if is_same(words[index], word) {
            return Some(index as u8);
        }
        index += 1;
    }
    None
}

/// Returns the index of a word in a list that contains it.
#[doc(hidden)]
pub const fn place_among(words: &[&str], word: &str) -> u8 {
    place_of(words, word).expect("the list contains the word")
}

pub(crate) const fn is_known_color(color: &str) -> bool {
    place_of(&COLORS, color).is_some()
}

/// Maximum number of categories: the number of a category, including Gecko's, is a byte. Further
/// ones show as “Other”.
const MAX_REGISTERED: usize = u8::MAX as usize + 1 - GECKO_CATEGORIES;

/// The registered categories. The index is the category's number minus the number of Gecko's
/// categories. They are copies, because a definition may be unloaded together with its library
/// before a profile is written.
///
/// An entry below [`COUNT`] may be empty: registration raises the count before it sets the entry,
/// and leaves the entry empty if another thread has registered the same category.
///
/// A cell of std, because this code is also built without dependencies. No thread waits for another
/// here: only one sets an entry, and `get` does not block.
static REGISTERED: [OnceLock<CategoryInfo>; MAX_REGISTERED] =
    [const { OnceLock::new() }; MAX_REGISTERED];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// A category defined by [`profiler_categories!`](crate::profiler_categories).
#[doc(hidden)]
#[derive(Debug)]
pub struct CategoryDefinition {
    info: CategoryInfo,
    /// The category's number plus 1; 0 until the category is registered. Not a `OnceLock`, which
    /// the child of a fork could inherit in the middle of its initialization.
    number_plus_one: AtomicU16,
}

impl CategoryDefinition {
    /// Creates a definition.
    ///
    /// # Panics
    /// Panics at compile time if the viewer does not support the color, or if there is no
    /// subcategory or more than 256.
    pub const fn new(
        label: &'static str,
        color: &'static str,
        subcategories: &'static [&'static str],
    ) -> Self {
        assert!(
            is_known_color(color),
            "unknown category color, expected transparent, blue, brown, darkgrey, green, grey, \
             lightblue, lightgreen, lightred, magenta, orange, purple, red or yellow"
        );
        assert!(
            !subcategories.is_empty(),
            "got no subcategory, expected at least one, the default"
        );
        assert!(
            subcategories.len() <= u8::MAX as usize + 1,
            "got too many subcategories, expected at most 256"
        );
        Self {
            info: CategoryInfo {
                label,
                color,
                subcategories,
            },
            number_plus_one: AtomicU16::new(0),
        }
    }

    fn number(&'static self) -> u8 {
        match self.number_plus_one.load(Ordering::Relaxed) {
            0 => self.register(),
            known => (known - 1) as u8,
        }
    }

    /// Returns a new number, or the number of an equal category. A library that is loaded again
    /// defines the same categories again. Allocates a copy of a new category.
    #[cold]
    fn register(&'static self) -> u8 {
        if let Some(number) = self.number_of_equal() {
            self.number_plus_one
                .store(u16::from(number) + 1, Ordering::Relaxed);
            return number;
        }
        // Not `fetch_add`: the count must not exceed the maximum.
        let index = COUNT.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |count| {
            (count < MAX_REGISTERED).then_some(count + 1)
        });
        let number = index.map_or(OTHER_CATEGORY, |index| (GECKO_CATEGORIES + index) as u8);
        let before = self.number_plus_one.compare_exchange(
            0,
            u16::from(number) + 1,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        if let Err(known) = before {
            return (known - 1) as u8;
        }
        if let Ok(index) = index {
            // The number is set by now, so an allocator that uses the category does not register it
            // again. Never fails: no other thread has this index.
            let info = &self.info;
            let copy = CategoryInfo::with_leaked(info.label, info.color, info.subcategories);
            let _ = REGISTERED[index].set(copy);
            if let Some(hook) = NEW_CATEGORY_HOOK.get() {
                hook();
            }
        }
        number
    }

    fn number_of_equal(&self) -> Option<u8> {
        let count = COUNT.load(Ordering::Acquire);
        let index = REGISTERED[..count]
            .iter()
            .position(|known| known.get() == Some(&self.info))?;
        Some((GECKO_CATEGORIES + index) as u8)
    }
}

/// A category of the application with one of its subcategories, created by
/// [`profiler_categories!`](crate::profiler_categories).
#[derive(Clone, Copy)]
pub struct HostCategory {
    definition: fn() -> &'static CategoryDefinition,
    subcategory: u8,
}

impl HostCategory {
    #[doc(hidden)]
    pub const fn new(definition: fn() -> &'static CategoryDefinition, subcategory: u8) -> Self {
        Self {
            definition,
            subcategory,
        }
    }

    /// Returns the category's index in the profile, and the subcategory's index in the category.
    #[inline(always)]
    pub(crate) fn indices(self) -> (u8, u8) {
        match (self.definition)().number() {
            OTHER_CATEGORY => (OTHER_CATEGORY, 0),
            number => (number, self.subcategory),
        }
    }

    /// Returns the subcategory's label.
    pub(crate) fn label(self) -> &'static str {
        let subcategories = (self.definition)().info.subcategories;
        subcategories
            .get(usize::from(self.subcategory))
            .copied()
            .unwrap_or_default()
    }
}

impl PartialEq for HostCategory {
    fn eq(&self, other: &Self) -> bool {
        let same_definition = std::ptr::eq((self.definition)(), (other.definition)());
        same_definition && self.subcategory == other.subcategory
    }
}

impl Eq for HostCategory {}

impl Hash for HostCategory {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (std::ptr::from_ref((self.definition)()), self.subcategory).hash(state);
    }
}

impl fmt::Debug for HostCategory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CategoryInfo {
            label,
            subcategories,
            ..
        } = (self.definition)().info;
        write!(
            f,
            "{label}: {}",
            subcategories
                .get(usize::from(self.subcategory))
                .unwrap_or(&"?")
        )
    }
}

/// Called after a category was registered. Set once, by a higher layer.
static NEW_CATEGORY_HOOK: OnceLock<fn()> = OnceLock::new();
static HAS_HOOK: AtomicBool = AtomicBool::new(false);

/// Sets the function that is called after a category was registered, on the thread that uses it
/// first. The first one stays.
pub(crate) fn set_new_category_hook(hook: fn()) {
    // One thread sets it, so none waits, not even in the child of a fork.
    if !HAS_HOOK.swap(true, Ordering::Relaxed) {
        let _ = NEW_CATEGORY_HOOK.set(hook);
    }
}

/// Returns the categories of the application that were used, by their numbers; `None` for a number
/// that no category has, or whose category is being registered.
pub(crate) fn registered_categories() -> impl Iterator<Item = Option<&'static CategoryInfo>> {
    let count = COUNT.load(Ordering::Acquire);
    REGISTERED[..count].iter().map(OnceLock::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_known_color_accepts_only_the_viewers_colors() {
        assert!(is_known_color("grey") && is_known_color("lightgreen"));
        assert!(!is_known_color("gray") && !is_known_color("pink") && !is_known_color(""));
    }

    fn definition() -> &'static CategoryDefinition {
        static DEFINITION: CategoryDefinition =
            CategoryDefinition::new("Mine", "red", &["Other", "Second"]);
        &DEFINITION
    }

    #[test]
    fn indices_follow_geckos_order() {
        use subcategories::{Graphics, JavaScript};
        assert_eq!(ProfilingCategoryPair::Idle(None).indices(), (0, 0));
        assert_eq!(
            ProfilingCategoryPair::JavaScript(Some(JavaScript::Parsing)).indices(),
            (4, 1)
        );
        assert_eq!(
            ProfilingCategoryPair::ML(Some(subcategories::ML::Setup)).indices(),
            (24, 2)
        );
        assert_eq!(Graphics::DisplayListbuilding, Graphics::DisplayListBuilding);
        assert_eq!(CATEGORIES.len(), 25);
        assert_eq!(ProfilingCategory::ML.to_cpp_enum_value(), 24);
        // One for “Idle”, then three of “Other”, one of “Test”, and eight of “Layout”.
        assert_eq!(
            ProfilingCategoryPair::JavaScript(Some(JavaScript::Parsing)).to_cpp_enum_value(),
            14
        );
        assert_eq!(
            ProfilingCategoryPair::JavaScript(None).to_cpp_enum_value(),
            13
        );
    }

    #[test]
    fn every_color_is_known_and_other_is_grey() {
        use crate::types::category::is_known_color;
        assert!(
            CATEGORIES
                .iter()
                .all(|category| is_known_color(category.color))
        );
        let (other, _) = ProfilingCategoryPair::Other(None).indices();
        assert_eq!(CATEGORIES[usize::from(other)].color, "grey");
    }

    #[test]
    fn idle_in_a_profile_begins_like_geckos() {
        let geckos = &CATEGORIES[0];
        assert_eq!((IDLE.label, IDLE.color), (geckos.label, geckos.color));
        assert!(IDLE.subcategories.starts_with(geckos.subcategories));
        assert_eq!(all_categories()[0].subcategories.len(), 6);
    }

    #[test]
    fn category_keeps_its_number_and_is_listed_after_first_use() {
        let second = ProfilingCategoryPair::Host(HostCategory::new(definition, 1));
        let (number, subcategory) = second.indices();
        assert!(usize::from(number) >= CATEGORIES.len());
        assert_eq!((second.indices(), subcategory), ((number, 1), 1));
        let first = ProfilingCategoryPair::Host(HostCategory::new(definition, 0));
        assert_eq!(first.indices(), (number, 0));
        assert_ne!(first, second);
        let info = all_categories()[usize::from(number)];
        assert_eq!(
            (info.label, info.color, info.subcategories),
            ("Mine", "red", &["Other", "Second"][..])
        );
        assert_eq!(format!("{second:?}"), "Host(Mine: Second)");
        assert_eq!(
            second.to_cpp_enum_value(),
            ProfilingCategoryPair::Other(None).to_cpp_enum_value()
        );
    }
}
