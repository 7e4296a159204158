//! Name, source location and kind of a script function.

use crate::types::category::{ProfilingCategoryPair, subcategories::JavaScript};

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
}

impl ScriptDescription<'_> {
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
