//! The system calls that put a file on disk. Tests record them and make them fail.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use tempfile::NamedTempFile;

#[cfg(test)]
use super::faults::allow;

/// The kinds of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Write,
    SyncFile,
    Rename,
    SyncFolder,
}

/// Lets a call proceed, for `length` bytes.
#[cfg(not(test))]
#[allow(clippy::unnecessary_wraps, reason = "as in tests")]
#[inline]
fn allow(_call: Call, length: usize) -> io::Result<usize> {
    Ok(length)
}

/// An open file whose writes can be made to fail.
#[derive(Debug)]
pub(crate) struct Out<'a>(pub(crate) &'a mut File);

impl Write for Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = allow(Call::Write, bytes.len())?;
        self.0.write(&bytes[..length])
    }
    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn sync(call: Call, file: &File) -> io::Result<()> {
    allow(call, 0)?;
    file.sync_all()
}

/// Syncs a file, so that its contents are on disk before its name is.
pub(super) fn sync_file(file: &File) -> io::Result<()> {
    sync(Call::SyncFile, file)
}

/// Renames a temporary file to `path`; it is removed if that fails.
pub(super) fn rename(file: NamedTempFile, path: &Path) -> io::Result<()> {
    allow(Call::Rename, 0)?;
    file.persist(path).map(drop).map_err(|e| e.error)
}

/// Syncs a folder, so that a rename in it survives a power failure.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    #[cfg(unix)]
    match sync(Call::SyncFolder, &File::open(folder)?) {
        // Some network file systems do not support syncing folders.
        Err(e) if !matches!(e.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => {
            return Err(e);
        }
        _ => (),
    }
    #[cfg(not(unix))]
    let _ = (folder, Call::SyncFolder);
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;

    /// A pipe cannot be synced.
    #[test]
    fn a_sync_reaches_the_system() {
        let (reader, _writer) = io::pipe().unwrap();
        let pipe = File::from(OwnedFd::from(reader));
        assert_eq!(sync_file(&pipe).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
