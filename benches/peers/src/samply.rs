//! Names addresses with samply-symbols, the crate with which samply and wholesym read files.
//!
//! wholesym adds the search for files, and their download. Here the file is known.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use memmap2::Mmap;
use samply_symbols::{
    AddressInfo, CandidatePathInfo, FileAndPathHelper, FileAndPathHelperResult, FileLocation,
    LibraryInfo, LookupAddress, OptionallySendFuture, SymbolManager,
};

use crate::own_program;

/// Returns what the file of this program says of each of these addresses in it.
pub(crate) fn look_up(
    program: &Path,
    addresses: &[u64],
) -> Result<Vec<Option<AddressInfo>>, Box<dyn Error>> {
    let manager = SymbolManager::with_helper(MappedFiles);
    let file = Location(program.to_owned());
    finish(async {
        let map = manager.load_symbol_map_from_location(file, None).await?;
        let mut found = Vec::with_capacity(addresses.len());
        for &address in addresses {
            found.push(map.lookup(LookupAddress::Svma(address)).await);
        }
        Ok(found)
    })?
}

/// Runs a future that never waits, since all its files are mapped.
fn finish<T>(future: impl Future<Output = T>) -> Result<T, Box<dyn Error>> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Ok(result),
        Poll::Pending => Err("samply-symbols waits for a file".into()),
    }
}

/// Maps the file that it was asked for, and knows of no others.
struct MappedFiles;

type Loaded<'a> = Pin<Box<dyn OptionallySendFuture<Output = FileAndPathHelperResult<Mmap>> + 'a>>;

impl FileAndPathHelper for MappedFiles {
    type F = Mmap;
    type FL = Location;

    fn get_candidate_paths_for_debug_file(
        &self,
        _: &LibraryInfo,
    ) -> FileAndPathHelperResult<Vec<CandidatePathInfo<Location>>> {
        Ok(Vec::new())
    }

    fn get_candidate_paths_for_binary(
        &self,
        _: &LibraryInfo,
    ) -> FileAndPathHelperResult<Vec<CandidatePathInfo<Location>>> {
        Ok(Vec::new())
    }

    fn get_dyld_shared_cache_paths(
        &self,
        _: Option<&str>,
    ) -> FileAndPathHelperResult<Vec<Location>> {
        Ok(Vec::new())
    }

    fn load_file(&self, location: Location) -> Loaded<'_> {
        Box::pin(async move { Ok(own_program::map(&location.0)?) })
    }
}

/// The path of a file.
#[derive(Clone)]
struct Location(PathBuf);

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

/// The program refers to no other file, except for split debug information, which it does not have.
impl FileLocation for Location {
    fn location_for_dyld_subcache(&self, _: &str) -> Option<Self> {
        None
    }

    fn location_for_external_object_file(&self, _: &str) -> Option<Self> {
        None
    }

    fn location_for_pdb_from_binary(&self, _: &str) -> Option<Self> {
        None
    }

    fn location_for_source_file(&self, _: &str) -> Option<Self> {
        None
    }

    fn location_for_breakpad_symindex(&self) -> Option<Self> {
        None
    }

    fn location_for_dwo(&self, _: &str, _: &str) -> Option<Self> {
        None
    }

    fn location_for_dwp(&self) -> Option<Self> {
        None
    }
}
