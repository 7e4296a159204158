//! The stacks of a chunk, as its samples bring them: what `crate::sampler`'s dictionary knew when it wrote them.

use crate::base::{CodeAddress, FrameFlags};
use crate::buffer::{EntryReader, FrameTag, ROOT_NODES, root_node, unzigzag};
use crate::stream::unique_stacks::UniqueStacks;
use crate::symbols::SampledAddress;

/// A frame as it was sampled, before it is named.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum FrameKey {
    Root,
    /// Stands below the frames of a stack that is not the thread's own.
    OtherStack,
    /// Stands for the frames that are missing.
    Truncated,
    /// Stands for labels that are missing, behind the newest that is there.
    LabelsLeftOut,
    Native(SampledAddress),
    /// In a module that was unloaded and whose place another took, by its number.
    Replaced(usize, SampledAddress),
    /// In a module that was unloaded and that nobody remembers.
    Unknown,
    Label {
        /// Its number among the profile's.
        text: u32,
        category: u8,
        subcategory: u8,
        relevant_for_js: bool,
    },
    /// In a function of a script, by its number; a line or column of 0 is not known.
    Script {
        function: u32,
        line: u32,
        column: u32,
    },
}

/// What a chunk's frames are told by whom the chunk does not know.
pub(super) trait Meanings {
    /// What a native frame was, in the list of modules of this number.
    fn native(&mut self, address: SampledAddress, modules: u64) -> FrameKey;

    /// The number of a label's text, from its static and its dynamic part.
    fn label_text(&mut self, label: &[u8], dynamic: &[u8], flags: FrameFlags) -> u32;

    /// How many subcategories a category has; 0 when there is no such category.
    fn subcategories(&self, category: u8) -> usize;
}

#[derive(Debug)]
struct ChunkFrame {
    key: FrameKey,
    /// Of a native one.
    address: Option<u64>,
    /// Its place among the frames of the profile, once a sample has it.
    index: Option<u32>,
}

#[derive(Debug)]
struct Node {
    below: u32,
    frame: u32,
    /// Of the nearest native frame.
    address: u64,
    /// Its place among the stacks of the profile, once a sample has it.
    stack: Option<u32>,
}

/// The tables of a chunk, as far as it was read. They are kept from chunk to chunk for their memory.
#[derive(Debug, Default)]
pub(super) struct ChunkStacks {
    is_lost: bool,
    modules: u64,
    last_time_ns: u64,
    frames: Vec<ChunkFrame>,
    nodes: Vec<Node>,
    roots: [Option<u32>; ROOT_NODES as usize],
    /// By the places of threads in the profile: in which edition of the tables a sample of it was read last, and its node.
    last_nodes: Vec<(u64, u32)>,
    edition: u64,
    /// Kept for its memory.
    to_add: Vec<u32>,
}

impl ChunkStacks {
    /// Nothing is known at a chunk's beginning, and where the list of modules becomes another one.
    pub(super) fn begin(&mut self, modules: u64) {
        self.modules = modules;
        self.last_time_ns = 0;
        self.is_lost = false;
        self.frames.clear();
        self.nodes.clear();
        self.edition += 1;
    }

    /// Something could not be read: what comes after it counts on what it would have brought, until all begins anew.
    pub(super) fn lose(&mut self) {
        self.is_lost = true;
    }

    pub(super) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// The time of a sample, by its distance from that of the one before.
    pub(super) fn time_ns(&mut self, distance: i64) -> u64 {
        self.last_time_ns = self.last_time_ns.wrapping_add(distance as u64);
        self.last_time_ns
    }

    /// The node of the last sample of the thread at this place in the profile.
    pub(super) fn last_node(&self, thread: usize) -> Option<u32> {
        let (edition, node) = *self.last_nodes.get(thread)?;
        (edition == self.edition).then_some(node)
    }

    pub(super) fn set_last_node(&mut self, thread: usize, node: u32) {
        if thread >= self.last_nodes.len() {
            self.last_nodes.resize(thread + 1, (0, 0));
        }
        self.last_nodes[thread] = (self.edition, node);
    }

    /// Reads a sample's stack, and gives its node, and whether it brought any frame. `None` when it is malformed.
    pub(super) fn read(
        &mut self,
        entry: &mut EntryReader<'_>,
        meanings: &mut impl Meanings,
    ) -> Option<(u32, bool)> {
        let mut node = self.existing_node(entry.number()?)?;
        let fresh = entry.number()?;
        for _ in 0..fresh {
            let before = self.address_of(node);
            let frame = self.read_frame(entry, before, meanings)?;
            let address = self.frames.get(frame as usize)?.address.unwrap_or(before);
            self.nodes.push(Node {
                below: node,
                frame,
                address,
                stack: None,
            });
            node = u32::try_from(self.nodes.len())
                .ok()?
                .checked_add(ROOT_NODES - 1)?;
        }
        Some((node, fresh > 0))
    }

    fn existing_node(&self, number: u64) -> Option<u32> {
        let number = u32::try_from(number).ok()?;
        (number < ROOT_NODES || self.node(number).is_some()).then_some(number)
    }

    fn node(&self, number: u32) -> Option<&Node> {
        self.nodes.get(number.checked_sub(ROOT_NODES)? as usize)
    }

    fn address_of(&self, number: u32) -> u64 {
        self.node(number).map_or(0, |node| node.address)
    }

    fn read_frame(
        &mut self,
        entry: &mut EntryReader<'_>,
        before: u64,
        meanings: &mut impl Meanings,
    ) -> Option<u32> {
        let (tag, rest) = FrameTag::split(entry.number()?);
        let (key, address) = match tag {
            FrameTag::Known => {
                let frame = u32::try_from(rest).ok()?;
                return ((frame as usize) < self.frames.len()).then_some(frame);
            }
            FrameTag::Return | FrameTag::Innermost => {
                let address = before.wrapping_add(unzigzag(rest) as u64);
                let is_return_address = tag == FrameTag::Return;
                let sampled = SampledAddress {
                    address: CodeAddress::new(address),
                    is_return_address,
                };
                (meanings.native(sampled, self.modules), Some(address))
            }
            FrameTag::Label if rest == FrameTag::LABELS_LEFT_OUT => (FrameKey::LabelsLeftOut, None),
            FrameTag::Label => (read_label(u8::try_from(rest).ok()?, entry, meanings)?, None),
        };
        self.frames.push(ChunkFrame {
            key,
            address,
            index: None,
        });
        u32::try_from(self.frames.len() - 1).ok()
    }

    /// The place of a node's stack among those of the profile.
    pub(super) fn stack(&mut self, node: u32, stacks: &mut UniqueStacks<FrameKey>) -> u32 {
        let known = |at: u32| {
            at.checked_sub(ROOT_NODES)
                .map(|index| self.nodes[index as usize].stack)
        };
        if let Some(Some(stack)) = known(node) {
            return stack;
        }
        let mut to_add = std::mem::take(&mut self.to_add);
        let mut at = node;
        let mut stack = loop {
            let Some(index) = at.checked_sub(ROOT_NODES) else {
                break self.root_stack(at, stacks);
            };
            let Node { below, stack, .. } = self.nodes[index as usize];
            if let Some(stack) = stack {
                break stack;
            }
            to_add.push(index);
            at = below;
        };
        for index in to_add.drain(..).rev() {
            let node = &mut self.nodes[index as usize];
            let frame = &mut self.frames[node.frame as usize];
            let index = *frame
                .index
                .get_or_insert_with(|| stacks.intern_frame(&frame.key));
            stack = stacks.append_frame(Some(stack), index);
            node.stack = Some(stack);
        }
        self.to_add = to_add;
        stack
    }

    fn root_stack(&mut self, root: u32, stacks: &mut UniqueStacks<FrameKey>) -> u32 {
        let is = |is_truncated, is_of_other_stack| {
            root & root_node(is_truncated, is_of_other_stack) != 0
        };
        *self.roots[root as usize].get_or_insert_with(|| {
            let mut append = |prefix, frame: FrameKey| {
                let frame = stacks.intern_frame(&frame);
                stacks.append_frame(prefix, frame)
            };
            let mut stack = append(None, FrameKey::Root);
            if is(false, true) {
                stack = append(Some(stack), FrameKey::OtherStack);
            }
            if is(true, false) {
                stack = append(Some(stack), FrameKey::Truncated);
            }
            stack
        })
    }
}

/// A frame of the label stack.
fn read_label(
    flags: u8,
    entry: &mut EntryReader<'_>,
    meanings: &mut impl Meanings,
) -> Option<FrameKey> {
    let flags = FrameFlags::from_byte(flags);
    if flags.has(FrameFlags::SCRIPT) {
        let mut number = || u32::try_from(entry.number()?).ok();
        return Some(FrameKey::Script {
            function: number()?,
            line: number()?,
            column: number()?,
        });
    }
    let (category, subcategory) = (entry.byte()?, entry.byte()?);
    if usize::from(subcategory) >= meanings.subcategories(category) {
        return None;
    }
    let text = meanings.label_text(entry.text()?, entry.text()?, flags);
    let relevant_for_js = flags.has(FrameFlags::RELEVANT_FOR_JS);
    Some(FrameKey::Label {
        text,
        category,
        subcategory,
        relevant_for_js,
    })
}
