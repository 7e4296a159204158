//! Resolves given addresses for `cargo peers symbolicate`, without a session.

use crate::symbols::names::{AddressName, SampledAddress};
use crate::symbols::resolver::CodeAddressService;
use crate::types::{CodeAddress, Symbolicate};
use crate::unwind::{ModuleTable, NamedCode};

/// Returns the functions at each of these code addresses, the innermost inlined one first. An
/// address without a name is absent.
///
/// Lists the modules and reads their files, as a profile does that is saved for the first time.
pub fn resolve_addresses(addresses: &[u64], symbolicate: Symbolicate) -> Vec<(u64, Vec<String>)> {
    let mut table = ModuleTable::default();
    table.refresh();
    let modules = table.all();
    let sampled = addresses.iter().map(|&address| SampledAddress {
        address: CodeAddress::new(address),
        is_return_address: false,
    });
    let names = CodeAddressService::new(&modules, &NamedCode::default(), symbolicate)
        .resolve(sampled.collect());
    let functions_of = |(address, name): (SampledAddress, AddressName)| {
        let functions = name.functions.into_iter().map(|name| name.function);
        (address.address.get(), functions.collect())
    };
    names.into_iter().map(functions_of).collect()
}
