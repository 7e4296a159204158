//! What a label says: its text and its category.

use crate::types::ProfilingCategoryPair;

/// The text and the category of a label, as one value: for a label that several places use.
///
/// ```
/// use gekkota::label::Label;
///
/// const DECODE: Label = Label::new("decode", gekkota::gecko_profiler_category!(Media, Playback));
///
/// fn decode_image() {
///     gekkota::auto_profiler_label!(DECODE);
/// }
///
/// fn decode_sound() {
///     gekkota::auto_profiler_label!(DECODE);
/// }
/// # decode_image();
/// # decode_sound();
/// # assert_eq!(DECODE.text(), "decode");
/// # assert_eq!(DECODE.category().label(), "Playback");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Label {
    text: &'static str,
    category: ProfilingCategoryPair,
}

impl Label {
    /// Creates a label, also in a `const` or a `static`. It is pushed by
    /// [`auto_profiler_label!`](crate::auto_profiler_label).
    pub const fn new(text: &'static str, category: ProfilingCategoryPair) -> Self {
        Self { text, category }
    }

    /// Returns the text.
    pub const fn text(self) -> &'static str {
        self.text
    }

    /// Returns the category.
    pub const fn category(self) -> ProfilingCategoryPair {
        self.category
    }
}

/// A value that [`auto_profiler_label!`](crate::auto_profiler_label) accepts as its first argument:
/// a literal or another `&'static str`, or a [`Label`].
///
/// A text alone has Gecko's category “Other”. An application can implement the trait for a type of
/// its own, for example for the stages of its work.
#[diagnostic::on_unimplemented(
    message = "cannot make a label: got `{Self}`, expected a literal, another `&'static str`, or a `Label`",
    label = "not a text that lives as long as the program",
    note = "`auto_profiler_label_dynamic!(\"label\", text, Category)` copies a text that was made at run time",
    note = "`labeled_future_with_dynamic` does so for a future"
)]
pub trait IntoLabel {
    /// Returns the label.
    fn into_label(self) -> Label
    where
        Self: 'static;
}

// For any lifetime: the bound `'static` is on the functions that take a label, because the compiler
// shows that bound, with its comment, in its error for a text that does not live long enough.
impl IntoLabel for &str {
    #[inline(always)]
    fn into_label(self) -> Label
    where
        Self: 'static,
    {
        Label::new(self, ProfilingCategoryPair::Other(None))
    }
}

/// For texts of a list: `for stage in &STAGES`.
impl IntoLabel for &&'static str {
    #[inline(always)]
    fn into_label(self) -> Label {
        (*self).into_label()
    }
}

impl IntoLabel for Label {
    #[inline(always)]
    fn into_label(self) -> Label {
        self
    }
}

impl IntoLabel for &Label {
    #[inline(always)]
    fn into_label(self) -> Label {
        *self
    }
}
