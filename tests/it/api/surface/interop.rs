//! Records, metrics, spans and events of other crates, through the profiler's logger, recorder and
//! layer.

#[cfg(feature = "log")]
pub(crate) fn log_a_record() {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use log::{Level, LevelFilter, Log, Metadata, Record};

    struct Counts<'a>(&'a AtomicUsize);

    impl Log for Counts<'_> {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.level() <= Level::Warn
        }

        fn log(&self, record: &Record<'_>) {
            if self.enabled(record.metadata()) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }

        fn flush(&self) {}
    }

    let logged = AtomicUsize::new(0);
    let logger = gekkota::ProfilerLogger::new(Counts(&logged))
        .markers_up_to(LevelFilter::Info)
        .with_category(super::labels::Surface::Other)
        .with_stacks(gekkota::MarkerStack::NonNative);
    for level in [Level::Error, Level::Warn, Level::Info] {
        logger.log(
            &Record::builder()
                .level(level)
                .args(format_args!("message"))
                .build(),
        );
    }
    assert_eq!(
        logged.load(Ordering::Relaxed),
        2,
        "the application's logger receives the levels that it enables"
    );
}

#[cfg(feature = "metrics")]
pub(crate) fn change_metrics() {
    let recorders: [&dyn metrics::Recorder; 3] = [
        &gekkota::ProfilerRecorder::default(),
        &gekkota::ProfilerRecorder::new(),
        &gekkota::ProfilerRecorder::with_inner(metrics::NoopRecorder),
    ];
    for recorder in recorders {
        metrics::with_local_recorder(recorder, || {
            metrics::describe_gauge!("gauge", metrics::Unit::Bytes, "a gauge");
            metrics::counter!("counter", "label" => "value").increment(1);
            metrics::gauge!("gauge").set(1);
            metrics::histogram!("histogram").record(0.5);
        });
    }
}

#[cfg(feature = "tracing")]
pub(crate) fn enter_a_span() {
    use tracing_subscriber::prelude::*;

    let layer = gekkota::ProfilerLayer::new()
        .with_category(super::labels::Surface::Other)
        .with_stacks(gekkota::MarkerStack::NonNative)
        .labels(true)
        .busy_times(true);
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let span = tracing::info_span!("span", number = 7);
        assert!(!span.is_disabled());
        span.in_scope(|| tracing::info!("event"));
    });
}
