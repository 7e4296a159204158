//! A store for profiles: an HTTP server on this machine that takes what is sent to it.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

/// Starts a store. Calls `taken` with the first line of each request, and answers it when that
/// returns. Returns the store's address. The store ends with the process.
pub(crate) fn start(mut taken: impl FnMut(&str) + Send + 'static) -> std::io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}", listener.local_addr()?);
    std::thread::Builder::new().spawn(move || {
        for stream in listener.incoming().flatten() {
            if let Err(error) = take(stream, &mut taken) {
                eprintln!("peers: the store cannot take a profile: {error}");
            }
        }
    })?;
    Ok(url)
}

fn take(stream: TcpStream, taken: &mut impl FnMut(&str)) -> Result<(), Box<dyn Error>> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if line.trim().is_empty() {
            break;
        }
        let header = line.split_once(':');
        if let Some((_, value)) =
            header.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        {
            length = value.trim().parse()?;
        }
    }
    reader.read_exact(&mut vec![0; length])?;
    taken(&first);
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    Ok(reader.get_mut().write_all(answer)?)
}
