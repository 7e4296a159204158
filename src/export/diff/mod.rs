//! Compares two profiles, and tells a change from chance.
//!
//! # Question
//! A function had 5.0 % of the time before and 5.6 % after. Is it slower, or does a second run of
//! one program differ as much?
//!
//! # Chance within a run
//! A profile is a sample, so a share has an error. Successive samples often lie in one call, so
//! they say little more than one sample does, and the error is greater than that of as many
//! independent samples. It is estimated in two ways, and the greater one counts:
//!
//! - *Runs*: successive samples of a thread in one function count as one observation, as in
//!   cluster sampling (Cochran, Sampling Techniques, chapter 9). A run of length `l` adds `l²` to
//!   the variance instead of `l`. Runs that meet by chance are subtracted. Runs notice that
//!   a function was seen in a few calls only. Both profiles are pooled, because without a change
//!   they have the same share; so a function that one of them never shows has an error, too.
//! - *Slices*: the time of each profile is divided into 64 slices, and the difference of two
//!   profiles is taken per slice (batch means; Law and Kelton, Simulation Modeling and Analysis,
//!   chapter 9, with the ratio estimator of Cochran, chapter 6). Slices notice slow changes, such
//!   as phases of a program and requests that take long. Phases that both profiles have at the same
//!   time cancel.
//!
//! # Chance between runs
//! Two runs also differ by the layout of memory, by other programs and by the processor's frequency
//! (Mytkowicz and others, Producing Wrong Data Without Doing Anything Obviously Wrong, 2009).
//! One profile cannot show that. So the cost of each function is assumed to vary by 2 % from run to
//! run.
//!
//! # Many functions
//! Of 1,000 functions, 10 differ by more than an error that is exceeded once in 100 times. The
//! bands are wide enough for all functions together (Bonferroni): two profiles without a change
//! have, with a chance of 99 %, no function outside its band. The factor is from Student's
//! distribution, because 64 slices only estimate the error.
//!
//! # The culprit
//! If one function becomes slower, the shares of all others fall. So the function with the greatest
//! sure change is taken out of both profiles, and the others are compared by their shares of the
//! rest, until no sure change is left. Functions whose share changed only because of that have
//! the verdict `moved`. With times per unit of work instead of shares, functions do not depend on
//! each other.
//!
//! # What it finds
//! In simulations of 40 functions with 10,000 samples in each profile, a function with at least 8 %
//! of the time becomes slower by 30 %. If a call takes as long as the interval, on average, that
//! function comes first in 98 of 100 comparisons, and is called slower in about half of them. If
//! calls take three intervals, it comes first in 65. More samples help more than anything else:
//! four times as many halve the bands.
//!
//! # Read next
//! `compare.rs`, `slices.rs`, `bands.rs`, `result.rs`, `report.rs`.

mod bands;
mod compare;
mod report;
mod result;
mod slices;

pub(crate) use compare::compare;
#[cfg(test)]
pub(crate) use result::Verdict;
pub(crate) use result::{Diff, DiffOptions};

#[cfg(test)]
mod simulation_tests;
