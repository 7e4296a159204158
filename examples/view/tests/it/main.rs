//! Starts the program on profiles and asks it what a browser asks.

mod access;
mod answers;
mod client;
mod recording;
mod server;
mod start;
