//! The arms of `stall`: samplers of its busy thread, which report how many samples they took.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use gekkota::{ProfilerSession, StartParams};

use crate::handshake::HandshakeSampler;
use crate::profile::{count, engine_of};
use crate::raw::{self, EmptyHandler, PerfTimer, PosixTimer};
use crate::schedule::Schedule;
use crate::target::{BUSY_NAME, Target};

/// A sampler, with the state that it keeps from one start to the next.
pub(crate) struct Sampler {
    kind: Kind,
    /// Frames of the last stack, if the arm reports them.
    pub(crate) frames: Option<usize>,
    pub(crate) engine: Option<String>,
}

enum Kind {
    Ours,
    EmptyHandler(EmptyHandler),
    PerfTimer(EmptyHandler),
    PosixTimer(EmptyHandler),
    /// `None` while its thread runs.
    GeckoStyle(Option<HandshakeSampler>),
    Pprof,
}

/// A sampler that is sampling the busy thread.
pub(crate) enum ActiveSampler {
    Ours(ProfilerSession),
    Thread {
        stop: Arc<AtomicBool>,
        thread: JoinHandle<(u64, Option<HandshakeSampler>)>,
        frames: Arc<AtomicU64>,
    },
    PerfTimer {
        handler: EmptyHandler,
        answers: u64,
        timer: PerfTimer,
    },
    PosixTimer {
        handler: EmptyHandler,
        answers: u64,
        timer: PosixTimer,
    },
    Pprof(pprof::ProfilerGuard<'static>),
}

impl Sampler {
    pub(crate) fn new(arm: &str) -> Result<Self, Box<dyn Error>> {
        let kind = match arm {
            "ours" => Kind::Ours,
            "empty_handler" => Kind::EmptyHandler(EmptyHandler::install()?),
            "bare_perf_timer" => Kind::PerfTimer(EmptyHandler::install()?),
            "bare_posix_timer" => Kind::PosixTimer(EmptyHandler::install()?),
            "gecko_style" => Kind::GeckoStyle(Some(HandshakeSampler::new()?)),
            "pprof" => Kind::Pprof,
            other => return Err(format!("unknown arm `{other}`").into()),
        };
        Ok(Self {
            kind,
            frames: None,
            engine: None,
        })
    }

    /// Starts sampling.
    pub(crate) fn start(
        &mut self,
        target: &Target,
        interval: Duration,
    ) -> Result<ActiveSampler, Box<dyn Error>> {
        Ok(match &mut self.kind {
            Kind::Ours => {
                let params = StartParams::default().interval(interval);
                ActiveSampler::Ours(ProfilerSession::start(params)?)
            }
            Kind::EmptyHandler(handler) => {
                let (handler, thread_id, before) = (*handler, target.thread_id, handler.answers());
                start_thread(interval, move |stop, tick| {
                    while !stop.load(Ordering::Relaxed) {
                        if handler.send(thread_id).is_err() {
                            break;
                        }
                        tick();
                    }
                    (handler.answers() - before, None)
                })
            }
            Kind::GeckoStyle(sampler) => {
                let mut sampler = sampler.take().ok_or("the sampler runs already")?;
                let thread = target.suspendable.clone();
                let frames = Arc::new(AtomicU64::new(0));
                let found = Arc::clone(&frames);
                let mut running = start_thread(interval, move |stop, tick| {
                    let mut samples = 0;
                    while !stop.load(Ordering::Relaxed) {
                        found.store(sampler.sample(&thread).len() as u64, Ordering::Relaxed);
                        samples += 1;
                        tick();
                    }
                    (samples, Some(sampler))
                });
                if let ActiveSampler::Thread {
                    frames: running_frames,
                    ..
                } = &mut running
                {
                    *running_frames = frames;
                }
                running
            }
            Kind::PerfTimer(handler) => ActiveSampler::PerfTimer {
                answers: handler.answers(),
                timer: handler.start_perf_timer(target.thread_id, interval)?,
                handler: *handler,
            },
            Kind::PosixTimer(handler) => {
                // A timer interrupts the processor on which it was set.
                let before = raw::processors();
                if let Some(processor) = target.processor {
                    raw::run_on(&[processor])?;
                }
                let timer = handler.start_posix_timer(target.thread_id, interval);
                raw::run_on(&before)?;
                ActiveSampler::PosixTimer {
                    answers: handler.answers(),
                    timer: timer?,
                    handler: *handler,
                }
            }
            Kind::Pprof => {
                let hz = (1.0 / interval.as_secs_f64()).round();
                ActiveSampler::Pprof(pprof::ProfilerGuard::new(hz as i32)?)
            }
        })
    }
}

/// Starts a thread that is prepared as gekkota's sampler is and ticks on the same kind of schedule,
/// which drops missed ticks.
fn start_thread(
    interval: Duration,
    body: impl FnOnce(&AtomicBool, &mut dyn FnMut()) -> (u64, Option<HandshakeSampler>) + Send + 'static,
) -> ActiveSampler {
    let stop = Arc::new(AtomicBool::new(false));
    let thread_stop = Arc::clone(&stop);
    let thread = std::thread::spawn(move || {
        raw::prepare_sampler_thread();
        let mut schedule = Schedule::start(interval);
        body(&thread_stop, &mut || schedule.sleep_to_next())
    });
    ActiveSampler::Thread {
        stop,
        thread,
        frames: Arc::default(),
    }
}

impl ActiveSampler {
    /// Stops sampling, and returns the number of samples of the busy thread.
    pub(crate) fn stop(self, sampler: &mut Sampler) -> Result<u64, Box<dyn Error>> {
        match self {
            Self::Ours(session) => {
                let profile = session.finish()?;
                if sampler.engine.is_none() {
                    sampler.engine = Some(engine_of(&profile)?);
                }
                count(&profile, "captured_samples")
                    .ok_or_else(|| "the profile has no count of samples".into())
            }
            Self::Thread {
                stop,
                thread,
                frames,
            } => {
                stop.store(true, Ordering::Relaxed);
                let (samples, handshake) = thread.join().map_err(|_| "the sampler panicked")?;
                if let (Kind::GeckoStyle(place), Some(handshake)) = (&mut sampler.kind, handshake) {
                    *place = Some(handshake);
                    sampler.frames = Some(frames.load(Ordering::Relaxed) as usize);
                }
                Ok(samples)
            }
            Self::PerfTimer {
                handler,
                answers,
                timer,
            } => {
                drop(timer);
                Ok(handler.answers() - answers)
            }
            Self::PosixTimer {
                handler,
                answers,
                timer,
            } => {
                drop(timer);
                Ok(handler.answers() - answers)
            }
            Self::Pprof(guard) => {
                let report = guard.report().build_unresolved()?;
                let of_busy = report
                    .data
                    .iter()
                    .filter(|(stack, _)| {
                        stack.thread_name.get(..stack.thread_name_length)
                            == Some(BUSY_NAME.as_bytes())
                    })
                    .map(|(_, count)| *count);
                Ok(of_busy.sum::<isize>() as u64)
            }
        }
    }
}
