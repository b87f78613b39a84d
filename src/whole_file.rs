//! This module knows how a file appears under its name whole, or not at all: write to a temporary one beside it, sync, rename, sync the
//! folder. And how leftovers of a process that was killed are told from the files of one that is alive: the latter holds a lock on each.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind::{AlreadyExists, NotFound};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use tempfile::{NamedTempFile, TempDir};

/// What the names of all temporary files and folders begin with.
const PREFIX: &str = ".shoal-";

/// A file without a name of its own yet. Its errors are the system's, and do not name it: the user knows the file by another name.
#[derive(Debug)]
pub(crate) struct Temporary(NamedTempFile);

/// A new file beside `path`, whose name it will get, with the permissions that any new file gets. What a process that was killed left of
/// a file of that name is removed first.
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

/// A folder beside the file `path`, for what is needed while it is made; it is removed with all that is in it.
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
            // The name of the folder would say nothing to the user.
            let folder = builder.tempdir_in(folder_of(path)).map_err(|e| io::Error::from(e.kind()))?;
            // Elsewhere folders cannot be opened.
            let claimed = if cfg!(unix) {
                File::open(folder.path())
                    .and_then(|opened| claim(&opened, folder.path()).map(|()| Some(opened)))
            } else {
                Ok(None)
            };
            match claimed {
                Ok(claimed) => return Ok(Self { folder, _claimed: claimed }),
                // Somebody took it for a leftover before there was a lock.
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
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// What the names of temporary files begin with that wait for the name `path`. A hash of it: the name itself may be as long as names can be.
fn prefix_for(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let hash =
        name.iter().fold(0x811c_9dc5_u32, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{PREFIX}{hash:08x}-")
}

/// Locks a file or folder that was just made, as long as it is open. [`io::ErrorKind::AlreadyExists`], upon which another name is tried,
/// where somebody took it for a leftover before there was a lock.
#[cfg(unix)]
fn claim(file: &File, path: &Path) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    match file.try_lock() {
        Err(fs::TryLockError::WouldBlock) => Err(io::ErrorKind::AlreadyExists.into()),
        // A file system without locks: what is left there is never removed.
        Err(fs::TryLockError::Error(_)) => Ok(()),
        Ok(()) => {
            let (own, named) = (file.metadata()?, fs::symlink_metadata(path));
            let same = named.is_ok_and(|named| (named.dev(), named.ino()) == (own.dev(), own.ino()));
            if same { Ok(()) } else { Err(io::ErrorKind::AlreadyExists.into()) }
        }
    }
}

/// Locks would keep others from writing here.
#[cfg(not(unix))]
fn claim(_file: &File, _path: &Path) -> io::Result<()> {
    Ok(())
}

/// Removes what a process that was killed left of a file to be called `path`.
fn remove_leftovers_of(path: &Path) {
    // What cannot be listed or removed stays: this is about order, and no output depends on it.
    let _ = leftovers(folder_of(path), &prefix_for(path), true);
}

/// The temporary files and folders in `folder` that no process holds any more, sorted; removed, if that is wished.
///
/// Whether a process on *another* machine holds them is only known where the file system hands locks around.
///
/// # Errors
/// Those of listing the folder.
#[cfg(any(test, feature = "python"))]
pub(crate) fn all_leftovers(folder: &Path, remove: bool) -> io::Result<Vec<PathBuf>> {
    leftovers(folder, PREFIX, remove)
}

/// Whether a name is one that [`prefix_for`] and the random part of a temporary file or folder make: `.shoal-0123abcd-x7Yz9Q`, with `.tmp` or not.
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

/// The lock on a file or folder, if no other process holds it.
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

/// Without locks nothing is known to be a leftover.
#[cfg(not(unix))]
fn abandoned(_path: &Path) -> Option<File> {
    None
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
    #[cfg(feature = "python")]
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

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
        alive.persist(&path).unwrap();
        next.persist(&other).unwrap();
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
        let taken = temporary_for(&folder.path().join("x")).unwrap().persist(folder.path()).unwrap_err();
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
