//! Made-up stacks, for tests and fuzzers.

use crate::capture::EventLoopState;
use crate::labels::ContextWords;
use crate::types::{NoStack, Wait};

/// A frame of a made-up stack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ScriptedFrame {
    Native {
        address: u64,
        is_innermost: bool,
    },
    Waiting {
        address: u64,
        wait: Wait,
    },
    Label {
        category: u8,
        subcategory: u8,
        text: Vec<u8>,
        dynamic: Vec<u8>,
    },
    Script {
        function: u32,
        line: u32,
        column: u32,
    },
    LabelsLeftOut,
    NoStack(NoStack),
}

/// A stack, oldest frame first.
#[derive(Clone, Default, Debug)]
pub(crate) struct ScriptedStack {
    pub(crate) frames: Vec<ScriptedFrame>,
    pub(crate) is_truncated: bool,
    pub(crate) is_of_other_stack: bool,
    pub(crate) event_loop: EventLoopState,
    pub(crate) context: ContextWords,
}
