//! Damaged files and messages are read or are errors. They cause no panic, no endless loop, and no allocation that
//! their length does not explain.
//!
//! Each target has valid inputs, which are damaged at random: bits, numbers, lengths, shapes, types, pieces of other
//! inputs. Inputs with a new outcome are damaged further.
//!
//! | variable | meaning |
//! |---|---|
//! | `SHOAL_FUZZ_SECONDS` | seconds per target. Without it, a fixed number of inputs, the same ones in each run |
//! | `SHOAL_FUZZ_SEED` | the seed of the random damage |
//!
//! An input that fails is stored, and the panic names it. Put it into `tests/all/fuzz/crashers/<target>/`: every run
//! tries the files there first.

mod damage;
mod distributed;
mod driver;
mod files;
mod fits;
mod memory;
mod models;
