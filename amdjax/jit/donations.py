"""Donated arguments: which are of use, and their deletion after a call."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from amdjax.core.array import ConcreteArray
from amdjax.core.tracebacks import warn

if TYPE_CHECKING:
    from amdjax.jit.arrays import Runner


def used_donations(
    name: str, avals: Sequence[Any], donated: Sequence[bool], outs: Sequence[Any]
) -> list[bool]:
    """Which arguments are donated and of the type of a result; a warning of those of another."""
    wanted = collections.Counter((a.shape, a.dtype) for a in outs)
    used, useless = [], []
    for aval, given in zip(avals, donated):
        kind = aval.shape, aval.dtype
        used.append(given and wanted[kind] > 0)
        wanted[kind] -= given
        if given and not used[-1]:
            useless.append(aval.str_short())
    if useless:
        warn(
            f"Some donated buffers were not usable: {', '.join(useless)}. No result of {name} has "
            "their shape and dtype."
        )
    return used


def deleting(run: Runner, used: Sequence[bool]) -> Runner:
    """`run`, after which donated arguments are deleted, whether or not it needed their memory."""

    def run_and_delete(args: Any) -> Any:
        _refuse_double_donation(args, used)
        outs = run(args)
        returned = set(map(id, outs))
        for x in itertools.compress(args, used):
            if isinstance(x, ConcreteArray) and id(x) not in returned:
                x.delete()
        return outs

    native = getattr(run, "native", None)
    if native is not None:  # it sees to double donations, too
        gone = frozenset(i for i, x in enumerate(used) if x)
        run_and_delete.native = replace(native, donated=gone)  # type: ignore[attr-defined]
    return run_and_delete


def _refuse_double_donation(args: Sequence[Any], used: Sequence[bool]) -> None:
    """Raise RuntimeError if a donated array is another argument too."""
    given = list(map(id, args))
    if len(set(given)) == len(given):
        return
    for i, gone in enumerate(used):
        if gone and given.count(given[i]) > 1:
            raise RuntimeError(
                f"Attempt to donate the same array twice, or to donate and read it: leaf {i} of "
                f"the arguments, {args[i].aval.str_short()}, is another leaf as well."
            )
