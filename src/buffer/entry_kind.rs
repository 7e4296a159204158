//! The kinds of entries, and the grammar of each, stated once.
//!
//! ```text
//! block   = length:N entry                         N: ULEB128    Z: zigzag, then ULEB128    B: one byte
//!                                                  T: a byte that says how many follow, little-endian
//! entry   = kind:B fields
//! Modules = state:N                                         before the samples of a chunk, and where it changes
//! Sample  = thread:N time:Z flags:B [cpu:N] [event:N] [more:N span:N] node:N fresh:N frame*    a sample with its stack
//! Same    = thread:N time:Z flags:B [cpu:N] [event:N] [more:N span:N]  with the stack of the thread's last Sample
//! frame   = number*4:N                                      a frame that was there before
//!         | Z*4+1:N                                         a new one: a return address, by its distance
//!         | Z*4+2:N                                         a new one: where the thread was, likewise
//!         | flags*4+3:N category:B subcategory:B text dynamic          a new one: a label
//!         | flags*4+3:N function:N line:N column:N                     a new one: a script frame, as its flags say
//!         | 256*4+3:N                                       a new one: stands for labels that are missing
//! Marker  = thread:N what:B start:T end:T category:B subcategory:B [stack:N] [window:N] length:N [type:N] byte* payload
//! payload =                                                 of a marker with its name alone
//!         | byte*                                           a text, to the entry's end
//!         | byte* whole:B                                   of the host's type with that number
//! Backtrace = stack:N time:N node:N fresh:N frame*          the stack of the markers that name its number
//! EventProbe = thread:N posted:N waited:N                   an event loop's probe
//! Counter = counter:N time:N value:Z                        a counter's absolute value
//! Pause, Resume, PauseSampling, ResumeSampling = time:N     from then on
//! Overhead = time:N step:N{4}                               nanoseconds that the steps of a tick took
//! text    = length:N bytes                                  UTF-8
//! ```
//!
//! *Stacks.* A stack is a node of a tree: its innermost frame on top of another stack. The nodes of a chunk are numbered: 0 is the
//! root, 1 the root of a stack that could not be followed to its root, 2 and 3 are the same on a stack that the thread was not
//! born with; each frame of a Sample makes the next node, on top of the one before it, and the first of them on top of `node`.
//! So is the number of each new frame the next one, from 0 on. The distance of a native frame is that from the nearest
//! native frame below it in its stack, or from 0. `Modules` forgets all that, as the end of the chunk does: `state` says which
//! of the lists of loaded modules the addresses after it belong to.
//!
//! *Times* are nanoseconds since the process began; those of samples count from the Sample or Same before, or from `Modules`.
//!
//! `cpu`, nanoseconds of the thread's CPU time since its sample before, is there when the flags say so; so is `event`, which
//! is 0 when the thread's event loop waits, else one more than zigzag of the nanoseconds since the event that runs was
//! queued, which are negative before that. `waited` is 0 of a probe that is out and has another entry later, else one more than
//! the nanoseconds until its answer. A sample may stand for `more` others after it, evenly spaced, the last of them `span`
//! nanoseconds later, in which the thread did not run, so that the event goes on.
//!
//! *Markers.* The lowest two bits of `what` are Gecko's phase: 0 instant, 1 interval, 2 start, 3 end; times that the phase does
//! not have are 0. The next two say what the payload is: 0 none, 1 a text, 2 one of the host's; then, whether there is a stack,
//! and whether a window. `length` is the name's, whose bytes come before the payload. `whole` is 1 where all of the payload is
//! there. A script's function is its number in the process; a
//! line or column of 0 is not known.

/// The first byte of an entry. 0 is none, so that zeroed memory is no entry.
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
    /// The stack of markers.
    Backtrace = 7,
    /// Neither samples nor markers are taken until the next `Resume`.
    Pause = 8,
    Resume = 9,
    /// No samples are taken until the next `ResumeSampling`.
    PauseSampling = 10,
    ResumeSampling = 11,
    /// Which list of modules the addresses after it belong to.
    Modules = 12,
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
            _ => None,
        }
    }
}

/// The flags of a sample.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct SampleFlags(u8);

impl SampleFlags {
    /// The thread's CPU time is known.
    pub(crate) const HAS_CPU: Self = Self(1);
    /// It stands for others after it.
    pub(crate) const HAS_MORE: Self = Self(2);
    /// The thread has an event loop.
    pub(crate) const HAS_EVENT: Self = Self(4);

    pub(crate) const fn from_byte(byte: u8) -> Self {
        Self(byte)
    }

    pub(crate) const fn to_byte(self) -> u8 {
        self.0
    }

    pub(crate) const fn with(self, flag: Self, on: bool) -> Self {
        if on { Self(self.0 | flag.0) } else { self }
    }

    pub(crate) const fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }
}

/// What the first number of a frame says in its lowest two bits; the rest of it is above.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FrameTag {
    /// The number of a frame that was there before.
    Known,
    /// The distance to a return address.
    Return,
    /// The distance to where the thread was.
    Innermost,
    /// Flags of a frame of the label stack.
    Label,
}

impl FrameTag {
    /// In the place of a frame's flags: it stands for labels that are missing.
    pub(crate) const LABELS_LEFT_OUT: u64 = 256;

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

/// How many nodes there are before the first frame, and which of them a stack begins with.
pub(crate) const ROOT_NODES: u32 = 4;

pub(crate) const fn root_node(is_truncated: bool, is_of_other_stack: bool) -> u32 {
    is_truncated as u32 | (is_of_other_stack as u32) << 1
}
