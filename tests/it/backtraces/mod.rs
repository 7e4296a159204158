//! Stacks on demand, of the calling thread and of other threads.

mod own_thread;
mod suspend;
