//! Looks up the names of a profile's addresses.

use std::collections::HashMap;
use std::sync::Arc;

use crate::platform::{on_own_descriptors, usable_processors};
use crate::stream::decode::FrameKey;
use crate::stream::decode::ProcessStreamingContext;
use crate::stream::decode::ProfileSource;
use crate::stream::memory::check_memory;
use crate::symbols::{
    AddressName, AddressNames, CodeAddressService, FoundNames, OpenModules, SampledAddress,
    UnreadFile,
};
use crate::types::NameOptions;
use crate::unwind::{LoadedModule, NamedCode};
use crate::util::{ProgressLocation, ProgressLogger};

/// Maximum number of threads that look up names, if the caller does not say it. Each needs memory
/// for a module, and few programs have more than four large ones.
const MAX_DEFAULT_THREADS: usize = 4;

/// Returns the number of threads that look up names, if the caller does not say it.
fn default_threads() -> usize {
    (on_own_descriptors(usable_processors) / 2).min(MAX_DEFAULT_THREADS)
}

/// The names of addresses in current modules, and in replaced modules by module number.
#[derive(Debug, Default)]
pub(crate) struct ProfileNames {
    now: AddressNames,
    replaced: HashMap<usize, AddressNames>,
    pub(crate) unread_files: Vec<UnreadFile>,
    /// Number of addresses without a name because the memory did not suffice to look them up.
    pub(crate) unnamed_for_memory: u64,
}

impl ProfileNames {
    /// Returns the names of an address in a current module.
    pub(crate) fn now(&self, address: SampledAddress) -> Option<&AddressName> {
        self.now.get(&address)
    }

    /// Returns the names of an address in the module with this number, whose place another module
    /// has taken.
    pub(crate) fn in_replaced(
        &self,
        module: usize,
        address: SampledAddress,
    ) -> Option<&AddressName> {
        self.replaced.get(&module)?.get(&address)
    }

    /// Looks up all addresses in the profile's stacks. If `open_modules` is given, its thread does it.
    pub(crate) fn look_up(
        source: &ProfileSource,
        process: &ProcessStreamingContext,
        options: NameOptions,
        open_modules: Option<&OpenModules>,
        progress: &ProgressLogger,
    ) -> Self {
        let mut addresses = Vec::new();
        let mut in_replaced: HashMap<usize, Vec<SampledAddress>> = HashMap::new();
        for frame in process.stacks.frames() {
            match frame {
                FrameKey::Native(address) | FrameKey::Waiting(address, _) => {
                    addresses.push(*address)
                }
                FrameKey::Replaced(module, address) => {
                    in_replaced.entry(*module).or_default().push(*address)
                }
                _ => {}
            }
        }
        let modules = source.modules.all_as_of_now();
        let symbolicate = options.symbolicate;
        let max_threads = options.max_threads.unwrap_or_else(default_threads);
        let service = CodeAddressService::new(&modules, &source.generated_code, symbolicate)
            .on_threads(max_threads)
            .in_open_modules(open_modules);
        let generated = &source.generated_code;
        let mut known = AddressNames::new();
        source.session.with_names(|cache| {
            cache.take_known(&modules, generated, symbolicate, &mut addresses, &mut known);
        });
        let count = addresses.len() + in_replaced.values().map(Vec::len).sum::<usize>();
        let progress = progress.sub_logger(0.0, 1.0, ProgressLocation::Names);
        let progress = Arc::new(progress.counter(count, ProgressLocation::Names));
        let mut now = service.resolve_with_progress(addresses.clone(), &progress);
        let incomplete = service.take_incomplete();
        let found = FoundNames {
            addresses: &addresses,
            names: &now,
            modules: &modules,
            generated,
            incomplete: &incomplete,
        };
        // Without memory for the new names, they are used, but not kept.
        if check_memory(found.bytes()).is_ok() {
            source.session.with_names(|cache| {
                cache.add(&found, symbolicate, options.max_cache_bytes);
            });
        }
        now.extend(known);
        let mut unread_files = service.take_unread_files();
        let mut unnamed_for_memory = service.unnamed_for_memory();
        let no_code = NamedCode::default();
        let replaced = in_replaced.into_iter().filter_map(|(number, addresses)| {
            let image = Arc::clone(source.modules.replaced(number)?);
            let modules = [LoadedModule {
                image,
                unloaded: true,
            }];
            let service = CodeAddressService::new(&modules, &no_code, symbolicate);
            let names = service.resolve_with_progress(addresses, &progress);
            unread_files.extend(service.take_unread_files());
            unnamed_for_memory += service.unnamed_for_memory();
            Some((number, names))
        });
        let replaced = replaced.collect();
        ProfileNames {
            now,
            replaced,
            unread_files,
            unnamed_for_memory,
        }
    }
}
