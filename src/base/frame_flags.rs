//! What a frame of the label stack is: Gecko's flags, by Gecko's numbers.

/// The flags of a frame.
#[doc(alias = "ProfilingStackFrame::Flags")]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(transparent)]
pub(crate) struct FrameFlags(u8);

#[cfg_attr(
    not(has_profiler),
    allow(dead_code, reason = "only a profiler asks what a frame is")
)]
impl FrameFlags {
    /// A label as most are; Gecko marks those, too.
    pub(crate) const NONE: Self = Self(0);
    /// A function of a script.
    #[doc(alias = "IS_JS_FRAME")]
    pub(crate) const SCRIPT: Self = Self(4);
    /// A label whose text nobody need keep from others. Gecko's number for it is no byte; this one's Gecko frame is none of ours.
    pub(crate) const NONSENSITIVE: Self = Self(8);
    /// A label and its dynamic text are a class and its method.
    #[doc(alias = "STRING_TEMPLATE_METHOD")]
    pub(crate) const METHOD: Self = Self(16);
    /// The same, of a property that is read.
    #[doc(alias = "STRING_TEMPLATE_GETTER")]
    pub(crate) const GETTER: Self = Self(32);
    /// The same, of one that is set.
    #[doc(alias = "STRING_TEMPLATE_SETTER")]
    pub(crate) const SETTER: Self = Self(64);
    /// A label that views of scripts alone show, too; they show script frames anyway.
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

/// What a label is beside its text: a set.
///
/// ```
/// use gekkota::AutoProfilerLabel;
/// use gekkota::label::LabelFlags;
///
/// let flags = LabelFlags::METHOD | LabelFlags::RELEVANT_FOR_JS;
/// // Shown as “Element.append”.
/// let _label =
///     AutoProfilerLabel::with_flags("Element", "append", gekkota::gecko_profiler_category!(DOM), flags);
/// ```
#[doc(alias = "ProfilingStackFrame::Flags")]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LabelFlags(pub(crate) FrameFlags);

impl LabelFlags {
    /// Nothing of these.
    pub const NONE: Self = Self(FrameFlags::NONE);
    /// The viewer shows it also when it is asked for the frames of scripts alone.
    pub const RELEVANT_FOR_JS: Self = Self(FrameFlags::RELEVANT_FOR_JS);
    /// Its dynamic text says nothing that is to be kept from whoever sees a stack: for a host's own reports of hangs, which
    /// find it in [`StackFrame::Label`](crate::stack::StackFrame::Label).
    pub const NONSENSITIVE: Self = Self(FrameFlags::NONSENSITIVE);
    /// Label and dynamic text are a class and its method: shown as `Class.method`.
    pub const METHOD: Self = Self(FrameFlags::METHOD);
    /// A class and a property that is read: `get Class.property`.
    pub const GETTER: Self = Self(FrameFlags::GETTER);
    /// A class and a property that is set: `set Class.property`.
    pub const SETTER: Self = Self(FrameFlags::SETTER);
}

impl std::ops::BitOr for LabelFlags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(FrameFlags::from_byte(self.0.to_byte() | other.0.to_byte()))
    }
}
