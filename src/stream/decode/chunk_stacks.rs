//! Rebuilds the frames and stacks of a chunk from its samples. They mirror the stack dictionary
//! with which `crate::sampler` wrote the chunk.

use crate::buffer::{EntryReader, FrameTag, ROOT_NODES, root_node, unzigzag};
use crate::labels::{ContextWords, joined_label_text};
use crate::model::UniqueStacks;
use crate::stream::decode::contexts::Contexts;
use crate::stream::decode::source::ProfileSource;
use crate::symbols::SampledAddress;
use crate::types::{CategoryInfo, CodeAddress, FrameFlags, NoStack, Wait};
use crate::unwind::{AddressMeaning, LoadedModule};
use crate::util::TextTable;

/// A sampled frame before it is named.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum FrameKey {
    Root,
    /// Precedes the frames of a stack other than the thread's own.
    OtherStack,
    /// Placeholder for missing frames.
    Truncated,
    /// Placeholder for missing labels, after the newest label of the stack.
    LabelsLeftOut,
    /// Placeholder for the stack of a running thread.
    NoStack(NoStack),
    Native(SampledAddress),
    /// The place where a thread waits.
    Waiting(SampledAddress, Wait),
    /// An address in an unloaded module whose place another module has taken, with the number of
    /// the unloaded module.
    Replaced(usize, SampledAddress),
    /// An address in an unloaded module that is no longer known.
    Unknown,
    Label {
        /// The number of the text in the profile.
        text: u32,
        category: u8,
        subcategory: u8,
        relevant_for_js: bool,
    },
    /// A position in the script function with this number. A line or column of 0 is unknown.
    Script {
        function: u32,
        line: u32,
        column: u32,
    },
}

/// Resolves the parts of a frame that need information from outside of the chunk.
pub(crate) struct FrameResolver<'a> {
    pub(super) source: &'a ProfileSource,
    pub(super) modules: &'a [LoadedModule],
    pub(super) label_texts: &'a mut TextTable,
    pub(super) contexts: &'a mut Contexts,
    pub(super) categories: &'a [&'static CategoryInfo],
}

impl FrameResolver<'_> {
    /// Returns the key of a native frame that was sampled with the module list `modules`.
    fn native(&self, address: SampledAddress, modules: u64) -> FrameKey {
        let at = address.lookup_address();
        match self.source.modules.meaning(self.modules, at, modules) {
            AddressMeaning::Replaced(module) => FrameKey::Replaced(module, address),
            AddressMeaning::Unknown if self.source.generated_code.find(at).is_none() => {
                FrameKey::Unknown
            }
            AddressMeaning::Same | AddressMeaning::Unknown => FrameKey::Native(address),
        }
    }

    /// Returns the number of subcategories of a category; 0 for an unknown category.
    fn subcategories(&self, category: u8) -> usize {
        self.categories
            .get(usize::from(category))
            .map_or(0, |category| category.subcategories.len())
    }
}

#[derive(Debug)]
struct ChunkFrame {
    /// `None` for the context of the samples that end with it.
    key: Option<FrameKey>,
    /// Number of the context in the profile; 0 for a frame.
    context: u32,
    /// The address of a native frame.
    address: Option<u64>,
    /// Index of the frame in the profile, once a sample uses it.
    index: Option<u32>,
}

#[derive(Debug)]
struct Node {
    below: u32,
    frame: u32,
    /// Address of this node's native frame, or else of the nearest one below; 0 if neither exists.
    address: u64,
    /// Number of the context that the node adds to the stack below it, in the profile; 0 if the
    /// node adds a frame.
    context: u32,
    /// Index of the stack in the profile, once a sample uses it.
    stack: Option<u32>,
}

/// The tables of a chunk, built from the entries read so far. The next chunk reuses their memory.
#[derive(Debug, Default)]
pub(crate) struct ChunkStacks {
    /// Whether the tables are incomplete after an unreadable entry. Later samples may depend on that
    /// entry, so they are skipped until the tables begin again.
    pub(super) is_broken: bool,
    modules: u64,
    /// Time of the last sample. The next sample's distance counts from it.
    pub(super) last_time_ns: u64,
    frames: Vec<ChunkFrame>,
    nodes: Vec<Node>,
    roots: [Option<u32>; ROOT_NODES as usize],
    /// For each thread, by its index in the profile: the epoch in which its last sample was read,
    /// and the node of that sample.
    last_nodes: Vec<(u64, u32)>,
    /// Number of calls of [`Self::begin`]: each one invalidates the nodes in `last_nodes`.
    epoch: u64,
    /// Kept between calls to reuse its memory.
    to_add: Vec<u32>,
}

impl ChunkStacks {
    /// Empties the tables. Call it at the beginning of a chunk, and where the module list changes.
    pub(crate) fn begin(&mut self, modules: u64) {
        self.modules = modules;
        self.last_time_ns = 0;
        self.is_broken = false;
        self.frames.clear();
        self.nodes.clear();
        self.epoch += 1;
    }

    /// Returns the time of the next sample of the chunk, `distance` ns after that of the previous
    /// one.
    pub(crate) fn time_ns(&self, distance: i64) -> u64 {
        self.last_time_ns.wrapping_add(distance as u64)
    }

    /// Returns the node of a thread's last sample since [`Self::begin`], if there was one. `thread`
    /// is the thread's index in the profile.
    pub(crate) fn last_node(&self, thread: usize) -> Option<u32> {
        let (epoch, node) = *self.last_nodes.get(thread)?;
        (epoch == self.epoch).then_some(node)
    }

    pub(crate) fn set_last_node(&mut self, thread: usize, node: u32) {
        if thread >= self.last_nodes.len() {
            self.last_nodes.resize(thread + 1, (0, 0));
        }
        self.last_nodes[thread] = (self.epoch, node);
    }

    /// Reads the stack of a sample or of a marker. Returns the stack's node and whether the entry
    /// defines new nodes, or `None` if the entry is malformed.
    pub(crate) fn read(
        &mut self,
        entry: &mut EntryReader<'_>,
        resolver: &mut FrameResolver<'_>,
    ) -> Option<(u32, bool)> {
        let mut node = self.existing_node(entry.number()?)?;
        let new_nodes = entry.number()?;
        for _ in 0..new_nodes {
            let before = self.address_of(node);
            let frame = self.read_frame(entry, before, resolver)?;
            let chunk_frame = self.frames.get(frame as usize)?;
            self.nodes.push(Node {
                below: node,
                frame,
                address: chunk_frame.address.unwrap_or(before),
                context: chunk_frame.context,
                stack: None,
            });
            node = u32::try_from(self.nodes.len())
                .ok()?
                .checked_add(ROOT_NODES - 1)?;
        }
        Some((node, new_nodes > 0))
    }

    /// Reads a stack that defines no nodes and that an earlier sample has used. Returns its node
    /// and its index in the profile; `None` for any other stack.
    #[inline(always)]
    pub(crate) fn read_known(&self, mut entry: EntryReader<'_>) -> Option<(u32, u32)> {
        let node = u32::try_from(entry.number()?).ok()?;
        if entry.number()? > 0 {
            return None;
        }
        Some((node, self.known_stack(node)?))
    }

    /// Returns the number of the context of samples that end with a node; 0 if they have none.
    #[inline(always)]
    pub(crate) fn context(&self, node: u32) -> u32 {
        self.node(node).map_or(0, |node| node.context)
    }

    /// Returns the index of a node's stack in the profile, if a sample has used it.
    #[inline(always)]
    pub(crate) fn known_stack(&self, node: u32) -> Option<u32> {
        self.node(node)?.stack
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
        resolver: &mut FrameResolver<'_>,
    ) -> Option<u32> {
        let sampled = |distance, is_return_address| SampledAddress {
            address: CodeAddress::new(before.wrapping_add(unzigzag(distance) as u64)),
            is_return_address,
        };
        let (tag, rest) = FrameTag::split(entry.number()?);
        let (key, address) = match tag {
            FrameTag::Known => {
                let frame = u32::try_from(rest).ok()?;
                return ((frame as usize) < self.frames.len()).then_some(frame);
            }
            FrameTag::Return | FrameTag::Innermost => {
                let sampled = sampled(rest, tag == FrameTag::Return);
                let key = resolver.native(sampled, self.modules);
                (key, Some(sampled.address.get()))
            }
            FrameTag::Label if rest == FrameTag::LABELS_LEFT_OUT => (FrameKey::LabelsLeftOut, None),
            FrameTag::Label if rest == FrameTag::NO_STACK => {
                let reason = NoStack::from_number(entry.number()?)?;
                (FrameKey::NoStack(reason), None)
            }
            FrameTag::Label if rest == FrameTag::CONTEXT => {
                let number = resolver.contexts.add(read_context(entry)?);
                return self.add_frame(None, number, None);
            }
            FrameTag::Label if rest >= FrameTag::WAITING => {
                let wait = u8::try_from(rest - FrameTag::WAITING).ok()?;
                let wait = Wait::from_byte(wait)?;
                let sampled = sampled(entry.number()?, false);
                let key = match resolver.native(sampled, self.modules) {
                    FrameKey::Native(address) => FrameKey::Waiting(address, wait),
                    unloaded => unloaded,
                };
                (key, Some(sampled.address.get()))
            }
            FrameTag::Label => (read_label(u8::try_from(rest).ok()?, entry, resolver)?, None),
        };
        self.add_frame(Some(key), 0, address)
    }

    fn add_frame(
        &mut self,
        key: Option<FrameKey>,
        context: u32,
        address: Option<u64>,
    ) -> Option<u32> {
        self.frames.push(ChunkFrame {
            key,
            context,
            address,
            index: None,
        });
        u32::try_from(self.frames.len() - 1).ok()
    }

    /// Returns the index of a node's stack in the profile, and adds the stack if it is new.
    pub(crate) fn stack(&mut self, node: u32, stacks: &mut UniqueStacks<FrameKey>) -> u32 {
        if let Some(stack) = self.known_stack(node) {
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
            // A context adds no frame.
            if let Some(key) = &frame.key {
                let index = *frame.index.get_or_insert_with(|| stacks.intern_frame(key));
                stack = stacks.append_frame(Some(stack), index);
            }
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

/// Reads the context of a sample.
fn read_context(entry: &mut EntryReader<'_>) -> Option<ContextWords> {
    let mut word = || {
        let bytes = entry.bytes(8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    let mut context = ContextWords {
        trace: [word()?, word()?],
        span: word()?,
        ..ContextWords::NONE
    };
    let labels = usize::try_from(entry.number()?).ok()?;
    let labels = context.labels.get_mut(..labels)?;
    for label in labels {
        *label = u32::try_from(entry.number()?).ok()?;
    }
    Some(context)
}

/// Reads a frame of the label stack.
fn read_label(
    flags: u8,
    entry: &mut EntryReader<'_>,
    resolver: &mut FrameResolver<'_>,
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
    if usize::from(subcategory) >= resolver.subcategories(category) {
        return None;
    }
    let text = joined_label_text(entry.text()?, entry.text()?, flags);
    let text = resolver.label_texts.intern(&text);
    let relevant_for_js = flags.has(FrameFlags::RELEVANT_FOR_JS);
    Some(FrameKey::Label {
        text,
        category,
        subcategory,
        relevant_for_js,
    })
}
