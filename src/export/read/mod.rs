//! Readers of profiles: from memory, from a file, or from a stream.

mod builder;
mod context;
mod gecko;
mod gecko_stacks;
mod processed;
mod processed_tables;
mod table;
mod thread;
mod value;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::export::read::builder::ModelBuilder;
use crate::export::read::gecko::read_gecko;
use crate::export::read::processed::read_processed;
use crate::export::read::value::Value;
use crate::model::ProfileModel;
use crate::types::ReadError;

/// Maximum length of a profile's text. So no table of a profile has more rows than 32 bits count.
const MAX_BYTES: u64 = 4 << 30;

const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];

/// Reads a profile of gekkota or Firefox, which may be compressed with gzip: Gecko's JSON, or the
/// processed format of the Firefox Profiler.
///
/// # Errors
/// The text is not a profile, or a part of it is missing or invalid; the error names the part.
pub(crate) fn read_profile_from(stream: impl Read) -> Result<ProfileModel, ReadError> {
    read_stream(stream, None)
}

/// Reads a profile from a file: see [`read_profile_from`].
pub(crate) fn read_profile_file(path: &Path) -> Result<ProfileModel, ReadError> {
    let file = File::open(path).map_err(|error| ReadError::Io {
        path: Some(path.to_owned()),
        error,
    })?;
    read_stream(file, Some(path))
}

fn read_stream(stream: impl Read, path: Option<&Path>) -> Result<ProfileModel, ReadError> {
    let bytes = read_limited(stream).map_err(|error| ReadError::Io {
        path: path.map(Path::to_owned),
        error,
    })?;
    let text = match bytes.starts_with(GZIP_MAGIC) {
        // Frees the compressed data before the model is built.
        true => decompress(&bytes)?,
        false => return read_text(&bytes),
    };
    drop(bytes);
    read_text(&text)
}

/// Reads a stream to its end, or to the first byte above the limit.
fn read_limited(stream: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(feature = "gzip")]
fn decompress(bytes: &[u8]) -> Result<Vec<u8>, ReadError> {
    // A file may consist of several parts, each compressed separately.
    read_limited(flate2::read::MultiGzDecoder::new(bytes))
        .map_err(|error| ReadError::DamagedGzip(error.to_string()))
}

#[cfg(not(feature = "gzip"))]
fn decompress(_bytes: &[u8]) -> Result<Vec<u8>, ReadError> {
    Err(ReadError::NoGzip)
}

/// Reads Gecko's JSON of a child process into the profile of its parent. If the text is invalid, adds
/// what comes before the error, and returns the error, too.
pub(crate) fn add_child(profile: &mut ProfileModel, text: &str) -> Result<(), ReadError> {
    let mut builder = ModelBuilder::extending(std::mem::take(profile));
    let mut read = || {
        let child = Value::parse(text)?.object("the profile of a process")?;
        let meta = child.require("meta", "facts about the process")?;
        let meta = meta.object("facts about the process")?;
        read_gecko(&mut builder, &child, &meta, 2)
    };
    let result = read();
    *profile = builder.finish();
    result
}

fn read_text(bytes: &[u8]) -> Result<ProfileModel, ReadError> {
    if bytes.len() as u64 > MAX_BYTES {
        return Err(ReadError::TooLarge {
            max_bytes: MAX_BYTES,
        });
    }
    let text = std::str::from_utf8(bytes).map_err(|error| ReadError::NotJson(error.to_string()))?;
    let top = Value::parse(text)?;
    let not_a_profile = || ReadError::NotAProfile {
        lacks: "meta.version",
    };
    if !top.is_object() {
        return Err(not_a_profile());
    }
    let profile = top.object("a profile")?;
    let meta = profile.get("meta").filter(Value::is_object);
    let meta = meta.ok_or_else(not_a_profile)?.object("an object")?;
    let mut builder = ModelBuilder::default();
    if meta.get("preprocessedProfileVersion").is_some() {
        read_processed(&mut builder, &profile, &meta)?;
    } else if meta.get("version").is_some() {
        read_gecko(&mut builder, &profile, &meta, 1)?;
    } else {
        return Err(not_a_profile());
    }
    Ok(builder.finish())
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
