//! How the application describes what it records: script functions, counters with their colors, pages,
//! and the phases of markers.

use crate::types::category::ProfilingCategoryPair;
use crate::types::category::subcategories::JavaScript;

/// How an interpreter runs a script function. The viewer colors and filters script frames by it.
#[doc(alias = "implementation")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum ScriptImplementation {
    /// Interpreted: the default.
    #[default]
    Interpreter,
    /// Interpreted with generated code for parts, shown as “blinterp”.
    BaselineInterpreter,
    /// Compiled without optimizations, shown as “baseline”.
    Baseline,
    /// Compiled with optimizations, shown as “ion”.
    #[doc(alias = "Ion")]
    Optimized,
}

impl ScriptImplementation {
    /// Returns the viewer's name for the implementation; `None` for an interpreter, which the
    /// viewer assumes for a frame without a name.
    pub(crate) const fn name(self) -> Option<&'static str> {
        match self {
            Self::Interpreter => None,
            Self::BaselineInterpreter => Some("blinterp"),
            Self::Baseline => Some("baseline"),
            Self::Optimized => Some("ion"),
        }
    }
}

/// The application's description of a script function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ScriptDescription<'a> {
    pub(crate) name: &'a str,
    pub(crate) file: &'a str,
    /// Line where the function begins, counted from 1; 0 when it is not known.
    pub(crate) line: u32,
    /// Column where the function begins, counted from 1; 0 when it is not known.
    pub(crate) column: u32,
    pub(crate) implementation: ScriptImplementation,
    /// Indices of the category and subcategory; `None` for those of the implementation.
    pub(crate) category: Option<(u8, u8)>,
    /// The page that the function belongs to; 0 for none.
    pub(crate) inner_window_id: u64,
}

impl<'a> ScriptDescription<'a> {
    /// Describes an interpreted function that belongs to no page.
    pub(crate) const fn new(name: &'a str, file: &'a str, line: u32, column: u32) -> Self {
        Self {
            name,
            file,
            line,
            column,
            implementation: ScriptImplementation::Interpreter,
            category: None,
            inner_window_id: 0,
        }
    }

    /// Returns the indices of the category and subcategory of the function's frames.
    pub(crate) fn category_indices(&self) -> (u8, u8) {
        let of_implementation = || {
            let subcategory = match self.implementation {
                ScriptImplementation::Interpreter => JavaScript::Interpreter,
                ScriptImplementation::BaselineInterpreter => JavaScript::BaselineInterpret,
                ScriptImplementation::Baseline => JavaScript::Baseline,
                ScriptImplementation::Optimized => JavaScript::IonMonkey,
            };
            ProfilingCategoryPair::JavaScript(Some(subcategory)).indices()
        };
        self.category.unwrap_or_else(of_implementation)
    }
}

/// The unit of a counter's values.
///
/// The viewer shows it, if the profile is in its processed format.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum CounterUnit {
    /// A number of things.
    #[default]
    Number,
    /// Bytes.
    Bytes,
}

/// Names and looks of a counter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CounterParams<Text> {
    pub(crate) label: Text,
    pub(crate) category: Text,
    pub(crate) description: Text,
    /// Whether the value is a sum that grows with time, and not a level.
    pub(crate) is_total: bool,
    pub(crate) unit: CounterUnit,
    pub(crate) color: Option<GraphColor>,
}

/// The color of a graph or marker.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum GraphColor {
    /// Blue.
    Blue,
    /// Green.
    Green,
    /// Grey.
    Grey,
    /// Dark grey.
    Ink,
    /// Magenta.
    Magenta,
    /// Orange.
    Orange,
    /// Purple.
    Purple,
    /// Red.
    Red,
    /// Blue-green.
    Teal,
    /// Yellow.
    Yellow,
}

impl GraphColor {
    pub(crate) const ALL: &[Self] = &[
        Self::Blue,
        Self::Green,
        Self::Grey,
        Self::Ink,
        Self::Magenta,
        Self::Orange,
        Self::Purple,
        Self::Red,
        Self::Teal,
        Self::Yellow,
    ];

    /// Returns the viewer's keyword.
    pub(crate) const fn keyword(self) -> &'static str {
        match self {
            Self::Blue => "blue",
            Self::Green => "green",
            Self::Grey => "grey",
            Self::Ink => "ink",
            Self::Magenta => "magenta",
            Self::Orange => "orange",
            Self::Purple => "purple",
            Self::Red => "red",
            Self::Teal => "teal",
            Self::Yellow => "yellow",
        }
    }
}

/// A page, by which the Firefox Profiler can filter a profile.
///
/// A page of a browser is a document. Other applications may register a page for each window,
/// tenant or connection. Idea: Gecko's `PageInformation`.
#[doc(alias = "PageInformation")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    pub(crate) tab_id: u64,
    pub(crate) inner_window_id: u64,
    pub(crate) url: String,
    pub(crate) embedder_inner_window_id: u64,
    pub(crate) is_private_browsing: bool,
}

impl Page {
    /// Creates a page from its id and the text that the viewer shows for it.
    ///
    /// The application chooses the id. 0 is reserved for "no page".
    pub fn new(inner_window_id: u64, url: impl Into<String>) -> Self {
        let (tab_id, embedder_inner_window_id, is_private_browsing) = (0, 0, false);
        Self {
            tab_id,
            inner_window_id,
            url: url.into(),
            embedder_inner_window_id,
            is_private_browsing,
        }
    }

    /// Sets the tab that contains the page; a tab may contain several pages, one after another.
    /// Default: 0.
    #[must_use]
    pub fn tab_id(mut self, tab_id: u64) -> Self {
        self.tab_id = tab_id;
        self
    }

    /// Sets the id of the page that embeds this one. Default: 0, which means none.
    #[doc(alias = "embedderInnerWindowID")]
    #[must_use]
    pub fn embedder(mut self, inner_window_id: u64) -> Self {
        self.embedder_inner_window_id = inner_window_id;
        self
    }

    /// Sets whether the page belongs to a private window. The viewer can leave such pages out when
    /// the profile is shared. Default: false.
    #[doc(alias = "isPrivateBrowsing")]
    #[must_use]
    pub fn private_browsing(mut self, is_private: bool) -> Self {
        self.is_private_browsing = is_private;
        self
    }

    /// Returns the page's id.
    pub fn inner_window_id(&self) -> u64 {
        self.inner_window_id
    }
}

/// What a marker says about time. The numbers are Gecko's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum MarkerPhase {
    Instant = 0,
    Interval = 1,
    /// The beginning of an interval, whose end is another marker.
    IntervalStart = 2,
    IntervalEnd = 3,
}
