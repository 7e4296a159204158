//! A frame of the label stack, a label or a function of a script, in plain numbers, so that it can also be copied from
//! outside.
//!
//! Runs in the signal handler: what tells of a frame.

use crate::base::FrameFlags;

/// Where in a script a thread is: a function, and a place in it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
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

/// A frame on the stack. What it is and its first words are written by every push; the rest may be another frame's that
/// was here before, where what it is does not say that it has it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct ProfilingStackFrame {
    /// The stack pointer at the push, or what the host gave: the frame's place among the native frames.
    pub(crate) stack_address: u64,
    /// Where the static text is: that of a `&'static str`, if that has a length.
    pub(crate) label_address: u64,
    // From here on eight bytes that the compiler makes one store of where a label's text and category are constants.
    pub(crate) label_bytes: u32,
    pub(crate) category: u8,
    pub(crate) subcategory: u8,
    pub(crate) flags: FrameFlags,
    /// 0 or 1: whether there is a dynamic text.
    pub(super) has_text: u8,
    /// Of a script frame, and so is the function: the two of a [`ScriptPlace`].
    pub(super) position: u64,
    pub(super) function: u32,
    /// Of a frame with a dynamic text, where that is in the stack's text area.
    pub(super) text: TextPlace,
}
const _: () = assert!(size_of::<ProfilingStackFrame>() == 48);

/// Where a frame's dynamic text is.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct TextPlace {
    pub(super) start: u32,
    pub(super) bytes: u32,
    /// How deep the stack is up to the newest of the older frames with a text; 0 where there is none.
    pub(super) depth_before: u32,
}

impl ProfilingStackFrame {
    /// Of a script frame, where it is.
    pub(crate) fn script_place_in_handler(&self) -> Option<ScriptPlace> {
        if self.flags.has(FrameFlags::SCRIPT) {
            Some(self.place_in_handler())
        } else {
            None
        }
    }

    /// The same; anything of a label.
    pub(super) fn place_in_handler(&self) -> ScriptPlace {
        ScriptPlace {
            position: self.position,
            function: self.function,
        }
    }

    /// Where its dynamic text is in the text area, and how long; nothing when it has none.
    pub(super) fn text_range_in_handler(&self) -> (usize, usize) {
        if self.has_text != 0 {
            (self.text.start as usize, self.text.bytes as usize)
        } else {
            (0, 0)
        }
    }

    /// Its dynamic text, as far as the area has it.
    pub(super) fn text_of_in_handler<'a>(&self, area: &'a [u8]) -> &'a [u8] {
        let (start, bytes) = self.text_range_in_handler();
        let start = start.min(area.len());
        let end = (start + bytes).min(area.len());
        // SAFETY: both indices lie within the slice, in order.
        unsafe { area.get_unchecked(start..end) }
    }

    /// The static text; a script frame's is empty.
    ///
    /// # Safety
    /// - The frame was pushed on a stack of this process, by code that is still loaded.
    pub(crate) unsafe fn label_in_handler<'a>(&self) -> &'a [u8] {
        if self.label_bytes == 0 {
            return &[];
        }
        let start = std::ptr::with_exposed_provenance(self.label_address as usize);
        // SAFETY: by this function's contract, the parts of a `&'static str`.
        unsafe { std::slice::from_raw_parts(start, self.label_bytes as usize) }
    }
}

/// Stands for labels and script frames that a copy of a stack had no room for.
pub(crate) const LABELS_LEFT_OUT: &str = "(newer labels left out)";

/// A label's text and its dynamic text, as Gecko puts the two together: one behind the other, or a class and what it has.
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
    let is_template = !accessor.is_empty() || flags.has(FrameFlags::METHOD);
    let gap = match is_template {
        _ if text.is_empty() || dynamic.is_empty() => "",
        true => ".",
        false => " ",
    };
    format!("{accessor}{text}{gap}{dynamic}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_and_its_text_are_put_together_as_its_flags_say() {
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
