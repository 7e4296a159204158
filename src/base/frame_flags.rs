//! What a frame of the label stack is: Gecko's flags, by Gecko's numbers.

/// The flags of a frame.
#[doc(alias = "ProfilingStackFrame::Flags")]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(transparent)]
pub(crate) struct FrameFlags(u8);

#[cfg_attr(not(has_profiler), allow(dead_code, reason = "only a profiler asks what a frame is"))]
impl FrameFlags {
    /// A label as most are; Gecko marks those, too.
    pub(crate) const NONE: Self = Self(0);
    /// A function of a script.
    #[doc(alias = "IS_JS_FRAME")]
    pub(crate) const SCRIPT: Self = Self(4);
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
