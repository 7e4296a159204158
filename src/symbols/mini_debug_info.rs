//! MiniDebugInfo: the symbols of a stripped file, compressed in its section `.gnu_debugdata`.
//! Fedora's packages have it.

#[cfg(feature = "mini_debug_info")]
mod decompression {
    use std::io::Read;

    use lzma_rust2::XzReader;
    use object::{Object, ObjectSection};

    use crate::symbols::object_file::ObjectFile;

    const SECTION: &str = ".gnu_debugdata";
    /// Maximum size of the symbols, in bytes. Those of the largest programs have some 10 MB.
    const MAX_BYTES: usize = 64 << 20;
    /// Maximum memory for decompression, in KiB.
    const MAX_DECODER_KIB: u32 = 64 << 10;

    /// Returns the file that is compressed in this one. Returns `None` if it is missing, malformed
    /// or too large, or if `has_memory` finds that memory is lacking.
    pub(in crate::symbols) fn mini_debug_info(
        file: &[u8],
        has_memory: impl FnOnce(usize) -> bool,
    ) -> Option<Vec<u8>> {
        let object = ObjectFile::parse(file).ok()?;
        let section = object.section_by_name(SECTION)?;
        let compressed = section.data().ok()?;
        let needed = MAX_BYTES + (MAX_DECODER_KIB as usize) * 1024;
        if !has_memory(needed) {
            return None;
        }
        let reader = XzReader::new_mem_limit(compressed, false, MAX_DECODER_KIB);
        let mut bytes = Vec::new();
        let read = reader.take(MAX_BYTES as u64).read_to_end(&mut bytes).ok()?;
        (read < MAX_BYTES).then_some(bytes)
    }
}

#[cfg(feature = "mini_debug_info")]
pub(super) use decompression::mini_debug_info;

/// Returns no file: the feature `mini_debug_info` is off.
#[cfg(not(feature = "mini_debug_info"))]
pub(super) fn mini_debug_info(
    _file: &[u8],
    _has_memory: impl FnOnce(usize) -> bool,
) -> Option<Vec<u8>> {
    None
}
