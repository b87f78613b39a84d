"""Updates of a partition, slowly: every rule as a loop over rows and cells."""

import math

import numpy as np

NEIGHBORS, REFRESHED, MOST_FETCHED, SWEEPS, CANDIDATES = 16, 0.3, 0.75, 12, 48


def sq_dists(row, points):
    """Squared distances of a row to points."""
    return ((points - row) ** 2).sum(axis=1)


def bisect(rows):
    """2-means with at least a third of the rows on each side: sides and centers."""
    n = len(rows)
    least = math.ceil(n / 3)
    a = rows[sq_dists(rows.mean(axis=0), rows).argmax()]
    b = rows[sq_dists(a, rows).argmax()]
    for _ in range(6):
        nearer = sq_dists(a, rows) - sq_dists(b, rows)
        order = np.argsort(nearer, kind="stable")
        cut = min(max(int((nearer < 0).sum()), least), n - least)
        a, b = rows[order[:cut]].mean(axis=0), rows[order[cut:]].mean(axis=0)
    return np.where(sq_dists(a, rows) <= sq_dists(b, rows), 0, 1), [a, b]


def part_centers(rows, parts):
    """The centers of about so many parts."""
    sides, centers = bisect(rows)
    if parts <= 2 or sides.min() == sides.max():
        return centers
    left = min(max(int(parts * (sides == 0).mean() + 0.5), 1), parts - 1)
    found = []
    for side, count in ((0, left), (1, parts - left)):
        found += [centers[side]] if count == 1 else part_centers(rows[sides == side], count)
    return found


class ReferencePartition:
    """Cells with ids, and updates of them."""

    def __init__(self, centers, sizes, target):
        self.centers = {i: np.array(center) for i, center in enumerate(centers)}
        self.sizes = {i: int(size) for i, size in enumerate(sizes)}
        self.shifts = {i: np.zeros_like(center) for i, center in self.centers.items()}
        self.target, self.next_id = target, len(centers)

    def update(self, new, fetch):
        """Take in rows; return ids of their cells, moves of stored rows by key, and all fetched ids."""
        self.slots = sorted(self.centers)
        # Slots: places of old cells, then parts.
        self.center = [self.centers[i] for i in self.slots]
        self.stored = [self.sizes[i] for i in self.slots]
        self.shift = [self.shifts[i] for i in self.slots]
        self.n_old = len(self.slots)
        self.live, self.held = [True] * self.n_old, [False] * self.n_old
        self.fetch, self.asked = fetch, []
        self.rows = [np.array(row) for row in new]
        self.home, self.keys = [None] * len(new), [None] * len(new)
        self.cell = [int(sq_dists(row, np.array(self.center)).argmin()) for row in self.rows]
        while True:
            first = len(self.center)
            splits = self.split_all()
            if not splits:
                break
            self.move(splits, first)
        self.hold_drifted()
        self.join()
        self.settle()
        self.split_all()
        return self.finish(len(new))

    def alive(self):
        return [j for j, lives in enumerate(self.live) if lives]

    def count(self, j):
        return self.stored[j] + self.cell.count(j)

    def members(self, j):
        return [i for i, cell in enumerate(self.cell) if cell == j]

    def nearest(self, row, among, m=1):
        order = np.argsort(sq_dists(row, np.array([self.center[j] for j in among])), kind="stable")
        return [among[i] for i in order[:m]]

    def hold(self, slots):
        slots = sorted({j for j in slots if not self.held[j]})
        ids = np.array([self.slots[j] for j in slots if self.stored[j]], dtype=np.int64)
        for j in slots:
            self.held[j], self.stored[j] = True, 0
        if len(ids):
            self.asked += ids.tolist()
            for key, cell, row in zip(*self.fetch(ids), strict=True):
                self.rows.append(np.array(row))
                self.cell.append(self.slots.index(cell))
                self.home.append(self.cell[-1])
                self.keys.append(key)

    def split_all(self):
        splits, stuck = [], set()
        while True:
            large = [j for j in self.alive() if self.count(j) > 2 * self.target and j not in stuck]
            if not large:
                return splits
            self.hold(large)
            for j in large:
                mine = self.members(j)
                rows = np.array([self.rows[i] for i in mine])
                centers = part_centers(rows, max(2, int(len(rows) / self.target + 0.5)))
                labels = [int(sq_dists(row, np.array(centers)).argmin()) for row in rows]
                # Parts without rows do not exist.
                used = sorted(set(labels))
                centers, labels = [centers[part] for part in used], [used.index(label) for label in labels]
                if len(used) == 1:
                    stuck.add(j)
                    continue
                first = len(self.center)
                self.live[j] = False
                self.center += centers
                self.live += [True] * len(centers)
                self.held += [True] * len(centers)
                self.stored += [0] * len(centers)
                self.shift += [np.zeros_like(centers[0])] * len(centers)
                for i, label in zip(mine, labels, strict=True):
                    self.cell[i] = first + label
                splits.append((j, list(range(first, first + len(centers))), mine))

    def move(self, splits, first):
        leaving = {
            i
            for j, _, mine in splits
            if j < first
            for i in mine
            if sq_dists(self.rows[i], self.center[j][None])
            < sq_dists(self.rows[i], self.center[self.cell[i]][None])
        }
        lists, ranked = {}, []
        for among in (
            [j for j in self.alive() if j < self.n_old],
            [j for j in self.alive() if j >= self.n_old],
        ):
            for j, parts, _ in splits if among else []:
                for rank, near in enumerate(self.nearest(self.center[j], among, NEIGHBORS)):
                    lists.setdefault(near, {near}).update(part for part in parts if self.live[part])
                    ranked.append((rank, near))
        self.hold_some([near for _, near in sorted(ranked)])
        for i, j in enumerate(list(self.cell)):
            if j in lists:
                self.cell[i] = self.nearest(self.rows[i], sorted(lists[j]))[0]
        for i in leaving:
            self.cell[i] = self.nearest(self.rows[i], self.alive())[0]

    def hold_some(self, slots):
        slots = list(dict.fromkeys(j for j in slots if not self.held[j]))
        room = int(self.n_old * MOST_FETCHED) - sum(self.held[: self.n_old])
        self.hold(slots[: max(room, 0)])

    def shift_of(self, j):
        kept = np.zeros_like(self.shift[j]) if self.held[j] else self.shift[j]
        return kept + sum((self.rows[i] - self.center[j] for i in self.members(j)), np.zeros_like(kept))

    def hold_drifted(self):
        most = int(REFRESHED * sum(self.held[: self.n_old]))
        if most:
            left = [j for j in self.alive() if not self.held[j]]
            saved = {j: (self.shift_of(j) ** 2).sum() / max(self.count(j), 1) for j in left}
            # A center that is a mean up to rounding saves less than that.
            least = {j: 1e-18 * max(self.count(j), 1) * (self.center[j] ** 2).sum() for j in left}
            drifted = sorted((j for j in left if saved[j] > least[j]), key=lambda j: (-saved[j], j))
            self.hold_some(drifted[:most])

    def join(self):
        def starves(j):
            return 4 * self.count(j) < self.target

        small = sorted(
            (j for j in self.alive() if j < self.n_old and starves(j)), key=lambda j: (self.count(j), j)
        )
        self.hold(small)
        for j in small:
            if len(self.alive()) > 1 and starves(j):
                self.live[j] = False
                for i in self.members(j):
                    room = [q for q in self.alive() if self.count(q) < 2 * self.target]
                    self.cell[i] = self.nearest(self.rows[i], room)[0]

    def settle(self):
        held = [j for j in self.alive() if self.held[j]]
        for sweep in range(SWEEPS if held else 0):
            for j in held:
                mine = self.members(j)
                if mine:
                    self.center[j] = np.mean([self.rows[i] for i in mine], axis=0)
            if sweep == 0:
                near = {j: self.nearest(self.center[j], self.alive(), CANDIDATES) for j in held}
            before = list(self.cell)
            for i, j in enumerate(before):
                if j in near:
                    self.cell[i] = self.nearest(self.rows[i], sorted(near[j]))[0]
            if before == self.cell:
                break

    def finish(self, n_new):
        ids = list(self.slots)
        for j in range(self.n_old, len(self.center)):
            ids.append(self.next_id)
            self.next_id += self.live[j]
        alive = self.alive()
        self.sizes = {ids[j]: self.count(j) for j in alive}
        self.shifts = {ids[j]: self.shift_of(j) for j in alive}
        self.centers = {ids[j]: self.center[j] for j in alive}
        moved = {
            self.keys[i]: (ids[home], ids[self.cell[i]])
            for i, home in enumerate(self.home)
            if home is not None and home != self.cell[i]
        }
        return [ids[j] for j in self.cell[:n_new]], moved, self.asked
