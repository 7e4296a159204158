//! Writes the profile's `libs`.

use crate::json::JsonWriter;
use crate::stream::resolve::location::library_name;
use crate::unwind::LoadedModule;

/// Writes the modules, sorted by address and without overlaps, as the viewer's loader needs them.
pub(crate) fn write_libs(json: &mut JsonWriter<'_>, modules: &[LoadedModule]) {
    json.array(|json| {
        for LoadedModule { image, .. } in modules {
            json.object(|json| {
                let name = library_name(&image.path);
                // The path as the system reports it, which need not be UTF-8.
                let mut path = image.path.as_os_str().as_encoded_bytes();
                while let Some(before) = path.strip_suffix(b" (deleted)") {
                    path = before;
                }
                write_address(json.key("start"), image.range.start);
                write_address(json.key("end"), image.range.end);
                // Addresses are looked up relative to the first loaded byte.
                json.key("offset").unsigned(0);
                json.key("name").string(&name);
                json.key("path").text_bytes(path);
                json.key("debugName").string(&name);
                json.key("debugPath").text_bytes(path);
                json.key("breakpadId").string(&breakpad_id(&image.build_id));
                json.key("codeId")
                    .or_null(code_id(&image.build_id), |json, id| json.string(&id));
                json.key("arch").string(std::env::consts::ARCH);
            });
        }
    });
}

/// Writes an address, or -1 if it is above 2^53 - 1, as in Gecko: the viewer's numbers are exact
/// only up to there.
fn write_address(json: &mut JsonWriter<'_>, address: u64) {
    const MAX_EXACT: u64 = (1 << 53) - 1;
    match address {
        0..=MAX_EXACT => json.unsigned(address),
        _ => json.signed(-1),
    }
}

/// Returns the Breakpad id: the first 16 bytes of the build id as a GUID, whose first three fields
/// are little-endian, then the age, 0. It is empty for a module without a build id.
pub(crate) fn breakpad_id(build_id: &[u8]) -> String {
    if build_id.is_empty() {
        return String::new();
    }
    let mut guid = [0; 16];
    let length = build_id.len().min(16);
    guid[..length].copy_from_slice(&build_id[..length]);
    guid[0..4].reverse();
    guid[4..6].reverse();
    guid[6..8].reverse();
    guid.iter()
        .map(|byte| format!("{byte:02X}"))
        .chain(["0".to_owned()])
        .collect()
}

/// Returns the whole build id as hexadecimal digits.
pub(crate) fn code_id(build_id: &[u8]) -> Option<String> {
    (!build_id.is_empty()).then(|| build_id.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_more_than_53_bits_are_written_as_minus_one() {
        let mut text = Vec::new();
        let mut json = JsonWriter::new(&mut text);
        for address in [0, (1 << 53) - 1, 1 << 53, u64::MAX] {
            write_address(&mut json, address);
        }
        json.finish().expect("a vector never fails");
        assert_eq!(text, b"0,9007199254740991,-1,-1");
    }

    #[test]
    fn build_ids_are_formatted_for_symbol_servers() {
        let build_id: Vec<u8> = (1..=20).collect();
        assert_eq!(breakpad_id(&build_id), "0403020106050807090A0B0C0D0E0F100");
        assert_eq!(
            code_id(&build_id).as_deref(),
            Some("0102030405060708090a0b0c0d0e0f1011121314")
        );
        assert_eq!(breakpad_id(&[0xab]), "000000AB0000000000000000000000000");
        assert_eq!((breakpad_id(&[]), code_id(&[])), (String::new(), None));
    }
}
