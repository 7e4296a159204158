//! Files that are cut or damaged give an error or a profile, and nothing worse.

use std::fs;

use gekkota::Profile;
use gekkota::profile::{Format, SnapshotOptions, Symbolicate};

use super::Folder;
use super::roles;

#[track_caller]
fn error_of(folder: &Folder, bytes: &[u8]) -> String {
    let path = folder.path("damaged");
    fs::write(&path, bytes).expect("written");
    let error = Profile::rescue(&path).expect_err("a damaged file");
    let text = error.to_string();
    let begin = format!("cannot rescue {}: got ", path.display());
    assert!(
        text.starts_with(&begin) && text.contains(", expected "),
        "{text}"
    );
    text
}

#[test]
fn cut_and_damaged_files_are_refused_or_read() {
    let folder = Folder::new("damage");
    let path = folder.path("file");
    let mut recording = roles::start(&mut roles::command("kill", 256 << 10, Some(&path)));
    recording.child.kill().expect("the child runs");
    recording.end();
    let whole = fs::read(&path).expect("the file");

    let missing = Profile::rescue(folder.path("missing")).expect_err("no file");
    assert!(
        missing.to_string().contains("expected a readable"),
        "{missing}"
    );
    assert!(error_of(&folder, b"").contains("got an empty file"));
    assert!(error_of(&folder, b"something else").contains("got another kind of file"));
    assert!(error_of(&folder, &whole[..whole.len() / 2]).contains("got a part of a crash file"));
    assert!(error_of(&folder, &whole[..100]).contains("got a part of a crash file"));
    let with_word = |word: usize, value: u64| {
        let mut bytes = whole.clone();
        bytes[word * 8..][..8].copy_from_slice(&value.to_le_bytes());
        bytes
    };
    assert!(error_of(&folder, &with_word(1, 77)).contains("got version 77, expected version"));
    for word in 2..5 {
        for value in [0, 1, 4096, u64::MAX] {
            let bytes = with_word(word, value);
            error_of(&folder, &bytes);
        }
    }
    // Without the facts of the session.
    let mut bytes = whole.clone();
    bytes[17 * 8..19 * 8].fill(0);
    assert!(error_of(&folder, &bytes).contains("without the facts"));

    // Damaged anywhere else, it is read as far as possible.
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random as usize
    };
    for _ in 0..30 {
        let mut bytes = whole.clone();
        for _ in 0..200 {
            // The first words say what the file is.
            let at = 5 * 8 + next() % (bytes.len() - 5 * 8);
            bytes[at] = next() as u8;
        }
        let damaged = folder.path("damaged");
        fs::write(&damaged, &bytes).expect("written");
        if let Ok(profile) = Profile::rescue(&damaged) {
            let options = SnapshotOptions::default().symbolicate(Symbolicate::No);
            let mut text = Vec::new();
            profile
                .write_with(Format::Gecko, &mut text, &options)
                .expect("a vector never fails");
            crate::common::Read::from_text(&text);
        }
    }
}
