//! A round: a crew starts, works in the storm, and stops. Also checks what the rounds leave behind.

use std::sync::Arc;
use std::time::Duration;

use crate::control::Control;
use crate::crew::{Crew, Post};
use crate::proof::{self, Names};
use crate::random::Random;
use crate::resources::Resources;
use crate::steadiness::Steadiness;
use crate::{memory, saver, tally};

/// Runs one round and returns its problems.
pub fn run(number: u64, length: Duration) -> Vec<String> {
    let crew = Crew::muster(number);
    let posts: Vec<Arc<Post>> = crew.posts().cloned().collect();
    let reign = std::thread::Builder::new()
        .name("control".to_owned())
        .spawn(move || {
            let _registered = gekkota::ThreadGuard::register("control");
            let post = Post::establish("control".to_owned(), None);
            let mut control = Control {
                post: &post,
                crew: posts,
                random: Random::new(number + 1),
            };
            let profile = control.reign(length);
            post.close();
            profile
        });
    let profile = reign.expect("a thread").join();
    let workers: Vec<Arc<Post>> = crew.posts().cloned().collect();
    let mut problems = crew.dismiss();
    // Watched until the profile is read.
    let post = Post::establish(format!("the end of round {number}"), None);
    memory::empty_exchange();
    match profile {
        Ok(profile) => {
            let proof = proof::read(&profile, Names::Yes);
            problems.extend(proof.problems_with(&workers));
            println!(
                "round {number}: the last session has {} samples",
                proof.samples()
            );
        }
        Err(_) => problems.push("control failed, see the panic above".to_owned()),
    }
    // Stops a session that a failed control has left running.
    gekkota::profiler_stop();
    post.close();
    tally::ROUNDS.one();
    problems
}

/// Maximum growth of memory from the first round, which warms up, to the last. The memory left
/// after a round is in pools that stop growing once they have met their worst case. There are the
/// profiler's slots, one for each thread that was ever registered at the same time. Each keeps up
/// to 376 KiB of its last content (120 KiB of labels and texts, 256 KiB of stack), so 90 threads
/// keep at most 33 MiB. And there is memory that the C library cannot release, because a block above it
/// is in use: the remaining 11 MiB.
const MOST_GROWTH_KIB: u64 = 44 << 10;
/// Memory left behind by a thread that ends without its destructors: the touched parts of its slot
/// and its signal stack, its registration and the C library's cache of small blocks.
const KILLED_KIB: u64 = 96;
/// Maximum growth of the address space without what is reserved for blocks: 90 slots that grow from
/// 184 KiB to 1.2 MiB, 90 MiB; the 40 MiB of stacks that the C library keeps of ended threads; and
/// 30 MiB for the rest.
const MOST_VIRTUAL_GROWTH_KIB: u64 = 160 << 10;
/// Address space left behind by a thread that ends without its destructors: a slot of 184 KiB and a
/// signal stack of 64 KiB, and a third as much again for slots that have grown.
const KILLED_VIRTUAL_KIB: u64 = 330;

/// Maximum growth of the blocks in use: what the profiler and the storm keep for later rounds.
const MOST_BLOCK_GROWTH_KIB: u64 = 8 << 10;
/// Blocks left behind by a thread that ends without its destructors: its registration, and what the
/// thread itself had allocated.
const KILLED_BLOCKS_KIB: u64 = 16;

/// The process's resources after each round.
pub struct Aftermath {
    start: Resources,
    rounds: Vec<Resources>,
    killed: Vec<u64>,
    steadiness: Steadiness,
}

impl Aftermath {
    pub fn begin() -> Self {
        Self {
            start: Resources::now(),
            rounds: Vec::new(),
            killed: Vec::new(),
            steadiness: Steadiness::begin(),
        }
    }

    pub fn round_is_over(&mut self) {
        self.steadiness.measure();
        let now = Resources::now();
        println!(
            "    {} threads, {} descriptors, {} KiB of memory, {} KiB in blocks, {} KiB of address space beside {} KiB for blocks",
            now.threads.len(),
            now.descriptors.len(),
            now.resident_kib,
            now.allocated_kib,
            now.virtual_kib,
            now.reserved_kib
        );
        self.rounds.push(now);
        self.killed.push(tally::THREADS_KILLED.value());
    }

    /// Returns the problems at the end.
    pub fn judge(self) -> Vec<String> {
        let mut problems: Vec<String> = self.steadiness.judge("the storm").into_iter().collect();
        let left = saver::left_behind();
        if !left.is_empty() {
            problems.push(format!("temporary files: {left:?}"));
        }
        let end = Resources::settled(&self.start);
        if end.threads != self.start.threads {
            problems.push(format!(
                "threads: {:?} before, {:?} after",
                self.start.threads, end.threads
            ));
        }
        if end.descriptors.len() != self.start.descriptors.len() {
            problems.push(format!(
                "descriptors: {:#?} before, {:#?} after",
                self.start.descriptors, end.descriptors
            ));
        }
        let Some((first, killed_first)) = self.rounds.first().zip(self.killed.first()) else {
            return problems;
        };
        let killed = tally::THREADS_KILLED.value() - killed_first;
        let most = [
            (
                "memory",
                first.resident_kib,
                end.resident_kib,
                MOST_GROWTH_KIB + killed * KILLED_KIB,
            ),
            (
                "blocks in use",
                first.allocated_kib,
                end.allocated_kib,
                MOST_BLOCK_GROWTH_KIB + killed * KILLED_BLOCKS_KIB,
            ),
            (
                "address space",
                first.virtual_kib,
                end.virtual_kib,
                MOST_VIRTUAL_GROWTH_KIB + killed * KILLED_VIRTUAL_KIB,
            ),
        ];
        for (what, before, after, most) in most {
            println!(
                "{what}: {before} KiB after the first round, {after} KiB at the end, maximum growth {most} KiB"
            );
            if after > before + most {
                problems.push(format!(
                    "{what}: {before} KiB after the first round, {after} KiB at the end"
                ));
            }
        }
        problems
    }
}
