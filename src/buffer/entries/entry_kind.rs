//! The kinds of entries and their grammar.
//!
//! ```text
//! block   = length:N entry                  N: ULEB128    Z: zigzag, then ULEB128    B: one byte
//!                                           T: a byte with a length, and that many bytes,
//!                                              little-endian
//! entry   = kind:B fields
//! Modules = state:N                         before a chunk's first sample, and at each change
//! Sample  = thread:N time:Z flags:B [cpu:N] [event:N] [more:N span:N [tick:N]] [weight:N] node:N fresh:N frame*
//!                                           a sample with its stack
//! Same    = thread:N time:Z flags:B [cpu:N] [event:N] [more:N span:N [tick:N]] [weight:N]
//!                                           a sample with the stack of the thread's last Sample
//! frame   = number*4:N                      a known frame, by its number
//!         | Z*4+1:N                         a new frame: a return address, as a distance
//!         | Z*4+2:N                         a new frame: the thread's next instruction, likewise
//!         | flags*4+3:N category:B subcategory:B text dynamic
//!                                           a new frame: a label
//!         | flags*4+3:N function:N line:N column:N
//!                                           a new frame: a script frame, if the flags say so
//!         | 256*4+3:N                       a new frame: labels were left out here
//!         | 1024*4+3:N context              the sample's context, stored as its last frame
//! context = trace:W trace:W span:W labels:N label:N*
//!                                           W: eight bytes, little-endian
//! Marker  = thread:N what:B start:T end:T category:B rarity:B [stack:N] [window:N]
//!           length:N [type:N] byte* payload
//!                                           it represents 2 to the power of `rarity` markers
//! payload =                                 empty: a marker without payload
//!         | byte*                           a text, up to the end of the entry
//!         | byte* whole:B                   of the application's type with the number `type`
//! Backtrace = stack:N time:N node:N fresh:N frame*          a stack that markers refer to
//! EventProbe = thread:N posted:N waited:N                   a probe of an event loop
//! Counter = counter:N time:N value:Z                        the absolute value of a counter
//! Pause, Resume, PauseSampling, ResumeSampling = time:N     takes effect at that time
//! Overhead = time:N step:N{4}                               duration of a tick's steps, in ns
//! Wait    = time:N weight:N interval:N node:N fresh:N frame*
//!                                           where async tasks have waited
//! TickGap = time:N before:N tick:N          the sampler's tick of this number came at `time`, and
//!                                           the one before it at `before`
//! text    = length:N bytes                                  UTF-8
//! ```
//!
//! *Stacks.* A stack is a node of a tree: its innermost frame on top of another stack. The nodes of
//! a chunk are numbered. Node 0 is the root, and node 1 the root of a truncated stack. Nodes 2 and
//! 3 are these two roots for a thread that runs on a stack other than its original one. Each frame
//! of a Sample creates the next node, on top of the previous frame's node; the first frame's node
//! is on top of `node`. New frames are also numbered in order, from 0. The distance of a native
//! frame is counted from the nearest native frame below it in its stack, or from address 0.
//! `Modules` and the end of the chunk reset all these numbers. The `state` of `Modules` is the
//! number of the list of loaded modules to which the addresses after it belong.
//!
//! *Contexts.* A context is the last frame of a sample's stack, above the innermost frame. `trace`
//! is the id of a trace, its upper half first, and `span` that of a span; each is 0 if it is not
//! known. At most four `labels` follow, by their numbers in the process.
//!
//! *Times* are in nanoseconds since the start of the process. The time of a sample is relative to
//! the previous Sample or Same, or to the last `Modules`.
//!
//! *Samples.* `cpu` is the CPU time that the thread used since its previous sample, in nanoseconds.
//! It is present if the flags say so, and so is `event`. `event` is 0 while the thread's event loop
//! waits. Otherwise it is 1 plus the zigzag encoding of the nanoseconds since the running event was
//! queued, a negative number before that time. A sample may represent `more` further samples,
//! during which the thread did not run. They are evenly spaced between two gaps of the sampler's
//! ticks, and the last of them is `span` nanoseconds later. The event's time advances with them.
//! `tick` is the number of the sample's tick, present if the flags say so: if there may be a gap
//! before or among the samples. `weight`, likewise, is the number of ticks that the sample counts for.
//!
//! *Gaps.* The sampler was kept from its ticks between `before` and `time`. The ticks between two gaps
//! are about evenly spaced. A gap precedes the samples that follow it or extend across it. In a chunk, the
//! samples come after the latest 64 gaps before them, because any earlier chunk may be destroyed.
//!
//! *Event probes.* `waited` is 0 for a pending probe, which gets another entry later. Otherwise it
//! is 1 plus the nanoseconds until the probe was answered.
//!
//! *Waits.* The stack consists of labels, and of the context if there is an interval in one.
//! `weight` is the time, in nanoseconds, that tasks with this stack have waited and that no earlier
//! entry has. `interval` is the duration of one wait that ended at `time`, and is shown by itself;
//! 0 for none.
//!
//! *Markers.* The lowest two bits of `what` are Gecko's phase: 0 instant, 1 interval, 2 start,
//! 3 end. Times that the phase does not use are 0. The next two bits are the kind of payload:
//! 0 none, 1 a text, 2 of a type of the application. The two bits above say whether `stack` and
//! `window` are present. `length` is the length of the name, whose bytes precede the payload.
//! `whole` is 1 if the payload is complete.
//!
//! *Script frames.* `function` is the number of the function in the process. A line or column of 0
//! is unknown.

/// Kind of an entry, stored in its first byte. No kind is 0, so zeroed memory is never an entry.
#[doc(alias = "ProfileBufferEntryKind")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum EntryKind {
    #[doc(alias = "CompactStack")]
    Sample = 1,
    #[doc(alias = "SameSample")]
    Same = 2,
    Marker = 3,
    #[doc(alias = "CounterId")]
    Counter = 4,
    #[doc(alias = "ProfilerOverheadTime")]
    Overhead = 5,
    EventProbe = 6,
    /// The stack of one or more markers.
    Backtrace = 7,
    /// No samples are taken and no markers recorded until the next `Resume`.
    Pause = 8,
    Resume = 9,
    /// No samples are taken until the next `ResumeSampling`.
    PauseSampling = 10,
    ResumeSampling = 11,
    /// The list of modules to which the addresses after it belong.
    Modules = 12,
    /// Where async tasks have waited, and how long.
    Wait = 13,
    /// Two successive ticks of the sampler that lie apart, so that the ticks are not evenly spaced.
    TickGap = 14,
}

impl EntryKind {
    pub(crate) const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Sample),
            2 => Some(Self::Same),
            3 => Some(Self::Marker),
            4 => Some(Self::Counter),
            5 => Some(Self::Overhead),
            6 => Some(Self::EventProbe),
            7 => Some(Self::Backtrace),
            8 => Some(Self::Pause),
            9 => Some(Self::Resume),
            10 => Some(Self::PauseSampling),
            11 => Some(Self::ResumeSampling),
            12 => Some(Self::Modules),
            13 => Some(Self::Wait),
            14 => Some(Self::TickGap),
            _ => None,
        }
    }
}

/// Meaning of a frame's first number, stored in its lowest two bits. The other bits are the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FrameTag {
    /// Number of a frame that the chunk already holds.
    Known,
    /// Distance to a return address.
    Return,
    /// Distance to the thread's next instruction.
    Innermost,
    /// Flags of a frame of the label stack.
    Label,
}

impl FrameTag {
    /// Value in place of a frame's flags, for a frame that replaces labels that were left out.
    pub(crate) const LABELS_LEFT_OUT: u64 = 256;
    /// Value in place of a frame's flags, for a frame in the place of a whole stack. The reason
    /// follows, as a number.
    pub(crate) const NO_STACK: u64 = 257;
    /// The first value in place of a frame's flags for the place where a thread waits: this plus
    /// the kind of the wait. The distance to the thread's next instruction follows.
    pub(crate) const WAITING: u64 = 512;
    /// Value in place of a frame's flags for the context of a sample. Greater than any wait.
    pub(crate) const CONTEXT: u64 = 1024;

    pub(crate) const fn split(number: u64) -> (Self, u64) {
        let tag = match number & 3 {
            0 => Self::Known,
            1 => Self::Return,
            2 => Self::Innermost,
            _ => Self::Label,
        };
        (tag, number >> 2)
    }

    pub(crate) const fn join(self, rest: u64) -> u64 {
        rest << 2 | self as u64
    }
}

/// Number of root nodes, which precede the node of the first frame.
pub(crate) const ROOT_NODES: u32 = 4;

/// Returns the root node of a stack.
pub(crate) const fn root_node(is_truncated: bool, is_of_other_stack: bool) -> u32 {
    is_truncated as u32 | (is_of_other_stack as u32) << 1
}
