//! File descriptors: the application's stay as they are, and the profiler holds none of their
//! numbers.

mod callbacks;
mod module_files;
