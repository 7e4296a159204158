//! What the chunk that samples are written to has already: frames, and stacks of them.
//!
//! The reader of the chunk builds the same tables from what is written (`crate::stream::chunk_stacks`); the grammar is in
//! `entry_kind.rs`.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::base::{NumberMap, pair_key};
use crate::buffer::{ChunkNumber, EntryWriter, FrameTag, ROOT_NODES, zigzag};
use crate::sampler::stack_frames::{StackFrame, StackFrames};

/// Which filling of the dictionary: what one filling numbers says nothing in another.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Edition(u64);

/// A label frame, by the place of its code.
#[derive(Clone, Copy, Debug)]
struct KnownLabel {
    number: u32,
    start: usize,
    end: usize,
}

/// Tables that are kept from chunk to chunk for their memory.
#[derive(Debug, Default)]
pub(super) struct StackDictionary {
    /// The chunk that it speaks of, and the list of modules; `None` before the first, and when the chunk is full.
    place: Option<(ChunkNumber, u64)>,
    edition: Edition,
    /// Nanoseconds since the process began, of the sample before.
    last_time_ns: u64,
    native: NumberMap<u32>,
    /// By the hash of their codes. Of two with the same hash the first is known.
    labels: NumberMap<KnownLabel>,
    label_codes: Vec<u8>,
    frames: u32,
    /// By the node below and the frame's number.
    nodes: NumberMap<u32>,
    /// Of each node, the address of the nearest native frame in its stack.
    addresses: Vec<u64>,
}

impl StackDictionary {
    /// The chunk that it speaks of, if it is of this list of modules.
    pub(super) fn chunk(&self, modules: u64) -> Option<ChunkNumber> {
        self.place
            .filter(|(_, list)| *list == modules)
            .map(|(chunk, _)| chunk)
    }

    pub(super) fn edition(&self) -> Edition {
        self.edition
    }

    /// Knows nothing, and speaks of no chunk.
    pub(super) fn forget(&mut self) {
        self.place = None;
    }

    /// Begins anew with a chunk in which nothing of its stacks stands.
    pub(super) fn begin(&mut self, chunk: ChunkNumber, modules: u64) {
        self.place = Some((chunk, modules));
        self.edition = Edition(self.edition.0 + 1);
        self.last_time_ns = 0;
        self.native.clear();
        self.labels.clear();
        self.label_codes.clear();
        self.frames = 0;
        self.nodes.clear();
        self.addresses.clear();
        self.addresses.resize(ROOT_NODES as usize, 0);
    }

    /// The distance of a sample's time from that of the one before.
    pub(super) fn time_distance(&self, time_ns: u64) -> i64 {
        time_ns.wrapping_sub(self.last_time_ns) as i64
    }

    /// A sample of this time was put.
    pub(super) fn set_last_time(&mut self, time_ns: u64) {
        self.last_time_ns = time_ns;
    }

    /// Writes a stack against what is known, and knows it from then on.
    pub(super) fn write(&mut self, stack: &StackFrames, out: &mut EntryWriter) {
        let mut node = stack.root();
        let mut rest = stack.frames();
        while let Some((&frame, after)) = rest.split_first()
            && let Some(frame) = self.known(stack, frame)
            && let Some(&next) = self.nodes.get(&pair_key(node, frame))
        {
            (node, rest) = (next, after);
        }
        out.number(node.into()).number(rest.len() as u64);
        for &frame in rest {
            let mut address = self.addresses[node as usize];
            let before = address;
            if let StackFrame::Native { address: own, .. } = frame {
                address = own;
            }
            let number = match self.known(stack, frame) {
                Some(number) => {
                    out.number(FrameTag::Known.join(number.into()));
                    number
                }
                None => self.define(stack, frame, before, out),
            };
            let next = self.addresses.len() as u32;
            self.addresses.push(address);
            self.nodes.insert(pair_key(node, number), next);
            node = next;
        }
    }

    fn known(&self, stack: &StackFrames, frame: StackFrame) -> Option<u32> {
        match frame {
            StackFrame::Native {
                address,
                is_innermost,
            } => self.native.get(&native_key(address, is_innermost)).copied(),
            StackFrame::Label { start, end } => {
                let code = stack.label(start, end);
                let known = self.labels.get(&hash_of(code))?;
                (self.label_codes[known.start..known.end] == *code).then_some(known.number)
            }
        }
    }

    /// Writes a frame that is not known, and gives its number.
    fn define(
        &mut self,
        stack: &StackFrames,
        frame: StackFrame,
        before: u64,
        out: &mut EntryWriter,
    ) -> u32 {
        let number = self.frames;
        self.frames += 1;
        match frame {
            StackFrame::Native {
                address,
                is_innermost,
            } => {
                let tag = if is_innermost {
                    FrameTag::Innermost
                } else {
                    FrameTag::Return
                };
                // Two bits are for the tag: addresses of programs leave more of them free.
                out.number(tag.join(zigzag(address.wrapping_sub(before) as i64) & (u64::MAX >> 2)));
                self.native
                    .insert(native_key(address, is_innermost), number);
            }
            StackFrame::Label { start, end } => {
                let code = stack.label(start, end);
                out.raw(code);
                let start = self.label_codes.len();
                self.label_codes.extend_from_slice(code);
                let end = self.label_codes.len();
                self.labels
                    .entry(hash_of(code))
                    .or_insert(KnownLabel { number, start, end });
            }
        }
        number
    }
}

fn native_key(address: u64, is_innermost: bool) -> u64 {
    address << 1 | u64::from(is_innermost)
}

/// By the hasher of the standard library, as a host's texts may be chosen by others.
fn hash_of(code: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    code.hash(&mut hasher);
    hasher.finish()
}
