//! Stacks on demand: of the calling thread and of others.

mod own_thread;
mod suspend;
