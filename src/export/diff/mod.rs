//! Compares two profiles, and tells a change from chance.
//!
//! # Question
//! A function took 50 ms of CPU time a second before and 56 ms after. Is it slower, or does a second
//! run of one program differ as much?
//!
//! # Chance within a run
//! The clock measures the CPU time of a thread; samples divide it among the functions, so a function's
//! time has an error. Successive samples often lie in one call, so they say little more than one sample
//! does, and the error is greater than that of as many independent samples. It is estimated in two
//! ways, and the greater one counts:
//!
//! - *Runs*: successive samples of a thread in one function count as one observation, as in
//!   cluster sampling (Cochran, Sampling Techniques, chapter 9). A run of length `l` adds `l²` to
//!   the variance instead of `l`. Runs that meet by chance are subtracted. Runs notice that
//!   a function was seen in a few calls only. Both profiles are pooled, because without a change
//!   they have the same time; so a function that one of them never shows has an error, too. A function
//!   with all of the time has no such error.
//! - *Slices*: each profile is divided into 64 slices of wall time, and the difference of two
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
//! # The amount of work
//! Times per unit of work compare runs with any load, and functions do not depend on each other.
//!
//! Without a known unit, times a second are compared, and these also change with the work that is done
//! in a second. A program that always works does more work in a second once a function is faster.
//! So does a program that waits equally long after each request. While other programs run, a
//! program gets the processor less often. In these cases, all functions change by the same factor.
//! So a sure change is also a sure change of the share of the *rest*: the function with the
//! greatest sure change is taken out of both profiles. The others are compared by their shares of
//! the remaining time, until no sure change is left. Functions whose time a second changed, but not
//! their share of the rest, have the verdict `moved`.
//!
//! # Regression
//! It is a regression if the functions whose self time surely changed take surely more time, all
//! together. A fix may replace a function by one that needs less time, and a compiler may move code to
//! a new function; neither is a regression. If no self time surely changed, it is one if a total time
//! surely grew and none fell: the change is spread over functions that are called.
//!
//! # What it finds
//! In simulations of 40 functions with 10,000 samples in each profile, a function with at least 8 %
//! of the time becomes slower by 30 %. If a call takes as long as the interval, on average, that
//! function comes first in 98 of 100 comparisons, and is called slower in two of five. More samples
//! help more than anything else: four times as many halve the bands.
//!
//! # Read next
//! `compare.rs`, `slices.rs`, `report.rs`.

mod compare;
mod report;
mod slices;

pub(crate) use compare::compare;
#[cfg(test)]
pub(crate) use report::Verdict;
pub(crate) use report::{Diff, DiffOptions};

#[cfg(test)]
mod simulation_tests;
