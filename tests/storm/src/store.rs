//! A store for profiles that fails at random.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use crate::random::Random;
use crate::tally;

/// How long a client may take for its request.
const PATIENCE: Duration = Duration::from_secs(10);

/// Starts a store on a thread of its own, which stays until the process ends.
pub fn start(listener: TcpListener) -> io::Result<SocketAddr> {
    let address = listener.local_addr()?;
    let serve = move || {
        let mut random = Random::new(1);
        loop {
            match listener.accept() {
                // A client that has left has no answer to read.
                Ok((stream, _)) => drop(answer(stream, &mut random)),
                // The storm has no free descriptor for a moment.
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    };
    std::thread::Builder::new()
        .name("store".to_owned())
        .spawn(serve)?;
    Ok(address)
}

/// Reads one request. Stores its profile, refuses it for now, hesitates, or closes the connection.
fn answer(stream: TcpStream, random: &mut Random) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream);
    let mut length = 0u64;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line == "\r\n" {
            break;
        }
        let field = line.split_once(':');
        if let Some((name, value)) = field
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().expect("a length");
        }
    }
    let mut body = Vec::new();
    reader.by_ref().take(length).read_to_end(&mut body)?;
    if length == 0 || body.len() as u64 != length {
        return Ok(());
    }
    let mut stream = reader.into_inner();
    let status = match random.below(8) {
        0 | 1 => "503 Service Unavailable",
        2 => return Ok(()),
        kind => {
            if kind == 3 {
                std::thread::sleep(Duration::from_millis(random.below(600)));
            }
            tally::STORED.one();
            "200 OK"
        }
    };
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    stream.write_all(answer.as_bytes())
}
