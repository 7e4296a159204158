//! The variables that say where profiles are pushed, and under which name.

use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;

use crate::platform::read_exe_path;
use crate::session::env::environment::{path_in, push_variables, raw_value_of};
use crate::session::env::environment_table::PUSH_INTERVAL;
use crate::types::{PushError, PushSettings};

/// Returns the settings that the variables ask for; `None` if they ask for no pushing.
///
/// # Errors
/// [`PushError::BadValue`]
pub(crate) fn push_settings_of_variables() -> Option<Result<PushSettings, PushError>> {
    let (url, [interval, secret], folder) = push_variables()?;
    let settings = settings_of(url, interval, secret);
    Some(settings.map(|settings| match folder {
        Some(folder) => settings.queue_folder(folder),
        None => settings,
    }))
}

fn settings_of(
    url: String,
    interval: Option<String>,
    secret: Option<String>,
) -> Result<PushSettings, PushError> {
    let mut settings = PushSettings::pyroscope(url);
    if let Some(text) = interval.filter(|text| !text.is_empty()) {
        let seconds = text.trim().parse::<f64>().ok();
        let seconds = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        settings = settings.interval(seconds.ok_or_else(|| PushError::BadValue {
            field: PUSH_INTERVAL,
            value: format!("{text:?}"),
            accepted: "a number of seconds from 0.1 to 3600",
        })?);
    }
    if let Some(secret) = secret.filter(|secret| !secret.is_empty()) {
        settings = match secret.split_once(':') {
            Some((user, password)) => settings.basic_auth(user, password),
            None => settings.bearer_token(secret),
        };
    }
    Ok(settings)
}

/// Returns the name of the service: that of OpenTelemetry's variables, or the program's.
pub(crate) fn service_name() -> String {
    service_of(raw_value_of).unwrap_or_else(|| {
        let path = read_exe_path();
        let name = path.file_name().map(|name| name.to_string_lossy());
        name.map_or_else(|| "unknown_service".to_owned(), |name| name.into_owned())
    })
}

/// Returns the file with the certificates that the user trusts, as an absolute path: `SSL_CERT_FILE`,
/// the variable of OpenSSL and Go.
pub(crate) fn certificate_file_of_variables() -> Option<PathBuf> {
    let path = path_in("SSL_CERT_FILE")?;
    Some(std::path::absolute(&path).unwrap_or(path))
}

fn service_of(value_of: impl Fn(&str) -> Option<String>) -> Option<String> {
    let is_name = |name: &String| !name.is_empty();
    let own = value_of("OTEL_SERVICE_NAME").map(|name| name.trim().to_owned());
    own.filter(is_name).or_else(|| {
        let attributes = value_of("OTEL_RESOURCE_ATTRIBUTES")?;
        let pairs = attributes
            .split(',')
            .filter_map(|pair| pair.split_once('='));
        let mut named = pairs.filter(|(key, _)| key.trim() == "service.name");
        let name = named.next().map(|(_, value)| {
            let decoded = percent_decode_str(value.trim());
            decoded.decode_utf8_lossy().into_owned()
        });
        name.filter(is_name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(name: &str, attributes: &str) -> Option<String> {
        service_of(|variable| match variable {
            "OTEL_SERVICE_NAME" => Some(name.to_owned()),
            "OTEL_RESOURCE_ATTRIBUTES" => Some(attributes.to_owned()),
            _ => None,
        })
    }

    #[test]
    fn service_is_named_by_opentelemetrys_variables() {
        let some = |name: &str| Some(name.to_owned());
        assert_eq!(service("shop", "service.name=other"), some("shop"));
        let attributes = "host.name=a, service.name = my%20shop%2 ,x=y";
        assert_eq!(service(" ", attributes), some("my shop%2"));
        for none in ["", "service.name=", "service.names=x", "service.name"] {
            assert_eq!(service("", none), None, "{none}");
        }
    }

    #[test]
    fn variables_become_settings() {
        let read = |interval: &str, secret: &str| {
            let [interval, secret] = [interval, secret].map(|text| Some(text.to_owned()));
            settings_of("http://host".to_owned(), interval, secret)
        };
        let plain = PushSettings::pyroscope("http://host");
        assert_eq!(read("", "").expect("valid"), plain);
        let expected = plain.clone().interval(Duration::from_millis(2500));
        assert_eq!(read("2.5", "").expect("valid"), expected);
        let expected = plain.clone().bearer_token("abc");
        assert_eq!(read("", "abc").expect("valid"), expected);
        let expected = plain.basic_auth("user", "pass:word");
        assert_eq!(read("", "user:pass:word").expect("valid"), expected);
        for bad in ["x", "-1", "NaN"] {
            let error = read(bad, "").expect_err(bad).to_string();
            assert!(
                error.contains("MOZ_PROFILER_PUSH_INTERVAL, expected"),
                "{error}"
            );
        }
    }
}
