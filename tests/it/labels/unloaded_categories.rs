//! A category whose definition was unloaded together with its library is in the profile, and has
//! the same number when the library is loaded again.

use std::ffi::{CStr, c_char};
use std::path::Path;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::common::{Read, isolated};
use crate::unwinding::accuracy::c_code;
use gekkota::__private::CategoryDefinition;
use gekkota::category::HostCategory;
use gekkota::{
    MarkerOptions, ProfilerSession, ProfilingCategoryPair, StartParams, add_untyped_marker,
};
use serde_json::json;

/// A library with the texts of a category, and with memory for its definition.
const SOURCE: &str = r#"
const char label[] = "Plugin";
const char color[] = "green";
const char subcategory[] = "Loading";
unsigned long definition[512] = {1};
"#;

static DEFINITION: AtomicPtr<CategoryDefinition> = AtomicPtr::new(std::ptr::null_mut());

/// Returns a text of the library.
///
/// # Safety
/// - The library stays loaded while the text is used.
unsafe fn text(library: &c_code::Library, name: &str) -> &'static str {
    // SAFETY: the source defines a terminated text of this name.
    let text = unsafe { CStr::from_ptr(library.address(name).cast::<c_char>()) };
    text.to_str().expect("UTF-8")
}

/// Uses the category of the library while it is loaded.
fn use_once(path: &Path) {
    let library = c_code::Library::load(path);
    let place = library.address("definition");
    // SAFETY: the memory is aligned and large enough for both values, and nothing else uses it. The
    // library is unloaded after the last use of the definition by this test.
    let definition = unsafe {
        let subcategories = place.cast::<[&'static str; 1]>();
        subcategories.write([text(&library, "subcategory")]);
        let definition = place.byte_add(64).cast::<CategoryDefinition>();
        definition.write(CategoryDefinition::new(
            text(&library, "label"),
            text(&library, "color"),
            &*subcategories,
        ));
        definition
    };
    DEFINITION.store(definition, Ordering::Release);
    let category = HostCategory::new(
        // SAFETY: as above.
        || unsafe { &*DEFINITION.load(Ordering::Acquire) },
        0,
    );
    add_untyped_marker(
        "of the plugin",
        ProfilingCategoryPair::Host(category),
        MarkerOptions::default(),
    );
    library.close();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    assert!(
        !maps.contains("libplugin.so"),
        "the library is still loaded"
    );
}

#[test]
fn category_of_an_unloaded_library_is_in_the_profile_once() {
    isolated(|| {
        let folder = c_code::Folder::new();
        let path = c_code::compile(&folder, "plugin", SOURCE, &[]);
        gekkota::register_thread("host");
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        use_once(&path);
        use_once(&path);
        let read = Read::from_profile(&session.finish().expect("profile"));
        let plugin = json!({"name": "Plugin", "color": "green", "subcategories": ["Loading"]});
        let categories = read.0["meta"]["categories"].as_array().expect("a list");
        let equal = categories.iter().filter(|&category| *category == plugin);
        assert_eq!(equal.count(), 1, "{categories:?}");
        let markers = read.markers("host");
        let of_plugin: Vec<_> = markers
            .iter()
            .filter(|marker| marker.0 == "of the plugin")
            .map(|marker| &categories[marker.4 as usize])
            .collect();
        assert_eq!(of_plugin, [&plugin, &plugin]);
    });
}
