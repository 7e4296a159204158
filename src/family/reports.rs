//! What a child tells its parent.

use serde_json::{Value, json};

use crate::buffer::{ChunkMetadata, Update};
use crate::family::messages::{
    Frame, MAX_DATA_BYTES, MAX_MESSAGE_BYTES, WHOLE, fields_of, frame, if_any, positive, shortened,
    text,
};
use crate::platform::FileDescriptor;
use crate::types::TimeStamp;

/// What a child says first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Hello {
    pub(crate) version: u64,
    pub(crate) process: i32,
    pub(crate) token: String,
    pub(crate) name: String,
}

/// The chunks of a child's buffer. Updates that follow each other are folded into one.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct ChunkReport {
    /// Whether the report replaces all earlier ones.
    pub(crate) is_whole: bool,
    pub(crate) unreleased_bytes: u64,
    pub(crate) oldest_done: Option<TimeStamp>,
    /// When each newly released chunk was done, and its size in bytes.
    pub(crate) newly_released: Vec<(TimeStamp, u64)>,
}

impl ChunkReport {
    /// Returns what an update says.
    pub(crate) fn of(update: Update) -> Self {
        let Update::Changed {
            memory,
            newly_released,
        } = update
        else {
            return Self::default();
        };
        let pair = |ChunkMetadata { done_at, bytes }| (done_at, bytes);
        Self {
            is_whole: false,
            unreleased_bytes: memory.unreleased_bytes,
            oldest_done: memory.oldest_done,
            newly_released: newly_released.into_iter().map(pair).collect(),
        }
    }

    /// Returns reports that say the same, and are short enough for a message.
    pub(crate) fn split(mut self) -> Vec<Self> {
        const MAX_CHUNKS: usize = 256;
        let mut reports = Vec::new();
        let newly = std::mem::take(&mut self.newly_released);
        for part in newly.chunks(MAX_CHUNKS) {
            let newly_released = part.to_vec();
            reports.push(Self {
                is_whole: self.is_whole && reports.is_empty(),
                newly_released,
                ..self.clone()
            });
        }
        if reports.is_empty() {
            reports.push(self);
        }
        reports
    }
}

/// Stands for the number of an order in reports about the text of the child's last profile, which
/// no order asks for.
pub(crate) const LAST_PROFILE: u64 = 0;

/// A step in the sending of a profile's text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum TextPart<'a> {
    /// The text of a last profile begins anew if it has begun before.
    Begins,
    Data(&'a [u8]),
    Ends,
    /// The text ends too early, for this reason.
    Failed(String),
}

/// What a child tells its parent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Report<'a> {
    Hello(Hello),
    /// The process has another name.
    Named {
        name: String,
    },
    /// An order was carried out, or failed for a reason.
    Done {
        id: u64,
        failure: Option<String>,
    },
    /// An order to freeze was carried out: the session's start, and the time of the snapshot.
    Frozen {
        id: u64,
        started_at: TimeStamp,
        taken_at: TimeStamp,
    },
    /// How far an order to gather is, in millionths, and what it works on.
    Progress {
        id: u64,
        done: u32,
        location: String,
    },
    /// A step in the sending of a profile, for the order to gather with this number, or of
    /// [`LAST_PROFILE`].
    Text {
        id: u64,
        part: TextPart<'a>,
    },
    Chunks {
        id: u64,
        chunks: ChunkReport,
    },
    /// The open file from which the parent can rescue the profile if the child is killed.
    CrashFile(FileDescriptor),
}

const HELLO: u8 = 64;
const DONE: u8 = 65;
const FROZEN: u8 = 66;
const PROGRESS: u8 = 67;
/// The first of four kinds, for the steps in the text of a gathered profile, and of a last one.
const GATHERED_TEXT: u8 = 68;
const LAST_TEXT: u8 = 72;
/// What is added to these for each step.
const BEGINS: u8 = 0;
const DATA: u8 = 1;
const ENDS: u8 = 2;
const FAILED: u8 = 3;
const GATHERED_DATA: u8 = GATHERED_TEXT + DATA;
const LAST_DATA: u8 = LAST_TEXT + DATA;
const CHUNKS: u8 = 76;
const NAMED: u8 = 77;
const CRASH_FILE: u8 = 78;

/// Returns the maximum length of a report's frame.
pub(crate) fn report_limits(kind: u8) -> Option<usize> {
    match kind {
        GATHERED_DATA => Some(size_of::<u64>() + MAX_DATA_BYTES),
        LAST_DATA => Some(MAX_DATA_BYTES),
        HELLO..=CRASH_FILE => Some(MAX_MESSAGE_BYTES),
        _ => None,
    }
}

impl Report<'_> {
    /// Returns the report as a frame.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (kind, fields) = match self {
            Self::Text { id, part } => {
                let number = id.to_le_bytes();
                let (first, prefix) = match *id {
                    LAST_PROFILE => (LAST_TEXT, &number[..0]),
                    _ => (GATHERED_TEXT, &number[..]),
                };
                match part {
                    TextPart::Begins => (first + BEGINS, json!({ "id": id })),
                    TextPart::Data(data) => return frame(first + DATA, &[prefix, data].concat()),
                    TextPart::Ends => (first + ENDS, json!({ "id": id })),
                    TextPart::Failed(reason) => {
                        let fields = json!({ "id": id, "reason": shortened(reason) });
                        (first + FAILED, fields)
                    }
                }
            }
            Self::Hello(hello) => {
                let fields = json!({
                    "version": hello.version,
                    "pid": hello.process,
                    "token": shortened(&hello.token),
                    "name": shortened(&hello.name),
                });
                (HELLO, fields)
            }
            Self::CrashFile(file) => {
                let (number, device, inode) = (file.number, file.device, file.inode);
                let fields = json!({ "number": number, "device": device, "inode": inode });
                (CRASH_FILE, fields)
            }
            Self::Named { name } => (NAMED, json!({ "name": shortened(name) })),
            Self::Done { id, failure } => {
                let failure = failure.as_deref().map(shortened);
                (DONE, json!({ "id": id, "failure": failure }))
            }
            Self::Frozen {
                id,
                started_at,
                taken_at,
            } => {
                let fields = json!({ "id": id, "start": started_at.0, "taken": taken_at.0 });
                (FROZEN, fields)
            }
            Self::Progress { id, done, location } => {
                let location = shortened(location);
                (
                    PROGRESS,
                    json!({ "id": id, "done": done, "location": location }),
                )
            }
            Self::Chunks { id, chunks } => {
                let newly = chunks.newly_released.iter();
                let newly: Vec<_> = newly.map(|(done, bytes)| json!([done.0, bytes])).collect();
                let fields = json!({
                    "id": id,
                    "whole": chunks.is_whole,
                    "unreleased": chunks.unreleased_bytes,
                    "oldest": chunks.oldest_done.map(|done| done.0),
                    "newly": newly,
                });
                (CHUNKS, fields)
            }
        };
        frame(kind, fields.to_string().as_bytes())
    }
}

impl<'a> Report<'a> {
    /// Reads the report in a frame; `None` if it is malformed.
    pub(crate) fn decode(frame: Frame<'a>) -> Option<Self> {
        let data = match frame.kind {
            GATHERED_DATA => {
                let (id, data) = frame.content.split_first_chunk()?;
                Some((u64::from_le_bytes(*id), data))
            }
            LAST_DATA => Some((LAST_PROFILE, frame.content)),
            _ => None,
        };
        if let Some((id, data)) = data {
            let part = TextPart::Data(data);
            return Some(Self::Text { id, part });
        }
        let fields = fields_of(frame.content)?;
        let id = || fields["id"].as_u64();
        Some(match frame.kind {
            HELLO => Self::Hello(Hello {
                version: fields["version"].as_u64()?,
                process: positive(&fields["pid"])?,
                token: text(&fields["token"])?,
                name: text(&fields["name"])?,
            }),
            CRASH_FILE => Self::CrashFile(FileDescriptor {
                number: positive(&fields["number"])?,
                device: fields["device"].as_u64()?,
                inode: fields["inode"].as_u64()?,
            }),
            NAMED => Self::Named {
                name: text(&fields["name"])?,
            },
            DONE => Self::Done {
                id: id()?,
                failure: if_any(&fields["failure"], text)?,
            },
            FROZEN => Self::Frozen {
                id: id()?,
                started_at: TimeStamp(fields["start"].as_u64()?),
                taken_at: TimeStamp(fields["taken"].as_u64()?),
            },
            PROGRESS => Self::Progress {
                id: id()?,
                done: u32::try_from(fields["done"].as_u64()?)
                    .ok()
                    .filter(|&done| done <= WHOLE)?,
                location: text(&fields["location"])?,
            },
            CHUNKS => {
                let pair = |value: &Value| match value.as_array()?.as_slice() {
                    [done, bytes] => Some((TimeStamp(done.as_u64()?), bytes.as_u64()?)),
                    _ => None,
                };
                let newly = fields["newly"].as_array()?.iter().map(pair);
                let chunks = ChunkReport {
                    is_whole: fields["whole"].as_bool()?,
                    unreleased_bytes: fields["unreleased"].as_u64()?,
                    oldest_done: if_any(&fields["oldest"], Value::as_u64)?.map(TimeStamp),
                    newly_released: newly.collect::<Option<_>>()?,
                };
                Self::Chunks { id: id()?, chunks }
            }
            kind => {
                let (id, step) = match kind.checked_sub(LAST_TEXT) {
                    Some(step) => (LAST_PROFILE, step),
                    None => (id()?, kind.checked_sub(GATHERED_TEXT)?),
                };
                let part = match step {
                    BEGINS => TextPart::Begins,
                    ENDS => TextPart::Ends,
                    FAILED => TextPart::Failed(text(&fields["reason"])?),
                    _ => return None,
                };
                Self::Text { id, part }
            }
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::family::messages::{FrameDecoder, VERSION};

    #[track_caller]
    fn assert_round_trips(report: &Report<'_>) {
        let bytes = report.encode();
        let mut decoder = FrameDecoder::new(report_limits);
        decoder.push(&bytes);
        let frame = decoder.next_frame().expect("accepted").expect("whole");
        assert_eq!(Report::decode(frame).as_ref(), Some(report));
    }

    #[test]
    fn reports_round_trip() {
        let text = "wörker \"1\"\n\0".to_owned();
        let hello = Hello {
            version: VERSION,
            process: 12,
            token: "ab".repeat(16),
            name: text.clone(),
        };
        let chunks = ChunkReport {
            is_whole: true,
            unreleased_bytes: u64::MAX,
            oldest_done: Some(TimeStamp(3)),
            newly_released: vec![(TimeStamp(3), 4), (TimeStamp(u64::MAX), 5)],
        };
        let id = u64::MAX;
        for report in [
            Report::Hello(hello),
            Report::Named { name: text.clone() },
            Report::Done { id, failure: None },
            Report::Done {
                id,
                failure: Some(text.clone()),
            },
            Report::Frozen {
                id,
                started_at: TimeStamp(1),
                taken_at: TimeStamp(u64::MAX),
            },
            Report::Progress {
                id,
                done: WHOLE,
                location: text.clone(),
            },
            Report::Chunks { id, chunks },
            Report::CrashFile(FileDescriptor {
                number: 9,
                device: u64::MAX,
                inode: 1,
            }),
        ] {
            assert_round_trips(&report);
        }
        for id in [id, LAST_PROFILE] {
            for part in [
                TextPart::Begins,
                TextPart::Data(b"\x00\xff part"),
                TextPart::Data(&[7; MAX_DATA_BYTES]),
                TextPart::Ends,
                TextPart::Failed(text.clone()),
            ] {
                assert_round_trips(&Report::Text { id, part });
            }
        }
    }

    #[test]
    fn message_with_a_wrong_field_is_refused() {
        let valid = json!({ "id": 1, "start": 1, "taken": 2 });
        let decode = |fields: &Value| {
            let content = fields.to_string();
            let kind = FROZEN;
            let content = content.as_bytes();
            Report::decode(Frame { kind, content }).map(|_| ())
        };
        assert_eq!(decode(&valid), Some(()));
        for wrong in [
            json!(null),
            json!(-1),
            json!(1.5),
            json!("1"),
            json!([1]),
            json!({}),
        ] {
            let mut fields = valid.clone();
            fields["taken"] = wrong;
            assert_eq!(decode(&fields), None);
        }
        assert_eq!(decode(&json!([])), None);
        // A later version may add fields.
        let mut more = valid;
        more["new"] = json!([{}]);
        assert_eq!(decode(&more), Some(()));
    }
}
