//! Opens a profile in the Firefox Profiler, with names, source code and instructions.
//!
//! ```text
//! cargo run --release --example view -- PROFILE
//! ```
//!
//! `PROFILE` is a file in Gecko's format or in the Firefox Profiler's own, which may be compressed.
//! The program prints a link. The Firefox Profiler, opened by that link, loads the profile from
//! this program. If the profile has addresses instead of names, such as one that was recorded with
//! `MOZ_PROFILER_SYMBOLICATE=0`, the viewer asks this program for the names. When you double-click
//! a function, the viewer asks for its source code and its instructions. All data stays
//! on this machine, unless you upload it in the viewer.
//!
//! Run it on the machine that recorded the profile. The names come from the executable and the
//! libraries that ran, as they are on disk, and from their separate debug files. A file that was
//! rebuilt since has another build id and gives no names. Source files are shown as they are now.
//!
//! The program ends at Ctrl-C, at `SIGTERM`, or after an hour without a request (`--idle MINUTES`).
//! `--help` lists the options.
//!
//! # Who can read what
//!
//! - The server listens on 127.0.0.1 only. Other users of the machine can connect to that address,
//!   too, so each path begins with a random token of 128 bits. Without the token, every path is
//!   unknown.
//! - A request must name 127.0.0.1 or localhost in its `Host` header. So a page of another site,
//!   whose name an attacker points at 127.0.0.1, reaches nothing. Of all pages, only those of the
//!   Firefox Profiler may read the answers.
//! - A request can open three kinds of file: a module that the profile lists, if it is an ELF file
//!   with the listed build id; the debug file of such a module; and a source file that the module's
//!   debug information names for the requested address. `modules.rs` is the only file that opens
//!   them.
//! - The server sends nothing anywhere but its answers, and downloads nothing.

mod activity;
mod arguments;
mod link;
mod modules;
mod profile;
mod routes;
mod server;

use std::error::Error;
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, ExitCode, Stdio};

use crate::arguments::Arguments;
use crate::link::{Address, Token};
use crate::profile::Profile;
use crate::routes::Site;

fn view(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    let profile = Profile::read(&arguments.profile)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, arguments.port)).map_err(|error| {
        let port = arguments.port;
        format!("cannot listen on port {port} of 127.0.0.1: {error}")
    })?;
    let address = Address::new(listener.local_addr()?.port(), Token::random()?);
    let link = address.link(&arguments.profiler);
    let opener = arguments.opens.then(Token::random).transpose()?;
    let browser_url = opener.as_ref().map(|token| address.url_of(token));
    let site = Site::new(profile, address, arguments.profiler, opener);

    server::run(listener, site, arguments.idle, || {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{link}")?;
        out.flush()?;
        eprintln!("Open this link in a browser on this machine. Ctrl-C ends the server.");
        if let Some(url) = browser_url {
            open_browser(url);
        }
        Ok(())
    })
}

/// Opens the desktop's browser, on a thread of its own, because some browsers keep the caller
/// waiting.
fn open_browser(url: String) {
    std::thread::spawn(move || {
        let mut command = Command::new("xdg-open");
        command.arg(url).stdin(Stdio::null()).stdout(Stdio::null());
        match command.status() {
            Ok(status) if status.success() => {}
            Ok(status) => eprintln!("view: cannot open a browser: xdg-open ended with {status}"),
            Err(error) => eprintln!("view: cannot open a browser: xdg-open: {error}"),
        }
    });
}

fn main() -> ExitCode {
    let result = Arguments::parse().and_then(|arguments| match arguments {
        Some(arguments) => view(arguments),
        None => {
            println!("{}", arguments::USAGE);
            Ok(())
        }
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("view: {error}");
            ExitCode::FAILURE
        }
    }
}
