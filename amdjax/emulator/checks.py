"""What the sanitizer looks for."""

from __future__ import annotations

import enum


class Checks(enum.Flag):
    """Kinds of faults to look for, besides accesses out of bounds, which are always found.

    `ALIGNMENT`: global and LDS accesses at addresses that are no multiple of a dword or of the
    element. `UNWRITTEN`: reads of LDS, or of global memory, not written before. `RACES`: two waves
    of a workgroup at the same bytes without a barrier between, one of them writing. In global
    memory these are found where the writer ran first; waves take turns at that. `WAITS`: registers
    used before their load was waited for, stores to LDS not waited for at a barrier; with `RACES`,
    stores to global memory too. `BARRIERS`: waves that wait at different barriers, some more often
    than others.
    """

    NONE = 0
    ALIGNMENT = 1
    UNWRITTEN = 2
    RACES = 4
    WAITS = 8
    BARRIERS = 16
    ALL = ALIGNMENT | UNWRITTEN | RACES | WAITS | BARRIERS

    @classmethod
    def of(cls, level: Checks | bool) -> Checks:
        """True is all, False none."""
        return level if isinstance(level, Checks) else cls.ALL if level else cls.NONE
