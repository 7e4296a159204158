//! A profile that waits to be sent, and its form in a file.

use crate::platform::{monotonic_now, random_bytes};

/// First words of a file.
const MAGIC: &str = "gekkota-push 1";
/// Ending of a file's name.
const ENDING: &str = ".profile";
/// Maximum size of a file, in bytes.
pub(super) const MAX_FILE_BYTES: u64 = 1 << 30;

/// A request with a profile, without what the settings decide at the time of sending.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Item {
    /// Start of the profile, in ns since 1970.
    pub(super) from_ns: u64,
    /// Identifies the profile: each attempt to send it has this id, and no other profile has it.
    pub(super) id: String,
    /// The path, which begins with a slash, and the query.
    pub(super) target: String,
    pub(super) content_type: String,
    pub(super) body: Vec<u8>,
}

/// Returns an id that no other profile has.
pub(super) fn new_id() -> String {
    // Before the kernel has gathered randomness, the time and the process tell profiles apart.
    let id = random_bytes::<16>()
        .map(u128::from_ne_bytes)
        .unwrap_or_else(|_| u128::from(monotonic_now().0) << 32 | u128::from(std::process::id()));
    format!("{id:032x}")
}

/// Returns whether a file with this name holds an item.
pub(super) fn is_file_name(name: &str) -> bool {
    let digits = |text: &str, count, radix| {
        text.len() == count && text.chars().all(|digit| digit.is_digit(radix))
    };
    let parts = name
        .strip_suffix(ENDING)
        .and_then(|name| name.split_once('-'));
    parts.is_some_and(|(time, id)| digits(time, 20, 10) && digits(id, 32, 16))
}

impl Item {
    /// Returns the name of its file. The names of older profiles come first.
    pub(super) fn file_name(&self) -> String {
        format!("{:020}-{}{ENDING}", self.from_ns, self.id)
    }

    /// Returns its size in the queue, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        (self.file_head().len() + self.body.len()) as u64
    }

    /// Returns what a file has before the body.
    pub(super) fn file_head(&self) -> Vec<u8> {
        let facts = self.facts();
        let mut sum = crc32fast::Hasher::new();
        sum.update(facts.as_bytes());
        sum.update(&self.body);
        let (sum, bytes) = (sum.finalize(), self.body.len());
        format!("{MAGIC} {sum:08x} {bytes}\n{facts}").into_bytes()
    }

    fn facts(&self) -> String {
        let Self {
            from_ns,
            id,
            target,
            content_type,
            ..
        } = self;
        format!("{from_ns}\n{id}\n{target}\n{content_type}\n")
    }

    /// Reads a file. Returns `None` if it is not whole.
    pub(super) fn of_file(bytes: &[u8]) -> Option<Self> {
        let (mut rest, mut lines) = (bytes, Vec::new());
        while lines.len() < 5 {
            let end = rest.iter().position(|byte| *byte == b'\n')?;
            lines.push(std::str::from_utf8(&rest[..end]).ok()?);
            rest = &rest[end + 1..];
        }
        let [_, from_ns, id, target, content_type] = lines[..] else {
            return None;
        };
        let item = Self {
            from_ns: from_ns.parse().ok()?,
            id: id.to_owned(),
            target: target.to_owned(),
            content_type: content_type.to_owned(),
            body: rest.to_vec(),
        };
        let is_text = |text: &str| {
            text.bytes()
                .all(|byte| byte == b' ' || byte.is_ascii_graphic())
        };
        let is_whole = bytes.starts_with(&item.file_head());
        let is_safe = target.starts_with('/') && !target.contains(' ') && is_text(target);
        let is_safe = is_safe && is_text(content_type) && is_file_name(&item.file_name());
        (is_whole && is_safe).then_some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item() -> Item {
        Item {
            from_ns: 1_700_000_000_123_456_789,
            id: new_id(),
            target: "/ingest?name=a".to_owned(),
            content_type: "multipart/form-data; boundary=b".to_owned(),
            body: b"one\n\0two".to_vec(),
        }
    }

    #[test]
    fn file_restores_the_item() {
        let item = item();
        let file = [item.file_head(), item.body.clone()].concat();
        assert_eq!(item.bytes(), file.len() as u64);
        assert_eq!(Item::of_file(&file), Some(item.clone()));
        assert!(is_file_name(&item.file_name()), "{}", item.file_name());
        for other in ["lock", "1-2.profile", &item.file_name()[1..]] {
            assert!(!is_file_name(other), "{other}");
        }
        assert_ne!(new_id(), new_id());
    }

    #[test]
    fn changed_or_cut_file_is_not_an_item() {
        let item = item();
        let file = [item.file_head(), item.body.clone()].concat();
        for end in 0..file.len() {
            assert_eq!(Item::of_file(&file[..end]), None, "{end}");
        }
        for at in 0..file.len() {
            let mut changed = file.clone();
            changed[at] ^= 4;
            assert_eq!(Item::of_file(&changed), None, "{at}");
        }
        assert_eq!(Item::of_file(&[file, vec![0]].concat()), None);
    }

    #[test]
    fn file_cannot_add_headers() {
        let evil = Item {
            target: "/x HTTP/1.1\r".to_owned(),
            ..item()
        };
        let file = [evil.file_head(), evil.body.clone()].concat();
        assert_eq!(Item::of_file(&file), None);
    }
}
