//! Markers, their payloads and their stacks.

mod across_restarts;
mod awake;
mod edges;
mod file_io;
mod flow_only;
mod limit;
mod many_writers;
mod schemas;
mod stacks;
mod times;
