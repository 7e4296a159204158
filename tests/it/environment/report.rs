//! The report in a terminal, and in a pipe.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsRawFd, FromRawFd};
use std::process::{Command, Stdio};

use a_module_with_a_long_name::another_module_with_a_long_name as inner;

use crate::common::{isolated, sampled};

const ROLE: &str = "GEKKOTA_TEST_ROLE";

mod a_module_with_a_long_name {
    pub(super) mod another_module_with_a_long_name {
        #[inline(never)]
        pub(in super::super) fn function_whose_name_does_not_fit_into_a_narrow_terminal() {
            crate::common::sampled::work_until_sampled(30);
            std::hint::black_box(());
        }
    }
}

const LONG_NAME: &str = "a_module_with_a_long_name::another_module_with_a_long_name::\
                         function_whose_name_does_not_fit_into_a_narrow_terminal";

#[test]
#[ignore = "runs only as a child of another test"]
fn role_of_the_reporting_child() {
    if std::env::var(ROLE).is_ok_and(|role| role == "report") {
        sampled::start_counter();
        let work = || {
            let _profiler = gekkota::AutoProfilerInit::new();
            gekkota::register_thread("reporter");
            gekkota::auto_profiler_label!("reported work", Other);
            inner::function_whose_name_does_not_fit_into_a_narrow_terminal();
            // The profiler's own work for a profile is not part of the reported work.
            gekkota::profiler_pause();
            let text = gekkota::profiler_get_profile().expect("it runs");
            let profile = gekkota::Profile::read_from(&text[..]).expect("a profile");
            println!("{}end of the summary", profile.summary());
        };
        std::thread::spawn(work).join().expect("no panic");
    }
}

fn command(variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("path"));
    command.args([
        "environment::report::role_of_the",
        "--test-threads=1",
        "--include-ignored",
        "--nocapture",
    ]);
    for unset in ["NO_COLOR", "COLUMNS"] {
        command.env_remove(unset);
    }
    command
        .env(ROLE, "report")
        .env("TERM", "xterm")
        .env("MOZ_PROFILER_STARTUP", "1")
        // The threads of the test binary would make the text longer.
        .env(
            "MOZ_PROFILER_STARTUP_FEATURES",
            "default,nounregisteredsampling",
        )
        .env("MOZ_PROFILER_REPORT", "1")
        .envs(variables.iter().copied());
    command
}

/// Returns what the child writes to a terminal with 80 columns, where standard output and standard
/// error are.
fn in_terminal(variables: &[(&str, &str)]) -> String {
    let size = libc::winsize {
        ws_row: 50,
        ws_col: 80,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let (mut own, mut childs) = (-1, -1);
    // SAFETY: the pointers are to values that outlive the call, or null where that is allowed.
    let opened = unsafe {
        libc::openpty(
            &raw mut own,
            &raw mut childs,
            std::ptr::null_mut(),
            std::ptr::null(),
            &raw const size,
        )
    };
    assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: both descriptors are open, and belong to nothing else.
    let (mut own, childs) = unsafe { (File::from_raw_fd(own), File::from_raw_fd(childs)) };
    assert!(own.as_raw_fd() >= 0);
    let mut child = command(variables)
        .stdout(Stdio::from(childs.try_clone().expect("a descriptor")))
        .stderr(Stdio::from(childs))
        .spawn()
        .expect("the child");
    // Reading fails with EIO when the last descriptor of the terminal is closed.
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    while let Ok(count @ 1..) = own.read(&mut part) {
        bytes.extend_from_slice(&part[..count]);
    }
    assert!(child.wait().expect("its end").success());
    let text = String::from_utf8(bytes).expect("UTF-8");
    // The child initializes the profiler on another thread than its main one.
    let lines = text.replace("\r\n", "\n");
    let lines = lines
        .lines()
        .filter(|line| !line.contains("the main thread is not registered"));
    lines.map(|line| format!("{line}\n")).collect()
}

/// Returns the summary that the child printed to standard output, and the report that it printed to
/// standard error later.
fn parts(text: &str) -> [&str; 2] {
    let (summary, report) = text.split_once("end of the summary\n").expect("a summary");
    [summary, report].map(|part| {
        let start = part.find("profile").expect("a report");
        &part[part[..start].rfind('\n').map_or(0, |end| end + 1)..]
    })
}

fn without_colors(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, escape)) = rest.split_once('\u{1b}') {
        text.push_str(before);
        rest = escape.split_once('m').expect("a color").1;
    }
    text + rest
}

#[test]
fn report_in_a_terminal_has_its_width_and_colors() {
    isolated(|| {
        for (variables, width, has_colors) in [
            (&[][..], 80, true),
            (&[("NO_COLOR", "1"), ("COLUMNS", "110")], 110, false),
        ] {
            for part in parts(&in_terminal(variables)) {
                assert_eq!(part.contains('\u{1b}'), has_colors, "{part}");
                let report = part.split("\ntest ").next().expect("a part");
                for line in report.lines().map(without_colors) {
                    assert!(line.chars().count() <= width, "{line:?}");
                }
                assert!(!report.contains(LONG_NAME), "{report}");
                assert!(report.contains("narrow_terminal"), "{report}");
                assert_eq!(report.contains('█'), width > 100, "{report}");
            }
        }
    });
}

#[test]
fn report_in_a_pipe_is_plain_and_has_whole_names() {
    isolated(|| {
        let output = command(&[("COLUMNS", "40")]).output().expect("the child");
        assert!(output.status.success(), "{output:?}");
        let [summary, report] =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("UTF-8"));
        for text in [summary, report] {
            assert!(text.contains("# profile\n"), "{text}");
            assert!(!text.contains('\u{1b}') && !text.contains('█'), "{text}");
            assert!(text.contains(LONG_NAME), "{text}");
            for part in [
                "\ncost  ",
                "# threads\n",
                "off-cpu",
                "# functions by self time\n",
                "mostly in label",
                "reported work",
                "# labels by total time\n",
            ] {
                assert!(text.contains(part), "no {part} in {text}");
            }
        }
    });
}
