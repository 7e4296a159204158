//! The frames and stacks that the current chunk of samples already contains.
//!
//! The reader of the chunk rebuilds the same tables from the entries
//! (`crate::stream::decode::chunk_stacks`). The grammar is in `entry_kind.rs`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use crate::buffer::{ChunkNumber, EntryWriter, FrameTag, ROOT_NODES, zigzag};
use crate::sampler::encode::stored_stack::{NativePlace, StoredFrame, StoredStack};
use crate::util::{NumberMap, pair_key};

/// Identifies one filling of the dictionary. Numbers from one filling mean nothing in another.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct DictionaryEpoch(u64);

/// Tables of a chunk. They are reused from chunk to chunk to keep their memory.
#[derive(Debug, Default)]
pub(crate) struct StackDictionary {
    /// The chunk that the dictionary describes, and the number of its module list. `None` before
    /// the first chunk and when the chunk is full.
    described: Option<(ChunkNumber, u64)>,
    epoch: DictionaryEpoch,
    /// Time of the previous sample, in ns since the process began.
    last_time_ns: u64,
    native: NumberMap<u32>,
    /// Labels by the hash of their encoding: their number, and the range of the encoding in
    /// `label_codes`. If two have the same hash, only the first is known.
    labels: NumberMap<(u32, Range<usize>)>,
    label_codes: Vec<u8>,
    frames: u32,
    /// Nodes by their parent node and the number of their frame.
    nodes: NumberMap<u32>,
    /// For each node, the address of the nearest native frame in its stack.
    addresses: Vec<u64>,
}

impl StackDictionary {
    /// Returns the chunk that the dictionary describes, if it uses this module list.
    pub(crate) fn chunk(&self, modules: u64) -> Option<ChunkNumber> {
        self.described
            .filter(|(_, list)| *list == modules)
            .map(|(chunk, _)| chunk)
    }

    /// Returns the chunk that the dictionary describes, with any module list.
    pub(crate) fn any_chunk(&self) -> Option<ChunkNumber> {
        self.described.map(|(chunk, _)| chunk)
    }

    pub(crate) fn epoch(&self) -> DictionaryEpoch {
        self.epoch
    }

    /// Detaches the dictionary from its chunk.
    pub(crate) fn forget(&mut self) {
        self.described = None;
    }

    /// Restarts the dictionary for a chunk that contains none of its stacks.
    pub(crate) fn begin(&mut self, chunk: ChunkNumber, modules: u64) {
        self.described = Some((chunk, modules));
        self.epoch = DictionaryEpoch(self.epoch.0 + 1);
        self.last_time_ns = 0;
        self.native.clear();
        self.labels.clear();
        self.label_codes.clear();
        self.frames = 0;
        self.nodes.clear();
        self.addresses.clear();
        self.addresses.resize(ROOT_NODES as usize, 0);
    }

    /// Returns the difference between a sample's time and the previous sample's.
    pub(crate) fn time_distance(&self, time_ns: u64) -> i64 {
        time_ns.wrapping_sub(self.last_time_ns) as i64
    }

    /// Records the time of a sample that was written.
    pub(crate) fn set_last_time(&mut self, time_ns: u64) {
        self.last_time_ns = time_ns;
    }

    /// Writes a stack as the difference from the known stacks, and adds it to them. Returns false,
    /// and writes nothing, if memory is lacking.
    #[must_use]
    pub(crate) fn write(&mut self, stack: &StoredStack, out: &mut EntryWriter) -> bool {
        let mut node = stack.root();
        let mut rest = stack.frames();
        while let Some((&frame, after)) = rest.split_first()
            && let Some(frame) = self.known(stack, frame)
            && let Some(&next) = self.nodes.get(&pair_key(node, frame))
        {
            (node, rest) = (next, after);
        }
        if !self.try_reserve(rest, out) {
            return false;
        }
        out.number(node.into()).number(rest.len() as u64);
        for &frame in rest {
            let before = self.addresses[node as usize];
            let address = match frame {
                StoredFrame::Native { address, .. } => address,
                StoredFrame::Label { .. } => before,
            };
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
        true
    }

    /// Makes space for a stack's unknown frames, in the tables and in `out`. Returns false if
    /// memory is lacking.
    fn try_reserve(&mut self, frames: &[StoredFrame], out: &mut EntryWriter) -> bool {
        let label_lengths = frames.iter().filter_map(|frame| match frame {
            StoredFrame::Native { .. } => None,
            StoredFrame::Label { start, end } => Some((end - start) as usize),
        });
        let (labels, code_bytes) = label_lengths.fold((0, 0), |(labels, bytes), length| {
            (labels + 1, bytes + length)
        });
        // A waiting frame takes two numbers.
        out.try_reserve(3 + frames.len(), code_bytes)
            && self.native.try_reserve(frames.len() - labels).is_ok()
            && self.labels.try_reserve(labels).is_ok()
            && self.label_codes.try_reserve(code_bytes).is_ok()
            && self.nodes.try_reserve(frames.len()).is_ok()
            && self.addresses.try_reserve(frames.len()).is_ok()
    }

    fn known(&self, stack: &StoredStack, frame: StoredFrame) -> Option<u32> {
        match frame {
            StoredFrame::Native { address, place } => {
                self.native.get(&native_key(address, place)).copied()
            }
            StoredFrame::Label { start, end } => {
                let code = stack.label(start, end);
                let (number, range) = self.labels.get(&hash_of(code))?;
                (self.label_codes[range.clone()] == *code).then_some(*number)
            }
        }
    }

    /// Writes a frame that is not known yet, and returns its number.
    fn define(
        &mut self,
        stack: &StoredStack,
        frame: StoredFrame,
        before: u64,
        out: &mut EntryWriter,
    ) -> u32 {
        let number = self.frames;
        self.frames += 1;
        match frame {
            StoredFrame::Native { address, place } => {
                let distance = zigzag(address.wrapping_sub(before) as i64);
                // The tag takes two bits. Addresses of programs leave more than two bits unused.
                let rest = distance & (u64::MAX >> 2);
                match place {
                    NativePlace::Return => out.number(FrameTag::Return.join(rest)),
                    NativePlace::Innermost => out.number(FrameTag::Innermost.join(rest)),
                    NativePlace::Waiting(wait) => {
                        let tag = FrameTag::WAITING + u64::from(wait.to_byte());
                        out.number(FrameTag::Label.join(tag)).number(distance)
                    }
                };
                self.native.insert(native_key(address, place), number);
            }
            StoredFrame::Label { start, end } => {
                let code = stack.label(start, end);
                out.raw(code);
                let start = self.label_codes.len();
                self.label_codes.extend_from_slice(code);
                let range = start..self.label_codes.len();
                self.labels.entry(hash_of(code)).or_insert((number, range));
            }
        }
        number
    }
}

/// Returns the key of a native frame. The addresses of programs leave the upper bits unused.
fn native_key(address: u64, place: NativePlace) -> u64 {
    let rest = match place {
        NativePlace::Return => 0,
        NativePlace::Innermost => 1,
        NativePlace::Waiting(wait) => 1 | (u64::from(wait.to_byte()) + 1) << 60,
    };
    address << 1 | rest
}

/// Hashes with the standard library's hasher, because an attacker may choose the application's
/// texts.
fn hash_of(code: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    code.hash(&mut hasher);
    hasher.finish()
}
