//! Functions whose label belongs to a future.

use std::convert::Infallible;
use std::error::Error;
use std::fmt::Debug;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::{Requests, run};

/// Is pending once, and then ready.
pub(crate) struct Wait(bool);

impl Wait {
    pub(crate) const fn new() -> Self {
        Self(false)
    }
}

impl Future for Wait {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        context.waker().wake_by_ref();
        if std::mem::replace(&mut self.0, true) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

/// The work of a labeled future, before or after it is pending.
#[inline(never)]
fn work_in_future() {
    run();
    std::hint::black_box(());
}

/// The return type determines the types of `?` and of the box.
#[gecko_profiler_fn_label(Layout, Selectorquery)]
pub(crate) async fn with_errors(
    text: &str,
    mut added: u64,
    _unused: Vec<u8>,
) -> Result<Box<dyn Debug + Send>, Box<dyn Error + Send + Sync>> {
    #![allow(unused_assignments, reason = "tests an inner attribute")]
    work_in_future();
    Wait::new().await;
    if text.is_empty() {
        return Err("empty".into());
    }
    added += text.parse::<u64>()?;
    work_in_future();
    Ok(Box::new(added))
}

pub(crate) struct Server {
    pub(crate) answered: Vec<String>,
}

impl Server {
    #[gecko_profiler_fn_label("serve", Requests::Other)]
    pub(crate) async fn serve<'a, T>(&'a mut self, request: T) -> &'a str
    where
        T: Into<String>,
    {
        work_in_future();
        Wait::new().await;
        work_in_future();
        self.answered.push(request.into());
        self.answered.last().expect("it was just pushed")
    }

    #[gecko_profiler_fn_label(Network)]
    pub(crate) async fn lengths(
        &self,
    ) -> (
        impl Iterator<Item = usize> + '_,
        [impl Fn(usize) -> bool; 1],
    ) {
        Wait::new().await;
        (
            self.answered.iter().map(|text| text.len()),
            [|length| length > 1],
        )
    }
}

pub(crate) trait Service {
    fn name(&self) -> String;

    #[gecko_profiler_fn_label(Network)]
    async fn greeting(&self) -> String {
        Wait::new().await;
        format!("{} is here", self.name())
    }

    /// The form that a `Send` future requires.
    fn length(&self) -> impl Future<Output = usize> + Send;

    /// The form that `async-trait` generates.
    fn boxed<'s>(
        &'s self,
        text: &'s str,
    ) -> Pin<Box<dyn Future<Output = Result<u8, Infallible>> + Send + 's>>;
}

impl Service for Server {
    fn name(&self) -> String {
        "server".to_owned()
    }

    #[gecko_profiler_fn_label("future in a function", Requests::Other)]
    #[allow(clippy::manual_async_fn, reason = "the trait's form")]
    fn length(&self) -> impl Future<Output = usize> + Send {
        async {
            work_in_future();
            Wait::new().await;
            self.answered.len()
        }
    }

    #[gecko_profiler_fn_label("boxed future", Requests::Other)]
    fn boxed<'s>(
        &'s self,
        text: &'s str,
    ) -> Pin<Box<dyn Future<Output = Result<u8, Infallible>> + Send + 's>> {
        Box::pin(async move {
            if let Some(typed) = None::<Result<u8, Infallible>> {
                return typed;
            }
            Wait::new().await;
            work_in_future();
            Ok(text.len() as u8)
        })
    }
}

#[gecko_profiler_fn_label(Network)]
pub(crate) async fn forever() -> ! {
    loop {
        Wait::new().await;
    }
}

/// Nested futures, with the attribute and without it.
macro_rules! nested {
    ($name:ident $(, #[$label:meta])?) => {
        pub(crate) mod $name {
            use super::Wait;

            $(#[$label])?
            async fn innermost() {
                let held = [1u8; 1024];
                Wait::new().await;
                std::hint::black_box(held);
            }

            $(#[$label])?
            async fn inner() {
                innermost().await;
            }

            $(#[$label])?
            async fn middle() {
                inner().await;
            }

            $(#[$label])?
            pub(crate) async fn outer() {
                middle().await;
            }
        }
    };
}

nested!(plain);
nested!(labeled, #[gecko_profiler_fn_label(Network)]);
