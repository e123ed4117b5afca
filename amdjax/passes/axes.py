"""Axes through a reshape."""

from __future__ import annotations

from collections.abc import Sequence


def alike_axes(old: Sequence[int], new: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Neighboring axes of two shapes of one size that hold the same elements, the fewest.

    Axes of length one are left out.
    """
    if 0 in old:
        return []
    groups, i, j = [], 0, 0
    while i < len(old) and j < len(new):
        first, second, a, b = [i], [j], old[i], new[j]
        while a != b:
            if a < b:
                i += 1
                a *= old[i]
                first.append(i)
            else:
                j += 1
                b *= new[j]
                second.append(j)
        groups.append(([k for k in first if old[k] > 1], [k for k in second if new[k] > 1]))
        i, j = i + 1, j + 1
    return groups
