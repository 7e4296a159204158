//! Computes the size of a profile's samples in Gecko's buffer.
//!
//! The model, in bytes that include each entry's kind and length: a sample is `ThreadId` 10,
//! `TimeBeforeCompactStack` 10, `RunningTimes` 6 and the head of `CompactStack` 3, plus 10 per
//! native frame and 26 per label frame. A sample of a thread that did not run since its previous
//! sample is `ThreadId` 10, `TimeBeforeSameSample` 10, `RunningTimes` 6 and `SameSample` 2. Two
//! things are left out, in Gecko's favor: the 10 bytes per 8 characters of a label's dynamic text,
//! because a profile does not separate it from the label's name; and the event delay of threads
//! with an event loop.

use serde_json::Value;

use crate::profile::{Tables, threads};

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
    /// Returns the sums for a profile, or `None` if it lacks a table.
    pub(crate) fn of(profile: &Value) -> Option<Self> {
        let mut sum = Self::default();
        for thread in threads(profile) {
            sum.add(&Tables(thread))?;
        }
        Some(sum)
    }

    fn add(&mut self, thread: &Tables<'_>) -> Option<()> {
        // The native and the label frames of each stack.
        let depths = thread.stacks(|below: Option<&[u64; 2]>, frame| {
            let [native, label] = below.copied().unwrap_or_default();
            match frame.category {
                Some(_) => [native, label + 1],
                // Not a frame of the thread, such as the root.
                None if frame.name.starts_with('(') => [native, label],
                None => [native + 1, label],
            }
        })?;
        for (index, sample) in thread.samples()?.iter().enumerate() {
            let [native, label] = sample.stack.map_or([0; 2], |stack| depths[stack]);
            self.samples += 1;
            self.native_frames += native;
            self.label_frames += label;
            // The first sample has no previous one to repeat.
            if sample.cpu_ns == Some(0.0) && index > 0 {
                self.same_samples += 1;
                self.bytes += SAME_SAMPLE_BYTES;
            } else {
                self.bytes +=
                    SAMPLE_BYTES + native * NATIVE_FRAME_BYTES + label * LABEL_FRAME_BYTES;
            }
        }
        Some(())
    }

    pub(crate) fn mean_bytes(&self) -> f64 {
        self.bytes as f64 / self.samples as f64
    }

    /// Returns the mean number of frames per sample.
    pub(crate) fn mean_depth(&self) -> f64 {
        (self.native_frames + self.label_frames) as f64 / self.samples as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_skips_the_root_and_counts_idle_samples_as_same() {
        let profile = serde_json::json!({"threads": [{
            "samples": {
                "schema": {"stack": 0, "time": 1, "eventDelay": 2, "threadCPUDelta": 3},
                "data": [[2, 1, null, 0], [2, 2, null, 0], [1, 3, null, 9]],
            },
            "stackTable": {
                "schema": {"prefix": 0, "frame": 1},
                "data": [[null, 0], [0, 1], [1, 2]],
            },
            "frameTable": {
                "schema": {"location": 0, "category": 1},
                "data": [[0], [1], [2, 1]],
            },
            "stringTable": ["(root)", "0x12", "work"],
        }]});
        let expected = GeckoCoding {
            bytes: (29 + 10 + 26) + 28 + (29 + 10),
            samples: 3,
            same_samples: 1,
            native_frames: 3,
            label_frames: 2,
        };
        assert_eq!(GeckoCoding::of(&profile), Some(expected));
    }
}
