//! The macro for a start before `main`.
//!
//! **Contract** (cited below):
//! - *constructor*: the loader calls the functions of the section `.init_array` once each, without
//!   arguments that they must read, and they never unwind.

/// Starts the profiler before `main`, if the environment says so. Use it once, at module level, in
/// the program's own crate.
///
/// ```
/// gekkota::early_start!();
///
/// fn main() {
///     // Goes on with the session that has recorded since before `main`.
///     let _profiler = gekkota::AutoProfilerInit::new();
/// }
/// ```
///
/// With `MOZ_PROFILER_STARTUP=1`, the profile then shows what runs before `main`: static
/// initializers of C++ code, constructors with a priority above 101, and those of crates such as
/// `ctor`. It also shows what `main` does before it calls [`profiler_init`](crate::profiler_init).
/// The loader initializes the libraries that the program is linked with earlier, so a profile does
/// not show that.
///
/// # The hand-over
/// [`profiler_init`](crate::profiler_init), which [`AutoProfilerInit`](crate::AutoProfilerInit)
/// calls, takes the running session over. No sample, marker or thread is lost. The settings of the
/// session have been read before `main`, and hold. `profiler_init` adds what the program decides in
/// code, such as [`save_at_exit`](crate::AutoProfilerInitBuilder::save_at_exit).
///
/// A start in code is a start like any other. [`profiler_start`](crate::profiler_start) has the
/// settings of its caller, and drops the early session, which a line on standard error says.
/// [`profiler_ensure_started`](crate::profiler_ensure_started) keeps it if the settings are the
/// same. A program that never calls `profiler_init` is profiled nevertheless, and
/// `MOZ_PROFILER_SHUTDOWN` and `MOZ_PROFILER_REPORT` apply when it ends by a return from `main` or
/// by `exit`. The profiler handles the signals that [end a
/// program](crate::AutoProfilerInit#ends-of-the-program) only from `profiler_init` on, because a
/// program may install a handler only where it finds none.
///
/// # What is different before `main`
/// - A relative `MOZ_PROFILER_SHUTDOWN`, and the folder of profiles that a signal saves, are
///   relative to the folder in which the program was started.
/// - When `main` begins, the program already has several threads. A program that enters a user
///   namespace, gives up rights for each thread, or changes the environment should not use this
///   macro.
/// - State-change callbacks that `main` adds are not called for the start.
/// - The profiler allocates, so a `#[global_allocator]` must work before `main`.
/// - A fork before `profiler_init` gives the child no session, until the child calls it. The name
///   of the child's file then has its process id. A program that makes itself a daemon should be
///   started with `MOZ_PROFILER_STARTUP_NO_BASE=1`.
/// - [`save_at_exit`](crate::AutoProfilerInitBuilder::save_at_exit) cannot tell the programs that
///   this one starts that the file is taken. Use `%p` in its name.
///
/// # Where it has no effect
/// - `MOZ_PROFILER_STARTUP` is off, or `MOZ_PROFILER_STARTUP_NO_BASE=1` leaves the start to
///   `profiler_init`.
/// - The program has the rights of another user (set-user-id), and reads no variable.
/// - The macro is in a library that a program loads, a `cdylib` for example. The library's
///   constructor runs on any thread, at any time.
/// - This build contains no profiler.
///
/// Expands to a static in the section `.init_array.00101`, so a crate with
/// `#![forbid(unsafe_code)]` can use it. The linker sorts such sections by their numbers, before
/// those of `.init_array`, and the loader runs the functions in that order. Cost without the
/// variable: the look for it, below a microsecond. Idea: Gecko's Base Profiler, which Firefox
/// starts before it loads its main library.
#[doc(alias = "baseprofiler")]
#[doc(alias = "AUTO_BASE_PROFILER_INIT")]
#[macro_export]
macro_rules! early_start {
    () => {
        $crate::__start_in_constructor!();
    };
}

/// Puts a function on the loader's list of constructors.
#[cfg(has_profiler)]
#[doc(hidden)]
#[macro_export]
macro_rules! __start_in_constructor {
    () => {
        const _: () = {
            extern "C" fn start_before_main() {
                $crate::__private::start_early(start_before_main);
            }
            // SAFETY: *constructor*: the function takes no argument, and `start_early` never
            // panics.
            #[used]
            #[unsafe(link_section = ".init_array.00101")]
            static START_BEFORE_MAIN: extern "C" fn() = start_before_main;
        };
    };
}

#[cfg(not(has_profiler))]
#[doc(hidden)]
#[macro_export]
macro_rules! __start_in_constructor {
    () => {};
}

/// Starts the profiler before `main`, in a function that the loader has called.
pub fn start_early(constructor: extern "C" fn()) {
    crate::api::backend::start_early(constructor as usize);
}
