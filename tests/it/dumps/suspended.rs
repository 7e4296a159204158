//! Explanations of requests whose futures waited, next to the dumps that these requests cause.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use gekkota::dump::profiler_set_dumps;
use gekkota::{Features, ProfilerLayer, ProfilerSession, StartParams, register_thread};
use tracing::Instrument;
use tracing_subscriber::prelude::*;

use super::{Folder, name, settings};
use crate::common::{isolated, wait_until};

#[test]
fn dump_for_a_suspended_request_names_the_future_that_waited() {
    isolated(|| {
        let folder = Folder::new();
        let limit = Duration::from_millis(50);
        let settings = settings(&folder).on_interval_longer_than(limit);
        profiler_set_dumps(Some(settings)).expect("no limits");
        tracing_subscriber::registry()
            .with(ProfilerLayer::new())
            .init();
        let params = StartParams::default();
        let features = params.features | Features::WAITING_TASKS;
        let _session = ProfilerSession::start(params.features(features)).expect("starts");
        register_thread("test");
        let mut polls = 0;
        let get = std::future::poll_fn(|_| {
            polls += 1;
            if polls > 1 {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        let request = async {
            get.instrument(tracing::info_span!("get")).await;
        };
        let span = tracing::info_span!("request", trace_id = 7u64);
        let mut request = Box::pin(request.instrument(span));
        let mut poll = || {
            request
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
        };
        assert!(poll().is_pending());
        std::thread::sleep(limit * 2);
        assert!(poll().is_ready());
        drop(request);
        let explained = || {
            let dump = folder.dumps().into_iter().next()?;
            let (stem, _) = name(&dump).split_once('.')?;
            std::fs::read_to_string(dump.with_file_name(format!("{stem}.txt"))).ok()
        };
        wait_until("the dump is explained", || explained().is_some());
        let text = explained().expect("a text");
        assert!(
            text.contains("ms  suspended in get \u{2190} request\n"),
            "{text}"
        );
    });
}
