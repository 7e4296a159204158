//! Accepts connections until the user, the system or a long idle time ends the server.

use std::error::Error;
use std::io;
use std::net;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use crate::routes::Site;

/// Pause after a failure to accept, such as too many open files, which takes time to go away.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until the server ends. Calls `ready` once signals end the server in an orderly way.
pub(crate) fn run(
    listener: net::TcpListener,
    site: Site,
    idle: Duration,
    ready: impl FnOnce() -> io::Result<()>,
) -> Result<(), Box<dyn Error>> {
    // Answers are short work except for queries, which run on the blocking threads.
    let runtime = Builder::new_current_thread()
        .max_blocking_threads(available_parallelism()?.get())
        .enable_all()
        .build()?;
    let result = runtime.block_on(serve(listener, site, idle, ready));
    // Does not wait for queries, because their answers are not read any more.
    runtime.shutdown_background();
    Ok(result?)
}

async fn serve(
    listener: net::TcpListener,
    site: Site,
    idle: Duration,
    ready: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    ready()?;
    let site = Arc::new(site);
    tokio::select! {
        () = accept(listener, &site) => {}
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        () = site.activity.wait_until_idle_for(idle) => eprintln!("view: ended without requests"),
    }
    Ok(())
}

async fn accept(listener: TcpListener, site: &Arc<Site>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(serve_connection(stream, site.clone()));
            }
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn serve_connection(stream: TcpStream, site: Arc<Site>) {
    let service = service_fn(|request| site.clone().answer(request));
    let mut connection = http1::Builder::new();
    // The timer ends connections that send no request.
    let connection = connection.timer(TokioTimer::new());
    // An error concerns only this client, which usually has gone.
    let _ = connection
        .serve_connection(TokioIo::new(stream), service)
        .await;
}
