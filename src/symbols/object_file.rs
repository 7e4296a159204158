//! The files that names are read from: those of this process's modules.

use object::NativeEndian;
use object::read::elf::ElfFile64;

/// A file with symbols: one for this machine's processors, since the process runs its code. A reader
/// for all word sizes and byte orders would be slower, and twice as large.
pub(super) type ObjectFile<'a> = ElfFile64<'a, NativeEndian>;
