"""Where the threads of a workgroup have to wait for each other.

While a kernel is written, every access of a buffer by the workgroup is noted in the order and
nesting of the program. Afterwards `place` finds the accesses that may meet an earlier one of the
same buffer by another thread, and has a barrier written in front of them.

Two accesses meet if one of them writes. They do not where both have one pattern (tile shape,
strides and offset: each thread meets only itself), nor where both are the same plain store in
different rounds of a loop: schedules write an element by one store once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

Kind = Literal["read", "write", "atomic"]


@dataclass(frozen=True, slots=True)
class Access:
    """One access of a buffer.

    Args:
      lds: the buffer is in LDS.
      pattern: equal for accesses where each thread meets its own elements only; None is equal to
        nothing.
      values: numbers of the SSA values in the pattern: it ends with a round of the loop they
        belong to.
      store: identifies a plain store.
    """

    buffer: str
    kind: Kind
    lds: bool
    pattern: object = None
    values: tuple[int, ...] = ()
    store: int | None = None

    def meets(self, other: Access) -> bool:
        """Another thread's `other` has to be waited for."""
        if self.buffer != other.buffer or self.kind == other.kind != "write":
            return False
        if self.pattern is not None and self.pattern == other.pattern:
            return False
        return self.store is None or self.store != other.store

    def after_round(self, first: int) -> Access:
        """As seen by the next round of a loop whose own values are numbered from `first`."""
        if self.pattern is None or all(v < first for v in self.values):
            return self
        return replace(self, pattern=None)


State = frozenset[Access]
Write = Callable[[bool], None]  # writes a barrier at the place; for LDS only?


@dataclass(slots=True)
class _Point:
    access: Access
    write: Write


@dataclass(slots=True)
class _Meeting:
    """A barrier that is there whatever was accessed."""


@dataclass(slots=True)
class _Branch:
    arms: list[_Sequence] = field(default_factory=list)


@dataclass(slots=True)
class _Loop:
    """`first` is the least number of its values; `leaves` arms run once more at the end."""

    write: Write
    first: int
    leaves: int
    arms: list[_Sequence] = field(default_factory=list)


_Sequence = list["_Point | _Meeting | _Branch | _Loop"]


class Barriers:
    """The accesses of a kernel, and the barriers between them."""

    def __init__(self) -> None:
        self._body: _Sequence = []
        self._open: list[_Sequence] = [self._body]
        self._node: list[_Branch | _Loop] = []
        self._placed: dict[int, tuple[Write, bool]] = {}

    def access(self, access: Access, write: Write) -> None:
        """Note an access; `write(only_lds)` puts a barrier before it."""
        self._open[-1].append(_Point(access, write))

    def waited(self) -> None:
        """Note that all threads wait for each other here anyway."""
        self._open[-1].append(_Meeting())

    @contextmanager
    def branch(self) -> Iterator[None]:
        """Around an `if`; each `arm` within is one of its arms."""
        yield from self._inside(_Branch())

    @contextmanager
    def loop(self, write: Write, first: int, leaves: int) -> Iterator[None]:
        """Around a loop whose arms follow each other in every round.

        Args:
          write: puts a barrier before the loop.
          first: least number of the values made in the loop.
          leaves: arms of the last round.
        """
        yield from self._inside(_Loop(write, first, leaves))

    def _inside(self, node: _Branch | _Loop) -> Iterator[None]:
        self._open[-1].append(node)
        self._node.append(node)
        yield
        self._node.pop()

    @contextmanager
    def arm(self) -> Iterator[None]:
        """A block within a branch or a loop; the kernel's own block is none."""
        if not self._node:
            yield
            return
        sequence: _Sequence = []
        self._node[-1].arms.append(sequence)
        self._open.append(sequence)
        yield
        self._open.pop()

    def place(self) -> None:
        """Write the barriers; the kernel is complete."""
        self._run(self._body, frozenset())
        for write, only_lds in self._placed.values():
            write(only_lds)

    def _run(self, sequence: _Sequence, state: State) -> State:
        """What has been accessed since the last barrier, behind the sequence."""
        for node in sequence:
            if isinstance(node, _Point):
                state = self._barrier(node, node.write, state, [node.access])
                state = state | {node.access}
            elif isinstance(node, _Meeting):
                state = frozenset()
            elif isinstance(node, _Branch):
                ends = [self._run(arm, state) for arm in node.arms]
                state = frozenset[Access]().union(*ends)
            else:
                state = self._run_loop(node, state)
        return state

    def _run_loop(self, node: _Loop, state: State) -> State:
        """A barrier for what came before the loop goes before the loop."""
        inside = [a for arm in node.arms for a in _accesses(arm)]
        state = self._barrier(node, node.write, state, inside)
        while True:
            end = state
            for arm in node.arms:
                end = self._run(arm, end)
            following = state | {a.after_round(node.first) for a in end}
            if following == state:
                break
            state = following
        for arm in node.arms[: node.leaves]:
            state = self._run(arm, state)
        return state

    def _barrier(self, node: object, write: Write, state: State, next: list[Access]) -> State:
        """The state behind the barrier that is needed before `next`, if one is."""
        met = [old for old in state if any(a.meets(old) for a in next)]
        placed = self._placed.get(id(node))
        if not met and placed is None:
            return state
        only_lds = all(a.lds for a in met) and (placed is None or placed[1])
        self._placed[id(node)] = write, only_lds
        return frozenset(a for a in state if only_lds and not a.lds)


def _accesses(sequence: _Sequence) -> Iterator[Access]:
    for node in sequence:
        if isinstance(node, _Point):
            yield node.access
        elif not isinstance(node, _Meeting):
            for arm in node.arms:
                yield from _accesses(arm)
