//! Computes the size of a profile's samples in Gecko's buffer.
//!
//! The model, in bytes that include each entry's kind and length: a sample is `ThreadId` 10,
//! `TimeBeforeCompactStack` 10, `RunningTimes` 6 and the head of `CompactStack` 3, plus 10 per
//! native frame and 26 per label frame. A sample of a thread that did not run since its previous
//! sample is `ThreadId` 10, `TimeBeforeSameSample` 10, `RunningTimes` 6 and `SameSample` 2. Two
//! things are left out, in Gecko's favor: the 10 bytes per 8 characters of a label's dynamic text,
//! because a profile does not separate it from the label's name; and the event delay of threads
//! with an event loop.

use crate::rows::{FrameKind, Rows, StackRow, Thread};

const SAMPLE_BYTES: u64 = 10 + 10 + 6 + 3;
pub(crate) const SAME_SAMPLE_BYTES: u64 = 10 + 10 + 6 + 2;
const NATIVE_FRAME_BYTES: u64 = 10;
const LABEL_FRAME_BYTES: u64 = 26;

/// Sums over the samples of a profile.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct GeckoCoding {
    pub(crate) bytes: u64,
    pub(crate) samples: u64,
    pub(crate) same_samples: u64,
    /// Frames of all samples, including repeated stacks.
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
            // The first sample has no previous one to repeat.
            if row.was_idle() && index > 0 {
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

    /// Returns the mean number of frames per sample.
    pub(crate) fn mean_depth(&self) -> f64 {
        (self.native_frames + self.label_frames) as f64 / self.samples as f64
    }
}

#[derive(Clone, Copy, Default)]
struct Depth {
    native: u64,
    label: u64,
}

/// Returns the depth of each stack of the thread. A prefix comes before the stacks that use it.
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
    fn model_skips_the_root_and_counts_idle_samples_as_same() {
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
