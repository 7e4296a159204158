//! The counters of a session: of the process, its memory, the application and the machine.

use std::path::Path;

use crate::buffer::LaneHandle;
use crate::counters::{PROCESS_CPU, RESIDENT_MEMORY, sample_process_cpu_ns};
use crate::platform::{ResidentMemory, SYS_FOLDER, monotonic_now};
use crate::sampler::cpu_speed_markers::CpuSpeedMarkers;
use crate::sampler::tick::{CounterSampler, CounterWriter, EnergySampler, MallocCounter};
use crate::state::{SeenPauses, Session};
use crate::types::{Features, TimeStamp};
use crate::util::allocator_has;

/// Interval between two samples of the process's CPU time, in ns. The kernel updates the CPU time of
/// threads on other cores only once a scheduler tick, every 1 to 10 ms. Sampled more often, the
/// process's CPU time would appear to stand still and then jump.
const PROCESS_INTERVAL_NS: u64 = 20_000_000;
/// Memory for what the sampler knows of the machine, in bytes: the paths of 1,024 cores.
const MACHINE_BYTES: usize = 256 << 10;

/// The counters that the sampler reads for a session. CPU frequencies are markers, and belong here
/// because they are read with the counters.
pub(super) struct SessionCounters {
    /// When the process's CPU time and memory are read again.
    next_of_process: TimeStamp,
    /// The process's CPU time when the session began, from which the counter counts.
    process_cpu_ns: i64,
    resident_memory: ResidentMemory,
    /// The counter of allocated memory, if the session has it.
    malloc: Option<MallocCounter>,
    of_application: CounterSampler,
    energy: EnergySampler,
    cpu_speeds: CpuSpeedMarkers,
}

impl SessionCounters {
    pub(super) fn new(session: &Session) -> Self {
        let counts_memory = session.settings.features.contains(Features::MEMORY);
        Self {
            next_of_process: TimeStamp(0),
            process_cpu_ns: sample_process_cpu_ns(),
            resident_memory: ResidentMemory::default(),
            malloc: counts_memory.then(|| MallocCounter::new(session)),
            of_application: CounterSampler::default(),
            energy: EnergySampler::default(),
            cpu_speeds: CpuSpeedMarkers::default(),
        }
    }

    /// Finds what the session records of the machine. Without memory, that is not recorded, and the
    /// session's log says so.
    pub(super) fn find_machine(&mut self, session: &Session) {
        let features = session.settings.features;
        let is_asked = [Features::POWER, Features::CPU_FREQ]
            .iter()
            .any(|feature| features.contains(*feature));
        if !is_asked {
            return;
        }
        if allocator_has(MACHINE_BYTES) {
            let sys = Path::new(SYS_FOLDER);
            self.energy = EnergySampler::find(session, sys);
            self.cpu_speeds = CpuSpeedMarkers::find(session, sys);
        } else {
            session
                .log
                .add("no memory to read the machine's energy and frequencies");
        }
    }

    /// Begins anew after a pause that has ended at this time.
    pub(super) fn skip_pause(&mut self, now: TimeStamp) {
        self.next_of_process = now;
        self.energy.skip_pause();
    }

    /// Samples all counters. The sampler has seen these pauses.
    pub(super) fn sample(
        &mut self,
        session: &Session,
        lane: &LaneHandle<'static>,
        pauses: &SeenPauses,
    ) {
        let now = monotonic_now();
        let is_due = now >= self.next_of_process
            && (session.settings.features).contains(Features::PROCESS_CPU);
        let of_process = is_due.then(|| {
            self.next_of_process = now.plus_ns(PROCESS_INTERVAL_NS);
            (sample_process_cpu_ns(), self.resident_memory.bytes())
        });
        // Skip the counters if a pause has begun during this tick.
        if session.pauses.until(pauses).is_some() {
            return;
        }
        let mut put = CounterWriter::of(session, lane);
        if let Some((cpu_ns, memory)) = of_process {
            let cpu_ns = cpu_ns - self.process_cpu_ns - pauses.cpu_in_pauses_ns;
            put.value(&PROCESS_CPU, now, cpu_ns);
            memory
                .into_iter()
                .for_each(|bytes| put.value(&RESIDENT_MEMORY, now, bytes as i64));
        }
        self.sample_each_tick(session, &mut put, now);
        self.energy.sample(now, |row| put.row(&row));
        self.cpu_speeds.add(now, session, lane);
    }

    /// Samples the counters that are read on each tick.
    fn sample_each_tick(&mut self, session: &Session, put: &mut CounterWriter<'_>, now: TimeStamp) {
        if let Some(counter) = &mut self.malloc {
            counter.sample(now, |row| put.row(&row));
        }
        self.of_application
            .sample(session, now, |row| put.row(&row));
    }

    /// Writes the values that the counters have now which are read on each tick.
    pub(super) fn write_current(
        &mut self,
        session: &Session,
        lane: &LaneHandle<'static>,
        pauses: &SeenPauses,
    ) {
        let mut put = CounterWriter::of(session, lane);
        let is_paused = pauses.is_paused || session.pauses.until(pauses).is_some();
        if !is_paused {
            self.sample_each_tick(session, &mut put, monotonic_now());
        }
        if let Some(counter) = &mut self.malloc {
            counter.write_rest(|row| put.row(&row));
        }
        self.of_application.write_rests(|row| put.row(&row));
    }
}
