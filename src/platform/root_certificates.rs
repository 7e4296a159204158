//! The certificates that the system trusts.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::platform::shared_file::SharedFile;

/// Files with the certificates that the system trusts, each with the distributions that have it. The
/// first one that exists counts. The same list as that of Go's standard library.
const SYSTEM_FILES: &[&str] = &[
    // Debian, Ubuntu, Arch, Gentoo
    "/etc/ssl/certs/ca-certificates.crt",
    // Fedora, Red Hat 6
    "/etc/pki/tls/certs/ca-bundle.crt",
    // openSUSE
    "/etc/ssl/ca-bundle.pem",
    // OpenELEC
    "/etc/pki/tls/cacert.pem",
    // CentOS, Red Hat 7 and later
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    // Alpine
    "/etc/ssl/cert.pem",
];

/// Maximum size of such a file, in bytes: ten times that of a usual one.
const MAX_BYTES: u64 = 4 << 20;

/// Reads a file with trusted certificates: this one, or the system's.
///
/// # Errors
/// The error of the operating system, with the path. `InvalidInput` if the file is not a regular
/// one, and `FileTooLarge` if it is too long.
pub(crate) fn read_root_certificates(file: Option<&Path>) -> io::Result<(PathBuf, Vec<u8>)> {
    let with_path = |path: &Path, read: io::Result<Vec<u8>>| match read {
        Ok(bytes) => Ok((path.to_owned(), bytes)),
        Err(error) => {
            let words = format!("\"{error}\" for {}", path.display());
            Err(io::Error::new(error.kind(), words))
        }
    };
    if let Some(path) = file {
        return with_path(path, read(path));
    }
    for path in SYSTEM_FILES.iter().map(Path::new) {
        match read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            read => return with_path(path, read),
        }
    }
    let words = format!("no file such as {}", SYSTEM_FILES[0]);
    Err(io::Error::new(io::ErrorKind::NotFound, words))
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = SharedFile::open_regular(path)?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > MAX_BYTES {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_are_refused_with_their_path() {
        let folder = std::env::temp_dir().join(format!("gekkota-roots-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).expect("created");
        let long = folder.join("long.pem");
        let file = std::fs::File::create(&long).expect("created");
        file.set_len(MAX_BYTES + 1).expect("set");
        for (path, kind) in [
            (Path::new("/dev/zero"), io::ErrorKind::InvalidInput),
            (&folder, io::ErrorKind::InvalidInput),
            (&folder.join("none.pem"), io::ErrorKind::NotFound),
            (&long, io::ErrorKind::FileTooLarge),
        ] {
            let error = read_root_certificates(Some(path)).expect_err("refused");
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(path.to_str().expect("UTF-8")));
        }
        file.set_len(MAX_BYTES).expect("set");
        let (path, bytes) = read_root_certificates(Some(&long)).expect("read");
        assert_eq!((path, bytes.len() as u64), (long, MAX_BYTES));
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
