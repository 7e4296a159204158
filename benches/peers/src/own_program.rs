//! The file of this program: where its code is, and how much debug information it has.
//!
//! **Contract** (cited below):
//! - *unchanged*: the system refuses all writes to the file of a running program.
#![allow(unsafe_code, reason = "a mapped file has no safe interface")]

use std::error::Error;
use std::fs::{File, read_to_string};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use object::{Object, ObjectSection};

/// What the file of this program contains.
pub(crate) struct OwnProgram {
    pub(crate) path: PathBuf,
    /// The functions, as addresses in the file.
    pub(crate) text: Range<u64>,
    /// Size of the sections with debug information.
    pub(crate) debug_bytes: u64,
}

impl OwnProgram {
    pub(crate) fn read() -> Result<Self, Box<dyn Error>> {
        let path = std::env::current_exe()?;
        let mapped = map(&path)?;
        let file = object::File::parse(&*mapped)?;
        let text = file
            .section_by_name(".text")
            .ok_or("this program has no section `.text`")?;
        let debug_sections = file.sections().filter(|section| {
            let name = section.name();
            name.is_ok_and(|name| name.starts_with(".debug_"))
        });
        Ok(Self {
            path,
            text: text.address()..text.address() + text.size(),
            debug_bytes: debug_sections.map(|section| section.size()).sum(),
        })
    }
}

/// Maps the file of this program.
pub(crate) fn map(program: &Path) -> io::Result<Mmap> {
    let file = File::open(program)?;
    // SAFETY: *unchanged*.
    unsafe { Mmap::map(&file) }
}

/// Returns the difference between an address of this program in memory and in its file.
///
/// The program is position-independent, as is the default: its file begins at address 0.
pub(crate) fn load_bias() -> Result<u64, Box<dyn Error>> {
    let path = std::env::current_exe()?;
    let path = path.to_str().ok_or("the program's path is not UTF-8")?;
    let maps = read_to_string("/proc/self/maps")?;
    let first = maps.lines().find(|line| line.ends_with(path));
    let start = first.and_then(|line| line.split('-').next());
    let start = start.ok_or("the program is not in its own memory map")?;
    Ok(u64::from_str_radix(start, 16)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn function_of_this_program_is_in_its_text() {
        let function = function_of_this_program_is_in_its_text as fn() as usize as u64;
        let program = OwnProgram::read().expect("an ELF file");
        let bias = load_bias().expect("a map");
        assert!(program.text.contains(&(function - bias)));
    }
}
