//! Writes packets, and interns what they refer to.

use std::io::{self, Write};

use prost::Message;

use super::messages::{
    Callstack, Frame, InternedData, InternedName, InternedString, Mapping, TracePacket,
};
use crate::export::options::ExportOptions;
use crate::export::write::visible_frames::visible_frames;
use crate::model::{FrameId, FunctionKind, ModuleId, ProfileModel, StackId, TextId};

/// All packets are of one sequence, whose interned data they share.
const SEQUENCE: u32 = 1;
const SEQ_INCREMENTAL_STATE_CLEARED: u32 = 1;
const SEQ_NEEDS_INCREMENTAL_STATE: u32 = 2;

const KIND_NATIVE: i32 = 1;
const KIND_INTERPRETED: i32 = 3;

/// What comes before a packet and its length: the number of the field `Trace.packet`, and the type
/// of fields with a length.
const PACKET_IN_TRACE: u8 = 1 << 3 | 2;

/// Packets are passed on once they are this long together.
const WRITTEN_BYTES: usize = 1 << 16;

/// Writes packets. A text, frame or stack is written with the first packet that refers to it. Its
/// number in the trace is its number in the model plus one, because 0 means none.
pub(super) struct Packets<'a> {
    profile: &'a ProfileModel,
    options: &'a ExportOptions,
    out: &'a mut dyn Write,
    /// Packets that are not passed on yet.
    encoded: Vec<u8>,
    /// What the next packet brings along.
    interned: InternedData,
    has_begun: bool,
    categories: Interned,
    names: Interned,
    keys: Interned,
    functions: Interned,
    files: Interned,
    modules: Interned,
    frames: Interned,
    stacks: Interned,
}

/// Whether each number was written.
#[derive(Default)]
struct Interned(Vec<bool>);

impl Interned {
    /// Returns the number in the trace, and whether it is new.
    fn number(&mut self, id: u32) -> (u64, bool) {
        let index = id as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, false);
        }
        let was_written = std::mem::replace(&mut self.0[index], true);
        (u64::from(id) + 1, !was_written)
    }

    /// Takes back a number that was not written after all.
    fn forget(&mut self, id: u32) {
        self.0[id as usize] = false;
    }
}

impl<'a> Packets<'a> {
    pub(super) fn new(
        profile: &'a ProfileModel,
        options: &'a ExportOptions,
        out: &'a mut dyn Write,
    ) -> Self {
        Self {
            profile,
            options,
            out,
            encoded: Vec::new(),
            interned: InternedData::default(),
            has_begun: false,
            categories: Interned::default(),
            names: Interned::default(),
            keys: Interned::default(),
            functions: Interned::default(),
            files: Interned::default(),
            modules: Interned::default(),
            frames: Interned::default(),
            stacks: Interned::default(),
        }
    }

    /// Writes a packet, and with it what it is the first to refer to.
    pub(super) fn write(&mut self, mut packet: TracePacket) -> io::Result<()> {
        packet.trusted_packet_sequence_id = SEQUENCE;
        packet.sequence_flags = match self.has_begun {
            false => SEQ_INCREMENTAL_STATE_CLEARED,
            true => SEQ_NEEDS_INCREMENTAL_STATE,
        };
        self.has_begun = true;
        if self.interned != InternedData::default() {
            packet.interned_data = Some(Box::new(std::mem::take(&mut self.interned)));
        }
        self.encoded.push(PACKET_IN_TRACE);
        packet
            .encode_length_delimited(&mut self.encoded)
            .map_err(io::Error::other)?;
        match self.encoded.len() < WRITTEN_BYTES {
            true => Ok(()),
            false => self.write_encoded(),
        }
    }

    fn write_encoded(&mut self) -> io::Result<()> {
        self.out.write_all(&self.encoded)?;
        self.encoded.clear();
        Ok(())
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.write_encoded()?;
        self.out.flush()
    }

    /// Returns the number of a category; `None` if the profile has no such category.
    pub(super) fn category(&mut self, category: u16) -> Option<u64> {
        let name = &self.profile.categories.get(usize::from(category))?.name;
        let (iid, is_new) = self.categories.number(category.into());
        if is_new {
            let name = name.clone();
            self.interned
                .event_categories
                .push(InternedName { iid, name });
        }
        Some(iid)
    }

    pub(super) fn event_name(&mut self, text: TextId) -> u64 {
        let (iid, is_new) = self.names.number(text.0);
        if is_new {
            let name = self.profile.text(text).to_owned();
            self.interned.event_names.push(InternedName { iid, name });
        }
        iid
    }

    /// Returns the number of a field's key.
    pub(super) fn key(&mut self, text: TextId) -> u64 {
        let (iid, is_new) = self.keys.number(text.0);
        if is_new {
            let name = self.profile.text(text).to_owned();
            let names = &mut self.interned.debug_annotation_names;
            names.push(InternedName { iid, name });
        }
        iid
    }

    /// Returns the number of a stack; `None` if it has only the root frame.
    pub(super) fn stack(&mut self, stack: StackId) -> Option<u64> {
        let (iid, is_new) = self.stacks.number(stack.0);
        if is_new {
            let frames = visible_frames(self.profile, self.options, Some(stack));
            let mut frame_ids: Vec<_> = frames.map(|(_, frame)| self.frame(frame)).collect();
            if frame_ids.is_empty() {
                self.stacks.forget(stack.0);
                return None;
            }
            frame_ids.reverse();
            self.interned.callstacks.push(Callstack { iid, frame_ids });
        }
        Some(iid)
    }

    fn frame(&mut self, id: FrameId) -> u64 {
        let (iid, is_new) = self.frames.number(id.0);
        if !is_new {
            return iid;
        }
        let profile = self.profile;
        let frame = profile.frame(id);
        let function = profile.function(frame.function);
        let module = function.module.filter(|_| frame.address.is_some());
        let (kind, kind_str) = match function.kind {
            FunctionKind::Native => (Some(KIND_NATIVE), None),
            FunctionKind::Script => (Some(KIND_INTERPRETED), None),
            FunctionKind::Label => (None, Some("label".to_owned())),
            FunctionKind::Structure => (None, Some("structure".to_owned())),
        };
        let message = Frame {
            iid,
            function_name_id: self.function_name(function.name),
            mapping_id: module.map_or(0, |module| self.module(module)),
            rel_pc: module.and(frame.address),
            source_path_iid: function.file.map(|file| self.file(file)),
            line_number: frame.line.or(function.line),
            kind,
            kind_str,
        };
        self.interned.frames.push(message);
        iid
    }

    fn function_name(&mut self, text: TextId) -> u64 {
        let (iid, is_new) = self.functions.number(text.0);
        if is_new {
            let str = self.profile.text(text).into();
            self.interned
                .function_names
                .push(InternedString { iid, str });
        }
        iid
    }

    fn file(&mut self, text: TextId) -> u64 {
        let (iid, is_new) = self.files.number(text.0);
        if is_new {
            let str = self.profile.text(text).into();
            self.interned.source_paths.push(InternedString { iid, str });
        }
        iid
    }

    fn module(&mut self, id: ModuleId) -> u64 {
        let (iid, is_new) = self.modules.number(id.0);
        if is_new {
            let module = self.profile.module(id);
            let build_id = module.code_id.as_ref().unwrap_or(&module.breakpad_id);
            let path = [&module.path, &module.name, &module.debug_name];
            let path = path.into_iter().find(|path| !path.is_empty());
            let path = path.map_or(&[][..], |path| path.as_bytes());
            self.interned.build_ids.push(InternedString {
                iid,
                str: bytes_of_hex(build_id),
            });
            self.interned.mapping_paths.push(InternedString {
                iid,
                str: path.to_vec(),
            });
            self.interned.mappings.push(Mapping {
                iid,
                build_id: iid,
                start: module.start,
                end: module.end,
                path_string_ids: vec![iid],
                exact_offset: module.offset,
            });
        }
        iid
    }
}

/// Returns the bytes that hexadecimal digits stand for, up to what is no pair of digits.
fn bytes_of_hex(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks_exact(2);
    let values = pairs.map_while(|pair| {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8)
    });
    values.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_ids_are_bytes() {
        assert_eq!(bytes_of_hex("0aFf10"), [0x0a, 0xff, 0x10]);
        assert_eq!(bytes_of_hex("0a1"), [0x0a]);
        assert_eq!(bytes_of_hex("0axx"), [0x0a]);
        assert!(bytes_of_hex("é").is_empty());
    }
}
