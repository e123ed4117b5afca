"""What `jit` keeps of a function: its signatures, their programs and the compiled forms."""

from __future__ import annotations

import collections
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from amdjax.core import recorded
from amdjax.core.jaxpr import ClosedJaxpr
from amdjax.core.pytree import PyTreeDef
from amdjax.jit import recompiles
from amdjax.jit.dynamic import DynamicShapes
from amdjax.jit.variants import Variants

if TYPE_CHECKING:
    from amdjax.jit.arrays import Runner

_KEPT = 512  # signatures of a function that programs of symbolic shapes serve


class Signature:
    """A compiled signature: how to run it and what the result looks like."""

    __slots__ = ("native", "run", "symbolic", "tree", "tries")

    def __init__(self, run: Runner, tree: PyTreeDef, symbolic: Sequence[Any] | None):
        self.run, self.tree, self.symbolic = run, tree, symbolic
        # How machine code runs it, if it can; and how often a call was recorded for that.
        self.native: Any = getattr(run, "native", None)
        self.tries = 0


class Programs:
    """The signatures of a function that were traced and compiled."""

    __slots__ = (
        "__weakref__", "compiled", "compiled_flat", "dynamic", "records", "served",
        "single_compiles", "traced", "traces", "variants",
    )  # fmt: skip

    def __init__(self) -> None:
        self.compiled: dict[Any, Signature] = {}
        self.compiled_flat: dict[Any, Signature] = {}  # those whose arguments are arrays
        self.traced: dict[Any, tuple[ClosedJaxpr, PyTreeDef]] = {}
        self.variants: dict[Any, Variants] = {}  # of programs of symbolic shapes
        # Keys of the signatures that programs of symbolic shapes serve.
        self.served: collections.deque[Any] = collections.deque()
        self.dynamic = DynamicShapes()
        self.records: tuple[Any, ...] = ()  # of calls that machine code repeats
        self.traces = 0
        self.single_compiles = 0  # those for single sizes
        all_programs.add(self)

    @property
    def work(self) -> recompiles.Work:
        """What was made so far."""
        planned = compiled = self.single_compiles
        for variants in list(self.variants.values()):  # another thread may add some
            compiled += len(variants.known)
            for variant in list(variants.known):
                planned += len(variant.guards)
        return recompiles.Work(self.traces, planned, compiled)

    def keep(self, key: Any, found: Signature) -> None:
        """Remember a signature; of those that programs of symbolic shapes serve, the last ones."""
        self.compiled[key] = found
        if found.symbolic is None:
            return
        self.served.append(key)
        if len(self.served) > _KEPT:
            oldest = self.served.popleft()
            _, _, trace_key, _, *avals = oldest
            self.compiled.pop(oldest, None)
            self.compiled_flat.pop((trace_key, *avals), None)

    def clear(self) -> None:
        self.compiled.clear()
        self.compiled_flat.clear()
        self.records = ()
        self.traced.clear()
        self.variants.clear()
        self.served.clear()
        self.dynamic = DynamicShapes()


all_programs: weakref.WeakSet[Programs] = weakref.WeakSet()
_shared: weakref.WeakKeyDictionary[Any, dict[Any, Programs]] = weakref.WeakKeyDictionary()


def programs_of(fun: Callable[..., Any], kind: Any) -> Programs:
    """What `jit` of a function has compiled; shared by all that jit it with the same settings."""
    hashed: Any = type(fun).__hash__
    if hashed is not object.__hash__:  # equal ones need not be the same
        return Programs()
    try:
        return _shared.setdefault(fun, {}).setdefault(kind, Programs())
    except TypeError:  # no weak references
        return Programs()


def _forget_records() -> None:
    for programs in list(all_programs):
        programs.records = ()


recorded.on_change.append(_forget_records)
