//! A frame of the label stack: a label or a script function. It consists of plain numbers, so that
//! it can also be copied remotely.
//!
//! Runs in the signal handler: the accessors of a frame.

use crate::types::FrameFlags;

/// A location in a script: a function, and a position in it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct ScriptLocation {
    /// Line in the lower half and column in the upper half: one number, so that one store changes
    /// both.
    pub(crate) position: u64,
    pub(crate) function: u32,
}

impl ScriptLocation {
    /// Combines a line and a column into one number.
    #[inline]
    pub(crate) const fn position_of(line: u32, column: u32) -> u64 {
        line as u64 | (column as u64) << 32
    }

    /// Returns the function's number.
    pub(crate) const fn function(self) -> u32 {
        self.function
    }

    /// Returns the line, counted from 1; 0 when it is not known.
    pub(crate) const fn line(self) -> u32 {
        self.position as u32
    }

    /// Returns the column, counted from 1; 0 when it is not known.
    pub(crate) const fn column(self) -> u32 {
        (self.position >> 32) as u32
    }
}

/// A frame on the stack. `label_bytes`, `flags` and `has_text` determine which of the other fields
/// are valid; the rest may hold values of an earlier frame.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct ProfilingStackFrame {
    /// The stack pointer at the push, or an address from the application. It places the frame among
    /// the native frames.
    pub(crate) stack_address: u64,
    /// Address of the static text, a `&'static str`; valid if `label_bytes` is not 0.
    pub(crate) label_address: u64,
    // If a label's text and category are constants, the compiler merges the next eight bytes into
    // one store.
    pub(crate) label_bytes: u32,
    pub(crate) category: u8,
    pub(crate) subcategory: u8,
    pub(crate) flags: FrameFlags,
    /// 1 if there is a dynamic text, otherwise 0.
    pub(crate) has_text: u8,
    /// With `function`, the location of a script frame: see [`ScriptLocation`].
    pub(crate) position: u64,
    pub(crate) function: u32,
    /// Where the dynamic text lies in the stack's text area; valid if `has_text` is 1.
    pub(crate) text: TextRange,
}
const _: () = assert!(size_of::<ProfilingStackFrame>() == 48);

/// The range of a frame's dynamic text.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct TextRange {
    pub(crate) start: u32,
    pub(crate) bytes: u32,
    /// Depth of the stack up to and including the next older frame with a text; 0 without such a
    /// frame.
    pub(crate) depth_before: u32,
}

impl ProfilingStackFrame {
    /// Returns the location of a script frame; `None` for a label.
    pub(crate) fn script_location_in_handler(&self) -> Option<ScriptLocation> {
        if self.flags.has(FrameFlags::SCRIPT) {
            Some(self.raw_script_location_in_handler())
        } else {
            None
        }
    }

    /// Returns the location of a script frame; unspecified for a label.
    pub(crate) fn raw_script_location_in_handler(&self) -> ScriptLocation {
        ScriptLocation {
            position: self.position,
            function: self.function,
        }
    }

    /// Returns the start of the dynamic text in the text area, and its length; zeros without a
    /// text.
    pub(crate) fn text_range_in_handler(&self) -> (usize, usize) {
        if self.has_text != 0 {
            (self.text.start as usize, self.text.bytes as usize)
        } else {
            (0, 0)
        }
    }

    /// Returns the dynamic text, or the part of it that lies in `area`.
    pub(crate) fn text_of_in_handler<'a>(&self, area: &'a [u8]) -> &'a [u8] {
        let (start, bytes) = self.text_range_in_handler();
        let start = start.min(area.len());
        let end = (start + bytes).min(area.len());
        // SAFETY: both indices lie within the slice, in order.
        unsafe { area.get_unchecked(start..end) }
    }

    /// Returns the static text, which is empty for a script frame.
    ///
    /// # Safety
    /// - The frame was pushed on a stack of this process, by code that is still loaded.
    pub(crate) unsafe fn label_in_handler<'a>(&self) -> &'a [u8] {
        if self.label_bytes == 0 {
            return &[];
        }
        let start = std::ptr::with_exposed_provenance(self.label_address as usize);
        // SAFETY: by this function's contract, these are the parts of a `&'static str`.
        unsafe { std::slice::from_raw_parts(start, self.label_bytes as usize) }
    }
}

/// Joins a label's static and dynamic text like Gecko: with a space, or as a class and its member.
pub(crate) fn joined_label_text(text: &[u8], dynamic: &[u8], flags: FrameFlags) -> String {
    let (text, dynamic) = (
        String::from_utf8_lossy(text),
        String::from_utf8_lossy(dynamic),
    );
    let accessor = match () {
        () if flags.has(FrameFlags::GETTER) => "get ",
        () if flags.has(FrameFlags::SETTER) => "set ",
        () => "",
    };
    let is_member = !accessor.is_empty() || flags.has(FrameFlags::METHOD);
    let separator = match is_member {
        _ if text.is_empty() || dynamic.is_empty() => "",
        true => ".",
        false => " ",
    };
    format!("{accessor}{text}{separator}{dynamic}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_label_text_follows_flags() {
        let joined = |text: &str, dynamic: &str, flags| {
            joined_label_text(text.as_bytes(), dynamic.as_bytes(), flags)
        };
        assert_eq!(joined("load", "a.png", FrameFlags::NONE), "load a.png");
        assert_eq!(joined("load", "", FrameFlags::NONE), "load");
        assert_eq!(joined("", "a.png", FrameFlags::RELEVANT_FOR_JS), "a.png");
        assert_eq!(
            joined("Element", "append", FrameFlags::METHOD),
            "Element.append"
        );
        assert_eq!(
            joined("Element", "id", FrameFlags::GETTER),
            "get Element.id"
        );
        assert_eq!(
            joined("Element", "id", FrameFlags::SETTER),
            "set Element.id"
        );
        assert_eq!(joined("Element", "", FrameFlags::METHOD), "Element");
    }
}
