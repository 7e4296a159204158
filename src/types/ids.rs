//! Newtypes for process and thread ids.
//!
//! Runs in the signal handler: the conversion from and to a number.

use crate::types::serde_impls::serde_as_inner;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name(i32);

        serde_as_inner!($name(i32));

        impl $name {
            /// `0`, the id of no process or thread.
            pub const UNSPECIFIED: Self = Self(0);

            /// Creates an id from the kernel's number.
            pub const fn from_number(number: i32) -> Self {
                Self(number)
            }

            /// Returns the kernel's number.
            pub const fn to_number(self) -> i32 {
                self.0
            }

            /// Returns whether the id is not [`UNSPECIFIED`](Self::UNSPECIFIED).
            pub const fn is_specified(self) -> bool {
                self.0 != 0
            }
        }
    };
}

id! {
    /// A process id.
    #[doc(alias = "ProfilerProcessId")]
    #[doc(alias = "BaseProfilerProcessId")]
    ProcessId
}
id! {
    /// The kernel's id of a thread (`gettid` on Linux).
    #[doc(alias = "ProfilerThreadId")]
    #[doc(alias = "BaseProfilerThreadId")]
    ThreadId
}
