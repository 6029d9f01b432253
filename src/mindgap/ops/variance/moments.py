"""The variance of the labels of k neighbors, averaged over all ways to break ties."""

import dataclasses

import torch
from torch import Tensor

from mindgap.ops.neighbors.points import Points, entries, rows_of, starts, sums
from mindgap.ops.neighbors.scores import Near

NUMBERS = 2**22  # numbers held at once


@dataclasses.dataclass
class _Moments:
    """Counts ``n``, sums of squares ``q`` and products of sums ``s`` of inner and tied labels."""

    n_i: Tensor
    n_t: Tensor
    q_i: Tensor
    q_t: Tensor
    s_ii: Tensor
    s_it: Tensor
    s_tt: Tensor

    def expected_variance(self, k: int) -> Tensor:
        """Average the unbiased variance of k labels over all ways to choose among tied labels.

        With m = k - n_i places for n_t tied labels, a pair of labels is drawn with probability 1
        (both inner), m/n_t (one tied) or m(m-1)/(n_t(n_t-1)) (both tied), and the variance is the
        sum of ‖y - y'‖² over the pairs divided by k(k-1).
        """
        m = k - self.n_i
        inner = self.n_i * self.q_i - self.s_ii
        mixed = self.n_t * self.q_i + self.n_i * self.q_t - 2 * self.s_it
        tied = self.n_t * self.q_t - self.s_tt
        both = m * (m - 1) / (self.n_t * (self.n_t - 1)).clamp_min(1)
        return ((inner + m / self.n_t * mixed + both * tied) / (k * (k - 1))).clamp_min(0)


class Classes:
    """One-hot labels, kept as counts so that any number of classes fits in memory.

    An atom is a (point, class) pair that occurs. Atoms ``start[u]`` to ``start[u + 1]`` belong to
    point u.
    """

    def __init__(self, points: Points, target: Tensor) -> None:
        names, number = target.unique(return_inverse=True)
        self.classes, self.points = len(names), points
        code = points.table.owner * self.classes + number
        atom, self.atom, self.count = code.unique(return_inverse=True, return_counts=True)
        self.start = starts(torch.bincount(atom // self.classes, minlength=len(points)))
        self.number = atom % self.classes

    def moments(self, near: Near) -> _Moments:
        """Count labels by class: whole numbers, so nothing is rounded before the division."""
        code, i, t = self._tally(near)
        total = sums(
            torch.stack([i, t, i * i, i * t, t * t], dim=1), code // self.classes, len(near.rows)
        )
        n_i, n_t, s_ii, s_it, s_tt = total.unbind(1)
        return _Moments(n_i, n_t, n_i, n_t, s_ii, s_it, s_tt)

    def agreement(self, near: Near, k: int) -> tuple[Tensor, Tensor]:
        """Compute the expected share of each sample's other k - 1 neighbors that have its class.

        The sample itself is one of the k, unless k or more copies of it compete at distance zero.

        Returns:
            The atoms of ``near.rows``, and the share of each.
        """
        code, i, t = self._tally(near)
        n_i, n_t = sums(torch.stack([i, t], dim=1), code // self.classes, len(near.rows)).unbind(1)
        atom = entries(self.start, near.rows)
        row = torch.repeat_interleave(torch.arange(len(near.rows)), self.start.diff()[near.rows])
        own = torch.searchsorted(code, row * self.classes + self.number[atom])
        chance = ((k - n_i) / n_t)[row]
        self_chosen = torch.where(n_i[row] > 0, 1.0, chance)
        return atom, (i[own] + chance * t[own] - self_chosen) / (k - self_chosen)

    def _tally(self, near: Near) -> tuple[Tensor, Tensor, Tensor]:
        """Count the inner and the tied labels of each (row, class), coded row x classes + class."""
        atom, row, inner = near.index, rows_of(near.start), near.inner
        if self.points.repeated:
            atoms = self.start.diff()[near.index]
            atom = entries(self.start, near.index)
            row, inner = (torch.repeat_interleave(value, atoms) for value in (row, inner))
        code = row * self.classes + self.number[atom]
        size = len(near.rows) * self.classes
        kinds, code = (
            (torch.arange(size), code) if size <= NUMBERS else code.unique(return_inverse=True)
        )
        weight = self.count[atom].double()
        i = sums(weight * inner, code, len(kinds))
        return kinds, i, sums(weight, code, len(kinds)) - i


class Values:
    """Numeric labels: one or several outputs, or several binary labels; columns add up.

    Labels are measured from the mean label of the row's own point, so that labels far from zero do
    not cancel.
    """

    def __init__(self, points: Points, target: Tensor) -> None:
        values = target.double().reshape(len(target), -1)[points.table.member]
        owner = rows_of(points.table.start)
        self.count = points.count.double()
        self.mean = sums(values, owner, len(points)) / self.count[:, None]
        if points.repeated:  # a mean of equal labels must be that label to the last bit
            same = (
                sums(
                    (values != values[points.table.start[:-1]][owner]).any(1).long(),
                    owner,
                    len(points),
                )
                == 0
            )
            self.mean[same] = values[points.table.start[:-1]][same]
        self.within = sums((values - self.mean[owner]).square().sum(1), owner, len(points))

    def moments(self, near: Near) -> _Moments:
        """Sum over the outputs, some columns at a time."""
        row, rows = rows_of(near.start), len(near.rows)
        size = max(1, NUMBERS // max(1, len(row)))
        weight = torch.stack([near.inner, ~near.inner]).double() * self.count[near.index]
        n = torch.stack([sums(w, row, rows) for w in weight])
        within = torch.stack([near.inner, ~near.inner]).double() * self.within[near.index]
        q = torch.stack([sums(w, row, rows) for w in within])
        s = torch.zeros(3, rows, dtype=torch.float64)
        for column in self.mean.split(size, dim=1):
            away = column[near.index] - column[near.rows][row]
            q += torch.stack([sums(w * away.square().sum(1), row, rows) for w in weight])
            i, t = (sums(w[:, None] * away, row, rows) for w in weight)
            s += torch.stack([(i * i).sum(1), (i * t).sum(1), (t * t).sum(1)])
        return _Moments(n[0], n[1], q[0], q[1], s[0], s[1], s[2])

    def means(self, near: Near, k: int) -> Tensor:
        """Compute the expected mean label of the k neighbors of each row, one column per output."""
        row, rows = rows_of(near.start), len(near.rows)
        count = self.count[near.index]
        inner, tied = count * near.inner, count * ~near.inner
        n_i, n_t = sums(inner, row, rows), sums(tied, row, rows)
        weight = inner + tied * ((k - n_i) / n_t.clamp_min(1))[row]
        away = self.mean[near.index] - self.mean[near.rows][row]
        return self.mean[near.rows] + sums(weight[:, None] * away, row, rows) / k
