//! This module knows how a file appears under its name whole, or not at all: write to a temporary one beside it, sync, rename, sync the
//! folder.

use std::fs::File;
use std::io;
use std::path::Path;

use tempfile::NamedTempFile;

/// A file without a name of its own yet, with the permissions that any new file gets.
pub(crate) fn temporary_in(folder: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".shoal-").suffix(".tmp");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder)
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
