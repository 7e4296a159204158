//! Process and thread ids as types of their own.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub struct $name(i32);

        impl $name {
            /// The id that is nobody's, `0`.
            pub const UNSPECIFIED: Self = Self(0);

            /// The id with this number, as the kernel counts.
            pub const fn from_number(number: i32) -> Self {
                Self(number)
            }

            /// The kernel's number.
            pub const fn to_number(self) -> i32 {
                self.0
            }

            /// Whether it is anybody's.
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
