//! The libraries that the executable needs, which are never unloaded.
//!
//! They are found as the loader finds them: by the names in the `DT_NEEDED` entries of the
//! executable, and of the libraries found so far. The loader lists the modules in load order, and
//! loads the needed ones before the program begins. So the first module with a needed name is the
//! one that was loaded for it.
//!
//! **Contract**: as in `mod.rs`: *loader's lock*, *stays*.

use crate::platform::modules::headers::{DT_NEEDED, DynamicLocation, dynamic_entries, string_at};
use crate::platform::modules::loader::mapped;
use crate::platform::modules::row::Row;

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
    use crate::platform::modules::image::MAX_BUILD_ID;
    use crate::platform::modules::row::{MAX_NAME, MAX_SONAME};

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
