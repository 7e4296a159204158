//! The script functions that the application has named. Each is stored once, for the life of the
//! process.
//!
//! Frames, captures and buffer entries hold a function's number, which has the same meaning for the
//! life of the process. So neither entering a function nor the handler copies a text.

use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};

use crate::types::ScriptDescription;
use crate::util::{Guard, LockRank, NamedMutex, SMALL_TASK_BYTES, allocator_has, cut_at_character};

/// Maximum length of a name or file, in bytes. A longer text is cut at a character boundary.
const MAX_TEXT_BYTES: usize = 512;
/// Maximum number of functions: an application that exceeds it probably derives names from data.
/// All further functions become [`TOO_MANY`].
const MAX_FUNCTIONS: usize = 1 << 20;
/// Maximum size of all functions, in bytes: that of 900,000 with short names. Further ones become
/// [`TOO_MANY`].
const MAX_BYTES: usize = 256 << 20;
/// Memory of a function without its texts, in bytes: itself, and its entry in a map that is a third
/// full after it has grown.
const FUNCTION_BYTES: usize =
    size_of::<ScriptFunction>() + 3 * size_of::<(ScriptDescription<'_>, &ScriptFunction)>();

static TOO_MANY: ScriptFunction = ScriptFunction {
    number: 1,
    description: ScriptDescription::new("(too many script functions)", "", 0, 0),
};

/// A script function. Numbers are unique, so functions are compared by number.
#[derive(Debug)]
pub(crate) struct ScriptFunction {
    /// Counted from 1.
    number: u32,
    pub(crate) description: ScriptDescription<'static>,
}

impl ScriptFunction {
    pub(crate) const fn number(&self) -> u32 {
        self.number
    }
}

impl PartialEq for ScriptFunction {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for ScriptFunction {}

impl Hash for ScriptFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

/// All functions that have been named.
#[derive(Debug)]
pub(crate) struct ScriptFunctions {
    by_description: HashMap<ScriptDescription<'static>, &'static ScriptFunction>,
    by_number: Vec<&'static ScriptFunction>,
    files: HashSet<&'static str>,
    /// Size of the functions and files, in bytes.
    bytes: usize,
    max_functions: usize,
    max_bytes: usize,
}

static FUNCTIONS: NamedMutex<Option<ScriptFunctions>> =
    NamedMutex::new("script functions", LockRank::ScriptFunctions, None);

/// Returns the function with this description, and stores it first if it is new. Returns
/// [`TOO_MANY`] if there are too many functions, or if the memory does not suffice for another one.
pub(crate) fn register_script_function(
    description: ScriptDescription<'_>,
) -> &'static ScriptFunction {
    let [name, file] =
        [description.name, description.file].map(|text| cut_at_character(text, MAX_TEXT_BYTES));
    let description = ScriptDescription {
        name,
        file,
        ..description
    };
    FUNCTIONS
        .lock()
        .get_or_insert_with(|| ScriptFunctions::empty(MAX_FUNCTIONS, MAX_BYTES))
        .get_or_add(description)
}

/// Returns the function with this number.
pub(crate) fn script_function(number: u32) -> Option<&'static ScriptFunction> {
    FUNCTIONS
        .lock()
        .as_ref()?
        .by_number
        .get((number as usize).checked_sub(1)?)
        .copied()
}

/// Calls `use_function` with each function but the first `known` ones, in the order of their numbers.
/// Cost: a lock, and nothing else without new functions.
pub(crate) fn script_functions_from(
    known: usize,
    use_function: impl FnMut(&'static ScriptFunction),
) {
    let new: Vec<_> = match FUNCTIONS.lock().as_ref() {
        Some(functions) if functions.by_number.len() > known => {
            functions.by_number[known..].to_vec()
        }
        _ => return,
    };
    new.into_iter().for_each(use_function);
}

/// Locks the functions while the process forks.
pub(crate) fn hold_script_functions_for_fork() -> Guard<'static, Option<ScriptFunctions>> {
    FUNCTIONS.lock()
}

impl ScriptFunctions {
    fn empty(max_functions: usize, max_bytes: usize) -> Self {
        let (by_description, files) = (HashMap::new(), HashSet::new());
        Self {
            by_description,
            by_number: vec![&TOO_MANY],
            files,
            bytes: 0,
            max_functions,
            max_bytes,
        }
    }

    fn get_or_add(&mut self, description: ScriptDescription<'_>) -> &'static ScriptFunction {
        if let Some(known) = find(&self.by_description, &description) {
            return known;
        }
        let known_file = self.files.get(description.file).copied();
        let file_bytes = known_file.map_or(description.file.len(), |_| 0);
        let bytes = FUNCTION_BYTES + description.name.len() + file_bytes;
        if self.by_number.len() > self.max_functions
            || self.bytes + bytes > self.max_bytes
            || self.by_description.try_reserve(1).is_err()
            || self.files.try_reserve(1).is_err()
            || self.by_number.try_reserve(1).is_err()
            || !allocator_has(SMALL_TASK_BYTES)
        {
            return &TOO_MANY;
        }
        self.bytes += bytes;
        let file: &'static str = known_file.unwrap_or_else(|| {
            let file = String::leak(description.file.to_owned());
            self.files.insert(file);
            file
        });
        let name: &'static str = String::leak(description.name.to_owned());
        let description = ScriptDescription {
            name,
            file,
            ..description
        };
        let number = self.by_number.len() as u32 + 1;
        let function = Box::leak(Box::new(ScriptFunction {
            number,
            description,
        }));
        self.by_number.push(function);
        self.by_description.insert(description, function);
        function
    }
}

/// Finds the function with this description, whose texts need not live as long as those in the map.
fn find<'a>(
    map: &HashMap<ScriptDescription<'a>, &'static ScriptFunction>,
    description: &ScriptDescription<'a>,
) -> Option<&'static ScriptFunction> {
    map.get(description).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described<'a>(name: &'a str, file: &'a str, line: u32) -> ScriptDescription<'a> {
        ScriptDescription::new(name, file, line, 0)
    }

    #[test]
    fn equal_descriptions_share_one_function() {
        let mut functions = ScriptFunctions::empty(100, usize::MAX);
        let f = functions.get_or_add(described("f", "a.lua", 1));
        assert!(std::ptr::eq(
            f,
            functions.get_or_add(described(&String::from("f"), "a.lua", 1))
        ));
        for other in [
            described("g", "a.lua", 1),
            described("f", "b.lua", 1),
            described("f", "a.lua", 2),
        ] {
            let other = functions.get_or_add(other);
            assert_ne!(other.number(), f.number());
            assert!(std::ptr::eq(
                functions.by_number[other.number() as usize - 1],
                other
            ));
        }
        assert_eq!(functions.files.len(), 2);
    }

    #[test]
    fn function_is_compared_and_hashed_by_number() {
        struct Bytes(Vec<u8>);
        impl Hasher for Bytes {
            fn write(&mut self, bytes: &[u8]) {
                self.0.extend_from_slice(bytes);
            }
            fn finish(&self) -> u64 {
                0
            }
        }
        let function = |number, name| ScriptFunction {
            number,
            description: described(name, "", 0),
        };
        assert_eq!(function(7, "f"), function(7, "g"));
        assert_ne!(function(7, "f"), function(8, "f"));
        let mut hashed = Bytes(Vec::new());
        function(7, "a long name").hash(&mut hashed);
        assert_eq!(hashed.0, 7u32.to_ne_bytes());
    }

    #[test]
    fn functions_beyond_maximum_share_one_name() {
        let mut functions = ScriptFunctions::empty(2, usize::MAX);
        let [a, b] = ["a", "b"].map(|name| functions.get_or_add(described(name, "", 0)).number());
        assert_eq!((a, b), (2, 3));
        for name in ["c", "d"] {
            assert!(std::ptr::eq(
                functions.get_or_add(described(name, "", 0)),
                &TOO_MANY
            ));
        }
        assert_eq!(
            (
                functions.by_number.len(),
                functions.get_or_add(described("a", "", 0)).number()
            ),
            (3, a)
        );
    }

    #[test]
    fn functions_beyond_maximum_size_share_one_name() {
        let max_bytes = 2 * (FUNCTION_BYTES + "name".len()) + "file".len();
        let mut functions = ScriptFunctions::empty(100, max_bytes);
        let mut add = |name| functions.get_or_add(described(name, "file", 0)).number();
        // A file that several functions share counts once.
        let numbers = ["nam1", "nam2", "nam3", "nam1"].map(&mut add);
        assert_eq!(numbers, [2, 3, TOO_MANY.number(), 2]);
    }

    #[test]
    fn register_cuts_texts_and_number_finds_function() {
        let long = format!("x{}", "é".repeat(400));
        let function = register_script_function(ScriptDescription::new(&long, &long, 7, 9));
        assert_eq!(
            (
                function.description.name.len(),
                function.description.file.len()
            ),
            (511, 511)
        );
        assert!(std::ptr::eq(
            script_function(function.number()).expect("registered"),
            function
        ));
        assert_eq!(
            (script_function(0), script_function(u32::MAX)),
            (None, None)
        );
        assert_eq!(script_function(1), Some(&TOO_MANY));
    }
}
