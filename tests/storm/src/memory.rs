//! Allocates and frees blocks of all sizes. Each block keeps its content until it is freed, often
//! by another thread.

use std::sync::{Mutex, PoisonError};

use crate::crew::Context;
use crate::random::Random;
use crate::tally;

/// Blocks in transit from one thread to another.
static EXCHANGE: Mutex<Vec<Block>> = Mutex::new(Vec::new());
const MOST_EXCHANGED: usize = 64;
const MOST_HELD: usize = 48;

struct Block {
    bytes: Vec<u8>,
    seed: u64,
}

impl Block {
    /// Allocates a block of 1 byte to 2 MiB, small ones more often.
    fn make(random: &mut Random) -> Self {
        let bits = random.below(22);
        let bits = bits.min(random.below(22));
        let length = (1 << bits) + random.below(1 << bits) as usize;
        let mut block = Self {
            bytes: Vec::with_capacity(length),
            seed: random.next(),
        };
        block.fill_to(length);
        tally::ALLOCATIONS.one();
        block
    }

    fn fill_to(&mut self, length: usize) {
        let start = self.bytes.len();
        self.bytes
            .extend((start..length).map(|index| Self::byte(self.seed, index)));
    }

    fn byte(seed: u64, index: usize) -> u8 {
        (seed.rotate_left(index as u32 % 61) as u8) ^ index as u8
    }

    fn check(&self) {
        let is_intact = self
            .bytes
            .iter()
            .enumerate()
            .all(|(index, byte)| *byte == Self::byte(self.seed, index));
        assert!(
            is_intact,
            "a block of {} bytes was corrupted",
            self.bytes.len()
        );
    }
}

pub fn malloc_worker(context: &mut Context) {
    let mut held: Vec<Block> = Vec::new();
    while context.goes_on() {
        for _ in 0..16 {
            let random = &mut context.random;
            if held.len() >= MOST_HELD {
                let block = held.swap_remove(random.below(held.len() as u64) as usize);
                block.check();
                pass_on(block);
            }
            let mut block = Block::make(random);
            if random.once_in(4) {
                block.fill_to(block.bytes.len() * 3 / 2);
            }
            held.push(block);
        }
    }
    held.iter().for_each(Block::check);
}

/// Passes a block to the other threads, and frees one of theirs.
fn pass_on(block: Block) {
    let taken = {
        let mut exchange = EXCHANGE.lock().unwrap_or_else(PoisonError::into_inner);
        exchange.push(block);
        (exchange.len() > MOST_EXCHANGED).then(|| exchange.swap_remove(0))
    };
    if let Some(block) = taken {
        block.check();
    }
}

/// Frees the blocks in transit.
pub fn empty_exchange() {
    *EXCHANGE.lock().unwrap_or_else(PoisonError::into_inner) = Vec::new();
}
