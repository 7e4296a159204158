//! Demangling of symbol names.

use std::borrow::Cow;

use backtrace::SymbolName;

/// Returns the demangled name: Rust names without hash and in one style for both manglings, C++
/// names with parameters if the feature `cpp` is on, all others unchanged. The suffix by which LLVM
/// makes a local name unique is removed, and so is the default version of a library's function.
pub(super) fn demangled(raw: &str) -> String {
    let raw = without_llvm_suffix(without_default_version(raw));
    // The C++ demangler also accepts an encoded type, such as `i` for `int`, which may be the name
    // of a C function.
    if !raw.starts_with("_Z") && !raw.starts_with("_R") {
        return raw.to_owned();
    }
    let name = format!("{:#}", SymbolName::new(raw.as_bytes()));
    match Mangling::of(raw) {
        Some(mangling) => styled(&name, mangling),
        None => name,
    }
}

/// Returns `memcpy` for `memcpy@@GLIBC_2.14`. A version that is not the default stays: it is another
/// function than the one that callers get today.
pub(super) fn without_default_version(raw: &str) -> &str {
    raw.split_once("@@").map_or(raw, |(name, _)| name)
}

fn without_llvm_suffix(raw: &str) -> &str {
    let is_number = |text: &str| {
        text.bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'A'..=b'F' | b'@'))
    };
    match raw.split_once(".llvm.") {
        Some((name, number)) if is_number(number) => name,
        _ => raw,
    }
}

/// How the name of a Rust function was mangled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mangling {
    Legacy,
    V0,
}

impl Mangling {
    /// Returns the mangling of a Rust function's name, or `None` for other names.
    fn of(raw: &str) -> Option<Self> {
        const HASH_DIGITS: usize = 16;
        if raw.starts_with("_R") {
            return Some(Self::V0);
        }
        let is_hash = |(at, start): (usize, &str)| {
            let rest = &raw.as_bytes()[at + start.len()..];
            rest.len() > HASH_DIGITS
                && rest[..HASH_DIGITS].iter().all(u8::is_ascii_hexdigit)
                && rest[HASH_DIGITS] == b'E'
                && rest.get(HASH_DIGITS + 1).is_none_or(|&next| next == b'.')
        };
        let has_hash = raw.match_indices("17h").any(is_hash);
        (raw.starts_with("_ZN") && has_hash).then_some(Self::Legacy)
    }
}

/// Returns the demangled name of a Rust function in a style that both manglings share. The standard
/// library and a program may be mangled differently, and their functions are in the same stacks.
///
/// | part of a name | legacy | v0 | shown |
/// |---|---|---|---|
/// | method | `a::S<T>::f` | `<a::S<u8>>::f` | `a::S<T>::f`, `a::S<u8>::f` |
/// | method of a slice | `core::slice::<impl [T]>::f` | `<[u8]>::f` | `<[T]>::f`, `<[u8]>::f` |
/// | method of a trait | `a::<impl a::Tr for S>::f` | `<S as a::Tr>::f` | `<S as a::Tr>::f` |
/// | closure | `{{closure}}` | `{closure#0}`, `{closure#1}` | `{{closure}}`, `{{closure}}#1` |
/// | shim | `f{{vtable.shim}}` | `f::{shim:vtable#0}` | `f::{{vtable.shim}}` |
/// | arguments of a function | none, or `f<A,B>` | `f::<A, B>` | `f::<A, B>` |
/// | lifetimes | none | `for<'a> fn(&'a u8)` | `fn(&u8)` |
///
/// What only v0 has stays: types in the place of generic parameters, arguments of functions, the
/// type whose trait has a default method, and the numbers of closures, from the second one on.
fn styled(name: &str, mangling: Mangling) -> String {
    let name = match mangling {
        // The mangling has no `-`.
        Mangling::Legacy => Cow::Owned(name.replace(" .> ", " -> ")),
        Mangling::V0 => Cow::Borrowed(name),
    };
    let mut text = StyledName::default();
    match text.push_all(&name, mangling == Mangling::Legacy) {
        Some(()) => text.text,
        None => name.into_owned(),
    }
}

/// A name, or a part of a name, whose style is changed from left to right.
#[derive(Default)]
struct StyledName {
    text: String,
    /// Where the last path begins.
    path_at: usize,
    /// Number of brackets around this part.
    depth: usize,
}

impl StyledName {
    /// Maximum number of brackets within each other. A deeper name stays as it is.
    const MAX_DEPTH: usize = 64;

    /// Appends a name. Arguments at the end of a legacy-mangled function's name are the function's.
    /// Returns `None` if brackets do not match.
    fn push_all(&mut self, name: &str, is_legacy_function: bool) -> Option<()> {
        let mut rest = name;
        while let Some(letter) = rest.chars().next() {
            let after = &rest[letter.len_utf8()..];
            rest = match letter {
                '<' => {
                    let (inside, after) = split_brackets(rest)?;
                    let ends_name = after.is_empty() || after.starts_with('.');
                    let are_of_function =
                        is_legacy_function && ends_name || after.starts_with("::{{closure}}");
                    self.push_brackets(inside, after, are_of_function)?
                }
                '{' => self.push_element(rest),
                '\'' => self.push_without_lifetime(after),
                ',' => {
                    let after = after.trim_start();
                    let is_last = after.is_empty() || after.starts_with(')');
                    self.push_separator(if is_last { "," } else { ", " });
                    after
                }
                '+' => {
                    self.text.truncate(self.text.trim_end().len());
                    self.push_separator(" + ");
                    after.trim_start()
                }
                '-' if after.starts_with('>') => {
                    self.text.push_str("->");
                    &after[1..]
                }
                ' ' | '&' | '*' | '(' | '[' | '=' => {
                    self.push_separator(letter.encode_utf8(&mut [0; 4]));
                    after
                }
                _ => {
                    self.text.push(letter);
                    after
                }
            };
        }
        Some(())
    }

    /// Appends a text after which another path begins.
    fn push_separator(&mut self, text: &str) {
        self.text.push_str(text);
        self.path_at = self.text.len();
    }

    /// Appends what is between `<` and `>`, and returns what remains of `after`. Generic arguments
    /// are the function's if `are_of_function`.
    fn push_brackets<'a>(
        &mut self,
        inside: &str,
        after: &'a str,
        are_of_function: bool,
    ) -> Option<&'a str> {
        if let Some(implementation) = inside.strip_prefix("impl ") {
            // The path before it is that of the module with the implementation.
            self.text.truncate(self.path_at);
            match split_outside_brackets(implementation, " for ") {
                Some((of_trait, of_type)) => {
                    let (of_type, of_trait) = (self.part(of_type)?, self.part(of_trait)?);
                    self.text.push_str(&format!("<{of_type} as {of_trait}>"));
                }
                None => self.push_type(implementation)?,
            }
            return Some(after);
        }
        let is_binder = inside.starts_with('\'') && self.text[self.path_at..] == *"for";
        if is_binder {
            self.text.truncate(self.path_at);
            return Some(after.trim_start());
        }
        let begins_path = self.text.len() == self.path_at;
        if begins_path && split_outside_brackets(inside, " as ").is_none() {
            self.push_type(inside)?;
            return Some(after);
        }
        let inside = self.part(inside)?;
        if inside.is_empty() {
            return Some(after);
        }
        if are_of_function && !begins_path && !self.text.ends_with("::") {
            self.text.push_str("::");
        }
        self.text.push_str(&format!("<{inside}>"));
        Some(after)
    }

    /// Appends a type that a path begins with. Only one that is not a path itself needs brackets.
    fn push_type(&mut self, of_type: &str) -> Option<()> {
        const OTHER_TYPES: [&str; 4] = ["dyn ", "fn(", "unsafe ", "extern "];
        let of_type = self.part(of_type)?;
        let begins_as_path =
            of_type.starts_with(|first: char| first.is_alphabetic() || matches!(first, '_' | '<'));
        let is_path = begins_as_path && !OTHER_TYPES.iter().any(|word| of_type.starts_with(word));
        match is_path {
            true => self.text.push_str(&of_type),
            false => self.text.push_str(&format!("<{of_type}>")),
        }
        Some(())
    }

    /// Returns a part of the name that is between brackets. `None` if it is too deep.
    fn part(&self, name: &str) -> Option<String> {
        let mut part = Self {
            depth: self.depth + 1,
            ..Self::default()
        };
        if part.depth > Self::MAX_DEPTH {
            return None;
        }
        part.push_all(name, false)?;
        Some(part.text)
    }

    /// Appends `{closure#3}` as `{{closure}}#3`, and other braces as they are. Returns what
    /// remains.
    fn push_element<'a>(&mut self, rest: &'a str) -> &'a str {
        if let Some((element, after)) = rest[1..].split_once('}')
            && let Some((kind, number)) = element.split_once('#')
            && kind.starts_with(|first: char| first.is_ascii_lowercase())
            && number.bytes().all(|digit| digit.is_ascii_digit())
        {
            let kind = match kind.split_once(':') {
                Some(("shim", kind)) => format!("{kind}.shim"),
                _ => kind.to_owned(),
            };
            self.text.push_str(&format!("{{{{{kind}}}}}"));
            if number != "0" {
                self.text.push_str(&format!("#{number}"));
            }
            return after;
        }
        if rest.starts_with("{{") && self.text.ends_with(is_of_word) {
            self.text.push_str("::");
        }
        let braces = rest.len() - rest.trim_start_matches('{').len();
        self.text.push_str(&rest[..braces]);
        &rest[braces..]
    }

    /// Leaves out a lifetime of which only `'` has been read. Returns what remains.
    fn push_without_lifetime<'a>(&mut self, rest: &'a str) -> &'a str {
        let after = rest.trim_start_matches(is_of_word);
        if after.len() == rest.len() || after.starts_with('\'') {
            // A character.
            self.text.push('\'');
            return rest;
        }
        after.trim_start_matches([',', ' '])
    }
}

fn is_of_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Returns each character with its place, and with the number of brackets around what comes before
/// and after it. The `>` of an arrow is not a bracket.
fn with_depths(text: &str) -> impl Iterator<Item = (usize, char, [i32; 2])> {
    let (mut depth, mut previous) = (0, ' ');
    text.char_indices().map(move |(at, letter)| {
        let depth_before = depth;
        match letter {
            '<' | '(' | '[' => depth += 1,
            '>' if previous == '-' => {}
            '>' | ')' | ']' => depth -= 1,
            _ => {}
        }
        previous = letter;
        (at, letter, [depth_before, depth])
    })
}

/// Splits a text that begins with `<` into what is in these brackets and what comes after them.
fn split_brackets(text: &str) -> Option<(&str, &str)> {
    let mut letters = with_depths(text);
    let (end, letter, _) = letters.find(|&(.., depths)| depths == [1, 0])?;
    (letter == '>').then(|| (&text[1..end], &text[end + 1..]))
}

/// Splits a text at the first place where `word` is outside of brackets.
fn split_outside_brackets<'a>(text: &'a str, word: &str) -> Option<(&'a str, &'a str)> {
    let mut letters = with_depths(text);
    let is_word = |&(at, _, depths): &_| depths == [0, 0] && text[at..].starts_with(word);
    let (at, ..) = letters.find(is_word)?;
    Some((&text[..at], &text[at + word.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demangled_makes_rust_readable_and_keeps_c() {
        for (raw, readable) in [
            ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"),
            ("_RNvCs15kBYyAo9fc_7mycrate3foo", "mycrate::foo"),
            ("memcpy", "memcpy"),
            ("memcpy@@GLIBC_2.14", "memcpy"),
            ("memcpy@GLIBC_2.2.5", "memcpy@GLIBC_2.2.5"),
            ("i", "i"),
            ("Pv", "Pv"),
            ("_Znonsense", "_Znonsense"),
            ("local.llvm.1A2B", "local"),
            (
                "_ZN4core3fmt5write17h0123456789abcdefE.llvm.1A2B",
                "core::fmt::write",
            ),
            ("local.llvm.x", "local.llvm.x"),
        ] {
            assert_eq!(demangled(raw), readable);
        }
    }

    #[test]
    fn cpp_name_is_readable_with_the_feature_and_stays_without_it() {
        let raw = "_ZNSt6vectorIiSaIiEE9push_backEOi";
        let readable = match cfg!(feature = "cpp") {
            true => "std::vector<int, std::allocator<int> >::push_back(int&&)",
            false => raw,
        };
        assert_eq!(demangled(raw), readable);
    }

    /// Names of the same functions in both manglings, as `rustc` gives them to the same source.
    #[test]
    fn demangled_gives_both_manglings_the_same_name() {
        for (legacy, v0, name) in [
            (
                "_ZN4work6nested6inside17hec9e5fd176c32c93E",
                "_RNvNvCslYviJJgoKPP_4work6nested6inside",
                "work::nested::inside",
            ),
            (
                "_ZN4work6shapes6Circle6radius17h46a0cac54719558eE",
                "_RNvMNtCslYviJJgoKPP_4work6shapesNtB2_6Circle6radius",
                "work::shapes::Circle::radius",
            ),
            (
                "_ZN59_$LT$work..shapes..Circle$u20$as$u20$work..shapes..Area$GT$4area17h8ff7912780f7ada1E",
                "_RNvXs_NtCslYviJJgoKPP_4work6shapesNtB4_6CircleNtB4_4Area4area",
                "<work::shapes::Circle as work::shapes::Area>::area",
            ),
            (
                "_ZN4work7main_of28_$u7b$$u7b$closure$u7d$$u7d$28_$u7b$$u7b$closure$u7d$$u7d$17h8103128f67cd111fE",
                "_RNCNCNvCslYviJJgoKPP_4work7main_of00B5_",
                "work::main_of::{{closure}}::{{closure}}",
            ),
            (
                "_ZN4core3ptr60drop_in_place$LT$work..poll..$u7b$$u7b$closure$u7d$$u7d$$GT$17hfe9eb63940190422E",
                "_RINvNtCsgEmfK2I1SDS_4core3ptr13drop_in_placeNCNvCslYviJJgoKPP_4work4poll0EBK_",
                "core::ptr::drop_in_place::<work::poll::{{closure}}>",
            ),
            (
                "_ZN59_$LT$$LP$u8$C$$RF$str$RP$$u20$as$u20$work..shapes..Area$GT$4area17h5e71364bd79110d6E",
                "_RNvXs3_NtCslYviJJgoKPP_4work6shapesThReENtB5_4Area4area",
                "<(u8, &str) as work::shapes::Area>::area",
            ),
            (
                "_ZN70_$LT$fn$LP$u32$RP$$u20$.$GT$$u20$f64$u20$as$u20$work..shapes..Area$GT$4area17h6bb9ecebf7cad47eE",
                "_RNvXs5_NtCslYviJJgoKPP_4work6shapesFmEdNtB5_4Area4area",
                "<fn(u32) -> f64 as work::shapes::Area>::area",
            ),
            (
                "_ZN4work13gr$uf6$$udf$e17h198e3deef7647e7dE",
                "_RNvCslYviJJgoKPP_4worku9gre_6ka8i",
                "work::größe",
            ),
        ] {
            assert_eq!([demangled(legacy), demangled(v0)], [name, name]);
        }
    }

    #[test]
    fn demangled_keeps_what_only_one_mangling_has() {
        for (legacy, legacy_name, v0, v0_name) in [
            (
                "_ZN4work7generic17h0d6e221f46912372E",
                "work::generic",
                "_RINvCslYviJJgoKPP_4work7genericINtNtB2_6shapes4PairfEEB2_",
                "work::generic::<work::shapes::Pair<f32>>",
            ),
            (
                "_ZN4work6shapes13Pair$LT$T$GT$5first17h2032ba32507b2ef7E",
                "work::shapes::Pair<T>::first",
                "_RNvMs1_NtCslYviJJgoKPP_4work6shapesINtB5_4PairhE5firstB7_",
                "work::shapes::Pair<u8>::first",
            ),
            (
                "_ZN4core5slice29_$LT$impl$u20$$u5b$T$u5d$$GT$11starts_with17hbaf6a7904750916cE",
                "<[T]>::starts_with",
                "_RNvMNtCsgEmfK2I1SDS_4core5sliceSh11starts_withCslYviJJgoKPP_4work",
                "<[u8]>::starts_with",
            ),
            (
                "_ZN4work7main_of28_$u7b$$u7b$closure$u7d$$u7d$17h16dd8124606f15e6E",
                "work::main_of::{{closure}}",
                "_RNCNvCslYviJJgoKPP_4work7main_ofs_0B3_",
                "work::main_of::{{closure}}#1",
            ),
            (
                "_ZN4work6shapes4Area5twice17h69f297f8f903038cE",
                "work::shapes::Area::twice",
                "_RNvYNtNtCslYviJJgoKPP_4work6shapes6CircleNtB4_4Area5twiceB6_",
                "<work::shapes::Circle as work::shapes::Area>::twice",
            ),
            (
                "_ZN4core3ops8function6FnOnce40call_once$u7b$$u7b$vtable.shim$u7d$$u7d$17h69002fa61e4b2f87E",
                "core::ops::function::FnOnce::call_once::{{vtable.shim}}",
                "_RNSNvYNCNvCslYviJJgoKPP_4work5boxed0INtNtNtCsgEmfK2I1SDS_4core3ops8function6FnOnceuE9call_once6vtableB8_",
                "<work::boxed::{{closure}} as core::ops::function::FnOnce<()>>::call_once::{{vtable.shim}}",
            ),
            (
                "_ZN3std3sys12thread_local6native4lazy20Storage$LT$T$C$D$GT$16get_or_init_slow17h06051c2e214ea95dE",
                "std::sys::thread_local::native::lazy::Storage<T, D>::get_or_init_slow",
                "_RINvMs0_NtNtNtNtCsjrHSEGnQ3l9_3std3sys12thread_local6native4lazyINtB6_7StorageINtNtCsgEmfK2I1SDS_4core4cell7RefCellNtNtCslNYArtu3iFV_5alloc6string6StringEuE16get_or_init_slowNvNvCslYviJJgoKPP_4work1T27___rust_std_internal_init_fnEB2Q_",
                "std::sys::thread_local::native::lazy::Storage<core::cell::RefCell<alloc::string::String>, ()>::get_or_init_slow::<work::T::__rust_std_internal_init_fn>",
            ),
        ] {
            assert_eq!([demangled(legacy), demangled(v0)], [legacy_name, v0_name]);
        }
    }

    #[test]
    fn styled_changes_each_part_of_a_name() {
        for (mangling, name, expected) in [
            (
                Mangling::Legacy,
                "core::fmt::num::<impl core::fmt::Debug for u32>::fmt",
                "<u32 as core::fmt::Debug>::fmt",
            ),
            (
                Mangling::Legacy,
                "core::num::<impl u32>::pow::{{closure}}",
                "u32::pow::{{closure}}",
            ),
            (
                Mangling::Legacy,
                "core::ptr::drop_in_place<a::spawn<a::S<u8>,()>::{{closure}}>",
                "core::ptr::drop_in_place::<a::spawn::<a::S<u8>, ()>::{{closure}}>",
            ),
            (
                Mangling::Legacy,
                "core::ptr::drop_in_place<core::option::Option<u8>>.cold",
                "core::ptr::drop_in_place::<core::option::Option<u8>>.cold",
            ),
            (
                Mangling::Legacy,
                "<dyn core::ops::function::Fn<(u32,)>+Output = f64+core::marker::Send as a::Tr>::f",
                "<dyn core::ops::function::Fn<(u32,)> + Output = f64 + core::marker::Send as a::Tr>::f",
            ),
            (
                Mangling::V0,
                "core::ptr::drop_in_place::<<a::W<_>>::flush::Guard>",
                "core::ptr::drop_in_place::<a::W<_>::flush::Guard>",
            ),
            (
                Mangling::V0,
                "f::<alloc::boxed::Box<dyn for<'a, 'b> Fn<(&'a a::Info<'b>,), Output = ()>>>",
                "f::<alloc::boxed::Box<dyn Fn<(&a::Info,), Output = ()>>>",
            ),
            (
                Mangling::V0,
                "<<a::I as b::Iter>::Item>::f::{closure#2}::{shim:reify#0}",
                "<a::I as b::Iter>::Item::f::{{closure}}#2::{{reify.shim}}",
            ),
            (Mangling::V0, "<dyn a::Tr>::f", "<dyn a::Tr>::f"),
            (Mangling::V0, "<fn(u8) -> a::B>::f", "<fn(u8) -> a::B>::f"),
            (Mangling::V0, "<!>::f::<'x'>", "<!>::f::<'x'>"),
        ] {
            assert_eq!(styled(name, mangling), expected);
        }
    }

    #[test]
    fn styled_accepts_any_text() {
        let short = ["", "f::<\"a<b\">", "<impl >", "<impl  for >::x", "ü<é,ß>+"];
        let parts = "< > <) { {{ {#} ' - -> <'a>".split(' ');
        let deep = format!("{}{}", "a<".repeat(900), ">".repeat(900));
        let long = "a<b>::".repeat(10_000);
        for text in parts.chain(short).chain([&*deep, &long]) {
            for mangling in [Mangling::Legacy, Mangling::V0] {
                let _ = styled(text, mangling);
            }
        }
        // Brackets that do not match stay.
        assert_eq!(styled("f::<\"a<b\">", Mangling::V0), "f::<\"a<b\">");
    }
}
