//! Children that start and end at random, under one limit of memory.
//!
//! Environment variables make the test longer: see CONTRIBUTING.md. It prints how much the children
//! delay the parent's sampler, once as a family and once as strangers, because processes that work
//! delay any other one.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::common::{
    Random, Read, isolated, number_in, registered_threads_only, thread_names, wait_until,
};
use crate::family::memory_limit::chunk_bytes;
use crate::family::roles::{Member, process_of, read_family, start_family, wait_for_children};

/// Number of children at the same time, time in seconds, and limit in MiB.
const CHILDREN: &str = "GEKKOTA_TEST_CHILDREN";
const SECONDS: &str = "GEKKOTA_TEST_SECONDS";
const LIMIT_MIB: &str = "GEKKOTA_TEST_MIB";

/// Time between two changes of a child, and between two measurements of all buffers.
const CHANGE: Duration = Duration::from_millis(20);
const MEASURE: Duration = Duration::from_secs(2);

/// The children that run, and what was seen of them.
struct Storm {
    limit_bytes: u64,
    is_family: bool,
    random: Random,
    running: Vec<Option<Busy>>,
    leaving: Vec<Member>,
    ended: Vec<i32>,
    /// Largest sum of the data in all buffers, and of the memory that the children have for theirs.
    most_held_bytes: u64,
    most_memory_bytes: u64,
}

/// A child, and whether it has to reply.
struct Busy {
    member: Member,
    is_busy: bool,
}

impl Busy {
    fn settle(&mut self) {
        if std::mem::take(&mut self.is_busy) {
            self.member.reply();
        }
    }
}

/// Returns how much data the buffer of this process holds, in bytes.
pub(super) fn held_bytes() -> u64 {
    gekkota::profiler_get_buffer_info().map_or(0, |info| info.range_end - info.range_start)
}

/// Returns how much memory the file has from which the parent would rescue a child, in bytes.
fn crash_memory(process: i32) -> u64 {
    let Ok(descriptors) = std::fs::read_dir(format!("/proc/{process}/fd")) else {
        return 0;
    };
    let is_memory = |path: &PathBuf| {
        let target = std::fs::read_link(path).unwrap_or_default();
        target.to_string_lossy().starts_with("/memfd:")
    };
    let files = descriptors.flatten().map(|entry| entry.path());
    let blocks = files
        .filter(is_memory)
        .filter_map(|path| std::fs::metadata(path).ok());
    blocks.map(|file| file.blocks() * 512).sum()
}

impl Storm {
    fn new(children: usize, limit_bytes: u64, is_family: bool) -> Self {
        Self {
            limit_bytes,
            is_family,
            random: Random::new(1),
            running: (0..children).map(|_| None).collect(),
            leaving: Vec::new(),
            ended: Vec::new(),
            most_held_bytes: 0,
            most_memory_bytes: 0,
        }
    }

    fn run(&mut self, time: Duration) {
        let begin = Instant::now();
        let mut measured = begin;
        // Each place has had a child, however slow the machine is.
        while begin.elapsed() < time || self.ended.len() < self.running.len() {
            let place = self.random.below(self.running.len() as u64) as usize;
            self.change(place);
            self.leaving.retain_mut(|member| !member.has_ended());
            if measured.elapsed() > MEASURE {
                self.measure();
                measured = Instant::now();
            }
            std::thread::sleep(CHANGE);
        }
        self.measure();
    }

    fn change(&mut self, place: usize) {
        let what = self.random.below(8);
        let Some(child) = &mut self.running[place] else {
            let member = match self.is_family {
                true => Member::spawn(),
                false => Member::spawn_as_stranger(),
            };
            self.running[place] = Some(Busy {
                member,
                is_busy: false,
            });
            return;
        };
        if what >= 2 {
            if !child.is_busy {
                // Some fill their buffers as fast as they can.
                let order = if what >= 5 {
                    "markers 20000"
                } else {
                    "work 3000"
                };
                child.member.order(order);
                child.is_busy = true;
            }
            return;
        }
        let Some(Busy { mut member, .. }) = self.running[place].take() else {
            return;
        };
        self.ended.push(member.id());
        match what {
            0 => member.kill(),
            _ => {
                member.order("exit");
                self.leaving.push(member);
            }
        }
    }

    /// Measures all buffers while no child works.
    fn measure(&mut self) {
        let memory = self.running.iter().flatten();
        let memory: u64 = memory.map(|child| crash_memory(child.member.id())).sum();
        self.most_memory_bytes = self.most_memory_bytes.max(memory);
        let mut held = held_bytes();
        for child in self.running.iter_mut().flatten() {
            child.settle();
            held += child.member.ask("held").parse::<u64>().expect("a number");
        }
        self.most_held_bytes = self.most_held_bytes.max(held);
    }

    /// Waits until the children keep to the limit.
    fn check_limit(&mut self) {
        let ids: Vec<i32> = self
            .running
            .iter()
            .flatten()
            .map(|child| child.member.id())
            .collect();
        wait_for_children(ids.len());
        let chunk_of_child = (self.limit_bytes / 1024).max(16 << 10);
        let mut sum = 0;
        wait_until("the sum is within the limit", || {
            let profile = read_family();
            let of =
                |process| process_of(&profile, process).map(|read| chunk_bytes(&read, process));
            let all: Option<u64> = ids.iter().map(|&process| of(process)).sum();
            sum = all.unwrap_or(u64::MAX - self.limit_bytes);
            sum + chunk_bytes(&profile, std::process::id() as i32)
                <= self.limit_bytes + chunk_of_child * ids.len() as u64 + self.limit_bytes / 4
        });
        eprintln!("chunks of {} children: {sum} bytes", ids.len());
    }

    fn end(&mut self) {
        for child in self.running.iter_mut().filter_map(Option::take) {
            self.ended.push(child.member.id());
            child.member.kill();
        }
        for member in self.leaving.drain(..) {
            member.wait();
        }
    }
}

/// Returns how often the sampler of this process came too late, as the profile tells.
fn describe_ticks(read: &Read) -> String {
    let log = &read.0["profilingLog"][std::process::id().to_string()]["sampler"];
    let info = gekkota::profiler_get_buffer_info().expect("active");
    let intervals = info.intervals;
    let mean_us = intervals.sum_ns / intervals.count.max(1) / 1000;
    let steps = [
        ("modules and threads", info.lockings),
        ("counters", info.counters),
        ("samples", info.threads),
        ("buffer", info.cleanings),
    ];
    let describe = |(name, step): (&str, gekkota::profile::ProfilerStats)| {
        let mean_us = step.sum_ns / step.count.max(1) / 1000;
        format!("{name} {mean_us} us, at most {} us", step.max_ns / 1000)
    };
    let steps = steps.map(describe).join("; ");
    format!(
        "{} ticks, {} later than half an interval, {} missed, interval {mean_us} us, at most {} us; {steps}",
        log["ticks"],
        log["late_ticks"],
        log["missed_ticks"],
        intervals.max_ns / 1000
    )
}

/// What a process has that could leak.
#[derive(Debug)]
struct Belongings {
    threads: Vec<String>,
    /// Number of descriptors in the table of each thread, by the thread's name.
    descriptors: BTreeMap<String, usize>,
    /// Number of mappings of files without a name.
    mappings: usize,
}

impl Belongings {
    /// Returns whether this process has no more than before. The profiler's threads open a few
    /// files when they first need them. If each child left a file, there would be more.
    fn has_no_more_than(&self, before: &Self) -> bool {
        const SPARE: usize = 4;
        let most = |name: &str| {
            before
                .descriptors
                .get(name)
                .map_or(0, |count| count + SPARE)
        };
        self.threads == before.threads
            && self.mappings <= before.mappings
            && self
                .descriptors
                .iter()
                .all(|(name, count)| *count <= most(name))
    }
}

fn belongings() -> Belongings {
    let mut threads = thread_names();
    threads.sort();
    let tasks = std::fs::read_dir("/proc/self/task")
        .expect("threads")
        .flatten();
    let of_task = |task: std::fs::DirEntry| {
        let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
        let descriptors = std::fs::read_dir(task.path().join("fd")).ok()?.count();
        Some((name, descriptors))
    };
    let maps = std::fs::read_to_string("/proc/self/maps").expect("mappings");
    Belongings {
        threads,
        descriptors: tasks.filter_map(of_task).collect(),
        mappings: maps
            .lines()
            .filter(|line| line.ends_with("(deleted)"))
            .count(),
    }
}

/// Returns the number of folders with a socket of these processes. The folder of a process that was
/// killed before it had a socket stays for a minute.
fn socket_folders(parent: &Path, processes: &[i32]) -> usize {
    let names = std::fs::read_dir(parent).expect("readable").flatten();
    let is_of_child = |entry: &std::fs::DirEntry| {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| {
            let (process, _) = name.strip_prefix("gekkota-family-")?.split_once('-')?;
            process.parse().ok()
        });
        let is_of_one = process.is_some_and(|process: i32| processes.contains(&process));
        is_of_one && entry.path().join("s").exists()
    };
    names.filter(is_of_child).count()
}

#[test]
fn children_at_random_keep_to_the_limit_and_leave_nothing() {
    isolated(|| {
        let children = number_in(CHILDREN, 6) as usize;
        let time = Duration::from_secs(number_in(SECONDS, 1));
        let limit_bytes = number_in(LIMIT_MIB, 4) << 20;
        gekkota::profiler_init();
        let params = || registered_threads_only().capacity_bytes(limit_bytes);
        // The same children outside of the family, for comparison.
        gekkota::profiler_start(params()).expect("start");
        let mut strangers = Storm::new(children, limit_bytes, false);
        strangers.run(time);
        let alone = describe_ticks(&Read::of_running());
        strangers.end();
        gekkota::profiler_stop();

        let params = || params().children(true);
        gekkota::profiler_start(params()).expect("start");
        let folder = crate::family::host::socket();
        let folder = folder
            .parent()
            .and_then(Path::parent)
            .expect("a folder")
            .to_owned();
        // A new thread has the name of its creator for a moment.
        wait_until("the threads have their names", || {
            let names = thread_names();
            let own = ["ProfilerFamily", "ProfilerMailbo", "SamplerThread"];
            own.iter()
                .all(|own| names.iter().filter(|name| name.starts_with(own)).count() == 1)
                && !names.iter().any(|name| name.starts_with("ProfilerEvents"))
        });
        let before = belongings();
        let mut family = Storm::new(children, limit_bytes, true);
        family.run(time);
        let together = describe_ticks(&Read::of_running());
        family.check_limit();
        family.end();
        wait_for_children(0);
        eprintln!("{} children outside: {alone}", strangers.ended.len());
        eprintln!("{} children in the family: {together}", family.ended.len());
        eprintln!(
            "most data in all buffers {}, most memory of the children's buffers {}, limit {limit_bytes}",
            family.most_held_bytes, family.most_memory_bytes
        );
        // A new session drops the profiles of the children that have ended.
        gekkota::profiler_start(params()).expect("start");
        let mut after = belongings();
        wait_until("nothing is left of the children", || {
            after = belongings();
            after.has_no_more_than(&before) || {
                std::thread::sleep(Duration::from_millis(100));
                false
            }
        });
        eprintln!("before {before:?}\nafter {after:?}");
        gekkota::profiler_shutdown();
        // The next family removes the sockets of processes that were killed.
        gekkota::profiler_init();
        start_family();
        wait_until("the sockets are gone", || {
            socket_folders(&folder, &family.ended) == 0
        });
        gekkota::profiler_shutdown();
    });
}
