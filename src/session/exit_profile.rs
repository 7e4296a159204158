//! Validates the profile of a child process, and splits it into the profiles of its processes.
//!
//! The text comes from another process, so nothing about it is certain. It is parsed once, with a
//! bounded number of nested calls, and its length is bounded.

use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::types::{ExitProfileError, MAX_PROCESS_LEVELS};

/// Maximum length of a profile, in bytes: browsers do not support longer strings, so the viewer
/// could not open it.
pub(crate) const MAX_BYTES: u64 = 1 << 30;

/// Returns the profile of the child and those of its own child processes, recursively.
///
/// The result is a flat list, because the viewer shows only one level of child processes.
pub(crate) fn split_profile(text: &str) -> Result<Vec<Arc<str>>, ExitProfileError> {
    let mut split = Split::default();
    let mut json = serde_json::Deserializer::from_str(text);
    let process = Process {
        split: &mut split,
        level: 1,
    };
    let parsed = process.deserialize(&mut json).and_then(|()| json.end());
    match (parsed, split.refusal) {
        (Ok(()), _) => Ok(split.profiles),
        (Err(_), Some(refusal)) => Err(refusal),
        (Err(error), None) => Err(ExitProfileError::NotJson(error.to_string())),
    }
}

#[derive(Default)]
struct Split {
    profiles: Vec<Arc<str>>,
    /// The reason to refuse text that is JSON.
    refusal: Option<ExitProfileError>,
}

impl Split {
    /// Keeps the reason, and returns an error that ends the parser.
    fn refuse<E: Error>(&mut self, refusal: ExitProfileError) -> E {
        let error = E::custom(&refusal);
        self.refusal = Some(refusal);
        error
    }
}

/// Reads the profile of one process.
struct Process<'a> {
    split: &'a mut Split,
    level: usize,
}

impl<'de> DeserializeSeed<'de> for Process<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        if self.level > MAX_PROCESS_LEVELS {
            return Err(self.split.refuse(ExitProfileError::TooDeep {
                max_levels: MAX_PROCESS_LEVELS,
            }));
        }
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Process<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a profile, which is an object")
    }

    /// Copies the members, except for the list of processes: it becomes an empty list, and the
    /// processes become profiles of their own.
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let Self { split, level } = self;
        // A process precedes its children. The text is known only after them.
        let own = split.profiles.len();
        split.profiles.push(Arc::from(""));
        let mut text = String::from("{");
        let (mut has_meta, mut has_threads) = (false, false);
        while let Some(name) = members.next_key::<String>()? {
            if text.len() > 1 {
                text.push(',');
            }
            text += &serde_json::to_string(&name).map_err(A::Error::custom)?;
            text.push(':');
            if name == "processes" {
                members.next_value_seed(Processes {
                    split: &mut *split,
                    level: level + 1,
                })?;
                text += "[]";
                continue;
            }
            let value = members.next_value::<&RawValue>()?.get();
            match name.as_str() {
                "meta" => has_meta = value.starts_with('{'),
                "threads" => has_threads = value.starts_with('['),
                _ => {}
            }
            text += value;
        }
        text.push('}');
        for (lacks, is_there) in [("meta", has_meta), ("threads", has_threads)] {
            if !is_there {
                return Err(split.refuse(ExitProfileError::NotAProfile { lacks }));
            }
        }
        split.profiles[own] = text.into();
        Ok(())
    }
}

/// Reads the list of a process's child processes.
struct Processes<'a> {
    split: &'a mut Split,
    level: usize,
}

impl<'de> DeserializeSeed<'de> for Processes<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Processes<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of profiles")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut processes: A) -> Result<(), A::Error> {
        let Self { split, level } = self;
        while let Some(()) = processes.next_element_seed(Process {
            split: &mut *split,
            level,
        })? {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(text: &str) -> String {
        split_profile(text).unwrap_err().to_string()
    }

    fn parts(text: &str) -> Vec<String> {
        let parts = split_profile(text).expect("a profile");
        parts.iter().map(ToString::to_string).collect()
    }

    fn profile(name: &str, processes: &str) -> String {
        format!(r#"{{"meta":{{"x": "{name}"}},"processes":[{processes}],"threads":[]}}"#)
    }

    #[test]
    fn split_profile_flattens_children() {
        let plain = r#" {"meta": {}, "threads": [ ], "\"x\n\"": null} "#;
        assert_eq!(
            parts(plain),
            [r#"{"meta":{},"threads":[ ],"\"x\n\"":null}"#]
        );
        let inner = [profile("b", &profile("c", "")), profile("d", "")].join(", ");
        assert_eq!(
            parts(&profile("a", &inner)),
            ["a", "b", "c", "d"].map(|name| profile(name, ""))
        );
    }

    #[test]
    fn split_profile_rejects_other_text() {
        assert!(error_of(&profile("a", r#"{"meta": 1}"#)).contains(r#"no "meta""#));
        assert!(error_of("\u{1f}\u{8b}").contains("uncompressed"));
        assert!(error_of(r#"{"meta": {}, "threads": [}"#).contains("line 1"));
        assert!(error_of(r#"{"meta": {}, "threads": [], "cut": "#).contains("not JSON"));
        assert!(error_of(r#"{"meta": {}, "threads": []} x"#).contains("not JSON"));
        assert!(error_of(r#"{"meta": {}, "threads": [], "processes": 1}"#).contains("not JSON"));
        assert!(error_of(r#"[1, 2]"#).contains("not JSON"));
        assert!(error_of(r#"{"threads": []}"#).contains(r#"no "meta""#));
        assert!(error_of(r#"{"meta": {}, "threads": {}}"#).contains(r#"no "threads""#));
    }
}
