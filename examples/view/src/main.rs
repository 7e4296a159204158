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
//! a function, the viewer asks for its source code and its instructions. All data stays on this
//! machine, unless you upload it in the viewer. The viewer's site sees the link itself, with the port
//! and the token. From another machine, the link leads nowhere.
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
//! - A request can open a module that the profile lists, if it is an ELF file, and the ELF files with
//!   the module's debug information. It can read a source file that the debug information of a module
//!   with the listed build id names for the requested address. `modules.rs` is the only file that
//!   opens them.
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
use std::process::ExitCode;

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
    let link = address.link(&arguments.profiler, arguments.range.as_ref());
    let site = Site::new(profile, address, arguments.profiler);

    server::run(listener, site, arguments.idle, || {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{link}")?;
        out.flush()?;
        eprintln!("Open this link in a browser on this machine. Ctrl-C ends the server.");
        Ok(())
    })
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
