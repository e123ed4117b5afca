"""Whether keys are used once: what programs do to keys, and which known keys are used up.

A *sink* uses up a key among an operation's operands, a *source* is a result that is a fresh key, a
*forward* a result that is one of the operands. What is neither is used up already. Masks say which
keys of an array are meant. `debug_key_reuse` has eager operations and compiled functions checked.
"""

from __future__ import annotations

import functools
import operator
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from amdjax.core.array import ConcreteArray
from amdjax.core.aval import is_extended
from amdjax.core.errors import KeyReuseError
from amdjax.core.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, memoize_on_jaxpr
from amdjax.core.lowering import Relabel
from amdjax.random._prng import is_key, key_primitive, of_each
from amdjax.transforms.flat import flatten_fun
from amdjax.transforms.staging import make_jaxpr

__all__ = [
    "Forward", "KeyReuseSignature", "Sink", "Source", "assert_consumed", "assert_unconsumed",
    "check_key_reuse", "check_key_reuse_jaxpr", "consume", "function_type_signature",
    "jaxpr_type_signature",
]  # fmt: skip

Mask = Any  # a bool, or an array of them


@functools.total_ordering
class _Marked:
    """An operand or result, and which of its keys are meant."""

    __slots__ = ("idx", "mask")
    idx: int
    mask: Mask

    def __init__(self, idx: int, mask: Mask = True):
        if isinstance(mask, np.ndarray):
            # Of no keys at all none is meant.
            uniform = not mask.any() or mask.all()
            mask = bool(mask.any()) if uniform else mask.copy()
            if not uniform:
                mask.flags.writeable = False
        object.__setattr__(self, "idx", idx)
        object.__setattr__(self, "mask", mask if isinstance(mask, np.ndarray) else bool(mask))

    def __setattr__(self, name: str, value: Any) -> None:
        raise ValueError(f"{type(self).__name__} is immutable")

    def _key(self) -> tuple[Any, ...]:
        mask = self.mask
        if isinstance(mask, np.ndarray):
            mask = (mask.shape, mask.tobytes())
        return type(self).__name__, self.idx, mask

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Marked) and self._key() == other._key()

    def __lt__(self, other: object) -> bool:
        if isinstance(other, Forward):
            return True
        return isinstance(other, _Marked) and self._key()[:2] < other._key()[:2]

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        mask = "" if self.mask is True else f", {self.mask}"
        return f"{type(self).__name__}({self.idx}{mask})"


class Sink(_Marked):
    """An operand whose keys are used up.

    Args:
      idx: which operand.
      mask: which of its keys, if not all.
    """

    __slots__ = ()


class Source(_Marked):
    """A result whose keys are fresh.

    Args:
      idx: which result.
      mask: which of its keys, if not all.
    """

    __slots__ = ()


class Forward(NamedTuple):
    """A result that is one of the operands.

    Args:
      in_idx: the operand.
      out_idx: the result.
    """

    in_idx: int
    out_idx: int

    def __repr__(self) -> str:
        return f"Forward({self.in_idx}, {self.out_idx})"


class KeyReuseSignature:
    """What an operation or a program does to keys: a set of sinks, sources and forwards.

    Args:
      parts: `Sink`s, `Source`s and `Forward`s.
    """

    __slots__ = ("_parts",)

    def __init__(self, *parts: Any):
        self._parts = frozenset(parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyReuseSignature) and self._parts == other._parts

    def __hash__(self) -> int:
        return hash(self._parts)

    def __repr__(self) -> str:
        return f"KeyReuseSignature({', '.join(map(repr, sorted(self._parts)))})"

    def of(self, kind: type) -> Iterator[Any]:
        """The parts of a kind.

        Args:
          kind: `Sink`, `Source` or `Forward`.

        Returns:
          An iterator over them.
        """
        return (p for p in self._parts if isinstance(p, kind))


consume_p = key_primitive("consume")
consume_p.def_abstract_eval(lambda keys: keys)
consume_p.lowering = Relabel()
of_each(consume_p)


def consume(key: Any) -> Any:
    """The key, used up.

    Args:
      key: a typed key.

    Returns:
      The same key.

        >>> from amdjax.experimental import key_reuse
        >>> key_reuse.consume(amdjax.random.key(0)).shape
        ()
    """
    return consume_p.bind(key)


assert_consumed_value_p = key_primitive("assert_consumed_value")
assert_consumed_value_p.def_abstract_eval(lambda keys, *, value: keys)
assert_consumed_value_p.lowering = Relabel()
of_each(assert_consumed_value_p)


class _Expected(_Marked):
    """A mask as a parameter."""

    __slots__ = ()


def assert_consumed(key: Any, value: Mask = True) -> None:
    """Where keys are checked: raise AssertionError unless those of the mask are used up.

    Args:
      key: a typed key.
      value: whether, or which of an array of keys.

        >>> from amdjax.experimental import key_reuse
        >>> key_reuse.assert_consumed(amdjax.random.key(0), value=False)
    """
    assert_consumed_value_p.bind(key, value=_Expected(0, value))


def assert_unconsumed(key: Any) -> None:
    """Where keys are checked: raise AssertionError if the key is used up.

    Args:
      key: a typed key.

        >>> from amdjax.experimental import key_reuse
        >>> key_reuse.assert_unconsumed(amdjax.random.key(0))
    """
    assert_consumed(key, False)


# Operations

Signature = KeyReuseSignature | Callable[[JaxprEqn], KeyReuseSignature]
_FORWARD = KeyReuseSignature(Forward(0, 0))
_NOTHING = KeyReuseSignature()
_FORWARDING = (
    *("assert_consumed_value", "broadcast_in_dim", "convert_element_type", "copy", "dynamic_slice"),
    *("expand_dims", "gather", "reshape", "squeeze"),
)

signatures: dict[str, Signature] = {
    **dict.fromkeys(_FORWARDING, _FORWARD),
    **dict.fromkeys(("eq", "ne", "random_unwrap", "debug_callback"), _NOTHING),
    **dict.fromkeys(("random_seed", "random_wrap"), KeyReuseSignature(Source(0))),
    **dict.fromkeys(("random_clone", "random_fold_in"), KeyReuseSignature(Source(0))),
    **dict.fromkeys(("random_bits", "random_gamma"), KeyReuseSignature(Sink(0))),
    "random_split": KeyReuseSignature(Sink(0), Source(0)),
    "consume": KeyReuseSignature(Sink(0), Forward(0, 0)),
    "dynamic_update_slice": KeyReuseSignature(Sink(1), Forward(0, 0)),
    "scatter": KeyReuseSignature(Sink(2), Forward(0, 0)),
}


def _signature_rule(*names: str) -> Callable[[Any], Any]:
    def register(rule: Any) -> Any:
        signatures.update(dict.fromkeys(names, rule))
        return rule

    return register


def _signature_of(eqn: JaxprEqn) -> KeyReuseSignature:
    found = signatures.get(eqn.primitive.name)
    if found is None:  # uses up all keys it gets
        return KeyReuseSignature(*(Sink(i) for i, v in enumerate(eqn.invars) if _holds_keys(v)))
    return found if isinstance(found, KeyReuseSignature) else found(eqn)


def _holds_keys(v: Any) -> bool:
    return is_extended(v.aval)


@_signature_rule("slice")
def _slice_signature(eqn: JaxprEqn) -> KeyReuseSignature:
    if not _holds_keys(eqn.invars[0]):
        return _FORWARD
    params = eqn.params
    starts, limits = params["start_indices"], params["limit_indices"]
    window = tuple(map(slice, starts, limits, params["strides"] or (1,) * len(starts)))
    mask = np.zeros(eqn.invars[0].aval.shape, bool)
    mask[window] = True
    return KeyReuseSignature(Sink(0, mask), Source(0))


@_signature_rule("concatenate")
def _concatenate_signature(eqn: JaxprEqn) -> KeyReuseSignature:
    if len(eqn.invars) == 1:
        return _FORWARD
    return KeyReuseSignature(*(Sink(i) for i in range(len(eqn.invars))), Source(0))


@_signature_rule("jit", "closed_call", "remat2", "custom_jvp_call", "custom_vjp_call")
def _call_signature(eqn: JaxprEqn) -> KeyReuseSignature:
    # The pass for derivatives computes again what the first pass did with its keys.
    if eqn.params.get("differentiated"):
        return _NOTHING
    return jaxpr_type_signature(_body(eqn).jaxpr)


def _body(eqn: JaxprEqn) -> ClosedJaxpr:
    return eqn.params["jaxpr"] if "jaxpr" in eqn.params else eqn.params["call_jaxpr"]


@_signature_rule("device_put", "optimization_barrier")
def _each_signature(eqn: JaxprEqn) -> KeyReuseSignature:
    return KeyReuseSignature(*(Forward(i, i) for i in range(len(eqn.invars))))


@_signature_rule("cond")
def _cond_signature(eqn: JaxprEqn) -> KeyReuseSignature:
    """A key is used up if a branch uses it, and fresh if it is after every branch."""
    found = [jaxpr_type_signature(b.jaxpr) for b in eqn.params["branches"]]
    masks = lambda kind: [{p.idx: p.mask for p in s.of(kind)} for s in found]
    sinks: dict[int, Mask] = {}
    for used in masks(Sink):
        sinks = {i: sinks.get(i, False) | used.get(i, False) for i in (*sinks, *used)}
    sources = masks(Source)
    common = set.intersection(*map(set, sources))
    fresh = {i: functools.reduce(operator.and_, (s[i] for s in sources)) for i in common}
    forwards = set.intersection(*(set(s.of(Forward)) for s in found))
    return KeyReuseSignature(
        *(Sink(i + 1, m) for i, m in sinks.items()),  # the first operand is the index
        *(Source(i, m) for i, m in fresh.items()),
        *(Forward(f.in_idx + 1, f.out_idx) for f in forwards),
    )


def _check_loop(
    what: str, sinks: set[int], consts: int, sources: set[int], eqn: JaxprEqn
) -> set[int]:
    """Raise unless each step leaves keys as fresh as it found them; the sinks in the carry."""
    carried = {i - consts for i in sinks if i >= consts}
    if len(carried) == len(sinks) and carried <= sources:
        return carried
    why = "the carry's keys are used up" if len(carried) == len(sinks) else "constants are keys"
    raise KeyReuseError(
        f"{what} leads to key reuse when repeatedly executed: {why}, which each step uses.\n{eqn}"
    )


def _marked(signature: KeyReuseSignature, kind: type) -> set[int]:
    return {p.idx for p in signature.of(kind) if np.any(p.mask)}


@_signature_rule("scan")
def _scan_signature(eqn: JaxprEqn) -> KeyReuseSignature:
    consts, carry = eqn.params["num_consts"], eqn.params["num_carry"]
    signature = jaxpr_type_signature(eqn.params["jaxpr"].jaxpr)
    in_steps = {i for i in _marked(signature, Sink) if i < consts + carry}
    sources = {i for i in _marked(signature, Source) if i < carry}
    _check_loop("scan body function", in_steps, consts, sources, eqn)
    return signature


@_signature_rule("while")
def _while_signature(eqn: JaxprEqn) -> KeyReuseSignature:
    cond, body = (jaxpr_type_signature(eqn.params[p].jaxpr) for p in ("cond_jaxpr", "body_jaxpr"))
    cond_consts, body_consts = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    sources = _marked(body, Source)
    args = (sources, eqn)
    in_cond = _check_loop("while_loop cond function", _marked(cond, Sink), cond_consts, *args)
    in_body = _check_loop("while_loop body function", _marked(body, Sink), body_consts, *args)
    if in_cond & in_body:
        raise KeyReuseError(f"while_loop cond and body functions both use the same key.\n{eqn}")
    return KeyReuseSignature(
        *(Sink(p.idx + cond_consts, p.mask) for p in body.of(Sink)),
        *body.of(Source),
        *(Forward(f.in_idx + cond_consts, f.out_idx) for f in body.of(Forward)),
    )


# Programs


class _Usage:
    """Which keys are used up, while the operations of a program are looked at in order."""

    def __init__(self) -> None:
        self.used: dict[Any, Mask] = {}
        self.same: dict[Any, Any] = {}  # results that are operands

    def resolve(self, v: Any) -> Any:
        while v in self.same:
            v = self.same[v]
        return v

    def of(self, v: Any) -> Mask:
        return False if type(v) is Literal else self.used.get(self.resolve(v), False)

    def operation(self, eqn: JaxprEqn) -> None:
        name = eqn.primitive.name
        signature = _signature_of(eqn)
        if name == "assert_consumed_value":
            _check_assertion(eqn, self.of(eqn.invars[0]))
        for before, after in signature.of(Forward):
            if type(eqn.invars[before]) is not Literal:
                self.same[eqn.outvars[after]] = eqn.invars[before]
        for sink in sorted(signature.of(Sink)):
            v = eqn.invars[sink.idx]
            if type(v) is Literal or not _holds_keys(v):
                continue
            if np.any(np.logical_and(self.of(v), sink.mask)):
                raise KeyReuseError(f"In {name}, argument {sink.idx} is already consumed.")
            self.used[self.resolve(v)] = np.logical_or(self.of(v), sink.mask)
        fresh = {s.idx for s in signature.of(Source)}
        for i, v in enumerate(eqn.outvars):
            if v not in self.same and _holds_keys(v):
                self.used[v] = i not in fresh


def _check_assertion(eqn: JaxprEqn, used: Mask) -> None:
    expected = eqn.params["value"].mask
    if not np.all(used == expected):
        state = "be consumed" if np.all(expected) else "not be consumed"
        if np.any(expected) and not np.all(expected):
            raise AssertionError(f"Expected {expected}, got {used} in {eqn}")
        raise AssertionError(f"Expected key to {state} in {eqn}")


@memoize_on_jaxpr
def jaxpr_type_signature(jaxpr: Jaxpr) -> KeyReuseSignature:
    """What a program does to keys; constants count as arguments after the others.

    Args:
      jaxpr: the program.

    Returns:
      A signature.

    Raises:
      KeyReuseError: it uses a key twice.

        >>> from amdjax.experimental import key_reuse
        >>> closed = amdjax.make_jaxpr(amdjax.random.split)(amdjax.random.key(0))
        >>> key_reuse.jaxpr_type_signature(closed.jaxpr)
        KeyReuseSignature(Sink(0), Source(0))
    """
    usage = _Usage()
    for eqn in jaxpr.eqns:
        usage.operation(eqn)
    inputs = [*jaxpr.invars, *jaxpr.constvars]
    outs = [(i, v, usage.resolve(v)) for i, v in enumerate(jaxpr.outvars) if _holds_keys(v)]
    return KeyReuseSignature(
        *(Sink(i, usage.of(v)) for i, v in enumerate(inputs) if np.any(usage.of(v))),
        *(Source(i) for i, v, was in outs if was not in inputs and not np.any(usage.of(v))),
        *(Forward(inputs.index(was), i) for i, v, was in outs if was in inputs),
    )


def check_key_reuse_jaxpr(jaxpr: Jaxpr) -> None:
    """Raise KeyReuseError if a program uses a key twice.

    Args:
      jaxpr: the program.

        >>> from amdjax.experimental import key_reuse
        >>> closed = amdjax.make_jaxpr(amdjax.random.split)(amdjax.random.key(0))
        >>> key_reuse.check_key_reuse_jaxpr(closed.jaxpr)
    """
    jaxpr_type_signature(jaxpr)


def function_type_signature(fun: Callable[..., Any], *args: Any) -> KeyReuseSignature:
    """What a function does to the keys among its arguments.

    Args:
      fun: a traceable function.
      args: its arguments.

    Returns:
      A signature.

    Raises:
      KeyReuseError: it uses a key twice.

        >>> from amdjax.experimental import key_reuse
        >>> key_reuse.function_type_signature(amdjax.random.split, amdjax.random.key(0))
        KeyReuseSignature(Sink(0), Source(0))
    """
    leaves, flat = flatten_fun(fun, args, {})
    return jaxpr_type_signature(make_jaxpr(flat)(*leaves).jaxpr)


def check_key_reuse(fun: Callable[..., Any], /, *args: Any) -> None:
    """Raise KeyReuseError if a function uses a key twice.

    Args:
      fun: a function of pytrees of arrays.
      *args: its arguments, or things with a shape and a dtype.

    Raises:
      KeyReuseError: it does.

        >>> from amdjax.experimental import key_reuse
        >>> try:
        ...     key_reuse.check_key_reuse(lambda k: random.split(random.clone(k)), random.key(0))
        ...     key_reuse.check_key_reuse(lambda k: (random.bits(k), random.bits(k)), random.key(0))
        ... except amdjax.errors.KeyReuseError as e:
        ...     print(str(e).splitlines()[0])
        In random_bits, argument 0 is already consumed.
    """
    function_type_signature(fun, *args)


# Known keys

_used: dict[int, tuple[Any, Mask]] = {}


def is_consumed(keys: ConcreteArray) -> Mask:
    """Which of known keys are used up."""
    found = _used.get(id(keys))
    return found[1] if found is not None and found[0]() is keys else False


def _mark(keys: Any, mask: Mask) -> None:
    number = id(keys)
    _used[number] = weakref.ref(keys, lambda _: _used.pop(number, None)), mask


def watch(
    signature: KeyReuseSignature, name: str, args: Sequence[Any], run: Callable[[], Sequence[Any]]
) -> Sequence[Any]:
    """Run an operation on known keys: check that it uses none again, and mark what it uses.

    Raises:
      KeyReuseError: a key was used before.
    """
    sinks = [s for s in signature.of(Sink) if is_key(args[s.idx])]
    for sink in sinks:
        if np.any(is_consumed(args[sink.idx]) & np.asarray(sink.mask)):
            raise KeyReuseError(f"Previously-consumed key passed to {name} at index {sink.idx}")
    before = {f.out_idx: is_consumed(args[f.in_idx]) for f in signature.of(Forward)}
    outs = run()
    for sink in sinks:
        _mark(args[sink.idx], np.asarray(is_consumed(args[sink.idx])) | sink.mask)
    sources = {s.idx: s.mask for s in signature.of(Source)}
    for i, out in enumerate(outs):
        if is_key(out):
            _mark(out, before[i] if i in before else ~np.asarray(sources.get(i, False)))
    return outs


def watched_program(
    closed: ClosedJaxpr, run: Callable[..., Any], leading: Sequence[Any] = ()
) -> Callable[..., Any]:
    """A compiled program that marks and checks the keys it gets."""
    signature = jaxpr_type_signature(closed.jaxpr)
    consts = list(closed.consts)
    return lambda args: watch(
        signature, "jit-compiled function", [*leading, *args, *consts], lambda: run(args)
    )


def watched_operation(eqn: JaxprEqn, run: Callable[..., Any]) -> Callable[..., Any]:
    """An eager operation that marks and checks the keys it gets."""
    signature = _signature_of(eqn)
    name = eqn.primitive.name
    body = _body(eqn) if signatures.get(name) is _call_signature else None
    name = "jit-compiled function" if name == "jit" else name
    consts = list(body.consts) if body is not None else []
    return lambda args: watch(signature, name, [*args, *consts], lambda: run(args))
