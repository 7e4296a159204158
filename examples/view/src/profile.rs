//! The profile as it is served, and the modules that it lists.

use std::error::Error;
use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use hyper::body::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;

const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];

/// A profile's file. It is read once, so that the profile and the list of its modules stay the same
/// if another program writes to the file.
#[derive(Debug)]
pub(crate) struct Profile {
    pub(crate) file: Bytes,
    pub(crate) is_gzip: bool,
    pub(crate) libraries: Vec<Library>,
}

/// One module in the profile's list. Profiles of other programs may lack some of the fields.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Library {
    pub(crate) path: Option<PathBuf>,
    pub(crate) debug_name: Option<String>,
    pub(crate) debug_path: Option<PathBuf>,
    pub(crate) breakpad_id: Option<String>,
    pub(crate) code_id: Option<String>,
}

/// The part of a file that lists modules. In Gecko's format each process has a list, and in old
/// versions of the Firefox Profiler's format each thread.
#[derive(Deserialize)]
struct ModuleLists {
    meta: Option<IgnoredAny>,
    #[serde(default)]
    libs: Vec<Library>,
    #[serde(default)]
    threads: Vec<ModuleLists>,
    #[serde(default)]
    processes: Vec<ModuleLists>,
}

impl ModuleLists {
    fn flatten(self) -> Vec<Library> {
        let parts = self.threads.into_iter().chain(self.processes);
        let of_parts = parts.flat_map(Self::flatten);
        self.libs.into_iter().chain(of_parts).collect()
    }
}

impl Profile {
    pub(crate) fn read(path: &Path) -> Result<Self, Box<dyn Error>> {
        let name = path.display();
        let file = fs::read(path).map_err(|error| format!("cannot read {name}: {error}"))?;
        Self::parse(file).map_err(|got| {
            format!("cannot open {name}: got {got}, expected a profile of gekkota or Firefox")
                .into()
        })
    }

    /// The error says what the file is instead of a profile.
    fn parse(file: Vec<u8>) -> Result<Self, String> {
        let is_gzip = file.starts_with(GZIP_MAGIC);
        let lists: serde_json::Result<ModuleLists> = match is_gzip {
            true => serde_json::from_reader(BufReader::new(MultiGzDecoder::new(&file[..]))),
            false => serde_json::from_slice(&file),
        };
        let lists = lists.map_err(|error| match error.is_eof() && file.is_empty() {
            true => "an empty file".to_owned(),
            false => format!("something else ({error})"),
        })?;
        if lists.meta.is_none() {
            return Err("JSON without \"meta\"".to_owned());
        }
        Ok(Self {
            is_gzip,
            libraries: lists.flatten(),
            file: file.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    const GECKO: &str = r#"{
        "meta": {"version": 34},
        "libs": [{"start": 1, "path": "/one", "debugName": "one", "codeId": null}],
        "threads": [{"name": "GeckoMain", "samples": {"data": [[0]]}}],
        "processes": [{"meta": {}, "libs": [{"path": "/two"}], "threads": [], "processes": []}]
    }"#;

    fn paths(profile: &Profile) -> Vec<&Path> {
        let libraries = profile.libraries.iter();
        libraries
            .filter_map(|library| library.path.as_deref())
            .collect()
    }

    #[test]
    fn libraries_of_all_processes_are_found() {
        let profile = Profile::parse(GECKO.into()).expect("a profile");
        assert_eq!(paths(&profile), ["/one", "/two"].map(Path::new));
        assert!(!profile.is_gzip);
    }

    #[test]
    fn libraries_of_threads_are_found() {
        let old = r#"{"meta": {}, "threads": [{"libs": [{"path": "/one"}]}, {}]}"#;
        let profile = Profile::parse(old.into()).expect("a profile");
        assert_eq!(paths(&profile), [Path::new("/one")]);
    }

    #[test]
    fn compressed_profile_is_served_as_it_is() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(GECKO.as_bytes()).expect("compressed");
        let file = gzip.finish().expect("compressed");
        let profile = Profile::parse(file.clone()).expect("a profile");
        assert_eq!(paths(&profile), ["/one", "/two"].map(Path::new));
        assert!(profile.is_gzip);
        assert_eq!(profile.file, file);
    }

    #[test]
    fn other_file_is_described() {
        let message = |file: &[u8]| Profile::parse(file.into()).expect_err("no profile");
        assert_eq!(message(b""), "an empty file");
        assert_eq!(message(b"{}"), "JSON without \"meta\"");
        for other in [
            &b"[1, 2]"[..],
            b"\x1f\x8bnonsense",
            b"\x7fELF",
            br#"{"meta": {}"#,
        ] {
            let message = message(other);
            assert!(message.starts_with("something else ("), "{message}");
        }
    }
}
