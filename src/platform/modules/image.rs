//! A loaded module, and its unwind sections.
//!
//! **Contract**: as in `mod.rs`: *loader's lock*, *stays*.

use std::ops::{ControlFlow, Deref, Range};
use std::path::PathBuf;
use std::sync::Arc;

use once_cell::race::OnceBox;

use crate::platform::modules::headers::UnwindLocation;
use crate::platform::modules::loader::{ModuleChanges, mapped, visit_modules};
use crate::util::try_vec;

/// Maximum length of a build id; a longer one is cut.
pub(super) const MAX_BUILD_ID: usize = 64;

/// The bytes of a section: in place if they stay mapped, copied if they may be unmapped.
#[derive(Clone, Debug)]
pub(crate) enum SectionBytes {
    Mapped(&'static [u8]),
    Copied(Arc<Vec<u8>>, Range<usize>),
}

impl Default for SectionBytes {
    fn default() -> Self {
        Self::Mapped(&[])
    }
}

impl Deref for SectionBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(bytes) => bytes,
            Self::Copied(bytes, range) => &bytes[range.clone()],
        }
    }
}

/// The unwind sections of a module and their mapped addresses.
#[derive(Clone, Debug)]
pub(crate) struct UnwindSections {
    pub(crate) eh_frame_hdr: SectionBytes,
    pub(crate) eh_frame_hdr_address: u64,
    pub(crate) eh_frame: SectionBytes,
    pub(crate) eh_frame_address: u64,
}

/// A loaded module.
#[derive(Clone, Debug)]
pub(crate) struct ModuleImage {
    pub(crate) path: PathBuf,
    /// Load bias: an address in memory minus the virtual address that the ELF file gives for it.
    pub(crate) bias: u64,
    /// Addresses from the first loaded byte to the last.
    pub(crate) range: Range<u64>,
    pub(crate) build_id: Vec<u8>,
    pub(crate) is_executable: bool,
    /// Whether the module is loaded from the program's begin to its end: true for the executable,
    /// the libraries that it needs, and the vDSO.
    pub(crate) stays: bool,
    /// Number of modules loaded after this one.
    pub(crate) loaded_after: u64,
    pub(super) unwind: UnwindSource,
    /// The complete image of a module without a file: the vDSO.
    pub(crate) memory: Option<&'static [u8]>,
}

/// Location of a module's unwind sections, and the sections once they were requested.
#[derive(Clone, Debug, Default)]
pub(super) struct UnwindSource {
    /// `None` if the module has no unwind sections.
    pub(super) location: Option<UnwindLocation>,
    /// The loader's counters at the time when the module was listed.
    pub(super) seen: ModuleChanges,
    pub(super) sections: OnceBox<UnwindSections>,
}

impl ModuleImage {
    /// Returns the module's unwind sections. The first call copies them under the loader's lock,
    /// and allocates. Returns `None` if the module has none, or if it was unloaded before the first
    /// call.
    pub(crate) fn unwind_sections(&self) -> Option<&UnwindSections> {
        let sections = &self.unwind.sections;
        if let Some(known) = sections.get() {
            return Some(known);
        }
        let location = self.unwind.location.as_ref()?;
        let copy = if self.is_executable || self.memory.is_some() {
            None
        } else {
            Some(self.copy_unwind_region(location)?)
        };
        Some(sections.get_or_init(|| Box::new(location.sections(copy))))
    }

    /// Describes a module that a process that has ended had loaded. `memory` is the module's image, if
    /// this process has the same module without a file.
    pub(crate) fn of_past_process(
        path: PathBuf,
        bias: u64,
        range: Range<u64>,
        build_id: Vec<u8>,
        memory: Option<&'static [u8]>,
    ) -> Self {
        Self {
            path,
            bias,
            range,
            build_id,
            // The executable of this process is another one.
            is_executable: false,
            stays: false,
            loaded_after: 0,
            unwind: UnwindSource::default(),
            memory,
        }
    }

    /// Returns a copy of this module without unwind sections.
    pub(crate) fn without_unwind_sections(&self) -> Self {
        Self {
            unwind: UnwindSource::default(),
            ..self.clone()
        }
    }

    /// Copies the region with the unwind sections. Returns `None` if the module is no longer loaded
    /// at this address.
    fn copy_unwind_region(&self, location: &UnwindLocation) -> Option<Vec<u8>> {
        let length = (location.region.end - location.region.start) as usize;
        // Without memory for the copy, the module has no sections for now.
        let mut copy = try_vec(length)?;
        visit_modules(&mut |entry| {
            if entry.info.dlpi_addr != self.bias
                || entry.unwind_location().as_ref() != Some(location)
            {
                return ControlFlow::Continue(());
            }
            let build_id = entry.build_id().unwrap_or_default();
            let is_same = match self.build_id.is_empty() {
                true => entry.changes() == self.unwind.seen,
                false => build_id[..build_id.len().min(MAX_BUILD_ID)] == self.build_id[..],
            };
            if is_same {
                // SAFETY: *loader's lock*: the region lies in a loaded segment of this module.
                // The vector has the capacity, so this does not allocate.
                copy.extend_from_slice(unsafe { mapped(location.region.clone()) });
            }
            ControlFlow::Break(())
        });
        (!copy.is_empty()).then_some(copy)
    }
}

impl UnwindLocation {
    /// Returns the sections: within `copy`, a copy of the region, or in place if it is `None`. Only
    /// the sections of a module that stays mapped may be used in place.
    fn sections(&self, copy: Option<Vec<u8>>) -> UnwindSections {
        let (header, frames) = (
            self.eh_frame_hdr..self.eh_frame_hdr_end,
            self.eh_frame..self.region.end,
        );
        let (eh_frame_hdr, eh_frame) = if let Some(copy) = copy {
            let bytes = Arc::new(copy);
            let within = |range: Range<u64>| {
                let offset = |address: u64| (address - self.region.start) as usize;
                SectionBytes::Copied(Arc::clone(&bytes), offset(range.start)..offset(range.end))
            };
            (within(header), within(frames))
        } else {
            // SAFETY: *stays*: both ranges lie in a loaded segment.
            unsafe {
                (
                    SectionBytes::Mapped(mapped(header)),
                    SectionBytes::Mapped(mapped(frames)),
                )
            }
        };
        UnwindSections {
            eh_frame_hdr,
            eh_frame_hdr_address: self.eh_frame_hdr,
            eh_frame,
            eh_frame_address: self.eh_frame,
        }
    }
}
