//! Tries damaged inputs on a target, and reports those that fail.

use std::collections::HashSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::damage::Draws;
use super::memory;

/// Inputs per target when no time is given.
const INPUTS: u64 = 200;
/// Most bytes of an input.
const LONGEST: usize = 1 << 20;
/// Most bytes of one allocation. Inputs have a few KB; buffers of a pass have up to 2 MB.
const MOST_MEMORY: usize = 32 << 20;
/// Most seconds for one input.
const MOST_SECONDS: u64 = 60;

/// A reader of bytes that nobody has checked.
pub(crate) struct Target<'a> {
    pub(crate) name: &'a str,
    /// The name of the file to read; readers of several formats look at its suffix.
    pub(crate) file: &'a str,
    /// Valid inputs.
    pub(crate) valid: Vec<Vec<u8>>,
    /// Damages the first input; pieces of the second one may be used.
    pub(crate) damage: fn(&mut Draws, &[u8], &[u8]) -> Vec<u8>,
    /// Reads a file and uses what it holds. The error is a text.
    pub(crate) read: &'a dyn Fn(&Path) -> Result<(), String>,
}

/// Ends the process if an input takes too long.
struct Watch(Arc<AtomicU64>);

impl Watch {
    fn new(path: PathBuf) -> Self {
        let now = Arc::new(AtomicU64::new(0));
        let watched = Arc::downgrade(&now);
        std::thread::spawn(move || {
            let (mut last, mut since) = (0, Instant::now());
            while let Some(now) = watched.upgrade() {
                let number = now.load(Relaxed);
                if number != last {
                    (last, since) = (number, Instant::now());
                } else if since.elapsed() > Duration::from_secs(MOST_SECONDS) {
                    eprintln!("{} takes more than {MOST_SECONDS} seconds", path.display());
                    std::process::abort();
                }
                drop(now);
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        Self(now)
    }
}

/// A number from the environment.
fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a whole number, got {text:?}")))
}

/// The outcome without numbers and names, which differ from input to input.
fn kind_of(outcome: &Result<(), String>) -> String {
    match outcome {
        Ok(()) => "read".into(),
        Err(text) => text.chars().filter(|c| !c.is_ascii_digit()).take(80).collect(),
    }
}

impl Target<'_> {
    /// Tries the stored crashers, then damaged inputs.
    pub(crate) fn run(&self) {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz").join(self.name);
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(self.file);
        let watch = Watch::new(path.clone());
        let attempt = |input: &[u8]| {
            watch.0.fetch_add(1, Relaxed);
            // The file stays if the process ends.
            fs::write(&path, input).unwrap();
            memory::largest();
            let done = catch_unwind(AssertUnwindSafe(|| (self.read)(&path)));
            let memory = memory::largest();
            let failed = |how: &str| {
                let kept = folder.join(format!("failed-{}-{}", input.len(), self.file));
                fs::write(&kept, input).unwrap();
                panic!("{}: {how}; the input is kept in {}", self.name, kept.display());
            };
            let Ok(outcome) = done else { failed("panicked") };
            if memory > MOST_MEMORY {
                failed(&format!("allocated {memory} bytes"));
            }
            outcome
        };

        for (i, input) in self.valid.iter().enumerate() {
            attempt(input).unwrap_or_else(|text| panic!("{}: input {i} is valid: {text}", self.name));
        }
        for input in self.crashers() {
            let _ = attempt(&input);
        }

        let (seconds, begun) = (setting("SHOAL_FUZZ_SECONDS"), Instant::now());
        let seed = setting("SHOAL_FUZZ_SEED").unwrap_or(0);
        let mut draws = Draws::new(seed);
        let mut inputs = self.valid.clone();
        let mut kinds = HashSet::new();
        let (mut n, mut n_read) = (0, 0u64);
        while seconds.map_or(n < INPUTS, |limit| begun.elapsed().as_secs() < limit) {
            let (one, other) = (draws.below(inputs.len()), draws.below(inputs.len()));
            let input = (self.damage)(&mut draws, &inputs[one], &inputs[other]);
            if input.len() > LONGEST {
                continue;
            }
            n += 1;
            let outcome = attempt(&input);
            n_read += u64::from(outcome.is_ok());
            // What is read in spite of its damage, or fails in a new way, may hide more.
            let is_new = kinds.insert(kind_of(&outcome)) || (outcome.is_ok() && draws.below(20) == 0);
            if is_new && inputs.len() < 400 {
                inputs.push(input);
            }
        }
        println!("{}: {n} inputs, {n_read} read, {} outcomes (seed {seed})", self.name, kinds.len());
        assert!(kinds.len() > 2, "{}: the damage reaches too little: {kinds:?}", self.name);
    }

    /// Inputs that once failed.
    fn crashers(&self) -> Vec<Vec<u8>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/fuzz/crashers").join(self.name);
        let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths.iter().map(|path| fs::read(path).unwrap()).collect()
    }
}
