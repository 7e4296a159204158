//! Flags of label-stack frames, with Gecko's numbers.

/// The flags of a label-stack frame.
#[doc(alias = "ProfilingStackFrame::Flags")]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(transparent)]
pub(crate) struct FrameFlags(u8);

impl FrameFlags {
    /// An ordinary label. Gecko has a flag for these; here the empty set means it.
    pub(crate) const NONE: Self = Self(0);
    /// A script function.
    #[doc(alias = "IS_JS_FRAME")]
    pub(crate) const SCRIPT: Self = Self(4);
    /// A label whose text contains nothing private.
    ///
    /// Gecko's number does not fit into a byte. 8 is Gecko's number for a kind of frame that this
    /// crate does not have.
    pub(crate) const NONSENSITIVE: Self = Self(8);
    /// Label and dynamic text are a class and its method.
    #[doc(alias = "STRING_TEMPLATE_METHOD")]
    pub(crate) const METHOD: Self = Self(16);
    /// Label and dynamic text are a class and a property that is read.
    #[doc(alias = "STRING_TEMPLATE_GETTER")]
    pub(crate) const GETTER: Self = Self(32);
    /// Label and dynamic text are a class and a property that is set.
    #[doc(alias = "STRING_TEMPLATE_SETTER")]
    pub(crate) const SETTER: Self = Self(64);
    /// The viewer shows the label also when it shows only script frames.
    pub(crate) const RELEVANT_FOR_JS: Self = Self(128);

    pub(crate) const fn from_byte(byte: u8) -> Self {
        Self(byte)
    }

    pub(crate) const fn to_byte(self) -> u8 {
        self.0
    }

    pub(crate) const fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }
}

/// A set of label properties.
///
/// ```
/// use gekkota::AutoProfilerLabel;
/// use gekkota::label::LabelFlags;
///
/// let category = gekkota::gecko_profiler_category!(DOM);
/// let flags = LabelFlags::METHOD | LabelFlags::RELEVANT_FOR_JS;
/// // Shown as “Element.append”.
/// let _label = AutoProfilerLabel::with_flags("Element", "append", category, flags);
/// ```
#[doc(alias = "ProfilingStackFrame::Flags")]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LabelFlags(pub(crate) FrameFlags);

impl LabelFlags {
    /// No flag.
    pub const NONE: Self = Self(FrameFlags::NONE);
    /// The viewer shows the label also when it shows only script frames.
    pub const RELEVANT_FOR_JS: Self = Self(FrameFlags::RELEVANT_FOR_JS);
    /// The dynamic text contains nothing private.
    ///
    /// The application's own hang reports can read this flag in
    /// [`StackFrame::Label`](crate::stack::StackFrame::Label).
    pub const NONSENSITIVE: Self = Self(FrameFlags::NONSENSITIVE);
    /// Label and dynamic text are a class and its method, shown as `Class.method`.
    pub const METHOD: Self = Self(FrameFlags::METHOD);
    /// Label and dynamic text are a class and a property that is read. They are shown as
    /// `get Class.property`.
    pub const GETTER: Self = Self(FrameFlags::GETTER);
    /// Label and dynamic text are a class and a property that is set. They are shown as
    /// `set Class.property`.
    pub const SETTER: Self = Self(FrameFlags::SETTER);
}

impl std::ops::BitOr for LabelFlags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(FrameFlags::from_byte(self.0.to_byte() | other.0.to_byte()))
    }
}
