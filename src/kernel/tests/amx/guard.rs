//! `Tiles` leaves the unit released, whatever happens to its thread: panics, signals, forks, pools of threads.

use std::arch::asm;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::blocks::Operands;
use super::tiles;
use crate::kernel::arch::amx::Tiles;
use crate::kernel::arch::engine::Product;

/// Whether the tile unit of this thread is released: a released unit has a configuration of zeros.
fn released() -> bool {
    let mut config = [1u8; 64];
    // SAFETY: the instruction writes 64 bytes, and needs no configured unit.
    unsafe { asm!("sttilecfg [{to}]", to = in(reg) config.as_mut_ptr(), options(nostack, preserves_flags)) };
    config == [0; 64]
}

#[test]
fn the_last_value_releases_the_tiles() {
    let Some(first) = tiles() else { return };
    assert!(!released());
    let second = Tiles::configured().unwrap();
    drop(first);
    assert!(!released());
    let operands = Operands::whole(Product::Bytes, 3, 1);
    operands.check(Product::Bytes, &operands.sums(&second, Product::Bytes, |_| ())).unwrap();
    drop(second);
    assert!(released());
}

#[test]
fn a_panic_releases_the_tiles() {
    let Some(tiles) = tiles() else { return };
    let operands = Operands::whole(Product::Bf16, 3, 2);
    let result = std::panic::catch_unwind(AssertUnwindSafe(move || {
        operands.sums(&tiles, Product::Bf16, |step| assert!(step < 1, "on purpose"));
    }));
    assert!(result.is_err());
    assert!(released());
}

#[test]
fn threads_of_a_pool_do_not_share_tiles() {
    use rayon::prelude::*;
    if tiles().is_none() {
        return;
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(5).build().unwrap();
    pool.install(|| {
        (0..60usize).into_par_iter().for_each(|i| {
            let product = [Product::Bf16, Product::Bytes][i % 2];
            let operands = Operands::whole(product, 1 + i % 9, i as u64);
            let tiles = Tiles::configured().unwrap();
            operands.check(product, &operands.sums(&tiles, product, |_| std::thread::yield_now())).unwrap();
            drop(tiles);
            assert!(released());
        });
    });
}

/// Signals that a handler has seen.
static SIGNALS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn on_signal(_signal: libc::c_int) {
    // Vector code, as in handlers of other libraries.
    let squares: [f32; 64] = std::array::from_fn(|i| std::hint::black_box(i as f32).powi(2));
    SIGNALS.fetch_add((squares[3] / 9.0) as usize, Ordering::Relaxed);
}

#[test]
fn signals_during_a_block_do_not_disturb_it() {
    let Some(tiles) = tiles() else { return };
    // SAFETY: the handler has the signature of a plain handler, and touches only an atomic.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
    }
    let done = AtomicBool::new(false);
    // SAFETY: names the calling thread.
    let worker = unsafe { libc::pthread_self() } as usize;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // SAFETY: the worker lives until this scope has ended, and has a handler for the signal.
                unsafe { libc::pthread_kill(worker as libc::pthread_t, libc::SIGUSR1) };
                std::thread::sleep(std::time::Duration::from_micros(20));
            }
        });
        let (mut blocks, mut failed) = (0, None);
        while failed.is_none() && (blocks < 40 || SIGNALS.load(Ordering::Relaxed) < 200) {
            let product = [Product::Bf16, Product::Bytes][blocks % 2];
            let operands = Operands::whole(product, 30, blocks as u64);
            failed = operands.check(product, &operands.sums(&tiles, product, |_| ())).err();
            blocks += 1;
        }
        done.store(true, Ordering::Relaxed);
        assert_eq!(failed, None);
    });
    drop(tiles);
    assert!(released());
}

#[test]
fn a_forked_child_inherits_the_permission() {
    let Some(tiles) = tiles() else { return };
    let operands = Operands::whole(Product::Bytes, 5, 3);
    let expected = operands.sums(&tiles, Product::Bytes, |_| ());
    drop(tiles);
    // SAFETY: the child allocates nothing, takes no lock, and leaves by `_exit`.
    let status = unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            let again = Tiles::configured().map(|tiles| operands.sums(&tiles, Product::Bytes, |_| ()));
            libc::_exit(i32::from(again.is_none_or(|again| again.0 != expected.0)));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        status
    };
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "status {status:#x}");
}
