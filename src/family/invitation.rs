//! The variable by which a child process finds its parent.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// What the variable says: the version of the messages, the parent, a random word, and the socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Invitation {
    pub(crate) version: u64,
    pub(crate) process: i32,
    pub(crate) token: String,
    pub(crate) socket: PathBuf,
}

impl Invitation {
    /// Returns the value of the variable.
    pub(crate) fn to_value(&self) -> OsString {
        let mut value =
            OsString::from(format!("{}:{}:{}:", self.version, self.process, self.token));
        value.push(&self.socket);
        value
    }

    /// Reads the variable. Returns `None` for a value of another form.
    pub(crate) fn parse(value: &OsStr) -> Option<Self> {
        let mut parts = value.to_str()?.splitn(4, ':');
        let mut part = || parts.next();
        let (version, process) = (part()?.parse().ok()?, part()?.parse().ok()?);
        let (token, socket) = (part()?.to_owned(), PathBuf::from(part()?));
        let is_valid = !token.is_empty() && Path::is_absolute(&socket);
        is_valid.then_some(Self {
            version,
            process,
            token,
            socket,
        })
    }
}

/// Returns a random word, as a text.
pub(crate) fn token_of(random: [u8; 16]) -> String {
    random.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Compares two words in a time that does not depend on where they differ.
pub(crate) fn is_same_token(one: &str, other: &str) -> bool {
    let differing = one
        .bytes()
        .zip(other.bytes())
        .fold(0, |differing, (one, other)| {
            std::hint::black_box(differing | one ^ other)
        });
    one.len() == other.len() && differing == 0
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn invitation_round_trips_through_the_variable() {
        let invitation = Invitation {
            version: 1,
            process: 12,
            token: token_of([0xa5; 16]),
            socket: PathBuf::from("/tmp/a:b/s"),
        };
        assert_eq!(invitation.token, "a5".repeat(16));
        let value = invitation.to_value();
        assert_eq!(Invitation::parse(&value), Some(invitation));
        for other in [
            "", "1", "1:2:x", "1:2::/s", "x:2:t:/s", "1:x:t:/s", "1:2:t:s",
        ] {
            assert_eq!(Invitation::parse(OsStr::new(other)), None, "{other}");
        }
    }

    #[test]
    fn tokens_are_the_same_only_if_every_byte_is() {
        let token = token_of([7; 16]);
        assert!(is_same_token(&token, &token));
        for other in ["", &token[1..], &token_of([8; 16])] {
            assert!(!is_same_token(&token, other) && !is_same_token(other, &token));
        }
        assert!(!is_same_token(&token, &(token.clone() + "0")));
    }
}
