//! The list of all modules, and the question whether code belongs to the program itself.

use std::ops::ControlFlow;

use crate::platform::modules::image::ModuleImage;
use crate::platform::modules::loader::{ModuleChanges, visit_modules};
use crate::platform::modules::row::{Row, mark_needed};
use crate::util::{allocator_has, try_vec};

/// Memory for one module in the lists that a new list leads to, in bytes: its row, its image, a copy
/// of that in the history, their paths and build ids, and references to them.
const MODULE_BYTES: usize = size_of::<Row>() + 3 * size_of::<ModuleImage>() + 1024;

/// Returns all modules sorted by address, and the loader's counters at that time. Returns `None` if
/// there is not enough memory for the list and the caller's copies. Allocates. Cost: some hundred
/// µs.
pub(crate) fn list_modules() -> Option<(ModuleChanges, Vec<ModuleImage>)> {
    let (changes, rows) = collect_rows()?;
    let mut images = try_vec(rows.len())?;
    let listed = rows.iter().enumerate();
    images.extend(
        listed
            .map(|(index, row)| row.to_image(changes, index == 0, (rows.len() - 1 - index) as u64))
            .filter(|image| !image.range.is_empty()),
    );
    images.sort_unstable_by_key(|image| image.range.start);
    Some((changes, images))
}

/// Records all modules. Retries with more capacity if modules were loaded since they were counted.
/// Returns `None` if there is not enough memory.
fn collect_rows() -> Option<(ModuleChanges, Vec<Row>)> {
    let mut count: usize = 0;
    visit_modules(&mut |_| {
        count += 1;
        ControlFlow::Continue(())
    });
    loop {
        let capacity = count + 8;
        if !allocator_has(capacity.saturating_mul(MODULE_BYTES)) {
            return None;
        }
        let mut rows: Vec<Row> = try_vec(capacity)?;
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
            return Some((changes, rows));
        }
        count = seen;
    }
}

/// Returns whether an address lies in the executable, rather than in a library. Takes the loader's
/// lock briefly.
pub(crate) fn is_in_executable(address: usize) -> bool {
    let address = address as u64;
    let mut is_inside = false;
    // The loader lists the executable first.
    visit_modules(&mut |entry| {
        let mut segments = entry.loaded_segments();
        is_inside = segments.any(|segment| segment.contains(&address));
        ControlFlow::Break(())
    });
    is_inside
}

#[cfg(test)]
mod tests {
    use once_cell::race::OnceBox;

    use super::*;
    use crate::platform::modules::image::{SectionBytes, UnwindSource};
    use crate::platform::modules::loader::module_changes;
    use crate::platform::{TestFolder, TestLibrary};

    #[test]
    fn list_modules_contains_the_program_and_the_c_library() {
        // No other test loads libraries while this one runs.
        let _alone = TestFolder::new("no-libraries");
        let (changes, modules) = list_modules().expect("memory");
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
        let (_, modules) = list_modules().expect("memory");
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
    fn executable_contains_its_own_functions_but_not_the_libraries() {
        let own = executable_contains_its_own_functions_but_not_the_libraries as fn() as usize;
        assert!(is_in_executable(own));
        let local = 0u8;
        assert!(!is_in_executable((&raw const local).addr()));
        let mut starts = Vec::new();
        visit_modules(&mut |entry| {
            let mut headers = entry.headers.iter();
            let loaded = headers.find(|header| header.p_type == libc::PT_LOAD);
            starts.extend(loaded.map(|header| entry.info.dlpi_addr.wrapping_add(header.p_vaddr)));
            ControlFlow::Continue(())
        });
        assert!(is_in_executable(starts[0] as usize));
        let libraries = &starts[1..];
        assert!(cfg!(target_feature = "crt-static") || !libraries.is_empty());
        for &start in libraries {
            assert!(!is_in_executable(start as usize));
        }
    }
}
