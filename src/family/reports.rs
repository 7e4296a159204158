//! What a child tells its parent.

use serde_json::{Value, json};

use crate::buffer::{ChunkMetadata, Update};
use crate::family::fields::{Fields, MessageError};
use crate::family::frames::{Frame, frame};
use crate::family::messages::{MAX_DATA_BYTES, MAX_MESSAGE_BYTES, WHOLE, shortened};
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
    /// The parts of a profile follow, for an order to gather.
    ProfileBegins {
        id: u64,
    },
    ProfileData {
        id: u64,
        part: &'a [u8],
    },
    ProfileEnds {
        id: u64,
    },
    ProfileFailed {
        id: u64,
        reason: String,
    },
    /// The parts of the child's last profile follow. Begins anew if it has begun before.
    ExitBegins,
    ExitData(&'a [u8]),
    ExitEnds,
    ExitFailed {
        reason: String,
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
const PROFILE_BEGINS: u8 = 68;
const PROFILE_DATA: u8 = 69;
const PROFILE_ENDS: u8 = 70;
const PROFILE_FAILED: u8 = 71;
const EXIT_BEGINS: u8 = 72;
const EXIT_DATA: u8 = 73;
const EXIT_ENDS: u8 = 74;
const EXIT_FAILED: u8 = 75;
const CHUNKS: u8 = 76;
const NAMED: u8 = 77;
const CRASH_FILE: u8 = 78;

/// Returns the maximum length of a report's frame.
pub(crate) fn report_limits(kind: u8) -> Option<usize> {
    match kind {
        PROFILE_DATA => Some(size_of::<u64>() + MAX_DATA_BYTES),
        EXIT_DATA => Some(MAX_DATA_BYTES),
        HELLO..=CRASH_FILE => Some(MAX_MESSAGE_BYTES),
        _ => None,
    }
}

impl Report<'_> {
    /// Returns the report as a frame.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (kind, fields) = match self {
            Self::ProfileData { id, part } => {
                return frame(PROFILE_DATA, &[&id.to_le_bytes(), *part].concat());
            }
            Self::ExitData(part) => return frame(EXIT_DATA, part),
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
            Self::ProfileBegins { id } => (PROFILE_BEGINS, json!({ "id": id })),
            Self::ProfileEnds { id } => (PROFILE_ENDS, json!({ "id": id })),
            Self::ProfileFailed { id, reason } => (
                PROFILE_FAILED,
                json!({ "id": id, "reason": shortened(reason) }),
            ),
            Self::ExitBegins => (EXIT_BEGINS, json!({})),
            Self::ExitEnds => (EXIT_ENDS, json!({})),
            Self::ExitFailed { reason } => (EXIT_FAILED, json!({ "reason": shortened(reason) })),
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
    /// Reads the report in a frame.
    pub(crate) fn decode(frame: Frame<'a>) -> Result<Self, MessageError> {
        let fields = match frame.kind {
            PROFILE_DATA => {
                let (id, part) = frame
                    .content
                    .split_first_chunk()
                    .ok_or(MessageError::Content)?;
                let id = u64::from_le_bytes(*id);
                return Ok(Self::ProfileData { id, part });
            }
            EXIT_DATA => return Ok(Self::ExitData(frame.content)),
            _ => Fields::parse(frame.content)?,
        };
        let id = || fields.number("id");
        Ok(match frame.kind {
            HELLO => Self::Hello(Hello {
                version: fields.number("version")?,
                process: fields.process("pid")?,
                token: fields.text("token")?,
                name: fields.text("name")?,
            }),
            CRASH_FILE => Self::CrashFile(FileDescriptor {
                number: fields.process("number")?,
                device: fields.number("device")?,
                inode: fields.number("inode")?,
            }),
            NAMED => Self::Named {
                name: fields.text("name")?,
            },
            DONE => Self::Done {
                id: id()?,
                failure: fields.text_if_any("failure")?,
            },
            FROZEN => Self::Frozen {
                id: id()?,
                started_at: TimeStamp(fields.number("start")?),
                taken_at: TimeStamp(fields.number("taken")?),
            },
            PROGRESS => Self::Progress {
                id: id()?,
                done: u32::try_from(fields.number("done")?)
                    .ok()
                    .filter(|&done| done <= WHOLE)
                    .ok_or(MessageError::Field { name: "done" })?,
                location: fields.text("location")?,
            },
            PROFILE_BEGINS => Self::ProfileBegins { id: id()? },
            PROFILE_ENDS => Self::ProfileEnds { id: id()? },
            PROFILE_FAILED => Self::ProfileFailed {
                id: id()?,
                reason: fields.text("reason")?,
            },
            EXIT_BEGINS => Self::ExitBegins,
            EXIT_ENDS => Self::ExitEnds,
            EXIT_FAILED => Self::ExitFailed {
                reason: fields.text("reason")?,
            },
            CHUNKS => {
                let pair = |value: &Value| match value.as_array()?.as_slice() {
                    [done, bytes] => Some((TimeStamp(done.as_u64()?), bytes.as_u64()?)),
                    _ => None,
                };
                let chunks = ChunkReport {
                    is_whole: fields.flag("whole")?,
                    unreleased_bytes: fields.number("unreleased")?,
                    oldest_done: fields.number_if_any("oldest")?.map(TimeStamp),
                    newly_released: fields.list("newly", pair)?,
                };
                Self::Chunks { id: id()?, chunks }
            }
            _ => return Err(MessageError::Content),
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::family::frames::FrameDecoder;
    use crate::family::messages::VERSION;

    #[track_caller]
    fn assert_round_trips(report: &Report<'_>) {
        let bytes = report.encode();
        let mut decoder = FrameDecoder::new(report_limits);
        decoder.push(&bytes);
        let frame = decoder.next_frame().expect("accepted").expect("whole");
        assert_eq!(Report::decode(frame).as_ref(), Ok(report));
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
            Report::ProfileBegins { id },
            Report::ProfileData {
                id,
                part: b"\x00\xff part",
            },
            Report::ProfileEnds { id },
            Report::ProfileFailed {
                id,
                reason: text.clone(),
            },
            Report::ExitBegins,
            Report::ExitData(&[7; MAX_DATA_BYTES]),
            Report::ExitEnds,
            Report::ExitFailed { reason: text },
            Report::Chunks { id, chunks },
            Report::CrashFile(FileDescriptor {
                number: 9,
                device: u64::MAX,
                inode: 1,
            }),
        ] {
            assert_round_trips(&report);
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
        assert_eq!(decode(&valid), Ok(()));
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
            assert_eq!(decode(&fields), Err(MessageError::Field { name: "taken" }));
        }
        assert_eq!(decode(&json!([])), Err(MessageError::NotJson));
        // A later version may add fields.
        let mut more = valid;
        more["new"] = json!([{}]);
        assert_eq!(decode(&more), Ok(()));
    }
}
