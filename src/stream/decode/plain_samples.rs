//! Decoded samples as text, for comparison in tests.

use std::rc::Rc;

use crate::stream::decode::chunk_stacks::FrameKey;
use crate::stream::decode::rows::RowEvent;
use crate::stream::decode::source::ProfileSource;
use crate::stream::decode::streaming_context::ProcessStreamingContext;
use crate::stream::decode::thread_context::ThreadStreamingContext;
use crate::util::ProgressLogger;

/// A sample of a thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PlainSample {
    pub(crate) time_ns: u64,
    pub(crate) cpu_delta_ns: Option<u64>,
    pub(crate) event: RowEvent,
    /// Number of ticks that the sample counts for.
    pub(crate) weight: u64,
    /// Oldest frame first.
    pub(crate) stack: Rc<[String]>,
}

/// The samples of a profile, and the number of entries that could not be read.
#[derive(Debug)]
pub(crate) struct PlainSamples {
    /// The samples by the serial number of the thread.
    pub(crate) threads: Vec<(u64, Vec<PlainSample>)>,
    pub(crate) malformed_entries: u64,
}

impl PlainSamples {
    pub(crate) fn decode(source: &ProfileSource) -> Self {
        let process =
            ProcessStreamingContext::decode(source, &ProgressLogger::unwatched()).expect("memory");
        let stacks = plain_stacks(&process);
        let of_thread = |thread: &ThreadStreamingContext| {
            let rows = thread.samples.iter(&process.gaps).map(|row| PlainSample {
                time_ns: row.time_ns,
                cpu_delta_ns: row.cpu_delta_ns,
                event: row.event,
                weight: row.weight,
                stack: Rc::clone(&stacks[row.stack as usize]),
            });
            (thread.thread.serial(), rows.collect())
        };
        let threads = process.threads.iter().map(of_thread).collect();
        Self {
            threads,
            malformed_entries: process.entry_counts.malformed,
        }
    }
}

/// Returns the frames of each stack.
fn plain_stacks(process: &ProcessStreamingContext) -> Vec<Rc<[String]>> {
    let frames = process.stacks.frames();
    let mut stacks: Vec<Rc<[String]>> = Vec::new();
    for &(prefix, frame) in process.stacks.stacks() {
        let below = prefix.map_or(&[][..], |prefix| &stacks[prefix as usize]);
        let own = plain_frame(&frames[frame as usize], process);
        stacks.push(below.iter().cloned().chain([own]).collect());
    }
    stacks
}

fn plain_frame(frame: &FrameKey, process: &ProcessStreamingContext) -> String {
    match frame {
        FrameKey::Native(address) if address.is_return_address => {
            format!("return {:?}", address.address)
        }
        FrameKey::Native(address) => format!("at {:?}", address.address),
        FrameKey::Waiting(address, wait) => format!("waits at {:?} {wait:?}", address.address),
        &FrameKey::Label {
            text,
            category,
            subcategory,
            ..
        } => {
            format!(
                "label {category} {subcategory} {}",
                process.label_texts.get(text)
            )
        }
        FrameKey::Script {
            function,
            line,
            column,
        } => format!("script {function} {line} {column}"),
        other => format!("{other:?}"),
    }
}
