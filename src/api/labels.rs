//! Labels: frames that the application names itself, by a text and a category.

use std::pin::Pin;
use std::task::Context;

use crate::api::backend;
use crate::api::threads::register_polling_thread;
use crate::api::waiting_tasks::TaskWait;
use crate::types::{FrameFlags, LabelFlags, ProfilingCategoryPair};
use crate::util::{PolledWith, ShortText};

/// A label on the calling thread's stack, from construction to drop.
///
/// In the profile, the label is a frame between the function that pushed it and that function's
/// caller. If the compiler inlined the function, the label lies between the function that contains
/// the inlined code and that function's caller. A session that starts later sees the label too. The
/// guard is bound to its thread. If it is forgotten, or dropped out of order, it can at worst
/// remove labels and script frames that were pushed after it.
///
/// A sample records the 1,024 oldest labels and script frames of its thread, and “(newer labels
/// left out)” for the rest. A thread holds at most 1,048,576 labels and script frames; further ones
/// are lost.
///
/// The viewer would mistake some texts for an address (`0x…`) or for a function in a file or
/// library (`read (a.rs:3)`). The profile inserts a no-break space into such texts, at the
/// beginning or before the parenthesis. It does not change other texts.
///
/// Do not push labels in a signal handler of the application, because the signal may interrupt a
/// push. The profiler's own handler is prepared for that.
///
/// The first label during a session registers a thread that has not registered: see
/// [`register_thread`](crate::register_thread). Its earlier labels are lost.
///
/// A label that is held across an `.await` would stay on the thread while other tasks run there. So
/// the guard is not `Send`, and a runtime with several threads refuses such a future. Use
/// [`labeled_future`] instead, or the attribute
/// [`gecko_profiler_fn_label`](macro@crate::gecko_profiler_fn_label) on the `async fn`. For a
/// runtime with one thread, Clippy can check the same: add `"gekkota::AutoProfilerLabel"` to
/// `await-holding-invalid-types` in `clippy.toml`.
///
/// Cost: a few stores; on an unregistered thread without a session, some loads. Usually made by
/// [`auto_profiler_label!`](crate::auto_profiler_label). Idea: Gecko's `AutoProfilerLabel`, which
/// is placed in the stack by its own address. This one is placed by the stack pointer at the push,
/// because Rust moves values.
#[derive(Debug)]
#[must_use = "the label is popped when this is dropped"]
#[doc(alias = "ProfilingStack")]
pub struct AutoProfilerLabel(backend::LabelToken);

impl AutoProfilerLabel {
    /// Pushes a label with this category, whatever category `label` has.
    #[inline(always)]
    pub fn new<L>(label: L, category: ProfilingCategoryPair) -> Self
    where
        L: IntoLabel,
        L: 'static, // for a text that is made at run time: `auto_profiler_label_dynamic!`
    {
        Self(push(label.into_label().text(), category, FrameFlags::NONE))
    }

    /// Pushes a label with its own category: that of a [`Label`], or “Other” for a text.
    #[inline(always)]
    pub fn of<L>(label: L) -> Self
    where
        L: IntoLabel,
        L: 'static, // for a text that is made at run time: `auto_profiler_label_dynamic!`
    {
        let label = label.into_label();
        Self(push(label.text(), label.category(), FrameFlags::NONE))
    }

    /// Pushes a label with the text of its subcategory.
    #[doc(alias = "AUTO_PROFILER_LABEL_CATEGORY_PAIR")]
    #[doc(alias = "LABEL_DETERMINED_BY_CATEGORY_PAIR")]
    #[inline(always)]
    pub fn of_category(category: ProfilingCategoryPair) -> Self {
        Self::new(category.label(), category)
    }

    /// Pushes a label at a given place in the stack, on behalf of another function. A hook needs
    /// this if it returns before that function continues.
    ///
    /// `stack_address` is the address of a local variable of that function, as a number. The
    /// profiler never dereferences it. An address outside the native frames moves the label to
    /// their inner or outer end. Labels and script frames keep their order: a label that is placed
    /// too far in moves all later ones there too.
    #[inline(always)]
    pub fn with_stack_address(
        label: &'static str,
        category: ProfilingCategoryPair,
        stack_address: usize,
    ) -> Self {
        Self(backend::push_label(
            stack_address as u64,
            label,
            category,
            FrameFlags::NONE,
        ))
    }

    /// Pushes a label with a copied text of at most 512 bytes, cut at a character boundary.
    ///
    /// The texts of a thread's labels take at most 64 MiB, and a sample records at most 48 KiB of
    /// them, from the oldest labels. Beyond that, labels are recorded without their texts.
    #[inline(always)]
    pub fn with_dynamic(
        label: &'static str,
        dynamic: &str,
        category: ProfilingCategoryPair,
    ) -> Self {
        Self(push_with_text(label, category, FrameFlags::NONE, dynamic))
    }

    /// Pushes a label with a copied UTF-16 text, like [`with_dynamic`](Self::with_dynamic). Invalid
    /// parts become U+FFFD. Allocates nothing.
    #[doc(alias = "AUTO_PROFILER_LABEL_DYNAMIC_LOSSY_NSSTRING")]
    #[inline(always)]
    pub fn with_dynamic_utf16(
        label: &'static str,
        dynamic: &[u16],
        category: ProfilingCategoryPair,
    ) -> Self {
        Self::with_dynamic(label, ShortText::from_utf16(dynamic).as_str(), category)
    }

    /// Pushes a label with a copied text, like [`with_dynamic`](Self::with_dynamic), and with
    /// flags.
    #[doc(alias = "AUTO_PROFILER_LABEL_DYNAMIC_FAST")]
    #[inline(always)]
    pub fn with_flags(
        label: &'static str,
        dynamic: &str,
        category: ProfilingCategoryPair,
        flags: LabelFlags,
    ) -> Self {
        Self(push_with_text(label, category, flags.0, dynamic))
    }

    /// Pushes a label that the viewer also shows when its call tree is set to “JavaScript”: for
    /// work that a script requests from the application.
    #[doc(alias = "AUTO_PROFILER_LABEL_RELEVANT_FOR_JS")]
    #[inline(always)]
    pub fn relevant_for_js(label: &'static str, category: ProfilingCategoryPair) -> Self {
        Self(push(label, category, FrameFlags::RELEVANT_FOR_JS))
    }

    /// Pushes a label with a copied text, like [`with_dynamic`](Self::with_dynamic), that the
    /// viewer also shows when its call tree is set to “JavaScript”.
    #[doc(alias = "AUTO_PROFILER_LABEL_DYNAMIC_CSTR_RELEVANT_FOR_JS")]
    #[inline(always)]
    pub fn relevant_for_js_with_dynamic(
        label: &'static str,
        dynamic: &str,
        category: ProfilingCategoryPair,
    ) -> Self {
        Self(push_with_text(
            label,
            category,
            FrameFlags::RELEVANT_FOR_JS,
            dynamic,
        ))
    }
}

#[inline(always)]
fn push(
    label: &'static str,
    category: ProfilingCategoryPair,
    flags: FrameFlags,
) -> backend::LabelToken {
    backend::push_label(backend::stack_pointer(), label, category, flags)
}

#[inline(always)]
fn push_with_text(
    label: &'static str,
    category: ProfilingCategoryPair,
    flags: FrameFlags,
    dynamic: &str,
) -> backend::LabelToken {
    backend::push_label_with_text(backend::stack_pointer(), label, category, flags, dynamic)
}

impl Drop for AutoProfilerLabel {
    #[inline(always)]
    fn drop(&mut self) {
        backend::pop_labels(&self.0);
    }
}

/// Labels a future: the label is pushed for each poll of the future, and popped when the poll
/// returns.
///
/// ```
/// # async fn answer() -> u32 { 42 }
/// # fn spawn<F: Future>(_: F) {}
/// let category = gekkota::gecko_profiler_category!(Network);
/// spawn(gekkota::labeled_future("answer", category, answer()));
/// ```
///
/// The label appears on each thread that polls the future, and is absent while the future waits.
/// Runtimes create their threads on their own. So while the profiler is active, a poll registers
/// its thread under the thread's own name, if the thread is not registered.
///
/// With the feature [`WAITING_TASKS`](crate::Features::WAITING_TASKS), the profile also shows where
/// the future waits.
///
/// Cost: one label per poll, and while the profiler is active, a check whether the thread is
/// registered. The result is `Send` if `future` is, and some 60 bytes larger.
#[doc(alias = "labelled_future")]
pub fn labeled_future<L, F: Future>(
    label: L,
    category: ProfilingCategoryPair,
    future: F,
) -> impl Future<Output = F::Output>
where
    L: IntoLabel,
    L: 'static, // for a text that is made at run time: `labeled_future_with_dynamic`
{
    let label = label.into_label().text();
    let mut wait = TaskWait::new();
    PolledWith::new(
        future,
        move |future: Pin<&mut F>, context: &mut Context<'_>| {
            register_polling_thread();
            let _label = AutoProfilerLabel::new(label, category);
            wait.poll(label, "", || future.poll(context))
        },
    )
}

/// Labels a future with a label and a copied text, otherwise like [`labeled_future`].
///
/// Each poll copies at most 512 bytes of the text, cut at a character boundary.
pub fn labeled_future_with_dynamic<F: Future>(
    label: &'static str,
    dynamic: impl AsRef<str> + Unpin,
    category: ProfilingCategoryPair,
    future: F,
) -> impl Future<Output = F::Output> {
    let mut wait = TaskWait::new();
    PolledWith::new(
        future,
        move |future: Pin<&mut F>, context: &mut Context<'_>| {
            register_polling_thread();
            let _label = AutoProfilerLabel::with_dynamic(label, dynamic.as_ref(), category);
            wait.poll(label, dynamic.as_ref(), || future.poll(context))
        },
    )
}

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
