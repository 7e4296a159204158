//! The profiles that wait to be sent, in memory or in a folder, the oldest first.

use std::collections::VecDeque;
use std::io;
use std::path::Path;

use crate::platform::{PrivateStore, monotonic_now, random_bytes};

/// Where a profile waits.
#[derive(Debug)]
enum Place {
    Memory(Item),
    /// In the file of this name.
    File(String),
}

#[derive(Debug)]
struct Waiting {
    place: Place,
    bytes: u64,
}

/// The queue. The first profile may be on its way, so it is never dropped for later ones.
#[derive(Debug)]
pub(super) struct Queue {
    waiting: VecDeque<Waiting>,
    bytes: u64,
    max_bytes: u64,
    store: Option<PrivateStore>,
    /// Whether a notice has said that the folder takes no files.
    is_told: bool,
    /// Whether a notice has said that profiles are dropped, since the queue was last empty.
    is_drop_told: bool,
    notice: Option<String>,
}

impl Queue {
    /// Opens the queue. A folder may have profiles of an earlier process. The second value is the
    /// number of such profiles that were dropped, because they are too large together.
    ///
    /// # Errors
    /// Those of [`PrivateStore::open`].
    pub(super) fn open(folder: Option<&Path>, max_bytes: u64) -> io::Result<(Self, u64)> {
        let store = folder.map(PrivateStore::open).transpose()?;
        let files = store.as_ref().map(|store| store.files(is_file_name));
        let files = files.unwrap_or_default().into_iter();
        let waiting: VecDeque<_> = files
            .map(|(name, bytes)| Waiting {
                place: Place::File(name),
                bytes,
            })
            .collect();
        let mut queue = Self {
            bytes: waiting.iter().map(|waiting| waiting.bytes).sum(),
            waiting,
            max_bytes,
            store,
            is_told: false,
            is_drop_told: false,
            notice: None,
        };
        let dropped = queue.drop_oldest_from(0);
        Ok((queue, dropped))
    }

    /// Returns a notice for standard error, if there is a new one.
    pub(super) fn take_notice(&mut self) -> Option<String> {
        self.notice.take()
    }

    /// Returns the number of profiles.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Adds a profile, and returns how many were dropped for it. `keeps_first` is whether the first
    /// one is on its way.
    pub(super) fn push(&mut self, item: Item, keeps_first: bool) -> u64 {
        let bytes = item.bytes();
        let place = match &self.store {
            Some(store) => {
                let name = item.file_name();
                match store.write(&name, &[&item.file_head(), &item.body]) {
                    Ok(()) => Place::File(name),
                    Err(error) => {
                        self.tell(&error);
                        Place::Memory(item)
                    }
                }
            }
            None => Place::Memory(item),
        };
        self.is_drop_told &= !self.waiting.is_empty() || bytes > self.max_bytes;
        self.waiting.push_back(Waiting { place, bytes });
        self.bytes += bytes;
        let all_bytes = self.bytes;
        let dropped = self.drop_oldest_from(usize::from(keeps_first));
        if dropped > 0 && !std::mem::replace(&mut self.is_drop_told, true) {
            self.notice = Some(format!(
                "cannot keep all profiles that wait to be pushed: got {all_bytes} bytes, expected at most \
                 {}; the oldest are dropped",
                self.max_bytes
            ));
        }
        dropped
    }

    fn tell(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.is_told, true) {
            self.notice = Some(format!(
                "cannot keep profiles in the folder of MOZ_PROFILER_PUSH_QUEUE or of the settings: got \
                 \"{error}\", expected space for files; they wait in memory"
            ));
        }
    }

    /// Drops the oldest profiles beyond the limit, but none before this index.
    fn drop_oldest_from(&mut self, first: usize) -> u64 {
        let mut dropped = 0;
        while self.bytes > self.max_bytes && self.waiting.len() > first {
            self.remove(first);
            dropped += 1;
        }
        dropped
    }

    fn remove(&mut self, index: usize) {
        if let Some(waiting) = self.waiting.remove(index) {
            self.bytes -= waiting.bytes;
            if let (Place::File(name), Some(store)) = (&waiting.place, &self.store) {
                let _ = store.remove(name);
            }
        }
    }

    /// Returns the oldest profile. The second value is the number of those before it that were
    /// dropped, because their files are not whole or are gone.
    ///
    /// # Errors
    /// The system does not open or read the file now.
    pub(super) fn first(&mut self) -> io::Result<(Option<Item>, u64)> {
        let mut dropped = 0;
        loop {
            let item = match self.waiting.front().map(|waiting| &waiting.place) {
                None => return Ok((None, dropped)),
                Some(Place::Memory(item)) => Some(item.clone()),
                Some(Place::File(name)) => {
                    let read = self
                        .store
                        .as_ref()
                        .map(|store| store.read(name, MAX_FILE_BYTES));
                    let gone = [io::ErrorKind::NotFound, io::ErrorKind::InvalidData];
                    match read {
                        Some(Err(error)) if !gone.contains(&error.kind()) => return Err(error),
                        Some(Ok(bytes)) => {
                            Item::of_file(&bytes).filter(|item| item.file_name() == *name)
                        }
                        _ => None,
                    }
                }
            };
            if item.is_some() {
                return Ok((item, dropped));
            }
            self.remove(0);
            dropped += 1;
        }
    }

    /// Removes the oldest profile: it was sent, or refused.
    pub(super) fn remove_first(&mut self) {
        self.remove(0);
    }

    /// Returns the number of profiles that do not survive the program.
    pub(super) fn in_memory(&self) -> u64 {
        let is_in_memory = |waiting: &&Waiting| matches!(waiting.place, Place::Memory(_));
        self.waiting.iter().filter(is_in_memory).count() as u64
    }
}

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
    fn file_head(&self) -> Vec<u8> {
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
    use crate::platform::TestFolder;

    fn item(number: u64, bytes: usize) -> Item {
        Item {
            from_ns: number,
            id: new_id(),
            target: "/x".to_owned(),
            content_type: "a/b".to_owned(),
            body: vec![7; bytes],
        }
    }

    fn numbers(mut queue: Queue) -> Vec<u64> {
        let mut numbers = Vec::new();
        while let (Some(item), _) = queue.first().expect("readable") {
            numbers.push(item.from_ns);
            queue.remove_first();
        }
        numbers
    }

    #[test]
    fn oldest_are_dropped_beyond_the_limit() {
        let folder = TestFolder::new("push-queue");
        let path = folder.path().join("q");
        for place in [None, Some(&*path)] {
            let (mut queue, _) = Queue::open(place, 4000).expect("opened");
            let dropped: Vec<_> = (1..=5)
                .map(|number| queue.push(item(number, 1000), false))
                .collect();
            assert_eq!(dropped, [0, 0, 0, 1, 1], "{place:?}");
            let notice = queue.take_notice().expect("a notice");
            assert!(notice.contains("expected at most 4000;"), "{notice}");
            assert_eq!(queue.push(item(6, 1000), true), 1);
            assert_eq!(queue.take_notice(), None, "it is said once");
            assert_eq!(queue.in_memory(), if place.is_some() { 0 } else { 3 });
            assert_eq!(numbers(queue), [3, 5, 6], "the first one was on its way");
            let (mut queue, _) = Queue::open(place, 100).expect("opened");
            assert_eq!(queue.push(item(1, 1000), false), 1, "too large alone");
            assert!(queue.take_notice().is_some());
            assert_eq!(queue.push(item(2, 1000), false), 1);
            assert_eq!(queue.take_notice(), None, "it is said once");
            assert_eq!(queue.len(), 0);
        }
        let left = std::fs::read_dir(&path).expect("the folder").count();
        assert_eq!(left, 1, "only the lock");
    }

    #[test]
    fn files_survive_and_damaged_ones_are_dropped() {
        let folder = TestFolder::new("push-files");
        let path = folder.path().join("q");
        let (mut queue, _) = Queue::open(Some(&path), 100_000).expect("opened");
        let items: Vec<_> = (1..=4).map(|number| item(number, 100)).collect();
        for item in &items {
            assert_eq!(queue.push(item.clone(), false), 0);
        }
        drop(queue);
        let cut = path.join(items[0].file_name());
        let bytes = std::fs::read(&cut).expect("the file");
        std::fs::write(&cut, &bytes[..bytes.len() - 1]).expect("cut");
        std::fs::remove_file(path.join(items[2].file_name())).expect("removed");
        std::fs::write(path.join("other"), "stays").expect("written");
        let (mut queue, _) = Queue::open(Some(&path), 100_000).expect("opened again");
        assert_eq!(queue.len(), 3);
        let (first, dropped) = queue.first().expect("readable");
        assert_eq!((first.as_ref(), dropped), (Some(&items[1]), 1));
        assert_eq!(numbers(queue), [2, 4]);
        let (_, dropped) = Queue::open(Some(&path), 100).expect("opened again");
        assert_eq!(dropped, 0);
        assert!(path.join("other").exists());
    }

    #[test]
    fn profile_that_the_folder_does_not_take_waits_in_memory() {
        let folder = TestFolder::new("push-gone");
        let path = folder.path().join("q");
        let (mut queue, _) = Queue::open(Some(&path), 100_000).expect("opened");
        std::fs::remove_dir_all(&path).expect("removed");
        assert_eq!(queue.push(item(1, 10), false), 0);
        assert_eq!(queue.in_memory(), 1);
        let notice = queue.take_notice().expect("a notice");
        assert!(notice.contains("expected space for files"), "{notice}");
        assert_eq!(queue.push(item(2, 10), false), 0);
        assert_eq!(queue.take_notice(), None, "it is said once");
        assert_eq!(numbers(queue), [1, 2]);
    }

    fn whole_item() -> Item {
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
        let item = whole_item();
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
        let item = whole_item();
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
            ..whole_item()
        };
        let file = [evil.file_head(), evil.body.clone()].concat();
        assert_eq!(Item::of_file(&file), None);
    }
}
