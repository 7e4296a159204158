//! A program of 30 real functions, one of which can be made slower: ten algorithms, each in three
//! copies that are called once, twice and four times as often.
//!
//! A function does its work in its own code, so its time is its self time. The copies differ in a
//! constant, so that the compiler does not merge them. Every function works `rounds` times on a
//! small input. One that is made slower by 30 % works 13 rounds instead of 10.
//!
//! `unwind` has rustc compile many copies of this file.

use std::hint::black_box;

use crate::raw::thread_cpu_ns;

/// Rounds of each call. A call takes 10 to 20 µs, far less than a thread has between two samples.
pub const ROUNDS: u64 = 10;

/// A function of the program.
pub struct Kernel {
    /// Its name in a profile.
    pub name: &'static str,
    /// How often it is called, relative to the others.
    pub calls: u64,
    run: fn(u64, u64) -> u64,
}

/// Defines one copy of all functions. `$seed` is different for each.
macro_rules! copies {
    ($($module:ident $calls:literal $seed:literal),*) => {
        $(mod $module {
            use std::hint::black_box;

            use super::next;

            /// Polynomial division, bit by bit.
            #[inline(never)]
            pub(super) fn checksum(rounds: u64, seed: u64) -> u64 {
                let mut crc = (seed ^ $seed) as u32;
                for round in 0..rounds {
                    for byte in 0..192_u64 {
                        crc ^= (byte ^ round) as u32;
                        for _ in 0..8 {
                            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
                        }
                    }
                }
                u64::from(crc)
            }

            /// Insertion sort of random numbers.
            #[inline(never)]
            pub(super) fn insertion_sort(rounds: u64, seed: u64) -> u64 {
                let (mut state, mut sum) = (seed ^ $seed, 0_u64);
                for _ in 0..rounds {
                    let mut numbers = [0_u64; 64];
                    for at in 0..numbers.len() {
                        state = next(state);
                        let mut to = at;
                        while to > 0 && numbers[to - 1] > state {
                            numbers[to] = numbers[to - 1];
                            to -= 1;
                        }
                        numbers[to] = state;
                    }
                    sum ^= black_box(&numbers)[32];
                }
                sum
            }

            /// The edit distance of two random words.
            #[inline(never)]
            pub(super) fn edit_distance(rounds: u64, seed: u64) -> u64 {
                const LENGTH: usize = 32;
                let (mut state, mut sum) = (seed ^ $seed, 0_u64);
                for _ in 0..rounds {
                    let mut words = [[0_u8; LENGTH]; 2];
                    for letter in words.as_flattened_mut() {
                        state = next(state);
                        *letter = (state >> 60) as u8;
                    }
                    let mut row: [usize; LENGTH + 1] = std::array::from_fn(|at| at);
                    for (above, letter) in words[0].iter().enumerate() {
                        let mut diagonal = row[0];
                        row[0] = above + 1;
                        for (at, other) in words[1].iter().enumerate() {
                            let replaced = diagonal + usize::from(letter != other);
                            diagonal = row[at + 1];
                            row[at + 1] = replaced.min(diagonal + 1).min(row[at] + 1);
                        }
                    }
                    sum += black_box(&row)[LENGTH] as u64;
                }
                sum
            }

            /// The primes below 1,024, by Eratosthenes' sieve.
            #[inline(never)]
            pub(super) fn sieve(rounds: u64, seed: u64) -> u64 {
                let mut sum = seed ^ $seed;
                for _ in 0..rounds {
                    let mut is_composite = [false; 1024];
                    for number in 2..is_composite.len() {
                        if !is_composite[number] {
                            sum += number as u64;
                            for multiple in (number * number..is_composite.len()).step_by(number) {
                                is_composite[multiple] = true;
                            }
                        }
                    }
                    black_box(&is_composite);
                }
                sum
            }

            /// The product of two matrices.
            #[inline(never)]
            pub(super) fn multiply(rounds: u64, seed: u64) -> u64 {
                const SIZE: usize = 14;
                let mut left = [[(seed ^ $seed) as f32; SIZE]; SIZE];
                for round in 0..rounds {
                    let right = black_box([[round as f32; SIZE]; SIZE]);
                    let mut product = [[0.0_f32; SIZE]; SIZE];
                    for (row, factors) in product.iter_mut().zip(&left) {
                        for (column, cell) in row.iter_mut().enumerate() {
                            for (factor, right) in factors.iter().zip(&right) {
                                *cell += factor * right[column];
                            }
                        }
                    }
                    left = black_box(product);
                }
                left[0][0] as u64
            }

            /// Base64 of random bytes.
            #[inline(never)]
            pub(super) fn encode(rounds: u64, seed: u64) -> u64 {
                const DIGITS: &[u8; 64] =
                    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
                let (mut state, mut sum) = (seed ^ $seed, 0_u64);
                for _ in 0..rounds {
                    let mut text = [0_u8; 2048];
                    for at in 0..text.len() / 4 {
                        state = next(state);
                        for digit in 0..4 {
                            text[4 * at + digit] = DIGITS[(state >> (6 * digit)) as usize % 64];
                        }
                    }
                    sum += u64::from(black_box(&text)[1024]);
                }
                sum
            }

            /// The longest repetition in random text, as a compressor looks for it.
            #[inline(never)]
            pub(super) fn longest_match(rounds: u64, seed: u64) -> u64 {
                let (mut state, mut sum) = (seed ^ $seed, 0_u64);
                for _ in 0..rounds {
                    let mut text = [0_u8; 192];
                    for letter in &mut text {
                        state = next(state);
                        *letter = (state >> 62) as u8;
                    }
                    let mut longest = 0;
                    for start in 0..128 {
                        let mut length = 0;
                        while length < 64 && text[start + length] == text[128 + length] {
                            length += 1;
                        }
                        longest = longest.max(length);
                    }
                    sum += longest as u64;
                }
                sum
            }

            /// How long points of the Mandelbrot set's edge stay near.
            #[inline(never)]
            pub(super) fn mandelbrot(rounds: u64, seed: u64) -> u64 {
                let mut sum = seed ^ $seed;
                for round in 0..rounds {
                    let (real, imaginary) = (-0.74 + 0.001 * round as f64, 0.11);
                    let (mut x, mut y) = (0.0, 0.0);
                    let mut steps = 0;
                    while steps < 300 && x * x + y * y < 4.0 {
                        (x, y) = (x * x - y * y + real, 2.0 * x * y + imaginary);
                        steps += 1;
                    }
                    sum += steps;
                }
                sum
            }

            /// Runs a small program in a virtual machine.
            #[inline(never)]
            pub(super) fn interpret(rounds: u64, seed: u64) -> u64 {
                const PROGRAM: [u8; 16] = [0, 1, 2, 3, 0, 2, 4, 1, 3, 0, 4, 2, 1, 0, 3, 2];
                let mut registers = [seed ^ $seed, 3, 5, 7];
                for _ in 0..rounds {
                    for at in 0..640 {
                        let [a, b, c, d] = registers;
                        registers = match black_box(PROGRAM[at % PROGRAM.len()]) {
                            0 => [a ^ b, c, d, a],
                            1 => [b, a & d | c, c, d],
                            2 => [c << 1 | 1, b, a >> 3, d],
                            3 => [d, a, b | 1, c],
                            _ => [a, !b, d, c],
                        };
                    }
                }
                registers[0]
            }

            /// Writes numbers as variable-length bytes, and reads them back.
            #[inline(never)]
            pub(super) fn leb128(rounds: u64, seed: u64) -> u64 {
                let (mut state, mut sum) = (seed ^ $seed, 0_u64);
                for _ in 0..rounds {
                    let mut bytes = [0_u8; 512];
                    let mut end = 0;
                    while end < bytes.len() - 10 {
                        state = next(state);
                        let mut number = state >> (state & 63);
                        while number >= 0x80 {
                            bytes[end] = number as u8 | 0x80;
                            number >>= 7;
                            end += 1;
                        }
                        bytes[end] = number as u8;
                        end += 1;
                    }
                    let (mut number, mut shift) = (0_u64, 0);
                    for &byte in &bytes[..end] {
                        number |= u64::from(byte & 0x7f) << shift;
                        shift += 7;
                        if byte < 0x80 {
                            sum ^= number;
                            (number, shift) = (0, 0);
                        }
                    }
                }
                sum
            }
        })*

        /// The functions, the copies of one algorithm apart from each other.
        pub const KERNELS: &[Kernel] = &[
            $(
                kernel!($module checksum $calls),
                kernel!($module insertion_sort $calls),
                kernel!($module edit_distance $calls),
                kernel!($module sieve $calls),
                kernel!($module multiply $calls),
                kernel!($module encode $calls),
                kernel!($module longest_match $calls),
                kernel!($module mandelbrot $calls),
                kernel!($module interpret $calls),
                kernel!($module leb128 $calls),
            )*
        ];
    };
}

macro_rules! kernel {
    ($module:ident $function:ident $calls:literal) => {
        Kernel {
            name: concat!(
                module_path!(),
                "::",
                stringify!($module),
                "::",
                stringify!($function)
            ),
            calls: $calls,
            run: $module::$function,
        }
    };
}

copies! { often 4 0x9e37_79b9_7f4a_7c15, sometimes 2 0xbf58_476d_1ce4_e5b9, seldom 1 0x94d0_49bb_1331_11eb }

/// Returns the next of a sequence of random numbers (xorshift).
#[inline(always)]
fn next(state: u64) -> u64 {
    let state = state ^ state << 13;
    let state = state ^ state >> 7;
    state ^ state << 17
}

/// Calls the functions in a random order until the thread has used this much CPU time. The function
/// `slower` works that many rounds.
#[inline(never)]
pub fn run_for(cpu_ns: u64, seed: u64, slower: Option<(usize, u64)>) -> u64 {
    /// Calls between two looks at the clock, about 15 ms. The look is a system call, at whose end a
    /// busy machine switches threads, so it would have samples of its own.
    const CALLS: usize = 1024;
    let all_calls: u64 = KERNELS.iter().map(|kernel| kernel.calls).sum();
    let (mut state, mut sum) = (seed | 1, 0);
    let end_ns = thread_cpu_ns() + cpu_ns;
    while thread_cpu_ns() < end_ns {
        for _ in 0..CALLS {
            state = next(state);
            let mut drawn = (state >> 32) % all_calls;
            let mut number = 0;
            while drawn >= KERNELS[number].calls {
                drawn -= KERNELS[number].calls;
                number += 1;
            }
            let rounds = match slower {
                Some((slower, rounds)) if slower == number => rounds,
                _ => ROUNDS,
            };
            sum ^= (KERNELS[number].run)(rounds, state);
        }
    }
    black_box(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_differ_and_depend_on_their_rounds() {
        assert_eq!(KERNELS.len(), 30);
        let results = KERNELS.iter().map(|kernel| (kernel.run)(ROUNDS, 11));
        let results: Vec<u64> = results.collect();
        for (number, kernel) in KERNELS.iter().enumerate() {
            assert_eq!(results[number], (kernel.run)(ROUNDS, 11), "{}", kernel.name);
            assert_ne!(
                kernel.run as usize,
                KERNELS[(number + 10) % 30].run as usize
            );
        }
    }

    #[test]
    fn name_is_the_path() {
        assert_eq!(KERNELS[0].name, "peers::kernels::often::checksum");
    }
}
