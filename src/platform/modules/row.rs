//! A module as a callback of the loader records it: in a fixed size, because it must not allocate.
//! And the libraries that the executable needs, which are never unloaded.
//!
//! These are found as the loader finds them: by the names in the `DT_NEEDED` entries of the
//! executable, and of the libraries found so far. The loader lists the modules in load order, and
//! loads the needed ones before the program begins. So the first module with a needed name is the
//! one that was loaded for it.
//!
//! **Contract**: as in `mod.rs`: *loader's lock*, *stays*.

use std::ops::Range;
use std::path::PathBuf;

use once_cell::race::OnceBox;

use crate::platform::modules::headers::{
    DT_NEEDED, DynamicLocation, UnwindLocation, dynamic_entries, string_at,
};
use crate::platform::modules::image::{MAX_BUILD_ID, ModuleImage, UnwindSource};
use crate::platform::modules::loader::{LoaderEntry, ModuleChanges, mapped};
use crate::platform::procfs::mapped_file_at;
use crate::platform::shared_file::{read_bytes, read_exe_path, to_path_bytes};

const PAGE: u64 = 4096;
const MAX_NAME: usize = 512;
/// Maximum length of a library's own name; a longer one is treated as absent.
const MAX_SONAME: usize = 128;

/// A module as recorded by a callback, in a fixed size.
#[derive(Clone)]
pub(super) struct Row {
    name: [u8; MAX_NAME],
    name_bytes: usize,
    bias: u64,
    range: Range<u64>,
    build_id: [u8; MAX_BUILD_ID],
    build_id_bytes: usize,
    soname: [u8; MAX_SONAME],
    soname_bytes: usize,
    dynamic: DynamicLocation,
    unwind: Option<UnwindLocation>,
    stays: bool,
}

impl Row {
    /// Returns whether the loader finds this module by a needed library's name.
    fn has_name(&self, needed: &[u8]) -> bool {
        self.soname[..self.soname_bytes] == *needed
            || file_name(&self.name[..self.name_bytes]) == file_name(needed)
    }

    pub(super) fn to_image(
        &self,
        seen: ModuleChanges,
        is_executable: bool,
        loaded_after: u64,
    ) -> ModuleImage {
        let name = &self.name[..self.name_bytes];
        let path = match name {
            _ if is_executable => read_exe_path(),
            name if is_vdso(name) => PathBuf::from("[vdso]"),
            name => absolute_path(name, self.range.start),
        };
        let memory = is_vdso(name).then(|| {
            let end = self.range.end.next_multiple_of(PAGE);
            // SAFETY: *stays*: the kernel maps whole pages.
            unsafe { mapped(self.range.start..end) }
        });
        ModuleImage {
            path,
            bias: self.bias,
            range: self.range.clone(),
            build_id: self.build_id[..self.build_id_bytes].to_vec(),
            is_executable,
            stays: self.stays,
            loaded_after,
            unwind: UnwindSource {
                location: self.unwind.clone(),
                seen,
                sections: OnceBox::new(),
            },
            memory,
        }
    }
}

// Not in `loader.rs`, which this file imports: the result is a type of this file.
impl LoaderEntry<'_> {
    pub(super) fn to_row(&self, is_executable: bool) -> Row {
        let mut row = Row {
            name: [0; MAX_NAME],
            name_bytes: self.name.len().min(MAX_NAME),
            bias: self.info.dlpi_addr,
            range: self.loaded_range(),
            build_id: [0; MAX_BUILD_ID],
            build_id_bytes: 0,
            soname: [0; MAX_SONAME],
            soname_bytes: 0,
            dynamic: DynamicLocation::default(),
            unwind: self.unwind_location(),
            stays: is_executable || is_vdso(self.name),
        };
        row.name[..row.name_bytes].copy_from_slice(&self.name[..row.name_bytes]);
        if let Some(id) = self.build_id() {
            row.build_id_bytes = id.len().min(MAX_BUILD_ID);
            row.build_id[..row.build_id_bytes].copy_from_slice(&id[..row.build_id_bytes]);
        }
        if let Some((dynamic, soname)) = self.dynamic() {
            row.dynamic = dynamic;
            if let Some(name) = soname.filter(|name| name.len() <= MAX_SONAME) {
                row.soname_bytes = name.len();
                row.soname[..name.len()].copy_from_slice(name);
            }
        }
        row
    }
}

/// Returns the path of a module that the loader knows by `name` and has loaded at `address`. The
/// kernel knows where a relative name led to when the module was loaded; the application may have
/// changed its folder since. Cost for a relative name: some ten µs.
fn absolute_path(name: &[u8], address: u64) -> PathBuf {
    let given = to_path_bytes(name);
    if given.is_absolute() {
        return given;
    }
    mapped_file_at(&read_bytes("/proc/thread-self/maps"), address).map_or(given, to_path_bytes)
}

fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

fn is_vdso(name: &[u8]) -> bool {
    name.starts_with(b"linux-vdso") || name.starts_with(b"linux-gate")
}

/// Marks the libraries that the executable needs, directly or through others, as staying.
pub(super) fn mark_needed(rows: &mut [Row]) {
    let mut unread: Vec<usize> = (0..rows.len().min(1)).collect();
    while let Some(index) = unread.pop() {
        let DynamicLocation { section, strings } = rows[index].dynamic.clone();
        // SAFETY: *stays*: this module stays, and both ranges lie in its loaded segments.
        let (section, strings) = unsafe { (mapped(section), mapped(strings)) };
        for (tag, offset) in dynamic_entries(section) {
            let needed = match tag {
                DT_NEEDED => string_at(strings, offset).filter(|name| !name.is_empty()),
                _ => None,
            };
            let found = needed.and_then(|name| rows.iter().position(|row| row.has_name(name)));
            if let Some(found) = found.filter(|&found| !rows[found].stays) {
                rows[found].stays = true;
                unread.push(found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tag of a dynamic section's end.
    const DT_NULL: u64 = 0;

    #[test]
    fn needed_libraries_are_marked_through_others() {
        // The dynamic sections and strings of the rows, in memory that stays.
        let row = |name: &str, soname: &str, needed: &[&str]| {
            let mut strings = vec![0u8];
            let mut section: Vec<u64> = Vec::new();
            for name in needed {
                section.extend([DT_NEEDED, strings.len() as u64]);
                strings.extend(name.bytes().chain([0]));
            }
            section.extend([DT_NULL, 0, DT_NEEDED, 1]);
            let range = |start: *const u8, bytes: usize| start as u64..start as u64 + bytes as u64;
            let (section, strings) = (section.leak(), strings.leak());
            let mut row = Row {
                name: [0; MAX_NAME],
                name_bytes: name.len(),
                bias: 0,
                range: 0..0,
                build_id: [0; MAX_BUILD_ID],
                build_id_bytes: 0,
                soname: [0; MAX_SONAME],
                soname_bytes: soname.len(),
                dynamic: DynamicLocation {
                    section: range(section.as_ptr().cast(), size_of_val(section)),
                    strings: range(strings.as_ptr(), strings.len()),
                },
                unwind: None,
                stays: name.is_empty(),
            };
            row.name[..name.len()].copy_from_slice(name.as_bytes());
            row.soname[..soname.len()].copy_from_slice(soname.as_bytes());
            row
        };
        let mut rows = [
            row("", "", &["libdirect.so.1", "$ORIGIN/libplaced.so", ""]),
            row(
                "/lib/libdirect.so.1.5",
                "libdirect.so.1",
                &["libindirect.so"],
            ),
            row(
                "/app/libplaced.so",
                "",
                &["libdirect.so.1", "libmissing.so"],
            ),
            row("/lib/libindirect.so", "libother.so", &["libindirect.so"]),
            row("/app/plugin.so", "", &["libofplugin.so"]),
            row("/app/libofplugin.so", "", &[]),
            row("/other/libdirect.so.1", "libdirect.so.1", &[]),
        ];
        mark_needed(&mut rows);
        assert_eq!(
            rows.map(|row| row.stays),
            [true, true, true, true, false, false, false]
        );
    }
}
