//! The name that the compiler shows when a label is held across an `.await` of a spawned task.

use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};

/// Makes the guard of a label neither `Send` nor `Sync`, because no type implements those traits for
/// this one. A runtime with several threads then refuses a future that holds a label across an
/// `.await`, and the compiler names this trait in its error.
///
/// The traits that it requires stay those of a guard that holds a number.
pub(crate) trait UseLabeledFutureAcrossAwait: Unpin + UnwindSafe + RefUnwindSafe {}

/// A field of the guard of a label.
pub(crate) type LabelOfOneThread = PhantomData<dyn UseLabeledFutureAcrossAwait>;
