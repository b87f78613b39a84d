//! Makes the calls that put a file on disk fail, one after the other, and checks what is left on disk.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::path::Path;

use super::calls::Call;

/// What goes wrong.
#[derive(Clone, Copy, Debug)]
enum Fault {
    None,
    /// The call with this number fails with this error of the system.
    Fails(usize, i32),
    /// Every write takes at most this number of bytes.
    Short(usize),
}

thread_local! {
    /// The fault of this thread, and its calls so far.
    static PLAN: RefCell<(Fault, Vec<Call>)> = const { RefCell::new((Fault::None, Vec::new())) };
}

/// Records a call, and returns how many bytes of `length` it may write.
pub(super) fn allow(call: Call, length: usize) -> io::Result<usize> {
    PLAN.with_borrow_mut(|(fault, calls)| {
        calls.push(call);
        match *fault {
            Fault::Fails(number, error) if number + 1 == calls.len() => {
                Err(io::Error::from_raw_os_error(error))
            }
            Fault::Short(most) => Ok(length.min(most)),
            _ => Ok(length),
        }
    })
}

/// Calls `work` with a fault. Returns its result and the calls that it made.
fn with<R>(fault: Fault, work: impl FnOnce() -> R) -> (R, Vec<Call>) {
    PLAN.set((fault, Vec::new()));
    let done = work();
    (done, PLAN.replace((Fault::None, Vec::new())).1)
}

/// "Input/output error" and "no space left on device".
const ERRORS: [i32; 2] = [5, 28];

/// Checks that `write` creates a file as it should, and what it leaves if any of its calls fails.
///
/// `write` writes the same contents whenever it is called.
pub(crate) fn check_every_fault(write: impl Fn(&Path) -> crate::error::Result<()>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.npy");
    let only_file = || {
        let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["x.npy"]);
        fs::read(&path).unwrap()
    };
    let (done, calls) = with(Fault::None, || write(&path));
    done.unwrap();
    let new = only_file();
    let writes = calls.iter().filter(|&&call| call == Call::Write).count();
    assert!(writes > 0);
    // All bytes are on disk before the file has its name, and then the name is.
    assert_eq!(calls[writes..], [Call::SyncFile, Call::Rename, Call::SyncFolder]);

    fs::remove_file(&path).unwrap();
    let (done, more) = with(Fault::Short(999), || write(&path));
    done.unwrap();
    assert_eq!(only_file(), new, "short writes are continued");
    assert!(more.len() > calls.len());

    for (number, &call) in calls.iter().enumerate() {
        let error = ERRORS[number % 2];
        fs::write(&path, "old").unwrap();
        let (done, made) = with(Fault::Fails(number, error), || write(&path));
        let text = done.expect_err("a failed call is an error").to_string();
        assert!(text.contains(path.to_str().unwrap()), "{text}");
        assert!(!text.contains(".shoal-"), "{text}");
        assert!(text.contains(&format!("os error {error}")), "{text}");
        // A buffer may try its last write again; nothing else happens after an error.
        assert!(made[number + 1..].iter().all(|&call| call == Call::Write), "{made:?}");
        let left = only_file();
        assert!(left == if call == Call::SyncFolder { &new[..] } else { b"old" }, "{call:?} {number}");
    }
}
