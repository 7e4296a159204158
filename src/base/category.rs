//! Gecko's categories: one table, from which come the Rust enums and the profile's `meta.categories`.

/// One row of `meta.categories`.
#[cfg_attr(not(has_profiler), allow(dead_code, reason = "only profiles name categories"))]
pub(crate) struct CategoryInfo {
    pub(crate) label: &'static str,
    pub(crate) color: &'static str,
    pub(crate) subcategories: &'static [&'static str],
}

macro_rules! categories {
    ($($name:ident $label:literal $color:ident { $($sub:ident $sub_label:literal),+ })+) => {
        /// A category and, if one was named, its subcategory: what a label or marker is about, and its colour.
        ///
        /// `None` means the category's first subcategory. The list is Gecko's, by Gecko's names.
        #[doc(alias = "JS::ProfilingCategoryPair")]
        #[allow(clippy::upper_case_acronyms, reason = "Mozilla's names")]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum ProfilingCategoryPair {
            $(
                #[doc = concat!("“", $label, "”, shown in ", stringify!($color), ".")]
                $name(Option<subcategories::$name>),
            )+
        }

        /// The subcategories, an enum for each category.
        pub mod subcategories {
            $(
                #[doc = concat!("Subcategories of “", $label, "”.")]
                #[allow(clippy::upper_case_acronyms, reason = "Mozilla's names")]
                #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
                pub enum $name {
                    $(
                        #[doc = concat!("“", $sub_label, "”.")]
                        $sub,
                    )+
                }
            )+
        }

        #[allow(clippy::upper_case_acronyms, reason = "Mozilla's names")]
        #[derive(Clone, Copy)]
        enum CategoryIndex { $($name),+ }

        impl ProfilingCategoryPair {
            /// The category's index in the profile's list, and the subcategory's in the category's.
            // So that a label's category is a number of the program's.
            #[inline]
            pub const fn indices(self) -> (u8, u8) {
                match self {
                    $(Self::$name(sub) => (
                        CategoryIndex::$name as u8,
                        match sub { Some(sub) => sub as u8, None => 0 },
                    ),)+
                }
            }
        }

        #[cfg_attr(not(has_profiler), allow(dead_code, reason = "only profiles name categories"))]
        pub(crate) const CATEGORIES: &[CategoryInfo] = &[
            $(CategoryInfo { label: $label, color: stringify!($color), subcategories: &[$($sub_label),+] },)+
        ];
    };
}

categories! {
    Idle "Idle" transparent { Other "Other" }
    Other "Other" grey { Other "Other", PreferenceRead "Preference Read", Profiling "Profiling" }
    Test "Test" darkgrey { Test "Test" }
    Layout "Layout" purple {
        Other "Other", Frameconstruction "Frame construction", Reflow "Reflow", CSSparsing "CSS parsing",
        Selectorquery "Selector query", Stylecomputation "Style computation", Layoutcleanup "Layout cleanup",
        Printing "Printing"
    }
    JavaScript "JavaScript" yellow {
        Other "Other", Parsing "Parsing", JITCompilebaseline "JIT Compile (baseline)",
        JITCompileion "JIT Compile (ion)", Interpreter "Interpreter",
        JITbaselineinterpreter "JIT (baseline-interpreter)", JITbaseline "JIT (baseline)", JITion "JIT (ion)",
        BuiltinAPI "Builtin API", Wasmion "Wasm (ion)", Wasmbaseline "Wasm (baseline)", Wasmother "Wasm (other)"
    }
    GCCC "GC / CC" orange {
        Other "Other", MinorGC "Minor GC", MajorGCOther "Major GC (Other)", MajorGCMark "Major GC (Mark)",
        MajorGCSweep "Major GC (Sweep)", MajorGCCompact "Major GC (Compact)", UnmarkGray "Unmark Gray",
        Barrier "Barrier", CCFreeSnowWhite "CC (Free Snow White)", CCBuildGraph "CC (Build Graph)",
        CCScanRoots "CC (Scan Roots)", CCCollectWhite "CC (Collect White)", CCFinalize "CC (Finalize)"
    }
    Network "Network" lightblue { Other "Other" }
    Graphics "Graphics" green {
        Other "Other", DisplayListbuilding "DisplayList building", DisplayListmerging "DisplayList merging",
        Layerbuilding "Layer building", Tileallocation "Tile allocation",
        WebRenderdisplaylist "WebRender display list", Rasterization "Rasterization",
        Flushingasyncpaints "Flushing async paints", Imagedecoding "Image decoding", WebGPU "WebGPU",
        VSynctriggeredanimation "VSync triggered animation"
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
    Media "Media" orange { Other "Other", Cubeb "Cubeb", Playback "Playback", Realtimerendering "Real-time rendering" }
    Accessibility "Accessibility" brown { Other "Other" }
    Profiler "Profiler" lightred { Other "Other" }
    Timer "Timer" grey { Other "Other" }
    RemoteProtocol "Remote-Protocol" grey { Other "Other" }
    Sandbox "Sandbox" grey { Other "Other" }
    Telemetry "Telemetry" grey { Other "Other" }
    ML "ML" magenta { Other "Other", Inference "Inference", Setup "Setup" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_follow_geckos_order() {
        use subcategories::JavaScript;
        assert_eq!(ProfilingCategoryPair::Idle(None).indices(), (0, 0));
        assert_eq!(ProfilingCategoryPair::JavaScript(Some(JavaScript::Parsing)).indices(), (4, 1));
        assert_eq!(ProfilingCategoryPair::ML(Some(subcategories::ML::Setup)).indices(), (24, 2));
        assert_eq!(CATEGORIES.len(), 25);
    }

    #[test]
    fn the_viewer_knows_every_colour() {
        let known = "transparent purple green orange yellow lightblue blue brown magenta red lightred \
                     lightgreen darkgrey grey";
        for category in CATEGORIES {
            assert!(known.split_whitespace().any(|color| color == category.color), "{}", category.color);
        }
    }
}
