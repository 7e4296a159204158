//! A frame of the label stack, a label or a function of a script, in plain numbers, so that it can also be copied from
//! outside.

use crate::base::FrameFlags;

/// Where in a script a thread is: a function, and a place in it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub(crate) struct ScriptPlace {
    /// The line, and in the upper half the column: one number, so that one store changes both.
    pub(super) position: u64,
    pub(super) function: u32,
}

impl ScriptPlace {
    #[inline]
    pub(super) const fn position_of(line: u32, column: u32) -> u64 {
        line as u64 | (column as u64) << 32
    }

    /// The function's number.
    pub(crate) const fn function(self) -> u32 {
        self.function
    }

    /// Counted from 1; 0 when it is not known.
    pub(crate) const fn line(self) -> u32 {
        self.position as u32
    }

    /// The same of the column.
    pub(crate) const fn column(self) -> u32 {
        (self.position >> 32) as u32
    }
}

/// A frame on the stack. A label's dynamic text stands in the stack's text area.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct ProfilingStackFrame {
    /// The stack pointer at the push, or what the host gave: the frame's place among the native frames.
    pub(crate) stack_address: u64,
    /// Where the static text is: that of a `&'static str`.
    pub(crate) label_address: u64,
    pub(crate) label_bytes: u32,
    pub(crate) text_start: u32,
    pub(crate) text_bytes: u32,
    pub(crate) category: u8,
    pub(crate) subcategory: u8,
    pub(crate) flags: FrameFlags,
    /// Written so that the four bytes are one store.
    pub(super) unused: u8,
    /// Of a script frame; what a label has here was left by another.
    pub(super) place: ScriptPlace,
}

impl ProfilingStackFrame {
    /// Of a script frame, where it is.
    pub(crate) fn script_place_in_handler(&self) -> Option<ScriptPlace> {
        if self.flags.has(FrameFlags::SCRIPT) { Some(self.place) } else { None }
    }

    /// The static text; a script frame's is empty.
    ///
    /// # Safety
    /// - The frame was pushed on a stack of this process, by code that is still loaded.
    pub(crate) unsafe fn label_in_handler<'a>(&self) -> &'a [u8] {
        let start = std::ptr::with_exposed_provenance(self.label_address as usize);
        // SAFETY: by this function's contract, the parts of a `&'static str`.
        unsafe { std::slice::from_raw_parts(start, self.label_bytes as usize) }
    }
}

/// A label's text and its dynamic text, as Gecko puts the two together.
pub(crate) fn joined_label_text(text: &[u8], dynamic: &[u8]) -> String {
    let (text, dynamic) = (String::from_utf8_lossy(text), String::from_utf8_lossy(dynamic));
    let gap = if text.is_empty() || dynamic.is_empty() { "" } else { " " };
    format!("{text}{gap}{dynamic}")
}
