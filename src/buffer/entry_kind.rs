//! The kinds of entries, and the grammar of each, stated once.
//!
//! ```text
//! block   = length:N entry                         N: ULEB128    Z: zigzag, then ULEB128    B: one byte
//! entry   = kind:B fields
//! Sample  = thread:N time:N flags:B [cpu:N] [event:N] [more:N span:N] runs:N run*   a sample with its stack, oldest frame first
//! run     = count*2:N (address:Z)*                            native frames; each is the distance to the one before
//!         | count*2+1:N label*                                frames of the label stack
//! label   = flags:B category:B subcategory:B text dynamic     a label
//!         | flags:B function:N line:N column:N                a script frame, as its flags say
//! Same    = thread:N time:N flags:B [cpu:N] [event:N] [more:N span:N]   with the stack of the thread's last Sample in this chunk
//! Marker  = thread:N phase:B start:N end:N category:B subcategory:B name payload:B text?
//! EventProbe = thread:N posted:N waited:N                     an event loop's probe
//! Counter = counter:N time:N value:Z                          a counter's absolute value
//! Pause, Resume, PauseSampling, ResumeSampling = time:N         from then on
//! Tick    = time:N step:N{4}                                  nanoseconds that the steps of a tick took; kind `Overhead`
//! text    = length:N bytes                                    UTF-8
//! ```
//!
//! Times are nanoseconds since the process began. `cpu`, nanoseconds of the thread's CPU time since its sample before,
//! is there when the flags say so; so is `event`, which is 0 when the thread's event loop waits, else one more than
//! zigzag of the nanoseconds since the event that runs was queued, which are negative before that. `waited` is 0 of
//! a probe that is out and has another entry later, else one more than the nanoseconds until its answer. A sample may stand for `more` others after it, evenly spaced, the last of them `span`
//! nanoseconds later, in which the thread did not run, so that the event goes on. A phase is Gecko's: 0 instant, 1 interval, 2 start, 3 end; times
//! that the phase does not have are 0. A payload of 0 is none, 1 a text. A script's function is its number in the process;
//! a line or column of 0 is not known.

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
    /// Neither samples nor markers are taken until the next `Resume`.
    Pause = 8,
    Resume = 9,
    /// No samples are taken until the next `ResumeSampling`.
    PauseSampling = 10,
    ResumeSampling = 11,
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
            8 => Some(Self::Pause),
            9 => Some(Self::Resume),
            10 => Some(Self::PauseSampling),
            11 => Some(Self::ResumeSampling),
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
    /// The stack could not be followed to its root.
    pub(crate) const TRUNCATED: Self = Self(2);
    /// It stands for others after it.
    pub(crate) const HAS_MORE: Self = Self(4);
    /// The stack is not the one that the thread was born with.
    pub(crate) const OTHER_STACK: Self = Self(8);
    /// The thread has an event loop.
    pub(crate) const HAS_EVENT: Self = Self(16);
    /// There were newer labels than those that are in it.
    pub(crate) const LABELS_LEFT_OUT: Self = Self(32);

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
