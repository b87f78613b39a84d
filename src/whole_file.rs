//! Creates files atomically: write to a temporary file next to the target, sync, rename, sync the folder.
//!
//! A process holds a lock on each of its temporary files. Files without a lock are leftovers of killed
//! processes, and can be removed.

pub(crate) mod calls;
#[cfg(test)]
pub(crate) mod faults;

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind::{AlreadyExists, NotFound};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use tempfile::{NamedTempFile, TempDir};

use calls::Out;

/// The prefix of the names of all temporary files and folders.
const PREFIX: &str = ".shoal-";

/// A file under a temporary name. Its errors do not contain this name, which the user does not know.
#[derive(Debug)]
pub(crate) struct Temporary(NamedTempFile);

/// Creates a temporary file beside `path`, to be renamed to `path`, with the usual permissions of a new file.
/// Removes leftovers of killed processes for the same `path` first.
pub(crate) fn temporary_for(path: &Path) -> io::Result<Temporary> {
    remove_leftovers_of(path);
    let create = |path: &Path| {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        match claim(&file, path) {
            Ok(()) => Ok(file),
            Err(e) => {
                let _ = fs::remove_file(path);
                Err(e)
            }
        }
    };
    let prefix = prefix_for(path);
    tempfile::Builder::new().prefix(&prefix).suffix(".tmp").make_in(folder_of(path), create).map(Temporary)
}

/// A folder for temporary data beside a file that is being written. Dropping it removes the folder and its contents.
#[derive(Debug)]
pub(crate) struct TemporaryFolder {
    folder: TempDir,
    /// Held open for its lock.
    _claimed: Option<File>,
}

impl TemporaryFolder {
    /// Creates a private folder (mode 0700). Removes leftovers of killed processes first, as [`temporary_for`] does.
    pub(crate) fn beside(path: &Path) -> io::Result<Self> {
        remove_leftovers_of(path);
        let prefix = prefix_for(path);
        let mut builder = tempfile::Builder::new();
        builder.prefix(&prefix);
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
        let mut tries = 0;
        loop {
            // The user does not know the name of the folder: the error does not contain it.
            let folder = builder.tempdir_in(folder_of(path)).map_err(|e| io::Error::from(e.kind()))?;
            // Only Unix can open folders.
            let claimed = if cfg!(unix) {
                File::open(folder.path())
                    .and_then(|opened| claim(&opened, folder.path()).map(|()| Some(opened)))
            } else {
                Ok(None)
            };
            match claimed {
                Ok(claimed) => return Ok(Self { folder, _claimed: claimed }),
                // Another process removed it as a leftover before it was locked.
                Err(e) if tries < 100 && matches!(e.kind(), AlreadyExists | NotFound) => tries += 1,
                Err(e) => return Err(e),
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// The folder that a file lies in.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The prefix of the names of temporary files for `path`: a hash, since a longer name than that of `path` may
/// not be allowed.
fn prefix_for(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let hash =
        name.iter().fold(0x811c_9dc5_u32, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{PREFIX}{hash:08x}-")
}

/// Locks a new file or folder for as long as it is open.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`], upon which `tempfile` tries another name, if another process removed it
/// as a leftover before it was locked.
#[cfg(unix)]
fn claim(file: &File, path: &Path) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    match file.try_lock() {
        Err(fs::TryLockError::WouldBlock) => Err(io::ErrorKind::AlreadyExists.into()),
        // A file system without locks: leftovers are never removed there.
        Err(fs::TryLockError::Error(_)) => Ok(()),
        Ok(()) => {
            let (own, named) = (file.metadata()?, fs::symlink_metadata(path));
            let same = named.is_ok_and(|named| (named.dev(), named.ino()) == (own.dev(), own.ino()));
            if same { Ok(()) } else { Err(io::ErrorKind::AlreadyExists.into()) }
        }
    }
}

/// Does nothing: on this system a lock would keep other code from writing to the file.
#[cfg(not(unix))]
fn claim(_file: &File, _path: &Path) -> io::Result<()> {
    Ok(())
}

/// Removes the leftovers of killed processes for `path`.
fn remove_leftovers_of(path: &Path) {
    // Errors are ignored: no output depends on the cleanup.
    let _ = leftovers(folder_of(path), &prefix_for(path), true);
}

/// The temporary files and folders in `folder` that no process has locked, sorted; with `remove`, they are removed.
///
/// Locks of processes on *other* machines are only seen if the file system shares locks.
///
/// # Errors
/// Those of listing the folder.
#[cfg(any(test, feature = "python"))]
pub(crate) fn all_leftovers(folder: &Path, remove: bool) -> io::Result<Vec<PathBuf>> {
    leftovers(folder, PREFIX, remove)
}

/// Whether a name has the form of a temporary file or folder: `.shoal-0123abcd-x7Yz9Q`, optionally with
/// `.tmp` (see [`prefix_for`]).
fn is_temporary(name: &OsStr) -> bool {
    let parts =
        name.to_str().and_then(|name| name.strip_prefix(PREFIX)).and_then(|rest| rest.split_once('-'));
    parts.is_some_and(|(hash, random)| {
        let random = random.strip_suffix(".tmp").unwrap_or(random);
        let hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        hash.len() == 8
            && hash.bytes().all(hex)
            && !random.is_empty()
            && random.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

fn leftovers(folder: &Path, prefix: &str, remove: bool) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let name = entry.file_name();
        if !name.as_encoded_bytes().starts_with(prefix.as_bytes()) || !is_temporary(&name) {
            continue;
        }
        let Some(_claimed) = abandoned(&path) else { continue };
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let gone = || if is_folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        if !remove || gone().is_ok() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Locks a file or folder, if no other process has locked it.
#[cfg(unix)]
fn abandoned(path: &Path) -> Option<File> {
    let kind = fs::symlink_metadata(path).ok()?.file_type();
    if !kind.is_file() && !kind.is_dir() {
        return None;
    }
    // Some network file systems lock only what can be written to.
    let file = OpenOptions::new().read(true).write(kind.is_file()).open(path).ok()?;
    file.try_lock().ok().map(|()| file)
}

/// Without locks, leftovers cannot be recognized.
#[cfg(not(unix))]
fn abandoned(_path: &Path) -> Option<File> {
    None
}

/// Checks that `path` is not a device, a pipe or a socket: renaming a file over it as root could replace `/dev/null`.
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
    #[cfg(feature = "python")]
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Syncs the file, renames it to `path`, and syncs the folder; an existing file is replaced.
    ///
    /// # Errors
    /// Those of the system; the file is removed then. If only the folder cannot be synced, the file has its name,
    /// but may lose it in a power failure.
    pub(crate) fn finish(self, path: &Path) -> io::Result<()> {
        calls::sync_file(self.0.as_file())?;
        calls::rename(self.0, path)?;
        calls::sync_folder(folder_of(path))
    }
}

impl Write for Temporary {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Out(self.0.as_file_mut()).write(bytes)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    #[cfg_attr(miri, ignore = "Miri has no sockets of this kind")]
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

    #[cfg(unix)]
    #[test]
    fn unlocked_leftovers_are_removed_by_the_next_file_of_that_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.npy");
        let other = folder.path().join("other.npy");
        let alive = temporary_for(&path).unwrap();
        let busy = TemporaryFolder::beside(&path).unwrap();
        fs::write(busy.path().join("1"), "rows").unwrap();
        assert_eq!(all_leftovers(folder.path(), true).unwrap(), Vec::<PathBuf>::new());
        // As a process leaves them that is killed: there, and not locked.
        let stale = |path: &Path| {
            let file = folder.path().join(format!("{}dead.tmp", prefix_for(path)));
            fs::write(&file, "rows").unwrap();
            let inner = folder.path().join(format!("{}dead", prefix_for(path)));
            fs::create_dir(&inner).unwrap();
            fs::write(inner.join("1"), "rows").unwrap();
            [inner, file]
        };
        let (own, foreign) = (stale(&path), stale(&other));
        assert_eq!(all_leftovers(folder.path(), false).unwrap().len(), 4);
        let next = temporary_for(&path).unwrap();
        assert!(own.iter().all(|gone| !gone.exists()));
        assert_eq!(all_leftovers(folder.path(), true).unwrap(), foreign);
        assert_eq!(all_leftovers(folder.path(), false).unwrap(), Vec::<PathBuf>::new());
        alive.finish(&path).unwrap();
        next.finish(&other).unwrap();
        drop(busy);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[cfg(unix)]
    #[test]
    fn what_was_removed_before_it_was_locked_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let file = File::create(&path).unwrap();
        let held = abandoned(&path).unwrap();
        assert_eq!(claim(&file, &path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        fs::remove_file(&path).unwrap();
        drop(held);
        assert_eq!(claim(&file, &path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }

    #[cfg(unix)]
    #[test]
    fn files_of_others_survive() {
        let folder = tempfile::tempdir().unwrap();
        let foreign = [
            ".shoal-notes",
            ".shoal-cache",
            ".shoal-0123abcd",
            ".shoal-0123abcd-",
            ".shoal-0123abcd-.tmp",
            ".shoal-0123abcd-x.txt",
            ".shoal-0123ABCD-x",
            ".shoal-0123abc-x",
            ".shoal-0123abcd-my-notes",
        ];
        for name in foreign {
            fs::write(folder.path().join(name), "").unwrap();
        }
        fs::create_dir(folder.path().join(".shoal-folder")).unwrap();
        let ours =
            [".shoal-0123abcd-x7Yz9Q", ".shoal-0123abcd-x7Yz9Q.tmp"].map(|name| folder.path().join(name));
        fs::create_dir(&ours[0]).unwrap();
        fs::write(&ours[1], "").unwrap();
        assert_eq!(all_leftovers(folder.path(), true).unwrap(), ours);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), foreign.len() + 1);
    }

    #[test]
    fn errors_do_not_name_the_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        let no_folder = temporary_for(&folder.path().join("none").join("x")).map(drop).unwrap_err();
        let taken = temporary_for(&folder.path().join("x")).unwrap().finish(folder.path()).unwrap_err();
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
