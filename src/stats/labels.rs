//! Labels of many rows, in 16 bits while the clusters can be counted in them.

use super::journal::{Editing, Journal};
use crate::error::Result;
use crate::matrix::make_room;
use crate::pass::PerRow;

/// Marks a row that has no label yet.
pub(crate) const NO_LABEL: u32 = u32::MAX;
/// Maximum number of clusters whose labels take 16 bits. The remaining value marks rows without a label.
const NARROW: usize = u16::MAX as usize;

/// Labels of rows. Up to 65,535 clusters they take 16 bits each.
#[derive(Clone, Debug)]
pub(crate) enum LabelList {
    Narrow(Vec<u16>),
    Wide(Vec<u32>),
}

/// The labels of rows, borrowed.
///
/// ```
/// use shoal::centers::LabelsRef;
/// let labels = LabelsRef::from(&[1, 0, 1][..]);
/// assert_eq!(labels.iter().filter(|&label| label == 1).count(), 2);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LabelsRef<'a>(Stored<'a>);

#[derive(Clone, Copy, Debug)]
enum Stored<'a> {
    Narrow(&'a [u16]),
    Wide(&'a [u32]),
}

/// Labels of consecutive rows, to be changed.
pub(crate) struct LabelsMut<'a> {
    /// The first row, among those of the list.
    first: usize,
    stored: StoredMut<'a>,
}

enum StoredMut<'a> {
    Narrow(&'a mut [u16]),
    Wide(&'a mut [u32]),
}

/// A stored label.
trait Width: Copy {
    fn to_label(self) -> u32;
    fn of_label(label: u32) -> Self;
}

impl Width for u16 {
    #[inline]
    fn to_label(self) -> u32 {
        if self == Self::MAX { NO_LABEL } else { self.into() }
    }
    #[inline]
    fn of_label(label: u32) -> Self {
        // `NO_LABEL` becomes the largest value.
        label as Self
    }
}

impl Width for u32 {
    #[inline]
    fn to_label(self) -> u32 {
        self
    }
    #[inline]
    fn of_label(label: u32) -> Self {
        label
    }
}

/// Evaluates an expression for the vector or slice of either width.
macro_rules! either {
    ($kind:ident, $of:expr, $labels:ident => $result:expr) => {
        match $of {
            $kind::Narrow($labels) => $result,
            $kind::Wide($labels) => $result,
        }
    };
}

impl LabelList {
    /// `n` rows without labels, of `k` clusters.
    pub(crate) fn new(n: usize, k: usize) -> Self {
        if k <= NARROW { Self::Narrow(vec![u16::MAX; n]) } else { Self::Wide(vec![NO_LABEL; n]) }
    }

    /// Given labels, each below `k` or [`NO_LABEL`].
    pub(crate) fn of(labels: Vec<u32>, k: usize) -> Self {
        if k <= NARROW {
            Self::Narrow(labels.into_iter().map(u16::of_label).collect())
        } else {
            Self::Wide(labels)
        }
    }

    /// A list of no rows, for the same number of clusters.
    pub(crate) fn none(&self) -> Self {
        match self {
            Self::Narrow(_) => Self::Narrow(Vec::new()),
            Self::Wide(_) => Self::Wide(Vec::new()),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.view().len()
    }

    /// The bytes of the labels.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes_of(self.len())
    }

    /// The bytes of `n` labels of as many clusters.
    pub(crate) fn bytes_of(&self, n: usize) -> usize {
        match self {
            Self::Narrow(_) => n * size_of::<u16>(),
            Self::Wide(_) => n * size_of::<u32>(),
        }
    }

    pub(crate) fn view(&self) -> LabelsRef<'_> {
        LabelsRef(match self {
            Self::Narrow(labels) => Stored::Narrow(labels),
            Self::Wide(labels) => Stored::Wide(labels),
        })
    }

    pub(crate) fn view_mut(&mut self) -> LabelsMut<'_> {
        let stored = match self {
            Self::Narrow(labels) => StoredMut::Narrow(labels),
            Self::Wide(labels) => StoredMut::Wide(labels),
        };
        LabelsMut { first: 0, stored }
    }

    /// Reserves memory for the labels of `n` rows.
    pub(crate) fn make_room(&mut self, n: usize) -> Result<()> {
        let more = n.saturating_sub(self.len()) as u64;
        either!(Self, self, labels => make_room(labels, "labels", more, 1))
    }

    /// Extends to `n` rows: old row `i` becomes row `at(i)`, in the same order, and the others have no label.
    pub(crate) fn grow(&mut self, at: impl Fn(usize) -> usize, n: usize) {
        fn grow<W: Width>(labels: &mut Vec<W>, at: impl Fn(usize) -> usize, n: usize) {
            let (old, none) = (labels.len(), W::of_label(NO_LABEL));
            labels.resize(n, none);
            for i in (0..old).rev() {
                let label = std::mem::replace(&mut labels[i], none);
                labels[at(i)] = label;
            }
        }
        either!(Self, self, labels => grow(labels, at, n));
    }

    /// Removes the first `m` rows.
    pub(crate) fn drop_first(&mut self, m: usize) {
        either!(Self, self, labels => drop(labels.drain(..m)));
    }

    /// Removes all labels.
    pub(crate) fn clear(&mut self) {
        fn clear<W: Width>(labels: &mut [W]) {
            labels.fill(W::of_label(NO_LABEL));
        }
        either!(Self, self, labels => clear(labels));
    }

    /// Restores the labels before the changes in `journals`, which must be those of the last sweep.
    pub(crate) fn restore(&mut self, journals: &[Journal]) {
        fn restore<W: Width>(labels: &mut [W], journals: &[Journal]) {
            for (row, old) in journals.iter().flat_map(Journal::changes) {
                labels[row] = W::of_label(old);
            }
        }
        either!(Self, self, labels => restore(labels, journals));
    }
}

impl<'a> LabelsRef<'a> {
    /// Number of rows.
    ///
    /// ```
    /// assert_eq!(shoal::centers::LabelsRef::from(&[2u32, 0][..]).len(), 2);
    /// ```
    pub fn len(&self) -> usize {
        either!(Stored, self.0, labels => labels.len())
    }

    /// Whether there are no labels.
    ///
    /// ```
    /// assert!(shoal::centers::LabelsRef::from(&[][..]).is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The label of a row.
    ///
    /// # Panics
    /// When there is no such row.
    ///
    /// ```
    /// assert_eq!(shoal::centers::LabelsRef::from(&[2u32, 0][..]).get(0), 2);
    /// ```
    pub fn get(&self, row: usize) -> u32 {
        either!(Stored, self.0, labels => labels[row].to_label())
    }

    /// All labels, in the order of the rows.
    ///
    /// ```
    /// assert_eq!(shoal::centers::LabelsRef::from(&[2u32, 0][..]).iter().max(), Some(2));
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'a> {
        let (narrow, wide) = match self.0 {
            Stored::Narrow(labels) => (labels, &[][..]),
            Stored::Wide(labels) => (&[][..], labels),
        };
        narrow.iter().map(|label| label.to_label()).chain(wide.iter().copied())
    }

    /// A copy in 32 bits.
    ///
    /// ```
    /// assert_eq!(shoal::centers::LabelsRef::from(&[2u32, 0][..]).to_vec(), [2, 0]);
    /// ```
    pub fn to_vec(&self) -> Vec<u32> {
        let mut labels = Vec::new();
        match self.0 {
            Stored::Narrow(narrow) => labels.extend(narrow.iter().map(|label| label.to_label())),
            Stored::Wide(wide) => labels.extend_from_slice(wide),
        }
        labels
    }

    /// The labels in 32 bits, in place or converted into `room`.
    pub(crate) fn wide<'r>(self, room: &'r mut Vec<u32>) -> &'r [u32]
    where
        'a: 'r,
    {
        match self.0 {
            Stored::Wide(labels) => labels,
            Stored::Narrow(labels) => {
                room.clear();
                room.extend(labels.iter().map(|label| label.to_label()));
                room
            }
        }
    }

    /// The number of rows whose label differs from the label of the next row.
    pub(crate) fn steps(&self) -> usize {
        either!(Stored, self.0, labels => labels.windows(2).filter(|two| two[0] != two[1]).count())
    }

    /// Whether some row has no label, and whether no row has one.
    pub(crate) fn are_missing(&self) -> (bool, bool) {
        fn missing<W: Width + PartialEq>(labels: &[W]) -> (bool, bool) {
            let none = W::of_label(NO_LABEL);
            (labels.contains(&none), labels.iter().all(|&label| label == none))
        }
        either!(Stored, self.0, labels => missing(labels))
    }
}

impl<'a> From<&'a [u32]> for LabelsRef<'a> {
    fn from(labels: &'a [u32]) -> Self {
        Self(Stored::Wide(labels))
    }
}

impl PerRow for LabelsRef<'_> {
    fn split(self, n: usize) -> (Self, Self) {
        match self.0 {
            Stored::Narrow(labels) => {
                let (mine, rest) = labels.split_at(n);
                (Self(Stored::Narrow(mine)), Self(Stored::Narrow(rest)))
            }
            Stored::Wide(labels) => {
                let (mine, rest) = labels.split_at(n);
                (Self(Stored::Wide(mine)), Self(Stored::Wide(rest)))
            }
        }
    }
    fn rows(&self) -> Option<usize> {
        Some(self.len())
    }
}

impl LabelsMut<'_> {
    /// The labels in 32 bits, in the buffer of `editing`. Changes count once they are [stored](Self::store).
    pub(crate) fn open<'e>(&self, editing: &'e mut Editing<'_>) -> &'e mut [u32] {
        let room = &mut editing.room;
        room.clear();
        either!(StoredMut, &self.stored, stored => room.extend(stored.iter().map(|label| label.to_label())));
        room
    }

    /// The label of a row, counted from the first.
    #[inline]
    pub(crate) fn get(&self, row: usize) -> u32 {
        either!(StoredMut, &self.stored, labels => labels[row].to_label())
    }

    /// Gives rows, in ascending order and counted from the first, other labels than they have, and notes them.
    pub(crate) fn replace(self, labels: &[(u32, u32)], Editing { all, mine, .. }: &mut Editing<'_>) {
        fn replace<W: Width>(stored: &mut [W], labels: &[(u32, u32)]) {
            for &(row, label) in labels {
                stored[row as usize] = W::of_label(label);
            }
        }
        for &(row, _) in labels.iter().filter(|_| all.is_some()) {
            mine.note(self.first + row as usize, self.get(row as usize));
        }
        either!(StoredMut, self.stored, stored => replace(stored, labels));
    }

    /// Stores the labels that were changed since [`LabelsMut::open`], and notes them.
    pub(crate) fn store(self, editing: &mut Editing<'_>) {
        fn store<W: Width>(
            (first, stored): (usize, &mut [W]),
            Editing { all, mine, room }: &mut Editing<'_>,
        ) {
            for (i, (stored, &new)) in stored.iter_mut().zip(&*room).enumerate() {
                let old = stored.to_label();
                if old != new {
                    if all.is_some() {
                        mine.note(first + i, old);
                    }
                    *stored = W::of_label(new);
                }
            }
        }
        either!(StoredMut, self.stored, stored => store((self.first, stored), editing));
    }
}

impl PerRow for LabelsMut<'_> {
    fn split(self, n: usize) -> (Self, Self) {
        let (first, second) = (self.first, self.first + n);
        match self.stored {
            StoredMut::Narrow(labels) => {
                let (mine, rest) = labels.split_at_mut(n);
                (
                    Self { first, stored: StoredMut::Narrow(mine) },
                    Self { first: second, stored: StoredMut::Narrow(rest) },
                )
            }
            StoredMut::Wide(labels) => {
                let (mine, rest) = labels.split_at_mut(n);
                (
                    Self { first, stored: StoredMut::Wide(mine) },
                    Self { first: second, stored: StoredMut::Wide(rest) },
                )
            }
        }
    }
    fn rows(&self) -> Option<usize> {
        Some(either!(StoredMut, &self.stored, labels => labels.len()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_journal_restores_the_labels_before_any_changes(
            k in prop_oneof![1usize..300, Just(NARROW), Just(NARROW + 1), 65_000usize..3_000_000],
            n in 0usize..400, chunk in 1usize..90, seed in any::<u64>(), share in 0u64..100,
        ) {
            let mut rng = crate::rng::Rng::keyed(seed, crate::rng::Purpose::Shuffle, 0);
            let mut label = || if rng.bits().is_multiple_of(5) { NO_LABEL } else { (rng.bits() % k as u64) as u32 };
            let old: Vec<u32> = (0..n).map(|_| label()).collect();
            let new: Vec<u32> = (0..n).map(|_| label()).collect();
            let mut list = LabelList::of(old.clone(), k);
            prop_assert_eq!(matches!(list, LabelList::Narrow(_)), k <= 65_535);
            prop_assert_eq!(list.view().to_vec(), &old[..]);
            prop_assert!(list.view().iter().eq(old.iter().copied()));
            let all = Mutex::default();
            let (mut rest, mut expected) = (list.view_mut(), old.clone());
            let mut two = [Editing::new(Some(&all)), Editing::new(Some(&all))];
            for start in (0..n).step_by(chunk) {
                let (mine, left) = rest.split(chunk.min(n - start));
                rest = left;
                let fails = start as u64 % 100 > share;
                let editing = &mut two[start % 2];
                let labels = mine.open(editing);
                let end = start + labels.len();
                assert_eq!(labels, &old[start..end]);
                labels.copy_from_slice(&new[start..end]);
                if fails {
                    continue;
                }
                expected[start..end].copy_from_slice(labels);
                if start % 3 == 0 {
                    let changes = (start..end).filter(|&i| old[i] != new[i]);
                    let changes: Vec<_> = changes.map(|i| ((i - start) as u32, new[i])).collect();
                    prop_assert!(changes.iter().all(|&(i, _)| mine.get(i as usize) == old[start + i as usize]));
                    mine.replace(&changes, editing);
                } else {
                    mine.store(editing);
                }
            }
            drop(two);
            prop_assert_eq!(list.view().to_vec(), expected);
            list.restore(&all.into_inner().unwrap());
            prop_assert_eq!(list.view().to_vec(), old);
        }
    }
}
