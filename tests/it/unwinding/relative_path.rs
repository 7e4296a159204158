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
        wait_until("the work is sampled", || {
            assert!(enter_work(1_000_000) > 0);
            Read::of_running().count("captured_samples") > 20
        });
        let read = Read::from_profile(&session.finish().expect("profile"));
        let samples = read.samples(THREAD);
        let mut frames = samples.iter().flat_map(|sample| &sample.stack);
        assert!(
            frames.any(|frame| frame.starts_with("works_in_plugin (in libplugin.so)")),
            "{:?}",
            samples.last()
        );
        library.close();
    });
}
