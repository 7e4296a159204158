//! Tells whether code belongs to the program itself.

use std::ops::ControlFlow;

use crate::platform::modules::loader::visit_modules;

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
    use super::*;

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
