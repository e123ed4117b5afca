"""What follows from parameters alone is computed once, before the calls that read it.

A function of parameters and inputs is traced, and its program is divided: operations that read
nothing but parameters and constants, such as the reordering of a recurrent layer's gates or the
scales of a batch norm, are a program of their own, whose results the rest takes in place of the
parameters. The function itself stays as it is: gradients by its parameters are those of the whole.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import amdjax
from amdjax.core.aval import ShapedArray, get_aval
from amdjax.core.collector import rare_collections
from amdjax.core.config import config
from amdjax.core.contents import tell_contents
from amdjax.core.dead_code import dce_jaxpr
from amdjax.core.dims import Dim
from amdjax.core.jaxpr import ClosedJaxpr, JaxprEqn, Literal, Var, eval_jaxpr, subjaxprs_of_value
from amdjax.core.jaxpr_trace import trace_to_jaxpr
from amdjax.core.pytree import PyTreeDef, tree_flatten, tree_unflatten
from amdjax.core.sharding import Space
from amdjax.core.trace import is_concrete
from amdjax.device import device_put
from amdjax.passes.flatten import flatten_calls
from amdjax.transforms.flat import FlatFunction, debug_info

from .file_map import contents
from .values import as_array

__all__ = ["Prepared"]

#: Bytes that a result may have beyond those of the parameters that it follows from.
_ALLOWANCE = 1 << 16
#: Bytes of parameters below which what runs once is compiled quickly.
_QUICKLY_BELOW = 1 << 26
#: Operations that kernels read through: they change an index and are done where they are read.
_FREE = frozenset(
    ("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "copy", "stop_gradient")
)


class Prepared:
    """A function `f(params, **inputs)`, compiled, which computes once what follows from `params`.

    Args:
      f: the function; `params` is a dict of arrays.
      as_array: makes an array of a parameter.
    """

    def __init__(self, f: Callable[..., Any], as_array: Callable[[Any], Any] = as_array) -> None:
        self._f, self._as_array = f, as_array
        self._compiled = amdjax.jit(self._rest, dynamic="auto")
        self._is_first = True
        self._state: _State | None = None
        self._avals: dict[str, Any] = {}
        self._divisions: dict[Any, _Division] = {}

    def __call__(self, params: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
        """The function's result.

        Args:
          params: arrays by name. What was computed of earlier ones is forgotten if one of them is
            another object than it was.
          inputs: arrays by name.
        """
        return self._with_arrays(lambda compiled: compiled, params, inputs)[0]

    def lower(self, params: Mapping[str, Any], inputs: Mapping[str, Any]) -> tuple[Any, Any]:
        """What such a call runs, ready to compile, and its arguments before the inputs."""
        return self._with_arrays(lambda compiled: compiled.lower, params, inputs)

    def _with_arrays(
        self, method: Callable[[Any], Callable[..., Any]], params: Mapping[str, Any],
        inputs: Mapping[str, Any],
    ) -> tuple[Any, Any]:  # fmt: skip
        """What a method of the compiled function gives, and its arguments before the inputs."""
        state = self._state
        if state is None or not state.serves(params):
            state = self._prepared(dict(params), inputs)
            if state.in_host:
                arrays, made = device_put((state.arrays, state.made), Space.Host)
                state = state._replace(arrays=arrays, made=made)
            elif self._is_first:
                self._is_first, state = False, self._with_constants(state)
            self._state = state
        while True:
            try:
                if state.compiled is not None:
                    return method(state.compiled)(**inputs), ()
                before = state.arrays, state.made
                return method(self._compiled)(*before, **inputs), before
            except _Lacking as e:  # another size reads other parameters
                more = {n: self._as_array(params[n]) for n in e.names}
                state = state._replace(arrays={**state.arrays, **more})
                if state.compiled is not None:
                    state = self._with_constants(state)
                self._state = state

    def _with_constants(self, state: _State) -> _State:
        """What calls read, as constants of a program, whose packed forms the compiler keeps.

        Those of the first parameters alone: others are arguments, lest each set be compiled.
        """
        arrays, made = state.arrays, state.made
        compiled = amdjax.jit(lambda **inputs: self._rest(arrays, made, **inputs), dynamic="auto")
        return state._replace(compiled=compiled)

    @property
    def prepared_bytes(self) -> int:
        """Bytes of what was computed of parameters."""
        return 0 if self._state is None else sum(x.nbytes for x in self._state.made.values())

    def arrays(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """All parameters as arrays."""
        state = self._state
        if state is None or not state.serves(params) or len(state.arrays) < len(params):
            self._avals = {n: _aval(v) for n, v in params.items()}
            arrays = {n: self._as_array(v) for n, v in params.items()}
            in_host = config.offload_copy
            state = self._state = _State(dict(params), arrays, {}, in_host=in_host)
        return state.arrays

    def _prepared(self, params: dict[str, Any], inputs: Mapping[str, Any]) -> _State:
        self._avals = {n: _aval(v) for n, v in params.items()}
        division = self._divided(inputs)
        arrays = {n: self._as_array(v) for n, v in params.items()}
        made = dict(zip(division.keys, division.prepare(arrays)))
        for found, array in zip(division.results.values(), made.values()):
            tell_contents(array, functools.partial(_contents, found, params))
        read = {n: arrays[n] for n in division.read}
        return _State(params, read, made, in_host=config.offload_copy)

    def _rest(self, arrays: Mapping[str, Any], made: Mapping[str, Any], **inputs: Any) -> Any:
        """The function without what was computed before."""
        return self._divided(inputs).rest(arrays, made, inputs)

    def _divided(self, inputs: Mapping[str, Any]) -> _Division:
        leaves, tree = tree_flatten(((self._avals,), dict(inputs)))
        avals = tuple(map(_aval, leaves))
        key = avals, tree, config.trace_key()
        if key not in self._divisions:
            self._divisions[key] = _divide(self._f, self._avals, inputs, avals, tree)
        return self._divisions[key]


class _State(NamedTuple):
    """What calls read.

    Attributes:
      given: the parameters as they were given.
      arrays: those that are read as they are.
      made: what was computed, by keys that say how.
      compiled: the compiled function of inputs alone, whose constants these are.
      in_host: whether they are kept in the host's memory, from which a GPU copies them.
    """

    given: dict[str, Any]
    arrays: dict[str, Any]
    made: dict[str, Any]
    compiled: Any = None
    in_host: bool = False

    def serves(self, params: Mapping[str, Any]) -> bool:
        """Whether it was made of these very parameters."""
        given = self.given
        if self.in_host is not config.offload_copy:
            return False
        return len(given) == len(params) and all(given.get(n) is v for n, v in params.items())


class _Lacking(Exception):
    """A trace needs parameters that are not among its arguments."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)
        self.names = names


class _Division(NamedTuple):
    """A program, and what of it can be done before.

    Attributes:
      names: of the parameters.
      closed: the program, of the parameters' and the inputs' leaves.
      out_tree: the structure of its result.
      results: values that are computed before, whose names are the same in each trace.
    """

    names: list[str]
    closed: ClosedJaxpr
    out_tree: PyTreeDef
    results: dict[Var, _Known]

    @property
    def keys(self) -> list[str]:
        """The names of what is computed before."""
        return [found.name for found in self.results.values()]

    @property
    def read(self) -> list[str]:
        """The parameters that are read besides."""
        return self._without(self.results)[1]

    def prepare(self, arrays: Mapping[str, Any]) -> list[Any]:
        """What is computed before."""
        if not self.results:
            return []
        jaxpr = self.closed.jaxpr.replace(outvars=list(self.results))
        jaxpr, used = dce_jaxpr(jaxpr, [True] * len(self.results))
        names = [n for n, u in zip(self.names, used) if u]
        args = [arrays[n] for n in names]
        few = sum(x.nbytes for x in args) < _QUICKLY_BELOW
        run = amdjax.jit(
            lambda *args: eval_jaxpr(jaxpr, self.closed.consts, *args),
            compiler_options={"exec_time_optimization_effort": -1.0} if few else None,
        )
        return run(*args)

    def rest(self, arrays: Mapping[str, Any], made: Mapping[str, Any], inputs: Any) -> Any:
        """The result, by what was computed before where there is such."""
        known = {v: made[x.name] for v, x in self.results.items() if x.name in made}
        jaxpr, read = self._without(known)
        if lacking := [n for n in read if n not in arrays]:
            raise _Lacking(lacking)
        leaves = [arrays[n] for n in read] + tree_flatten(((), dict(inputs)))[0]
        outs = eval_jaxpr(jaxpr, [*self.closed.consts, *known.values()], *leaves)
        return tree_unflatten(self.out_tree, outs)

    def _without(self, known: Mapping[Var, Any]) -> tuple[Any, list[str]]:
        """The program that is given some values, and the parameters that it reads."""
        jaxpr = self.closed.jaxpr
        eqns = [e for e in jaxpr.eqns if not any(v in known for v in e.outvars)]
        jaxpr = jaxpr.replace(eqns=eqns, constvars=[*jaxpr.constvars, *known])
        count = len(self.names)
        keep = [False] * count + [True] * (len(jaxpr.invars) - count)
        jaxpr, used = dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars), keep)
        return jaxpr, [n for n, u in zip(self.names, used) if u]


def _divide(
    f: Callable[..., Any], params: Mapping[str, Any], inputs: Any, avals: Sequence[Any],
    tree: PyTreeDef,
) -> _Division:  # fmt: skip
    flat = FlatFunction(f, tree)
    info = debug_info("model", f, (params,), inputs)
    names = sorted(params)
    with rare_collections:
        closed = flatten_calls(trace_to_jaxpr(flat, avals, debug_info=info))
        return _Division(names, closed, flat.out_tree, _results(closed, names))


# Which values are computed before


class _Known(NamedTuple):
    """What is known of a value that follows from parameters alone.

    Attributes:
      key: how it is computed.
      names: the parameters that it follows from.
      eqn: what makes it; None for parameters and constants.
    """

    key: bytes
    names: frozenset[str]
    eqn: JaxprEqn | None

    @property
    def name(self) -> str:
        """The key as text."""
        return self.key.hex()


def _results(closed: ClosedJaxpr, names: Sequence[str]) -> dict[Var, _Known]:
    jaxpr = closed.jaxpr
    known: dict[Any, _Known] = {}
    sizes = dict(zip(names, (_bytes(v) or 0 for v in jaxpr.invars)))
    for name, var in zip(names, jaxpr.invars):
        known[var] = _Known(_digest("parameter", name), frozenset((name,)), None)
    for var, value in zip(jaxpr.constvars, closed.consts):
        if is_concrete(value):
            known[var] = _constant(value)
    for eqn in jaxpr.eqns:
        known.update(_known_results(eqn, known))
    chosen: dict[Var, _Known] = {}
    room = sum(sizes.values()) + _ALLOWANCE
    for v in _boundary(jaxpr, known):
        for part in _parts(v, known, sizes):
            size = _bytes(part) or 0
            if part not in chosen and size <= room:
                chosen[part], room = known[part], room - size
    return chosen


def _boundary(jaxpr: Any, known: Mapping[Any, _Known]) -> Iterator[Var]:
    """Values that follow from parameters and are read by what does not."""
    for eqn in jaxpr.eqns:
        if not all(v in known for v in eqn.outvars):
            yield from (x for x in eqn.invars if type(x) is Var and x in known)
    yield from (x for x in jaxpr.outvars if type(x) is Var and x in known)


def _parts(v: Var, known: Mapping[Any, _Known], sizes: Mapping[str, int]) -> Iterator[Var]:
    """What to compute of a value: itself, or what it is made of where that is smaller."""
    found = known[v]
    if found.eqn is None or not found.names:
        return
    size = _bytes(v)
    fits = size is not None and size <= sum(sizes[n] for n in found.names) + _ALLOWANCE
    if fits and found.eqn.primitive.name not in _FREE:
        yield v
        return
    for x in found.eqn.invars:
        if type(x) is Var:
            yield from _parts(x, known, sizes)


def _known_results(eqn: JaxprEqn, known: Mapping[Any, _Known]) -> Iterator[tuple[Var, _Known]]:
    operands = [_literal(x) if type(x) is Literal else known.get(x) for x in eqn.invars]
    if eqn.effects or not operands or any(x is None for x in operands):
        return
    if any(_bytes(v) is None for v in eqn.outvars) or _has_bodies(eqn):
        return
    params = [(k, type(p).__name__, repr(p)) for k, p in sorted(eqn.params.items())]
    arrays = any(isinstance(p, np.ndarray) for p in eqn.params.values())
    if arrays or any(" at 0x" in text for *_, text in params):
        return  # texts that do not say all
    names = frozenset[str]().union(*(x.names for x in operands if x is not None))
    keys = [x.key for x in operands if x is not None]
    for i, v in enumerate(eqn.outvars):
        yield v, _Known(_digest(eqn.primitive.name, params, keys, i), names, eqn)


def _has_bodies(eqn: JaxprEqn) -> bool:
    return any(True for p in eqn.params.values() for _ in subjaxprs_of_value(p))


def _literal(x: Any) -> _Known:
    key = _digest("literal", str(x.aval), np.asarray(x.val).tobytes())
    return _Known(key, frozenset(), None)


def _constant(value: Any) -> _Known:
    array = np.asarray(value)
    key = _digest("constant", array.dtype.name, array.shape, array.tobytes())
    return _Known(key, frozenset(), None)


def _digest(*parts: Any) -> bytes:
    """A name for what parts say, of a fixed length however deep they are made."""
    return hashlib.sha256(repr(parts).encode()).digest()


def _contents(found: _Known, params: Mapping[str, Any]) -> bytes | None:
    """What tells a value that is computed of parameters from others, if that is known of these."""
    told = [contents(np.asarray(params[name])) for name in sorted(found.names)]
    return None if None in told else _digest("made", found.key, told)


def _aval(x: Any) -> Any:
    if isinstance(x, ShapedArray):
        return x
    try:
        return get_aval(x)
    except TypeError:
        return ShapedArray(tuple(x.shape), np.dtype(x.dtype))


def _bytes(v: Any) -> int | None:
    """The size of a value; None where it is not known."""
    size = getattr(v.aval, "size", None)
    itemsize = getattr(getattr(v.aval, "dtype", None), "itemsize", None)
    return None if size is None or itemsize is None or isinstance(size, Dim) else size * itemsize
