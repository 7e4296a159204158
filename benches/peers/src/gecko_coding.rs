//! What Gecko's buffer would take for the samples of a profile.
//!
//! The model, in bytes with each entry's kind and length: a sample is `ThreadId` 10, `TimeBeforeCompactStack` 10,
//! `RunningTimes` 6, the head of `CompactStack` 3, and in that 10 for a native frame and 26 for a frame of a label. A sample of a
//! thread that did not run since its sample before is `ThreadId` 10, `TimeBeforeSameSample` 10, `RunningTimes` 6 and
//! `SameSample` 2. In Gecko's favour are left out what a dynamic text adds to a label, 10 for each 8 characters, since a
//! profile does not tell it from the label's own; and the event delay of threads with an event loop.

use crate::rows::{FrameKind, Rows, StackRow, Thread};

const SAMPLE_BYTES: u64 = 10 + 10 + 6 + 3;
pub(crate) const SAME_SAMPLE_BYTES: u64 = 10 + 10 + 6 + 2;
const NATIVE_FRAME_BYTES: u64 = 10;
const LABEL_FRAME_BYTES: u64 = 26;

/// Sums over samples.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct GeckoCoding {
    pub(crate) bytes: u64,
    pub(crate) samples: u64,
    pub(crate) same_samples: u64,
    /// Frames of all samples, repeated or not.
    pub(crate) native_frames: u64,
    pub(crate) label_frames: u64,
}

impl GeckoCoding {
    pub(crate) fn of(rows: &Rows) -> Self {
        let mut sum = Self::default();
        for thread in &rows.threads {
            sum.add(thread);
        }
        sum
    }

    fn add(&mut self, thread: &Thread) {
        let depths = depths(thread);
        for (index, row) in thread.samples.data.iter().enumerate() {
            let Depth { native, label } = depths.get(row.0 as usize).copied().unwrap_or_default();
            self.samples += 1;
            self.native_frames += native;
            self.label_frames += label;
            // The first one has nothing to be the same as.
            if row.has_rested() && index > 0 {
                self.same_samples += 1;
                self.bytes += SAME_SAMPLE_BYTES;
            } else {
                self.bytes +=
                    SAMPLE_BYTES + native * NATIVE_FRAME_BYTES + label * LABEL_FRAME_BYTES;
            }
        }
    }

    pub(crate) fn mean_bytes(&self) -> f64 {
        self.bytes as f64 / self.samples as f64
    }

    /// Frames a sample.
    pub(crate) fn mean_depth(&self) -> f64 {
        (self.native_frames + self.label_frames) as f64 / self.samples as f64
    }
}

#[derive(Clone, Copy, Default)]
struct Depth {
    native: u64,
    label: u64,
}

/// Of each stack of a thread; a prefix stands before the stacks that have it.
fn depths(thread: &Thread) -> Vec<Depth> {
    let kinds: Vec<FrameKind> = thread
        .frame_table
        .data
        .iter()
        .map(|frame| frame.kind(&thread.string_table))
        .collect();
    let mut depths = Vec::<Depth>::with_capacity(thread.stack_table.data.len());
    for &StackRow(prefix, frame) in &thread.stack_table.data {
        let below = prefix
            .and_then(|prefix| depths.get(prefix as usize))
            .copied()
            .unwrap_or_default();
        depths.push(match kinds.get(frame as usize) {
            Some(FrameKind::Native) => Depth {
                native: below.native + 1,
                ..below
            },
            Some(FrameKind::Label) => Depth {
                label: below.label + 1,
                ..below
            },
            Some(FrameKind::Structure) | None => below,
        });
    }
    depths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_counted_without_the_root_and_rests_are_the_same_sample() {
        let rows: Rows = serde_json::from_str(
            r#"{"meta":{},"libs":[],"profilingLog":{},"threads":[{
                "name":"a",
                "samples":{"schema":{},"data":[[2,1,null,0],[2,2,null,0],[1,3,null,9]]},
                "stackTable":{"schema":{},"data":[[null,0],[0,1],[1,2]]},
                "frameTable":{"schema":{},"data":[[0,false,0],[1,false,0],[2,false,0,null,null,null,1,0]]},
                "stringTable":["(root)","0x12","work"]
            }]}"#,
        )
        .expect("rows");
        let expected = GeckoCoding {
            bytes: (29 + 10 + 26) + 28 + (29 + 10),
            samples: 3,
            same_samples: 1,
            native_frames: 3,
            label_frames: 2,
        };
        assert_eq!(GeckoCoding::of(&rows), expected);
    }
}
