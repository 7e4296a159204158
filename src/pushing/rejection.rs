//! What a collector of OpenTelemetry has rejected of a request that it has accepted.

use prost::Message;

/// Maximum length of a reason in a notice, in characters.
const MAX_REASON: usize = 300;

/// What a collector has rejected.
#[derive(PartialEq, Debug)]
pub(super) struct Rejection {
    pub(super) profiles: u64,
    pub(super) reason: String,
}

/// `ExportProfilesServiceResponse`
#[derive(Clone, PartialEq, Message)]
struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

/// `ExportProfilesPartialSuccess`
#[derive(Clone, PartialEq, Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected_profiles: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}

/// Reads the body of an answer. Returns `None` if it is another message, or rejects no profile.
pub(super) fn read_rejection(body: &[u8]) -> Option<Rejection> {
    let partial = ExportResponse::decode(body).ok()?.partial_success?;
    let profiles = u64::try_from(partial.rejected_profiles).ok()?;
    let reason = partial.error_message.chars();
    let reason = reason.filter(|character| !character.is_control());
    (profiles > 0).then(|| Rejection {
        profiles,
        reason: reason.take(MAX_REASON).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejected_profiles_and_the_reason_are_read() {
        let answer = |rejected_profiles, error_message: String| {
            let partial_success = Some(PartialSuccess {
                rejected_profiles,
                error_message,
            });
            ExportResponse { partial_success }.encode_to_vec()
        };
        let read = read_rejection(&answer(2, format!("no\u{7}\n stack{}", "s".repeat(500))));
        let read = read.expect("a rejection");
        assert_eq!(read.profiles, 2);
        assert!(read.reason.starts_with("no stacks"), "{}", read.reason);
        assert_eq!(read.reason.len(), MAX_REASON);
        for body in [
            &answer(0, "a warning".to_owned()),
            &answer(-1, String::new()),
        ] {
            assert_eq!(read_rejection(body), None);
        }
        for body in ["", "{}", "<html>", "\u{a}\u{7f}"] {
            assert_eq!(read_rejection(body.as_bytes()), None, "{body:?}");
        }
    }
}
