"""Products and what lies between them as one equation, where the machine has a kernel for it.

In `f(a @ b) @ c` what is between the products may be larger than all that they read and write, and
goes through memory several times if each step is a kernel. An equation `product_chain` has a
product and, of its one operand, all that is made of other products and read by nothing else:
elementwise work, reductions, values that are cheaper to compute again than to read. Its parameter
is the program that it stands for. Attention in forms that no pattern knows is one, and so are two
layers of a network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from amdjax.core.aval import ShapedArray
from amdjax.core.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun
from amdjax.core.lowering import Element, Pointwise, Reduce, Shaped
from amdjax.core.primitive import Primitive
from amdjax.passes.cleanup import eliminate_dead_code
from amdjax.passes.loop_residuals import Cost

__all__ = ["fuse_product_chains", "product_chain_p"]

product_chain_p = Primitive("product_chain")


@product_chain_p.def_abstract_eval
def _product_chain_type(*avals: Any, jaxpr: ClosedJaxpr) -> ShapedArray:
    return jaxpr.out_avals[0]


def _flops(eqn: JaxprEqn) -> float:
    """Of an element of the result, for all products."""
    products = [e for e in eqn.params["jaxpr"].eqns if e.primitive.name == "dot_general"]
    total = sum(e.primitive.lowering.flops(e) * e.outvars[0].aval.size for e in products)
    return total / max(eqn.outvars[0].aval.size, 1)


product_chain_p.lowering = Shaped(
    "product_chain", epilogue=True, flops=_flops,
    composed=lambda *args, jaxpr: jaxpr_as_fun(jaxpr)(*args),
)  # fmt: skip


#: Elements between products in a loop's body at least; those of less may be one launch with it.
LEAST_IN_LOOPS = 1 << 20
#: Cost of an element made of places and numbers up to which it is computed wherever it is read.
MOST_AGAIN = 20


def fuse_product_chains(
    closed: ClosedJaxpr, has_kernels: Callable[[JaxprEqn], bool], cost_again: Cost, least: int = 0
) -> ClosedJaxpr:
    """Chains of products as equations of their own.

    Args:
      closed: a flat program, simplified.
      has_kernels: whether the machine has kernels for an equation, and gains by them.
      cost_again: of computing an element that an equation makes again, in additions.
      least: elements between products at least.
    """
    if sum(e.primitive.name == "dot_general" for e in closed.eqns) < 2:
        return closed
    search = _Search(closed, cost_again)
    found: dict[int, JaxprEqn | None] = {}
    taken: set[int] = set()
    for i, eqn in enumerate(closed.eqns):
        if eqn.primitive.name != "dot_general" or i in taken or not _is_sized(eqn):
            continue
        for operand in eqn.invars:
            numbers = search.between(i, operand) if operand.aval.size >= least else []
            if not numbers or not taken.isdisjoint(numbers):
                continue
            numbers += [i, *search.behind(i)]
            if has_kernels(chain := search.chain(numbers)):
                found |= {**dict.fromkeys(numbers), numbers[-1]: chain}
                taken.update(numbers)
                break
    if not found:
        return closed
    eqns = [e for i, old in enumerate(closed.eqns) if (e := found.get(i, old)) is not None]
    return eliminate_dead_code(closed.replace(jaxpr=closed.jaxpr.replace(eqns=eqns)))


class _Search:
    """Looks for chains in a program."""

    def __init__(self, closed: ClosedJaxpr, cost_again: Cost):
        self.eqns, self.cost_again = closed.eqns, cost_again
        self.outs = {x for x in closed.jaxpr.outvars if isinstance(x, Var)}
        self.readers: dict[Var, set[int]] = {}
        self.of_products: set[Var] = set()  # products, and what is made of such
        self.of_nothing: dict[Var, float] = {}  # the cost of what is made of places and numbers
        for i, eqn in enumerate(self.eqns):
            variables = {x for x in eqn.invars if isinstance(x, Var)}
            for x in variables:
                self.readers.setdefault(x, set()).add(i)
            follows = _is_computed(eqn) and not self.of_products.isdisjoint(variables)
            if follows or eqn.primitive.name == "dot_general":
                self.of_products.update(eqn.outvars)
            elif variables <= self.of_nothing.keys():
                cost = cost_again(eqn) + sum(self.of_nothing[x] for x in variables)
                self.of_nothing.update(dict.fromkeys(eqn.outvars, cost))

    def between(self, last: int, operand: Any) -> list[int]:
        """The equations, in order, that make an operand of a product in its kernel."""
        if operand not in self.of_products or self.readers[operand] != {last}:
            return []
        needed, numbers = {operand}, {last}
        has_product = False
        for i in range(last - 1, -1, -1):
            eqn = self.eqns[i]
            if needed.isdisjoint(eqn.outvars) or not self._belongs(eqn, numbers):
                continue
            numbers.add(i)
            if self._is_product(i):
                has_product = True
            else:
                needed.update(x for x in eqn.invars if isinstance(x, Var))
        numbers.discard(last)
        return sorted(numbers) if has_product and self._is_open(last, operand, numbers) else []

    def _is_open(self, last: int, operand: Any, numbers: set[int]) -> bool:
        """Whether products read nothing of the chain, but for that operand of the last one."""
        made = {v for i in numbers for v in self.eqns[i].outvars}
        read = [x for i in numbers if self._is_product(i) for x in self.eqns[i].invars]
        others = [x for x in self.eqns[last].invars if x is not operand]
        return len(others) == 1 and made.isdisjoint(
            x for x in (*read, *others) if isinstance(x, Var)
        )

    def _is_product(self, i: int) -> bool:
        return self.eqns[i].primitive.name == "dot_general"

    def _belongs(self, eqn: JaxprEqn, numbers: set[int]) -> bool:
        if len(eqn.outvars) != 1 or not _is_sized(eqn):
            return False
        (result,) = eqn.outvars
        if result in self.of_products:
            own = result not in self.outs and self.readers[result] <= numbers
            return own and (_is_computed(eqn) or eqn.primitive.name == "dot_general")
        return self.of_nothing.get(result, math.inf) <= MOST_AGAIN or self._is_spread(eqn, numbers)

    def _is_spread(self, eqn: JaxprEqn, numbers: set[int]) -> bool:
        """Whether a value is rather computed than read, which is no smaller than its operands."""
        (result,), rule = eqn.outvars, eqn.primitive.lowering
        if self.cost_again(eqn) == math.inf:
            return False
        if result.aval.size > sum(x.aval.size for x in eqn.invars):
            return True
        alike = isinstance(rule, Pointwise) or (isinstance(rule, Element) and rule.keeps_order)
        return alike and result not in self.outs and self.readers[result] <= numbers

    def behind(self, last: int) -> list[int]:
        """What only stores a product in another order, if that is all that reads it."""
        (result,) = self.eqns[last].outvars
        readers = self.readers.get(result, set())
        if result in self.outs or len(readers) != 1:
            return []
        return [i for i in readers if self.eqns[i].primitive.name == "transpose"]

    def chain(self, numbers: Sequence[int]) -> JaxprEqn:
        """The equation of a chain."""
        eqns = [self.eqns[i] for i in numbers]
        made = {v for e in eqns for v in e.outvars}
        reads = dict.fromkeys(x for e in eqns for x in e.invars if not isinstance(x, Literal))
        operands = [x for x in reads if x not in made]
        last = eqns[-1]
        inner = ClosedJaxpr(Jaxpr((), operands, last.outvars, eqns, None), ())
        params = {"jaxpr": inner}
        return JaxprEqn(product_chain_p, operands, last.outvars, params, source=last.source)


def _is_computed(eqn: JaxprEqn) -> bool:
    """Whether elements are computed of elements, or combined."""
    return isinstance(eqn.primitive.lowering, (Pointwise, Element, Reduce)) and not eqn.effects


def _is_sized(eqn: JaxprEqn) -> bool:
    """Whether shapes are numbers."""
    return all(isinstance(n, int) for x in (*eqn.invars, *eqn.outvars) for n in x.aval.shape)
