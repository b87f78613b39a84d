//! Single rows of a file, read past the system's cache, which would read whole pages.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::OnceLock;

/// A file whose reads begin and end at multiples of a sector.
#[cfg(all(target_os = "linux", not(miri)))]
#[derive(Debug)]
pub(super) struct Direct {
    file: File,
    /// What the disk reads at the least.
    sector: usize,
}

/// An open file, and how its single rows are read, if they can be read so.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) file: File,
    direct: OnceLock<Option<Direct>>,
}

impl OpenFile {
    pub(super) fn new(file: File) -> Self {
        Self { file, direct: OnceLock::new() }
    }

    /// Reads past the cache; opened with the first such read.
    pub(super) fn direct(&self) -> Option<&Direct> {
        self.direct.get_or_init(|| Direct::of(&self.file)).as_ref()
    }
}

/// Other systems have no such reads.
#[cfg(not(all(target_os = "linux", not(miri))))]
#[derive(Debug)]
pub(super) enum Direct {}

#[cfg(all(target_os = "linux", not(miri)))]
impl Direct {
    /// Sectors of disks, and the alignment of memory for all of them.
    const SECTORS: [usize; 2] = [512, 4096];
    const ALIGNMENT: usize = 4096;

    /// The same file, if the system can read it so.
    fn of(file: &File) -> Option<Self> {
        use std::fs::OpenOptions;
        use std::os::fd::AsRawFd;
        use std::os::unix::fs::OpenOptionsExt;
        let flag = rustix::fs::OFlags::DIRECT.bits() as i32;
        // The open file, also if another has its name now.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let mut direct =
            Self { file: OpenOptions::new().read(true).custom_flags(flag).open(path).ok()?, sector: 0 };
        // Some file systems open the file, but do not read single sectors.
        let can_read = |sector: &usize| {
            direct.sector = *sector;
            direct.read(0..1, &mut Vec::new()).is_ok()
        };
        Self::SECTORS.iter().any(can_read).then_some(direct)
    }

    /// Reads bytes of the file into `buffer`, and returns where they are.
    pub(super) fn read(&self, bytes: Range<usize>, buffer: &mut Vec<u8>) -> io::Result<Range<usize>> {
        use std::os::unix::fs::FileExt;
        let start = bytes.start / self.sector * self.sector;
        let length = bytes.end.next_multiple_of(self.sector) - start;
        let wanted = bytes.end - start;
        if buffer.len() < length + Self::ALIGNMENT {
            buffer.resize(length + Self::ALIGNMENT, 0);
        }
        let first = buffer.as_ptr().align_offset(Self::ALIGNMENT);
        let mut found = 0;
        while found < wanted {
            let rest = &mut buffer[first + found..first + length];
            match self.file.read_at(rest, (start + found) as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(more) => found += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(first + bytes.start - start..first + wanted)
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
impl Direct {
    fn of(_file: &File) -> Option<Self> {
        None
    }

    pub(super) fn read(&self, _bytes: Range<usize>, _buffer: &mut Vec<u8>) -> io::Result<Range<usize>> {
        match *self {}
    }
}
