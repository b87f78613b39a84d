//! This module knows how a file appears under its name whole, or not at all: write to a temporary one beside it, sync, rename, sync the
//! folder.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use tempfile::NamedTempFile;

/// A file without a name of its own yet. Its errors are the system's, and do not name it: the user knows the file by another name.
#[derive(Debug)]
pub(crate) struct Temporary(NamedTempFile);

/// A new file in `folder`, with the permissions that any new file gets.
pub(crate) fn temporary_in(folder: &Path) -> io::Result<Temporary> {
    let create = |path: &Path| OpenOptions::new().read(true).write(true).create_new(true).open(path);
    tempfile::Builder::new().prefix(".shoal-").suffix(".tmp").make_in(folder, create).map(Temporary)
}

/// Refuses to replace a device, a pipe or a socket by a file: root would take `/dev/null` away from everybody.
pub(crate) fn refuse_special(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() && !found.is_dir() => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "is a device, a pipe or a socket, which no file can replace",
        )),
        _ => Ok(()),
    }
}

impl Temporary {
    pub(crate) fn as_file(&self) -> &File {
        self.0.as_file()
    }

    /// Gives the file its name; an older file of that name is replaced.
    pub(crate) fn persist(self, path: &Path) -> io::Result<()> {
        self.0.persist(path).map(drop).map_err(|e| e.error)
    }
}

impl Write for Temporary {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.as_file_mut().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.0.as_file_mut().flush()
    }
}

impl Seek for Temporary {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.as_file_mut().seek(to)
    }
}

/// Makes a rename in `folder` outlast a loss of power.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    #[cfg(unix)]
    match File::open(folder)?.sync_all() {
        // Some network file systems do not know this for folders.
        Err(e) if !matches!(e.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => {
            return Err(e);
        }
        _ => (),
    }
    #[cfg(not(unix))]
    let _ = folder;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn what_is_no_file_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        for path in [&path, &link] {
            assert!(refuse_special(path).unwrap_err().to_string().contains("no file can replace"));
        }
        fs::write(folder.path().join("file"), "").unwrap();
        for name in ["file", "none", "."] {
            refuse_special(&folder.path().join(name)).unwrap();
        }
    }

    #[test]
    fn errors_do_not_name_the_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        let no_folder = temporary_in(&folder.path().join("none")).map(drop).unwrap_err();
        let taken = temporary_in(folder.path()).unwrap().persist(folder.path()).unwrap_err();
        for refused in [no_folder, taken] {
            assert!(refused.raw_os_error().is_some(), "{refused}");
            assert!(!refused.to_string().contains("tmp"), "{refused}");
        }
        #[cfg(target_os = "linux")]
        {
            // A device that is always full, in the place of the file.
            let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
            let name = tempfile::TempPath::try_from_path(folder.path().join(".shoal-1.tmp")).unwrap();
            let mut file = Temporary(NamedTempFile::from_parts(full, name));
            let refused = file.write_all(b"rows").unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
            assert!(refused.raw_os_error().is_some(), "{refused}");
        }
    }
}
