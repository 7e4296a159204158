//! Whether call frame information speaks of an address.

use gimli::{BaseAddresses, EhFrame, EhFrameHdr, EndianSlice, NativeEndian, UnwindSection};

use crate::platform::ModuleImage;

/// Whether some entry of the module's `.eh_frame` covers `address`.
pub(super) fn is_covered(module: &ModuleImage, address: u64) -> bool {
    let Some(unwind) = &module.unwind else { return false };
    let bases = BaseAddresses::default()
        .set_eh_frame_hdr(unwind.eh_frame_hdr_address)
        .set_eh_frame(unwind.eh_frame_address);
    let eh_frame = EhFrame::from(EndianSlice::new(&unwind.eh_frame, NativeEndian));
    let header = EhFrameHdr::from(EndianSlice::new(&unwind.eh_frame_hdr, NativeEndian));
    let Ok(header) = header.parse(&bases, 8) else { return false };
    header.table().is_some_and(|table| {
        table.fde_for_address(&eh_frame, &bases, address, EhFrame::cie_from_offset).is_ok()
    })
}
