//! Keeps the profiles of child processes that have exited.
//!
//! Validates each, and finds the profiles of its processes in it.
//! The text comes from another process, so nothing about it is certain. It is parsed once, and each
//! list of processes within it once more, with a bounded number of nested calls. Its length is
//! bounded, too.

use std::fmt;
use std::ops::Range;

use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::platform::monotonic_now;
use crate::state::{ACTIVE_PS, ChildProfile, ChildText, KEPT_OVERHEAD_BYTES, ProcessPlace};
use crate::stream::check_memory;
use crate::types::{ExitProfileError, MAX_PROCESS_LEVELS, TimeStamp};
use crate::util::{PsLock, is_any_lock_held_on_current_thread};

/// Maximum length of a profile, in bytes: browsers do not support longer strings, so the viewer
/// could not open it.
const MAX_BYTES: u64 = 1 << 30;

/// See `profiler_received_exit_profile`.
pub(crate) fn received_exit_profile(mut profile: String) -> Result<(), ExitProfileError> {
    profile.shrink_to_fit();
    keep_exit_profile(ChildText::Memory(profile))
}

/// Adds a child's profile to the running session, which keeps the text.
///
/// # Errors
/// See `profiler_received_exit_profile`.
pub(crate) fn keep_exit_profile(text: ChildText) -> Result<(), ExitProfileError> {
    if is_any_lock_held_on_current_thread() {
        return Err(ExitProfileError::Inactive);
    }
    let bytes = text.len() as u64;
    let max_bytes = max_exit_profile_bytes().ok_or(ExitProfileError::Inactive)?;
    if bytes > max_bytes {
        return Err(ExitProfileError::TooLarge { bytes, max_bytes });
    }
    // The parser copies names of members and strings with escapes, which may be long.
    check_memory(text.len()).map_err(|_| ExitProfileError::OutOfMemory { bytes })?;
    keep_child_profile(child_profile(text)?).map(drop)
}

/// Adds the profile of a child that has exited to the running session. Returns when: profiles of
/// this process that are taken later have it.
///
/// # Errors
/// See `profiler_received_exit_profile`.
pub(crate) fn keep_child_profile(profile: ChildProfile) -> Result<TimeStamp, ExitProfileError> {
    // Dropped after the lock is released: the profiles may be long.
    let (expired, kept_at) = {
        let lock = PsLock::acquire();
        let active = ACTIVE_PS
            .get(&lock)
            .as_ref()
            .ok_or(ExitProfileError::Inactive)?;
        let max_bytes = active.max_exit_profile_bytes();
        let bytes = profile.bytes() + KEPT_OVERHEAD_BYTES;
        if bytes > max_bytes {
            return Err(ExitProfileError::TooLarge { bytes, max_bytes });
        }
        active.session.log.add("exit profile received");
        // Read under the lock, under which profiles are taken.
        (active.keep_exit_profile(profile, &lock), monotonic_now())
    };
    drop(expired);
    Ok(kept_at)
}

/// Returns the maximum size of an exit profile now, in bytes. Returns `None` without a session.
pub(crate) fn max_exit_profile_bytes() -> Option<u64> {
    let lock = PsLock::acquire();
    let active = ACTIVE_PS.get(&lock).as_ref()?;
    Some(active.max_exit_profile_bytes().min(MAX_BYTES))
}

/// Finds the profile of the child and those of its own child processes, recursively.
///
/// The result is a flat list, because the viewer shows only one level of child processes.
///
/// # Errors
/// [`ExitProfileError`] if the text is not a profile, or has too many levels of processes.
pub(crate) fn child_profile(text: ChildText) -> Result<ChildProfile, ExitProfileError> {
    let mut split = Split::default();
    let as_text =
        std::str::from_utf8(&text).map_err(|error| ExitProfileError::NotJson(error.to_string()))?;
    split.read_process(as_text, 0, 1)?;
    Ok(ChildProfile::new(text, split.processes, split.epoch_ms))
}

#[derive(Default)]
struct Split {
    processes: Vec<ProcessPlace>,
    /// Start and end of the time that the profiles of the processes cover.
    epoch_ms: Option<Range<f64>>,
}

impl Split {
    /// Reads the profile of a process, which is `text` and begins at `at` in the whole text. A
    /// process precedes its children.
    fn read_process(
        &mut self,
        text: &str,
        at: usize,
        level: usize,
    ) -> Result<(), ExitProfileError> {
        if level > MAX_PROCESS_LEVELS {
            return Err(ExitProfileError::TooDeep {
                max_levels: MAX_PROCESS_LEVELS,
            });
        }
        let (mut meta, mut has_threads, mut lists) = (None, false, Vec::new());
        let read = for_each_member(text, |name, value| {
            match name {
                "meta" => meta = Some(value).filter(|meta| meta.starts_with('{')),
                "threads" => has_threads = value.starts_with('['),
                "processes" if value.starts_with('[') => lists.push(List {
                    text: value,
                    place: place_of(value, text, at),
                }),
                "processes" => return Err("got no list in \"processes\""),
                _ => {}
            }
            Ok(())
        });
        read.map_err(|error| ExitProfileError::NotJson(error.to_string()))?;
        let lacks = |lacks| ExitProfileError::NotAProfile { lacks };
        let meta = meta.ok_or(lacks("meta"))?;
        if !has_threads {
            return Err(lacks("threads"));
        }
        if let Some(times) = profiling_times(meta) {
            let all = self.epoch_ms.get_or_insert(times.clone());
            *all = all.start.min(times.start)..all.end.max(times.end);
        }
        let (before, after) = (text.trim_start(), text.trim_end());
        let object = at + text.len() - before.len()..at + after.len();
        let places = lists.iter().map(|list| list.place.clone());
        self.processes.push(ProcessPlace {
            object,
            lists: places.collect(),
        });
        for list in lists {
            self.read_list(list, level + 1)?;
        }
        Ok(())
    }

    fn read_list(&mut self, list: List<'_>, level: usize) -> Result<(), ExitProfileError> {
        let mut json = serde_json::Deserializer::from_str(list.text);
        let read = Processes {
            split: self,
            list: &list,
            level,
            refusal: None,
        };
        json.deserialize_seq(read)
            .map_err(|error| ExitProfileError::NotJson(error.to_string()))?
    }
}

/// Returns where `part`, which is borrowed from `text`, lies in the whole text.
fn place_of(part: &str, text: &str, at: usize) -> Range<usize> {
    let start = at + (part.as_ptr().addr() - text.as_ptr().addr());
    start..start + part.len()
}

/// A list of child processes.
struct List<'de> {
    text: &'de str,
    place: Range<usize>,
}

/// Calls `each` with the name and the text of each member of an object.
fn for_each_member<'de>(
    object: &'de str,
    each: impl FnMut(&str, &'de str) -> Result<(), &'static str>,
) -> serde_json::Result<()> {
    let mut json = serde_json::Deserializer::from_str(object);
    json.deserialize_map(Members(each))?;
    json.end()
}

struct Members<F>(F);

impl<'de, F: FnMut(&str, &'de str) -> Result<(), &'static str>> Visitor<'de> for Members<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a profile, which is an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        while let Some(name) = members.next_key::<String>()? {
            let value = members.next_value::<&'de RawValue>()?.get();
            (self.0)(&name, value).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

/// Returns the start and the end of the time that a profile with this `meta` covers, in
/// milliseconds since 1970, if it says so.
fn profiling_times(meta: &str) -> Option<Range<f64>> {
    let (mut origin, mut start, mut end) = (None, None, None);
    let read = for_each_member(meta, |name, value| {
        let time = match name {
            "startTime" => &mut origin,
            "profilingStartTime" => &mut start,
            "profilingEndTime" => &mut end,
            _ => return Ok(()),
        };
        *time = value.parse::<f64>().ok();
        Ok(())
    });
    read.ok()?;
    let times = origin? + start?..origin? + end?;
    (times.start.is_finite() && times.end.is_finite()).then_some(times)
}

/// Reads the list of a process's child processes.
struct Processes<'a, 'de> {
    split: &'a mut Split,
    list: &'a List<'de>,
    level: usize,
    /// The reason to refuse text that is JSON.
    refusal: Option<ExitProfileError>,
}

impl<'de> Visitor<'de> for Processes<'_, 'de> {
    type Value = Result<(), ExitProfileError>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of profiles")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut processes: A) -> Result<Self::Value, A::Error> {
        while let Some(process) = processes.next_element::<&'de RawValue>()? {
            if self.refusal.is_none() {
                let text = process.get();
                let at = place_of(text, self.list.text, self.list.place.start).start;
                self.refusal = self.split.read_process(text, at, self.level).err();
            }
        }
        Ok(self.refusal.map_or(Ok(()), Err))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ChildProfile, ExitProfileError> {
        child_profile(ChildText::Memory(text.to_owned()))
    }

    fn error_of(text: &str) -> String {
        read(text).unwrap_err().to_string()
    }

    fn parts(text: &str) -> Vec<String> {
        let profile = read(text).expect("a profile");
        let mut parts: Vec<Vec<u8>> = Vec::new();
        profile.for_each_piece(|begins, piece| match parts.last_mut() {
            Some(part) if !begins => part.extend(piece),
            _ => parts.push(piece.to_vec()),
        });
        let text = |part| String::from_utf8(part).expect("UTF-8");
        parts.into_iter().map(text).collect()
    }

    fn profile(name: &str, processes: &str) -> String {
        format!(r#"{{"meta":{{"x": "{name}"}},"processes":[{processes}],"threads":[]}}"#)
    }

    #[test]
    fn child_profile_flattens_children() {
        let plain = r#"{"meta": {}, "threads": [ ], "\"x\n\"": null}"#;
        assert_eq!(parts(&format!(" {plain}\n")), [plain]);
        let inner = [profile("b", &profile("c", "")), profile("d", "")].join(", ");
        assert_eq!(
            parts(&profile("a", &inner)),
            ["a", "b", "c", "d"].map(|name| profile(name, ""))
        );
    }

    #[test]
    fn each_of_several_lists_is_emptied() {
        let twice = format!(
            r#"{{"processes": [{}],"meta":{{}},"threads":[],"processes" :[ {} ]}}"#,
            profile("a", ""),
            profile("b", "")
        );
        let emptied = r#"{"processes": [],"meta":{},"threads":[],"processes" :[]}"#;
        let [a, b] = ["a", "b"].map(|name| profile(name, ""));
        assert_eq!(parts(&twice), [emptied, &a, &b]);
    }

    #[test]
    fn times_of_all_processes_are_covered() {
        let process = |origin: u32, start: u32, end: u32, children: &str| {
            format!(
                r#"{{"meta":{{"profilingEndTime":{end},"startTime":{origin}.5,"x":[{{}}],
                "profilingStartTime":{start}}},"processes":[{children}],"threads":[]}}"#
            )
        };
        let inner = process(1000, 10, 300, "");
        let child = read(&process(900, 200, 250, &inner)).expect("a profile");
        assert_eq!(child.epoch_ms(), Some(1010.5..1300.5));
        let without = r#"{"meta":{"startTime":1},"threads":[]}"#;
        assert_eq!(read(without).expect("a profile").epoch_ms(), None);
    }

    #[test]
    fn child_profile_rejects_other_text() {
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
