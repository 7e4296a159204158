//! The loader knows a library by a relative name, and the application has changed its folder since.

use std::path::Path;

use crate::common::isolated;
use crate::common::{Read, wait_until};
use crate::unwinding::accuracy::c_code;
use gekkota::{ProfilerSession, StartParams};

const SOURCE: &str = "
__attribute__((noinline)) unsigned long works_in_plugin(unsigned long rounds) {
    volatile unsigned long value = rounds;
    while (rounds-- > 0) value = value * 31 + rounds;
    return value;
}
unsigned long enter_work(unsigned long rounds) { return works_in_plugin(rounds) + 1; }
";
const THREAD: &str = "works in a plugin";

#[test]
fn library_with_a_relative_path_has_names_after_a_change_of_folder() {
    isolated(|| {
        let folder = c_code::Folder::new();
        let path = c_code::compile(&folder, "plugin", SOURCE, &["-O1"]);
        std::env::set_current_dir(folder.path()).expect("the library's folder");
        let relative = Path::new(".").join(path.file_name().expect("a name"));
        let library = c_code::Library::load(&relative);
        std::env::set_current_dir("/").expect("another folder");
        let enter_work = library.function("enter_work");
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        gekkota::register_thread(THREAD);
        wait_until("there are samples with the function's name", || {
            (0..10).for_each(|_| assert!(enter_work(1_000_000) > 0));
            let text = gekkota::profiler_get_profile().expect("a session runs");
            let samples = Read::from_text(&text).samples(THREAD);
            let mut frames = samples.iter().flat_map(|sample| &sample.stack);
            frames.any(|frame| frame.starts_with("works_in_plugin (in libplugin.so)"))
        });
        drop(session);
        library.close();
    });
}
