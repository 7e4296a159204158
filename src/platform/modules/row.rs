//! A module as a callback of the loader records it: in a fixed size, because it must not allocate.
//!
//! **Contract**: as in `mod.rs`: *loader's lock*, *stays*.

use std::ops::Range;
use std::path::PathBuf;

use once_cell::race::OnceBox;

use crate::platform::modules::headers::{DynamicLocation, UnwindLocation};
use crate::platform::modules::image::{MAX_BUILD_ID, ModuleImage, UnwindSource};
use crate::platform::modules::loader::{LoaderEntry, ModuleChanges, mapped};
use crate::platform::private_file::{read_exe_path, to_path_bytes};
use crate::platform::procfs::mapped_file_at;
use crate::platform::shared_file::read_bytes;

const PAGE: u64 = 4096;
pub(super) const MAX_NAME: usize = 512;
/// Maximum length of a library's own name; a longer one is treated as absent.
pub(super) const MAX_SONAME: usize = 128;

/// A module as recorded by a callback, in a fixed size.
#[derive(Clone)]
pub(super) struct Row {
    pub(super) name: [u8; MAX_NAME],
    pub(super) name_bytes: usize,
    pub(super) bias: u64,
    pub(super) range: Range<u64>,
    pub(super) build_id: [u8; MAX_BUILD_ID],
    pub(super) build_id_bytes: usize,
    pub(super) soname: [u8; MAX_SONAME],
    pub(super) soname_bytes: usize,
    pub(super) dynamic: DynamicLocation,
    pub(super) unwind: Option<UnwindLocation>,
    pub(super) stays: bool,
}

impl Row {
    /// Returns whether the loader finds this module by a needed library's name.
    pub(super) fn has_name(&self, needed: &[u8]) -> bool {
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
