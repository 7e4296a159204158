//! The modules loaded into this process, with their unwind sections and build ids.
//!
//! The loader calls back for each module while it holds its own lock. The callback neither
//! allocates nor calls the loader (tcmalloc #120, tracy #780). It writes rows of a fixed size to a
//! vector with enough capacity. Unwind sections are copied on first use, because most libraries of
//! a program never appear on a stack. The copy is made under the loader's lock, since the library
//! may be unloaded later. The executable and the vDSO are never unloaded, so their sections are
//! used in place.
//!
//! The libraries that the executable needs are never unloaded either. They are found as the loader
//! finds them: by the names in the `DT_NEEDED` entries of the executable, and of the libraries found
//! so far. The loader lists the modules in load order, and loads the needed ones before the program
//! begins. So the first module with a needed name is the one that was loaded for it.
//!
//! The application may call the profiler from its own callback of `dl_iterate_phdr`, and then holds
//! the loader's lock. So the threads that call the loader here never wait for each other. Only a
//! fork waits for them ([`LoaderCalls`]).
//!
//! **Contract of the callbacks** (cited below):
//! - *loader's lock*: while the loader calls back, the module that it passes stays mapped as its
//!   headers say;
//! - *stays*: the executable, the libraries that it needs, and the vDSO are never unmapped.

use std::ffi::CStr;
use std::ops::{ControlFlow, Deref, Range};
use std::path::PathBuf;
use std::sync::Arc;

use once_cell::race::OnceBox;

use crate::platform::loader_calls::{LoaderCalls, WatchedThread};
use crate::platform::private_file::{read_exe_path, to_path_bytes};
use crate::util::as_profiler_work;

/// The loader's counters of loaded and unloaded modules. While they are unchanged, so is the list
/// of modules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModuleChanges {
    loaded: u64,
    unloaded: u64,
}

impl ModuleChanges {
    /// Returns how many modules were loaded and unloaded since `before`.
    pub(crate) fn since(self, before: Self) -> (u64, u64) {
        (
            self.loaded.wrapping_sub(before.loaded),
            self.unloaded.wrapping_sub(before.unloaded),
        )
    }
}

/// The bytes of a section: in place if they stay mapped, copied if they may be unmapped.
#[derive(Clone, Debug)]
pub(crate) enum SectionBytes {
    Mapped(&'static [u8]),
    Copied(Arc<Vec<u8>>, Range<usize>),
}

impl Default for SectionBytes {
    fn default() -> Self {
        Self::Mapped(&[])
    }
}

impl Deref for SectionBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(bytes) => bytes,
            Self::Copied(bytes, range) => &bytes[range.clone()],
        }
    }
}

/// The unwind sections of a module and their mapped addresses.
#[derive(Clone, Debug)]
pub(crate) struct UnwindSections {
    pub(crate) eh_frame_hdr: SectionBytes,
    pub(crate) eh_frame_hdr_address: u64,
    pub(crate) eh_frame: SectionBytes,
    pub(crate) eh_frame_address: u64,
}

/// A loaded module.
#[derive(Clone, Debug)]
pub(crate) struct ModuleImage {
    pub(crate) path: PathBuf,
    /// Load bias: an address in memory minus the virtual address that the ELF file gives for it.
    pub(crate) bias: u64,
    /// Addresses from the first loaded byte to the last.
    pub(crate) range: Range<u64>,
    pub(crate) build_id: Vec<u8>,
    pub(crate) is_executable: bool,
    /// Whether the module is loaded from the program's begin to its end: true for the executable,
    /// the libraries that it needs, and the vDSO.
    pub(crate) stays: bool,
    /// Number of modules loaded after this one.
    pub(crate) loaded_after: u64,
    unwind: UnwindSource,
    /// The complete image of a module without a file: the vDSO.
    pub(crate) memory: Option<&'static [u8]>,
}

/// Location of a module's unwind sections, and the sections once they were requested.
#[derive(Clone, Debug, Default)]
struct UnwindSource {
    /// `None` if the module has no unwind sections.
    location: Option<UnwindLocation>,
    /// The loader's counters at the time when the module was listed.
    seen: ModuleChanges,
    sections: OnceBox<UnwindSections>,
}

const PAGE: u64 = 4096;
const MAX_NAME: usize = 512;
const MAX_BUILD_ID: usize = 64;
/// Maximum length of a library's own name; a longer one is treated as absent.
const MAX_SONAME: usize = 128;

/// A module as recorded by a callback, in a fixed size.
#[derive(Clone)]
struct Row {
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

/// Addresses of a module's dynamic section and of the strings that it refers to. Both are empty if
/// the module has none.
#[derive(Clone, Debug, Default)]
struct DynamicLocation {
    section: Range<u64>,
    strings: Range<u64>,
}

/// Addresses of the two unwind sections. Both lie in `region`.
#[derive(Clone, Debug, PartialEq)]
struct UnwindLocation {
    region: Range<u64>,
    eh_frame_hdr: u64,
    eh_frame_hdr_end: u64,
    eh_frame: u64,
}

/// A module as the loader passes it to a callback.
struct LoaderEntry<'a> {
    info: &'a libc::dl_phdr_info,
    headers: &'a [libc::Elf64_Phdr],
    name: &'a [u8],
}

static CALLS: LoaderCalls = LoaderCalls::new();

/// Waits until no other thread is in a call that this file makes to the loader, and delays further
/// calls until the guard is dropped. Otherwise the loader's own lock could stay locked in the child
/// of a fork for ever.
pub(crate) fn hold_loader_for_fork() -> LoaderForkGuard {
    CALLS.close_for_fork();
    LoaderForkGuard(())
}

/// Prepares to watch whether a thread of the profiler waits for the loader.
pub(crate) fn watch_loader_calls() -> WatchedThread<'static> {
    CALLS.watch()
}

/// Allows calls to the loader when dropped.
#[derive(Debug)]
pub(crate) struct LoaderForkGuard(());

impl LoaderForkGuard {
    /// Forgets the calls of the parent's other threads, and allows calls. Called in the child of a
    /// fork.
    pub(crate) fn reset_in_child(self) {
        CALLS.reset();
    }
}

impl Drop for LoaderForkGuard {
    fn drop(&mut self) {
        CALLS.open();
    }
}

/// Calls `visit` for each module, the executable first, until it returns `Break`. `visit` must not
/// allocate, free memory, or call the loader.
fn visit_modules(visit: &mut dyn FnMut(&LoaderEntry<'_>) -> ControlFlow<()>) {
    type Visit<'a> = &'a mut dyn FnMut(&LoaderEntry<'_>) -> ControlFlow<()>;
    /// # Safety
    /// - The caller is the loader, which passes a `dl_phdr_info` and the `data` pointer of
    ///   `dl_iterate_phdr`.
    unsafe extern "C" fn callback(
        info: *mut libc::dl_phdr_info,
        _: usize,
        data: *mut libc::c_void,
    ) -> libc::c_int {
        // SAFETY: `data` is the pointer to `visit` passed below, which lives until
        // `dl_iterate_phdr` returns.
        let visit = unsafe { &mut *data.cast::<Visit<'_>>() };
        // SAFETY: *loader's lock*: the loader passes a filled-in `dl_phdr_info`, whose headers are
        // mapped and whose name is a C string.
        let entry = unsafe {
            let info = &*info;
            let headers = match info.dlpi_phdr.is_null() {
                true => &[],
                false => std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()),
            };
            let name = match info.dlpi_name.is_null() {
                true => &[],
                false => CStr::from_ptr(info.dlpi_name).to_bytes(),
            };
            LoaderEntry {
                info,
                headers,
                name,
            }
        };
        visit(&entry).is_break().into()
    }
    as_profiler_work(|| {
        let call = CALLS.begin();
        let mut with_lock = None;
        let mut visit: Visit<'_> = &mut |entry: &LoaderEntry<'_>| {
            with_lock.get_or_insert_with(|| call.got_lock());
            visit(entry)
        };
        // SAFETY: the callback has the signature that the loader expects, and its pointer outlives
        // the call.
        unsafe { libc::dl_iterate_phdr(Some(callback), (&raw mut visit).cast()) };
    });
}

/// Reads the loader's counters. Takes the loader's lock briefly.
pub(crate) fn module_changes() -> ModuleChanges {
    let mut changes = ModuleChanges::default();
    visit_modules(&mut |entry| {
        changes = entry.changes();
        ControlFlow::Break(())
    });
    changes
}

/// Returns all modules sorted by address, and the loader's counters at that time. Allocates. Cost:
/// some hundred µs.
pub(crate) fn list_modules() -> (ModuleChanges, Vec<ModuleImage>) {
    let (changes, rows) = collect_rows();
    let mut images: Vec<ModuleImage> = rows
        .iter()
        .enumerate()
        .map(|(index, row)| row.to_image(changes, index == 0, (rows.len() - 1 - index) as u64))
        .filter(|image| !image.range.is_empty())
        .collect();
    images.sort_by_key(|image| image.range.start);
    (changes, images)
}

/// Records all modules. Retries with more capacity if modules were loaded since they were counted.
fn collect_rows() -> (ModuleChanges, Vec<Row>) {
    let mut count = 0;
    visit_modules(&mut |_| {
        count += 1;
        ControlFlow::Continue(())
    });
    loop {
        let mut rows: Vec<Row> = Vec::with_capacity(count + 8);
        let mut changes = ModuleChanges::default();
        let mut seen = 0;
        visit_modules(&mut |entry| {
            seen += 1;
            changes = entry.changes();
            // A push within the capacity does not allocate.
            if rows.len() < rows.capacity() {
                rows.push(entry.to_row(rows.is_empty()));
            }
            ControlFlow::Continue(())
        });
        if seen == rows.len() {
            mark_needed(&mut rows);
            return (changes, rows);
        }
        count = seen;
    }
}

/// Marks the libraries that the executable needs, directly or through others, as staying.
fn mark_needed(rows: &mut [Row]) {
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

/// Tags of a dynamic section's entries: its end, the name of a needed library, the address and the
/// size of the strings, and the module's own name.
const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_STRSZ: u64 = 10;
const DT_SONAME: u64 = 14;

/// Returns the entries of a dynamic section, each with its tag and its value.
fn dynamic_entries(section: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
    section
        .chunks_exact(16)
        .map(move |entry| (word(&entry[..8]), word(&entry[8..])))
        .take_while(|(tag, _)| *tag != DT_NULL)
}

/// Returns the terminated string at an offset.
fn string_at(strings: &[u8], offset: u64) -> Option<&[u8]> {
    let rest = strings.get(usize::try_from(offset).ok()?..)?;
    let end = rest.iter().position(|&byte| byte == 0)?;
    Some(&rest[..end])
}

fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

impl ModuleImage {
    /// Returns the module's unwind sections. The first call copies them under the loader's lock,
    /// and allocates. Returns `None` if the module has none, or if it was unloaded before the first
    /// call.
    pub(crate) fn unwind_sections(&self) -> Option<&UnwindSections> {
        let UnwindSource {
            location, sections, ..
        } = &self.unwind;
        if let Some(known) = sections.get() {
            return Some(known);
        }
        let location = location.as_ref()?;
        let copy = if self.is_executable || self.memory.is_some() {
            None
        } else {
            Some(self.copy_unwind_region(location)?)
        };
        Some(sections.get_or_init(|| Box::new(location.sections(copy))))
    }

    /// Returns a copy of this module without unwind sections.
    pub(crate) fn without_unwind_sections(&self) -> Self {
        Self {
            unwind: UnwindSource::default(),
            ..self.clone()
        }
    }

    /// Copies the region with the unwind sections. Returns `None` if the module is no longer loaded
    /// at this address.
    fn copy_unwind_region(&self, location: &UnwindLocation) -> Option<Vec<u8>> {
        let mut copy = Vec::with_capacity((location.region.end - location.region.start) as usize);
        visit_modules(&mut |entry| {
            if entry.info.dlpi_addr != self.bias
                || entry.unwind_location().as_ref() != Some(location)
            {
                return ControlFlow::Continue(());
            }
            let build_id = entry.build_id().unwrap_or_default();
            let is_same = match self.build_id.is_empty() {
                true => entry.changes() == self.unwind.seen,
                false => build_id[..build_id.len().min(MAX_BUILD_ID)] == self.build_id[..],
            };
            if is_same {
                // SAFETY: *loader's lock*: the region lies in a loaded segment of this module.
                // The vector has the capacity, so this does not allocate.
                copy.extend_from_slice(unsafe { mapped(location.region.clone()) });
            }
            ControlFlow::Break(())
        });
        (!copy.is_empty()).then_some(copy)
    }
}

/// Returns the bytes of a mapped range.
///
/// # Safety
/// - The range is mapped and readable, and stays mapped and unchanged while the slice lives.
unsafe fn mapped<'a>(range: Range<u64>) -> &'a [u8] {
    // SAFETY: by this function's contract.
    unsafe {
        std::slice::from_raw_parts(range.start as *const u8, (range.end - range.start) as usize)
    }
}

impl UnwindLocation {
    /// Returns the sections: within `copy`, a copy of the region, or in place if it is `None`. Only
    /// the sections of a module that stays mapped may be used in place.
    fn sections(&self, copy: Option<Vec<u8>>) -> UnwindSections {
        let (header, frames) = (
            self.eh_frame_hdr..self.eh_frame_hdr_end,
            self.eh_frame..self.region.end,
        );
        let (eh_frame_hdr, eh_frame) = if let Some(copy) = copy {
            let bytes = Arc::new(copy);
            let within = |range: Range<u64>| {
                let offset = |address: u64| (address - self.region.start) as usize;
                SectionBytes::Copied(Arc::clone(&bytes), offset(range.start)..offset(range.end))
            };
            (within(header), within(frames))
        } else {
            // SAFETY: *stays*: both ranges lie in a loaded segment.
            unsafe {
                (
                    SectionBytes::Mapped(mapped(header)),
                    SectionBytes::Mapped(mapped(frames)),
                )
            }
        };
        UnwindSections {
            eh_frame_hdr,
            eh_frame_hdr_address: self.eh_frame_hdr,
            eh_frame,
            eh_frame_address: self.eh_frame,
        }
    }
}

impl Row {
    /// Returns whether the loader finds this module by a needed library's name.
    fn has_name(&self, needed: &[u8]) -> bool {
        self.soname[..self.soname_bytes] == *needed
            || file_name(&self.name[..self.name_bytes]) == file_name(needed)
    }

    fn to_image(&self, seen: ModuleChanges, is_executable: bool, loaded_after: u64) -> ModuleImage {
        let name = &self.name[..self.name_bytes];
        let path = match name {
            _ if is_executable => read_exe_path(),
            name if is_vdso(name) => PathBuf::from("[vdso]"),
            name => to_path_bytes(name),
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

fn is_vdso(name: &[u8]) -> bool {
    name.starts_with(b"linux-vdso") || name.starts_with(b"linux-gate")
}

impl LoaderEntry<'_> {
    fn changes(&self) -> ModuleChanges {
        ModuleChanges {
            loaded: self.info.dlpi_adds,
            unloaded: self.info.dlpi_subs,
        }
    }

    fn loaded_segments(&self) -> impl Iterator<Item = Range<u64>> {
        let bias = self.info.dlpi_addr;
        self.headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD)
            .map(move |header| {
                let start = bias.wrapping_add(header.p_vaddr);
                start..start.saturating_add(header.p_memsz)
            })
    }

    fn loaded_range(&self) -> Range<u64> {
        let segments = || self.loaded_segments();
        let start = segments()
            .map(|segment| segment.start)
            .min()
            .unwrap_or_default();
        start
            ..segments()
                .map(|segment| segment.end)
                .max()
                .unwrap_or_default()
    }

    fn to_row(&self, is_executable: bool) -> Row {
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

    /// Returns the location of the dynamic section, and the module's own name if it has one.
    fn dynamic(&self) -> Option<(DynamicLocation, Option<&[u8]>)> {
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

    fn build_id(&self) -> Option<&[u8]> {
        self.headers
            .iter()
            .filter(|header| header.p_type == libc::PT_NOTE)
            .find_map(|header| gnu_build_id(self.header_bytes(header)?))
    }

    /// Locates the unwind sections by the start of `.eh_frame_hdr`: version 1, then the encoding of
    /// the pointer to `.eh_frame`. Every common linker encodes it as a 32-bit distance from the
    /// pointer itself.
    fn unwind_location(&self) -> Option<UnwindLocation> {
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
fn gnu_build_id(mut notes: &[u8]) -> Option<&[u8]> {
    const BUILD_ID: u32 = 3;
    while notes.len() >= 12 {
        let word = |index: usize| {
            u32::from_le_bytes(notes[index * 4..][..4].try_into().unwrap_or_default())
        };
        let (name_bytes, desc_bytes, kind) = (word(0) as usize, word(1) as usize, word(2));
        let desc = 12usize
            .checked_add(name_bytes)?
            .checked_next_multiple_of(4)?;
        let end = desc.checked_add(desc_bytes)?;
        if kind == BUILD_ID && notes.get(12..12 + name_bytes)? == b"GNU\0" {
            return notes.get(desc..end);
        }
        notes = notes.get(end.checked_next_multiple_of(4)?..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::{TestFolder, TestLibrary};

    #[test]
    fn list_modules_contains_the_program_and_the_c_library() {
        // No other test loads libraries meanwhile.
        let _alone = TestFolder::new("no-libraries");
        let (changes, modules) = list_modules();
        assert_eq!(changes, module_changes());
        assert!(
            modules
                .windows(2)
                .all(|pair| pair[0].range.end <= pair[1].range.start),
            "sorted, without overlaps"
        );
        let own = list_modules_contains_the_program_and_the_c_library as fn() as usize as u64;
        let program = modules
            .iter()
            .find(|module| module.range.contains(&own))
            .expect("this program");
        assert_eq!(program.path, std::env::current_exe().expect("path"));
        assert!(!program.build_id.is_empty());
        let unwind = program.unwind_sections().expect("unwind sections");
        assert!(matches!(unwind.eh_frame, SectionBytes::Mapped(_)));
        let getpid = libc::getpid as unsafe extern "C" fn() -> i32 as usize as u64;
        let libc = modules
            .iter()
            .find(|module| module.range.contains(&getpid))
            .expect("the C library");
        assert!(
            libc.unwind.sections.get().is_none(),
            "the sections were not requested"
        );
        assert!(libc.stays, "the program needs the C library");
        let unwind = libc.unwind_sections().expect("unwind sections");
        assert!(matches!(unwind.eh_frame, SectionBytes::Copied(..)));
        let is_known = |module: &ModuleImage| module.unwind_sections().is_some();
        assert!(
            modules
                .iter()
                .any(|module| module.path.as_os_str() == "[vdso]" && is_known(module))
        );
    }

    #[test]
    fn library_loaded_later_does_not_stay_and_its_sections_are_copied() {
        let folder = TestFolder::new("modules");
        let id = &["-Wl,--build-id"];
        // The name of a library that the program needs, in its file and for the loader.
        let path = folder.compile("c", "function", &[id[0], "-Wl,-soname,libc.so.6"]);
        let library = TestLibrary::load(&path);
        let address = library.address();
        let (_, modules) = list_modules();
        let module = modules
            .iter()
            .find(|module| module.range.contains(&address))
            .expect("the library");
        assert_eq!(module.path, path);
        assert!(!module.stays);
        let unwind = module.unwind_sections().expect("unwind sections");
        assert!(matches!(unwind.eh_frame, SectionBytes::Copied(..)));
        // A different file at the same address is detected by its build id.
        let mut other = module.without_unwind_sections();
        other.unwind = UnwindSource {
            sections: OnceBox::new(),
            ..module.unwind.clone()
        };
        other.build_id[0] ^= 1;
        assert!(other.unwind_sections().is_none());
        library.close();
    }

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
