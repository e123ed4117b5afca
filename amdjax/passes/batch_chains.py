"""Batched products and what lies between them, a few members of the batch at a time.

Products over a batch whose results only the same members of other products need, as in attention
that is written in a form of its own, leave intermediates that are larger than the caches: they are
written to memory and read back. A loop over the batch, a few members at a step, keeps them in the
caches, and in memory there is one step's share of them.

An equation is followed by its loops: `Link` says of one of them along which axis of each operand
and result it runs. A chain is what products of one batch axis and all between them are made of, if
all of it can be followed along that axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from amdjax.core.aval import ShapedArray
from amdjax.core.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var
from amdjax.core.lowering import Pointwise, Reduce
from amdjax.core.primitive import Primitive

#: Of the last cache, what intermediates have to take for it to matter.
FROM_SHARE = 0.5
#: Of that, what one of the operands or the result of some product takes.
SEED_SHARE = 1 / 8
#: Of what lies between products, what may be turned in memory so that members lie one by one.
TURNED_SHARE = 1 / 5
#: Bytes of a step's intermediates for each thread, so that starting kernels takes little.
LEAST_BYTES = 256 << 10


class Caches(NamedTuple):
    """Bytes of what keeps intermediates, and who uses it.

    Attributes:
      l2_bytes: second-level caches of all threads.
      l3_bytes: the last cache.
      threads: that run a kernel.
    """

    l2_bytes: int
    l3_bytes: int
    threads: int


class Link(NamedTuple):
    """A loop of an equation: the axis of each operand along which it runs, None for none.

    Attributes:
      operands: axes of the operands.
      results: axes of the results.
      params: parameters for another number of steps.
      pairs: whether it is a batch of products.
    """

    operands: tuple[int | None, ...]
    results: tuple[int, ...]
    params: Callable[[int], dict[str, Any]]
    pairs: bool = False


# What loops equations have


def _same(eqn: JaxprEqn) -> Callable[[int], dict[str, Any]]:
    return lambda n: eqn.params


def _with(eqn: JaxprEqn, name: str, axis: int) -> Callable[[int], dict[str, Any]]:
    """Parameters with another size along an axis of a shape among them."""

    def params(n: int) -> dict[str, Any]:
        sizes = eqn.params[name]
        return {**eqn.params, name: (*sizes[:axis], n, *sizes[axis + 1 :])}

    return params


def _pointwise(eqn: JaxprEqn) -> Iterator[Link]:
    shape = eqn.outvars[0].aval.shape
    if any(x.aval.ndim not in (0, len(shape)) for x in eqn.invars):
        return
    for d, n in enumerate(shape):
        axes = tuple(d if x.aval.ndim and x.aval.shape[d] == n else None for x in eqn.invars)
        yield Link(axes, (d,) * len(eqn.outvars), _same(eqn))


def _reduce(eqn: JaxprEqn) -> Iterator[Link]:
    gone = eqn.params["axes"]
    kept = [d for d in range(eqn.invars[0].aval.ndim) if d not in gone]
    for place, d in enumerate(kept):
        yield Link((d,) * len(eqn.invars), (place,) * len(eqn.outvars), _same(eqn))


def _product(eqn: JaxprEqn) -> Iterator[Link]:
    contract, batch = eqn.params["dimension_numbers"]
    for place, pair in enumerate(zip(*batch, strict=True)):
        yield Link(pair, (place,), _same(eqn), pairs=True)
    place = len(batch[0])
    for side, x in enumerate(eqn.invars):
        for d in range(x.aval.ndim):
            if d not in (*contract[side], *batch[side]):
                yield Link((None, d) if side else (d, None), (place,), _same(eqn))
                place += 1


def _broadcast(eqn: JaxprEqn) -> Iterator[Link]:
    x, shape = eqn.invars[0].aval, eqn.params["shape"]
    dims = eqn.params["broadcast_dimensions"]
    for d in range(len(shape)):
        own = dims.index(d) if d in dims else None
        if own is not None and x.shape[own] != shape[d]:
            own = None
        yield Link((own,), (d,), _with(eqn, "shape", d))


def _transpose(eqn: JaxprEqn) -> Iterator[Link]:
    for place, d in enumerate(eqn.params["permutation"]):
        yield Link((d,), (place,), _same(eqn))


def _reshape(eqn: JaxprEqn) -> Iterator[Link]:
    """An axis that stays what it is: as many elements are outside of it, and inside."""
    source, shape = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
    for d, n in enumerate(source):
        for place, size in enumerate(shape):
            if n == size and math.prod(source[:d]) == math.prod(shape[:place]):
                yield Link((d,), (place,), _with(eqn, "new_sizes", place))


def _concatenate(eqn: JaxprEqn) -> Iterator[Link]:
    for d in range(eqn.outvars[0].aval.ndim):
        if d != eqn.params["dimension"]:
            yield Link((d,) * len(eqn.invars), (d,), _same(eqn))


def _iota(eqn: JaxprEqn) -> Iterator[Link]:
    for d in range(len(eqn.params["shape"])):
        if d != eqn.params["dimension"]:
            yield Link((), (d,), _with(eqn, "shape", d))


def _cumulative(eqn: JaxprEqn) -> Iterator[Link]:
    for d in range(eqn.outvars[0].aval.ndim):
        if d != eqn.params["axis"]:
            yield Link((d,), (d,), _same(eqn))


_LINKS: dict[str, Callable[[JaxprEqn], Iterator[Link]]] = {
    "dot_general": _product, "broadcast_in_dim": _broadcast, "transpose": _transpose,
    "reshape": _reshape, "concatenate": _concatenate, "iota": _iota,
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"), _cumulative),
}  # fmt: skip


def links(eqn: JaxprEqn) -> list[Link]:
    """The loops of an equation that can be cut."""
    rule = eqn.primitive.lowering
    find = _LINKS.get(eqn.primitive.name)
    if find is None and isinstance(rule, Pointwise):
        find = _pointwise
    elif find is None and isinstance(rule, Reduce) and "axes" in eqn.params:
        find = _reduce
    if find is None or eqn.effects or eqn.params.get("sharding") or eqn.params.get("out_sharding"):
        return []
    sizes = (n for x in (*eqn.invars, *eqn.outvars) for n in getattr(x.aval, "shape", ()))
    return list(find(eqn)) if all(isinstance(n, int) for n in sizes) else []


# Finding a chain


@dataclass
class Chain:
    """Equations that run over one batch.

    Args:
      size: members of the batch.
      axes: of each variable that has the batch, the axis along which it runs.
      links: the loop of each equation that does, by its number.
    """

    size: int
    axes: dict[Var, int]
    links: dict[int, Link]


class _Search:
    """Looks for chains in a program.

    Args:
      closed: the program.
    """

    def __init__(self, closed: ClosedJaxpr):
        self.eqns = closed.eqns
        self.outs = {x for x in closed.jaxpr.outvars if isinstance(x, Var)}
        self.makers = {v: i for i, e in enumerate(self.eqns) for v in e.outvars}
        self.readers: dict[Var, list[int]] = {}
        for i, e in enumerate(self.eqns):
            for x in dict.fromkeys(e.invars):
                if isinstance(x, Var):
                    self.readers.setdefault(x, []).append(i)
        self._links: dict[int, list[Link]] = {}

    def links(self, i: int) -> list[Link]:
        """Those of an equation."""
        if i not in self._links:
            self._links[i] = links(self.eqns[i])
        return self._links[i]

    def chain(self, seed: int, link: Link) -> Chain | None:
        """The chain of a batched product; None if that is in none."""
        size = self.eqns[seed].outvars[0].aval.shape[link.results[0]]
        chain = Chain(size, {}, {})
        self._take(chain, seed, link)
        left = [seed]
        while left:
            i = left.pop()
            eqn = self.eqns[i]
            others = [r for v in eqn.outvars for r in self.readers.get(v, ())]
            others += [self.makers[x] for x in eqn.invars if x in chain.axes and x in self.makers]
            for j in others:
                if j not in chain.links and (found := self._link(chain, j)) is not None:
                    self._take(chain, j, found)
                    left.append(j)
        self._trim(chain, seed)
        return chain if seed in chain.links else None

    def _link(self, chain: Chain, i: int) -> Link | None:
        """The loop of an equation that agrees with all that is known of its variables."""
        eqn = self.eqns[i]
        for link in self.links(i):
            if eqn.primitive.name == "dot_general" and not link.pairs:
                continue
            pairs = [*zip(eqn.invars, link.operands), *zip(eqn.outvars, link.results)]
            known = [(x, axis) for x, axis in pairs if isinstance(x, Var) and x in chain.axes]
            sized = all(axis is None or x.aval.shape[axis] == chain.size for x, axis in pairs)
            literal = any(isinstance(x, Literal) and axis is not None for x, axis in pairs)
            taken = {**dict(known), **chain.axes}
            agree = all(
                taken.setdefault(x, axis) == axis for x, axis in pairs if isinstance(x, Var)
            )
            if known and sized and agree and not literal:
                return link
        return None

    def _take(self, chain: Chain, i: int, link: Link) -> None:
        eqn = self.eqns[i]
        chain.links[i] = link
        for x, axis in (*zip(eqn.invars, link.operands), *zip(eqn.outvars, link.results)):
            if axis is not None and isinstance(x, Var):
                chain.axes[x] = axis

    def _trim(self, chain: Chain, seed: int) -> None:
        """Without what a loop cannot hold, or nothing between products needs.

        What others make of the chain must not be needed in it: of what is before and behind such
        others, the chain of a product is what that is in. What is made for others alone, in front
        of the first product, is left where it is.
        """
        self._trim_early(chain, seed)
        self._trim_late(chain, seed)
        self._trim_late(chain)
        behind_products = self._behind_products(chain)
        for i in sorted(chain.links, reverse=True):
            eqn = self.eqns[i]
            if behind_products.intersection(eqn.outvars):
                continue
            readers = [r for v in eqn.outvars for r in self.readers.get(v, ())]
            own = all(r in chain.links for r in readers) and not self.outs.intersection(eqn.outvars)
            if not own:
                del chain.links[i]

    def _trim_late(self, chain: Chain, seed: int | None = None) -> None:
        """Without what needs others that need the chain, or that need one equation of it."""
        behind: set[Var] = set()  # others make it of the chain
        own: set[Var] = set()  # what the chain makes of that equation
        for i, eqn in enumerate(self.eqns):
            if any(isinstance(x, Var) and x in behind for x in eqn.invars):
                chain.links.pop(i, None)
                behind.update(eqn.outvars)
            elif i in chain.links and seed is None and self._takes_all(chain, i):
                chain.links.pop(i)
                behind.update(eqn.outvars)
            elif seed is None:
                if i not in chain.links and self._reads(chain, eqn):
                    behind.update(eqn.outvars)
            elif i == seed or any(isinstance(x, Var) and x in own for x in eqn.invars):
                (own if i in chain.links else behind).update(eqn.outvars)

    def _trim_early(self, chain: Chain, seed: int) -> None:
        """Without what others need that one equation of the chain needs."""
        needed: set[Var] = set()  # by others
        own: set[Var] = set()  # by the chain
        for i in range(seed, -1, -1):
            eqn = self.eqns[i]
            variables = [x for x in eqn.invars if isinstance(x, Var)]
            if needed.intersection(eqn.outvars):
                chain.links.pop(i, None)
                needed.update(variables)
            elif i == seed or own.intersection(eqn.outvars):
                (own if i in chain.links else needed).update(variables)
                if i in chain.links:
                    needed.update(self._whole(chain, i))

    def _whole(self, chain: Chain, i: int) -> list[Var]:
        """What an equation of a chain reads all of at every step."""
        pairs = zip(self.eqns[i].invars, chain.links[i].operands, strict=True)
        return [x for x, axis in pairs if axis is None and isinstance(x, Var)]

    def _takes_all(self, chain: Chain, i: int) -> bool:
        """Whether an equation of a chain reads all members of what is made in it."""
        return any(self.makers.get(x) in chain.links for x in self._whole(chain, i))

    def _reads(self, chain: Chain, eqn: JaxprEqn) -> bool:
        return any(isinstance(x, Var) and self.makers.get(x) in chain.links for x in eqn.invars)

    def _behind_products(self, chain: Chain) -> set[Var]:
        """What is made in a chain of one of its products."""
        found: set[Var] = set()
        for i in sorted(chain.links):
            eqn = self.eqns[i]
            if eqn.primitive.name == "dot_general" or any(
                isinstance(x, Var) and x in found for x in eqn.invars
            ):
                found.update(eqn.outvars)
        return found

    def bytes_between(self, chain: Chain) -> int:
        """Of what products write and read in memory, and nothing outside of the chain.

        Elementwise work alone behind a product is done before its result is written.
        """
        found: set[Var] = set()
        summed: set[Var] = set()  # what reductions need of the products in front of them
        late = self._behind_products(chain)
        for i in sorted(chain.links, reverse=True):
            eqn = self.eqns[i]
            is_product = eqn.primitive.name == "dot_general"
            if is_product:
                found.update(v for v in eqn.outvars if v in summed)
                found.update(x for x in eqn.invars if isinstance(x, Var) and x in late)
            elif isinstance(eqn.primitive.lowering, Reduce) or any(
                v in summed and not self._is_kept(chain, v) for v in eqn.outvars
            ):
                summed.update(x for x in eqn.invars if isinstance(x, Var))
        return sum(v.aval.nbytes for v in found if not self._is_kept(chain, v))

    def _is_kept(self, chain: Chain, v: Var) -> bool:
        """Whether something outside of a chain needs the elements of what is made in it."""
        shaped = (r for r in self.readers.get(v, ()) if self.eqns[r].primitive.name == "reshape")
        return self.leaves(chain, v) or any(
            self._is_kept(chain, self.eqns[r].outvars[0]) for r in shaped
        )

    def leaves(self, chain: Chain, v: Var) -> bool:
        """Whether something outside of a chain needs what is made in it."""
        readers = self.readers.get(v, ())
        return v in self.outs or any(r not in chain.links for r in readers)


def run_chains_in_cache(closed: ClosedJaxpr, caches: Caches) -> ClosedJaxpr:
    """Run chains of batched products, and what lies between, a few members at a time."""
    if any(e.effects for e in closed.eqns):
        return closed
    search = _Search(closed)
    seen: set[int] = set()
    for i, eqn in enumerate(closed.eqns):
        pairs = [link for link in search.links(i) if link.pairs] if i not in seen else []
        if (
            not pairs
            or max(x.aval.nbytes for x in (*eqn.invars, *eqn.outvars))
            < SEED_SHARE * FROM_SHARE * caches.l3_bytes
        ):
            continue
        found = []
        for link in pairs:
            if (chain := search.chain(i, link)) is not None:
                seen.update(chain.links)
                between = search.bytes_between(chain)
                if step := _step_size(chain, between, caches):
                    found.append((between, -link.results[0], step, chain))
        for *_, step, chain in sorted(found, key=lambda x: x[:2], reverse=True):
            if (written := _Loop(closed, search, chain, step).program()) is not None:
                return run_chains_in_cache(written, caches)
    return closed


def _step_size(chain: Chain, nbytes: int, caches: Caches) -> int:
    """How many members a step of the loop has; 0 if there is to be none."""
    if chain.size < 2 or nbytes <= FROM_SHARE * caches.l3_bytes:
        return 0
    each, least = nbytes / chain.size, LEAST_BYTES * caches.threads
    steps = [n for n in range(1, chain.size // 2 + 1) if chain.size % n == 0]
    step = max((n for n in steps if n * each <= max(caches.l2_bytes / 2, least)), default=1)
    return step if least / 2 <= step * each <= caches.l3_bytes else 0


# Writing the loop


class _Loop:
    """A program in which a chain is a `scan`.

    Args:
      closed: the program.
      search: what is known of it.
      chain: what the loop computes ...
      step: ... so many members at a time.
    """

    def __init__(self, closed: ClosedJaxpr, search: _Search, chain: Chain, step: int):
        self.closed, self.search, self.chain, self.step = closed, search, chain, step
        self.count = chain.size // step
        self.cut: dict[Var, Var] = {}
        self.consts: dict[Var, Var] = {}
        self.slices: dict[Var, Var] = {}
        self.body: list[JaxprEqn] = []

    def program(self) -> ClosedJaxpr | None:
        """The program; None if some equation is not what it was with fewer members."""
        numbers = sorted(self.chain.links)
        if not all(self._shorten(i) for i in numbers):
            return None
        made = [v for i in numbers for v in self.search.eqns[i].outvars]
        outs = [v for v in made if self.search.leaves(self.chain, v)]
        turned = sum(v.aval.nbytes for v in (*self.slices, *outs) if not self._leads(v))
        if turned > TURNED_SHARE * self.search.bytes_between(self.chain):
            return None
        before, xs = self._split(self.slices)
        results = [self._stacked(v) for v in outs]
        stored = [self._in_front(self.cut[v], self.chain.axes[v], self.body) for v in outs]
        index = [*self.consts.values(), *self.slices.values()]
        body = Jaxpr((), index, stored, self.body, None)
        params = {
            "jaxpr": ClosedJaxpr(body, ()), "length": self.count, "reverse": False,
            "num_consts": len(self.consts), "num_carry": 0, "unroll": 1,
        }  # fmt: skip
        first = self.search.eqns[numbers[0]]
        loop = JaxprEqn(
            Primitive.by_name["scan"], [*self.consts, *xs], results, params, source=first.source
        )
        behind = [e for r, v in zip(results, outs, strict=True) for e in self._joined(r, v)]
        old = self.closed.jaxpr
        eqns = self._placed([*before, loop, *behind])
        return self.closed.replace(
            jaxpr=Jaxpr(old.constvars, old.invars, old.outvars, eqns, None, old.debug_info)
        )

    def _shorten(self, i: int) -> bool:
        """Write an equation for some members; whether its results are what they should be."""
        eqn, link = self.search.eqns[i], self.chain.links[i]
        operands = [self._operand(x, axis) for x, axis in zip(eqn.invars, link.operands)]
        results = [Var(self._type(v, axis)) for v, axis in zip(eqn.outvars, link.results)]
        params = link.params(self.step)
        found = eqn.primitive.abstract_eval(*(x.aval for x in operands), **params)  # type: ignore[misc]
        types = found if eqn.primitive.multiple_results else [found]
        if [(t.shape, t.dtype) for t in types] != [(r.aval.shape, r.aval.dtype) for r in results]:
            return False
        self.cut.update(zip(eqn.outvars, results, strict=True))
        self.body.append(eqn.replace(invars=operands, outvars=results, params=params))
        return True

    def _operand(self, x: Any, axis: int | None) -> Any:
        if not isinstance(x, Var):
            return x
        if axis is None:
            return self.consts.setdefault(x, Var(x.aval))
        if x in self.cut:
            return self.cut[x]
        found = Var(self._type(x, axis))
        if self._leads(x):
            return self.slices.setdefault(x, found)
        self.cut[x] = found
        self.slices[x] = Var(found.aval.update(shape=_permuted(found.aval.shape, axis)))
        order = _behind(axis, found.aval.ndim)
        self.body.append(self._transpose(self.slices[x], found, order))
        return found

    def _leads(self, v: Var) -> bool:
        """Whether members lie one behind the other."""
        return math.prod(v.aval.shape[: self.chain.axes[v]]) == 1

    def _in_front(self, x: Var, axis: int, eqns: list[JaxprEqn]) -> Var:
        """A variable with the batch axis in front, unless members lie behind each other anyway."""
        if math.prod(x.aval.shape[:axis]) == 1:
            return x
        found = Var(x.aval.update(shape=_permuted(x.aval.shape, axis)))
        eqns.append(self._transpose(x, found, _front(axis, x.aval.ndim)))
        return found

    def _joined(self, stack: Var, v: Var) -> Iterator[JaxprEqn]:
        """Equations that make a variable of the results of all steps."""
        axis = self.chain.axes[v]
        if self._leads(v):
            yield self._reshape(stack, v, v.aval.shape)
            return
        whole = Var(v.aval.update(shape=_permuted(v.aval.shape, axis)))
        yield self._reshape(stack, whole, whole.aval.shape)
        yield self._transpose(whole, v, _behind(axis, v.aval.ndim))

    def _transpose(self, source: Var, result: Var, order: Sequence[int]) -> JaxprEqn:
        params = {"permutation": tuple(order)}
        return JaxprEqn(Primitive.by_name["transpose"], [source], [result], params)

    def _type(self, v: Var, axis: int) -> ShapedArray:
        """The type of some members of a variable."""
        shape = v.aval.shape
        return v.aval.update(shape=(*shape[:axis], self.step, *shape[axis + 1 :]))

    def _stacked(self, v: Var) -> Var:
        """A variable for all steps of another, one behind the other."""
        axis = self.chain.axes[v]
        shape = self._type(v, axis).shape
        shape = shape if self._leads(v) else _permuted(shape, axis)
        return Var(v.aval.update(shape=(self.count, *shape)))

    def _split(self, variables: Iterable[Var]) -> tuple[list[JaxprEqn], list[Var]]:
        """Variables by steps of the loop, and the equations that make them."""
        eqns: list[JaxprEqn] = []
        stacks = []
        for v in variables:
            stacks.append(self._stacked(v))
            x = self._in_front(v, self.chain.axes[v], eqns)
            eqns.append(self._reshape(x, stacks[-1], stacks[-1].aval.shape))
        return eqns, stacks

    def _reshape(self, source: Var, result: Var, shape: Sequence[int]) -> JaxprEqn:
        params = {"new_sizes": tuple(shape), "dimensions": None, "sharding": None}
        return JaxprEqn(Primitive.by_name["reshape"], [source], [result], params)

    def _placed(self, loop: list[JaxprEqn]) -> list[JaxprEqn]:
        """All equations, with the loop in front of the first that needs it."""
        eqns, chain = self.search.eqns, self.chain
        made = {v for e in loop for v in e.outvars}
        needed: set[Var] = {x for e in loop for x in e.invars if isinstance(x, Var)} - made
        for i in reversed(range(len(eqns))):
            if i not in chain.links and needed.intersection(eqns[i].outvars):
                needed.update(x for x in eqns[i].invars if isinstance(x, Var))
        rest = [e for i, e in enumerate(eqns) if i not in chain.links]
        reads = (
            i for i, e in enumerate(rest) if any(isinstance(x, Var) and x in made for x in e.invars)
        )
        first = next(reads, len(rest))
        before = [e for e in rest[first:] if needed.intersection(e.outvars)]
        behind = [e for e in rest[first:] if not needed.intersection(e.outvars)]
        return [*rest[:first], *before, *loop, *behind]


def _front(axis: int, ndim: int) -> tuple[int, ...]:
    """The permutation that has an axis in front."""
    return (axis, *(d for d in range(ndim) if d != axis))


def _behind(axis: int, ndim: int) -> tuple[int, ...]:
    """The one that has the first axis at `axis` again."""
    return (*range(1, axis + 1), 0, *range(axis + 1, ndim))


def _permuted(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    return tuple(shape[d] for d in _front(axis, len(shape)))
