//! What the headers of a module say: its addresses, build id, dynamic section and unwind sections.
//!
//! **Contract**: as in `mod.rs`: *loader's lock*, *stays*.

use std::ops::Range;

use object::NativeEndian;
use object::elf::{ELF_NOTE_GNU, FileHeader64, NT_GNU_BUILD_ID};
use object::read::elf::{Note, NoteIterator};

use crate::platform::modules::loader::{LoaderEntry, mapped};

/// Addresses of a module's dynamic section and of the strings that it refers to. Both are empty if
/// the module has none.
#[derive(Clone, Debug, Default)]
pub(super) struct DynamicLocation {
    pub(super) section: Range<u64>,
    pub(super) strings: Range<u64>,
}

/// Addresses of the two unwind sections. Both lie in `region`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct UnwindLocation {
    pub(super) region: Range<u64>,
    pub(super) eh_frame_hdr: u64,
    pub(super) eh_frame_hdr_end: u64,
    pub(super) eh_frame: u64,
}

/// Tags of a dynamic section's entries: its end, the name of a needed library, the address and the
/// size of the strings, and the module's own name.
const DT_NULL: u64 = 0;
pub(super) const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_STRSZ: u64 = 10;
const DT_SONAME: u64 = 14;

/// Returns the entries of a dynamic section, each with its tag and its value.
pub(super) fn dynamic_entries(section: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
    section
        .chunks_exact(16)
        .map(move |entry| (word(&entry[..8]), word(&entry[8..])))
        .take_while(|(tag, _)| *tag != DT_NULL)
}

/// Returns the terminated string at an offset.
pub(super) fn string_at(strings: &[u8], offset: u64) -> Option<&[u8]> {
    let rest = strings.get(usize::try_from(offset).ok()?..)?;
    let end = rest.iter().position(|&byte| byte == 0)?;
    Some(&rest[..end])
}

// Not in `loader.rs`, which this file imports: the results are types of this file.
impl LoaderEntry<'_> {
    pub(super) fn loaded_segments(&self) -> impl Iterator<Item = Range<u64>> {
        let bias = self.info.dlpi_addr;
        self.headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD)
            .map(move |header| {
                let start = bias.wrapping_add(header.p_vaddr);
                start..start.saturating_add(header.p_memsz)
            })
    }

    pub(super) fn loaded_range(&self) -> Range<u64> {
        let with =
            |all: Range<u64>, other: Range<u64>| all.start.min(other.start)..all.end.max(other.end);
        self.loaded_segments().reduce(with).unwrap_or_default()
    }

    /// Returns the location of the dynamic section, and the module's own name if it has one.
    pub(super) fn dynamic(&self) -> Option<(DynamicLocation, Option<&[u8]>)> {
        let header = self
            .headers
            .iter()
            .find(|header| header.p_type == libc::PT_DYNAMIC)?;
        let section = self.header_bytes(header)?;
        let value_of = |wanted: u64| {
            let mut entries = dynamic_entries(section);
            entries.find_map(|(tag, value)| (tag == wanted).then_some(value))
        };
        // glibc replaces the address in the file by the one in memory; musl does not.
        let in_file_or_memory = value_of(DT_STRTAB)?;
        let start = match self.loaded_range().contains(&in_file_or_memory) {
            true => in_file_or_memory,
            false => self.info.dlpi_addr.wrapping_add(in_file_or_memory),
        };
        let strings = start..start.checked_add(value_of(DT_STRSZ)?)?;
        let bytes = self.bytes_at(strings.clone())?;
        let soname = value_of(DT_SONAME).and_then(|offset| string_at(bytes, offset));
        let start = section.as_ptr() as u64;
        let section = start..start + section.len() as u64;
        Some((DynamicLocation { section, strings }, soname))
    }

    /// Returns the bytes that a program header describes, if they lie in a loaded segment.
    fn header_bytes(&self, header: &libc::Elf64_Phdr) -> Option<&[u8]> {
        let start = self.info.dlpi_addr.wrapping_add(header.p_vaddr);
        self.bytes_at(start..start.checked_add(header.p_memsz)?)
    }

    /// Returns the bytes of a range, if it lies in a loaded segment.
    fn bytes_at(&self, range: Range<u64>) -> Option<&[u8]> {
        let inside = self
            .loaded_segments()
            .any(|segment| segment.start <= range.start && range.end <= segment.end);
        // SAFETY: *loader's lock*: a loaded segment is mapped during the callback.
        inside.then(|| unsafe { mapped(range) })
    }

    pub(super) fn build_id(&self) -> Option<&[u8]> {
        self.headers
            .iter()
            .filter(|header| header.p_type == libc::PT_NOTE)
            .find_map(|header| gnu_build_id(self.header_bytes(header)?))
    }

    /// Locates the unwind sections by the start of `.eh_frame_hdr`: version 1, then the encoding of
    /// the pointer to `.eh_frame`. Every common linker encodes it as a 32-bit distance from the
    /// pointer itself.
    pub(super) fn unwind_location(&self) -> Option<UnwindLocation> {
        const PC_RELATIVE_I32: u8 = 0x1b;
        const GNU_EH_FRAME: u32 = 0x6474_e550;
        let header = self
            .headers
            .iter()
            .find(|header| header.p_type == GNU_EH_FRAME)?;
        let bytes = self.header_bytes(header)?;
        if bytes.len() < 8 || bytes[0] != 1 || bytes[1] != PC_RELATIVE_I32 {
            return None;
        }
        let eh_frame_hdr = bytes.as_ptr() as u64;
        let distance = i32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        let eh_frame = (eh_frame_hdr + 4).checked_add_signed(distance.into())?;
        let segment = self
            .loaded_segments()
            .find(|segment| segment.contains(&eh_frame_hdr))?;
        segment.contains(&eh_frame).then(|| UnwindLocation {
            region: eh_frame.min(eh_frame_hdr)..segment.end,
            eh_frame_hdr,
            eh_frame_hdr_end: eh_frame_hdr + bytes.len() as u64,
            eh_frame,
        })
    }
}

/// Finds the GNU build id among the notes of a segment.
fn gnu_build_id(notes: &[u8]) -> Option<&[u8]> {
    /// Alignment of notes, in bytes.
    const ALIGN: u64 = 4;
    let notes = NoteIterator::<FileHeader64<NativeEndian>>::new(NativeEndian, ALIGN, notes).ok()?;
    let is_build_id = |note: &Note<'_, FileHeader64<NativeEndian>>| {
        note.name() == ELF_NOTE_GNU && note.n_type(NativeEndian) == NT_GNU_BUILD_ID
    };
    let mut readable = notes.map_while(Result::ok);
    Some(readable.find(is_build_id)?.desc())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gnu_build_id_skips_other_notes_and_rejects_broken_ones() {
        let note = |kind: u32, name: &[u8], desc: &[u8]| {
            let mut bytes = Vec::new();
            for word in [name.len() as u32, desc.len() as u32, kind] {
                bytes.extend(word.to_le_bytes());
            }
            for part in [name, desc] {
                bytes.extend(part);
                bytes.resize(bytes.len().next_multiple_of(4), 0);
            }
            bytes
        };
        let notes = [
            note(1, b"GNU\0", b"abcde"),
            note(3, b"GNU\0", b"\x01\x02\x03"),
        ]
        .concat();
        assert_eq!(gnu_build_id(&notes), Some(&b"\x01\x02\x03"[..]));
        assert_eq!(gnu_build_id(&notes[..notes.len() - 4]), None);
        assert_eq!(gnu_build_id(&[0xff; 40]), None);
        assert_eq!(gnu_build_id(&[]), None);
    }
}
