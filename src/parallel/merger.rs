//! Merges the partial results of parallel work in the order of the items.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, PoisonError};

use super::lock;
use crate::error::{Error, Result};

struct Merged<'a, P> {
    /// The item whose partial result is merged next.
    next: usize,
    /// Partial results that wait for an earlier item.
    parked: BTreeMap<usize, P>,
    free: Vec<P>,
    alive: usize,
    failed: Option<(usize, Error)>,
    total: &'a mut P,
}

/// Merges partial results into a total in the order of their items, whatever order they come in.
pub(super) struct Merger<'a, P> {
    state: Mutex<Merged<'a, P>>,
    freed: Condvar,
}

/// What a worker that asks for an empty partial result gets.
enum Turn<P> {
    /// None, because an item has failed.
    End,
    Used(P),
    New,
    Wait,
}

impl<P> Merged<'_, P> {
    fn turn(&mut self, most: usize) -> Turn<P> {
        if self.failed.is_some() {
            return Turn::End;
        }
        if let Some(part) = self.free.pop() {
            return Turn::Used(part);
        }
        if self.alive < most {
            self.alive += 1;
            return Turn::New;
        }
        Turn::Wait
    }
}

impl<'a, P> Merger<'a, P> {
    pub(super) fn new(total: &'a mut P) -> Self {
        let (parked, free) = (BTreeMap::new(), Vec::new());
        let state = Merged { next: 0, parked, free, alive: 0, failed: None, total };
        Self { state: Mutex::new(state), freed: Condvar::new() }
    }

    /// The error of the first item that failed.
    pub(super) fn result(self) -> Result<()> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        state.failed.map_or(Ok(()), |(_, error)| Err(error))
    }

    /// An empty partial result, or `None` once an item has failed. A worker takes it before it takes an item,
    /// so the worker with the earliest unmerged item always has one, and waiting here ends. `most` is at least the
    /// number of workers: one that finds no more items keeps what it has.
    pub(super) fn buffer(&self, most: usize, empty: impl Fn() -> P) -> Option<P> {
        let mut state = lock(&self.state);
        loop {
            match state.turn(most) {
                Turn::End => return None,
                Turn::Used(part) => return Some(part),
                Turn::New => {
                    drop(state);
                    return Some(empty());
                }
                Turn::Wait => state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    pub(super) fn put(&self, item: usize, part: P, merge: impl Fn(&mut P, &mut P)) {
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        state.parked.insert(item, part);
        while let Some(mut part) = state.parked.remove(&state.next) {
            merge(state.total, &mut part);
            state.next += 1;
            state.free.push(part);
        }
        self.freed.notify_all();
    }

    pub(super) fn fail(&self, item: usize, error: Error) {
        let mut state = lock(&self.state);
        if state.failed.as_ref().is_none_or(|(earlier, _)| item < *earlier) {
            state.failed = Some((item, error));
        }
        self.freed.notify_all();
    }
}

/// Wakes the other workers when one panics, which would otherwise deadlock.
pub(super) struct Bail<'a, 'b, P>(pub(super) &'a Merger<'b, P>);

impl<P> Drop for Bail<'_, '_, P> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(0, Error::Interrupted);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Where a worker is in its loop.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    enum At {
        /// It asks for a partial result next.
        Begin,
        /// It has one and takes an item next.
        Ready,
        /// It worked on this item and delivers next.
        Done(usize),
        Ended,
    }

    /// What tells two moments apart: the workers, the next item, and the state of the merger.
    type Moment = (Vec<At>, usize, usize, Vec<usize>, usize, usize, Option<usize>);

    struct Model {
        workers: usize,
        items: usize,
        most: usize,
        /// The items that fail.
        failing: &'static [usize],
    }

    impl Model {
        /// Lets workers step in this order. Returns the moment after it, and which workers could step now.
        fn after(&self, schedule: &[usize]) -> (Moment, Vec<usize>) {
            let mut total = Vec::new();
            let merger = Merger::new(&mut total);
            let (mut at, mut parts) = (vec![At::Begin; self.workers], vec![None; self.workers]);
            let mut next = 0;
            for &w in schedule {
                at[w] = match at[w] {
                    At::Begin => match merger.buffer(self.most, Vec::new) {
                        None => At::Ended,
                        Some(part) => {
                            assert!(part.is_empty(), "a partial result is empty when a worker gets it");
                            parts[w] = Some(part);
                            At::Ready
                        }
                    },
                    At::Ready if next == self.items => At::Ended,
                    At::Ready => {
                        next += 1;
                        At::Done(next - 1)
                    }
                    At::Done(item) if self.failing.contains(&item) => {
                        merger.fail(item, Error::Memory(item.to_string()));
                        At::Ended
                    }
                    At::Done(item) => {
                        let mut part = parts[w].take().unwrap();
                        part.push(item);
                        merger.put(item, part, Vec::append);
                        At::Begin
                    }
                    At::Ended => unreachable!("it cannot step"),
                };
            }
            let state = lock(&merger.state);
            assert!(state.alive <= self.most, "at most {} partial results exist", self.most);
            let can_begin = state.failed.is_some() || !state.free.is_empty() || state.alive < self.most;
            let steps = (0..self.workers).filter(|&w| match at[w] {
                At::Begin => can_begin,
                At::Ready | At::Done(_) => true,
                At::Ended => false,
            });
            let steps: Vec<usize> = steps.collect();
            let parked = state.parked.keys().copied().collect();
            let failed = state.failed.as_ref().map(|(item, _)| *item);
            let moment = (at.clone(), next, state.next, parked, state.free.len(), state.alive, failed);
            drop(state);
            let ended = at.iter().all(|at| *at == At::Ended);
            let result = merger.result();
            // Merged in order, without a gap.
            assert!(total.iter().copied().eq(0..total.len()), "{total:?}");
            if ended {
                let first = self.failing.iter().min();
                match (result, first) {
                    (Ok(()), None) => assert_eq!(total.len(), self.items),
                    (Err(Error::Memory(item)), Some(first)) => {
                        // Workers that had begun an earlier item deliver it, so the first failure is reported.
                        assert_eq!(item, first.to_string());
                        assert_eq!(total.len(), *first);
                    }
                    (result, first) => panic!("{result:?}, but {first:?} fails"),
                }
            } else {
                assert!(!steps.is_empty(), "all workers wait: {at:?} after {schedule:?}");
            }
            (moment, steps)
        }
    }

    /// A panic of a worker that holds the only partial result ends the others, which would wait for it.
    #[test]
    fn a_panic_ends_the_other_workers() {
        let mut total = Vec::<usize>::new();
        let merger = Merger::new(&mut total);
        assert!(merger.buffer(1, Vec::new).is_some());
        assert!(matches!(lock(&merger.state).turn(1), Turn::Wait));
        let panics = std::panic::AssertUnwindSafe(|| {
            let _bail = Bail(&merger);
            panic!("as a kernel might");
        });
        assert!(std::panic::catch_unwind(panics).is_err());
        assert!(matches!(lock(&merger.state).turn(1), Turn::End));
        drop(Bail(&merger));
        assert!(matches!(merger.result(), Err(Error::Interrupted)));
    }

    /// Every order in which workers can step: all steps are atomic, because each takes the lock once.
    #[test]
    fn every_schedule_merges_in_order_and_ends() {
        let models = [
            (2, 4, 4, &[][..]),
            (2, 4, 2, &[]),
            (3, 4, 6, &[]),
            (3, 5, 3, &[]),
            (3, 4, 6, &[1]),
            (3, 4, 6, &[2, 1]),
            (3, 3, 3, &[0, 1, 2]),
            (4, 3, 8, &[2]),
        ];
        for (workers, items, most, failing) in models {
            let model = Model { workers, items, most, failing };
            let (mut seen, mut waiting) = (HashSet::new(), vec![Vec::new()]);
            while let Some(schedule) = waiting.pop() {
                let (moment, steps) = model.after(&schedule);
                if seen.insert(moment) {
                    waiting.extend(steps.into_iter().map(|w| [&schedule[..], &[w]].concat()));
                }
            }
            assert!(seen.len() > 50, "{}", seen.len());
        }
    }
}
