//! A session takes none of the application's descriptors.

use std::fs::File;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::Sampled;
use crate::common::isolated;

/// Number of descriptors that the process may have.
const LIMIT: u64 = 80;
/// Number of sleeping threads, more than the process may have descriptors.
const SLEEPERS: usize = 100;

/// Returns how many files the application can open.
fn free_descriptors() -> usize {
    let open = || File::open("/proc/self/exe").ok();
    std::iter::from_fn(open).collect::<Vec<_>>().len()
}

#[test]
fn session_takes_no_descriptor_of_the_host() {
    isolated(|| {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("the limits");
        setrlimit(Resource::RLIMIT_NOFILE, LIMIT, hard).expect("a lower limit");
        let before = free_descriptors();
        let sampled = Sampled::start(SLEEPERS);
        let beside = free_descriptors();
        println!("{before} free descriptors before the session, {beside} beside it");
        assert_eq!(beside, before);
        drop(sampled.sleepers);
        sampled.session.finish().expect("profile");
    });
}
