//! Gecko's categories, in one table that defines the Rust enums and the profile's
//! `meta.categories`.

use crate::types::category::application::HostCategory;
use crate::types::category::application::registered_categories;
use crate::types::category::category_info::OTHER;
use crate::types::category::category_info::{CategoryInfo, GECKO_CATEGORIES};

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
    let registered =
        registered_categories().map(|info| info.unwrap_or(&CATEGORIES[usize::from(OTHER)]));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::category::application::CategoryDefinition;

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
        use crate::types::category::category_info::is_known_color;
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
