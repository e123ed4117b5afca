"""Control flow of old graphs: loops made of frames, and branches between Switch and Merge.

What is here only looks at messages: which nodes are a loop's variables, and which a branch begins
and ends with. `inlining` makes graphs of them, as of the functions of newer control flow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .errors import InvalidGraph

ENTERS, EXITS = ("Enter", "RefEnter"), ("Exit", "RefExit")
MERGES, SWITCHES = ("Merge", "RefMerge"), ("Switch", "RefSwitch")
_NEXT = ("NextIteration", "RefNextIteration")
_PASSING = ("Identity", "RefIdentity")


class Loop(NamedTuple):
    """A loop; nodes by their names, of variables in one order.

    Attributes:
      name: of the frame.
      enters: what variables begin with.
      merges: what they are as a step begins.
      taken: what they are where the loop goes on: Switches, or merges without one.
      nexts: what they are in the next step, as inputs are written.
      exits: which variable is what leaves the loop, by its node.
      constants: what all steps read.
      condition: whether the loop goes on, as inputs are written.
    """

    name: str
    enters: tuple[str, ...]
    merges: tuple[str, ...]
    taken: tuple[str, ...]
    nexts: tuple[str, ...]
    exits: Mapping[str, int]
    constants: tuple[str, ...]
    condition: str


class Branches(NamedTuple):
    """What meets in a Merge.

    Attributes:
      predicate: which branch is taken, as inputs are written.
      switches: where branches begin.
      edges: what they end with, where the predicate is false and where it is true.
      places: which inputs of the Merge these are.
    """

    predicate: str
    switches: tuple[str, ...]
    edges: tuple[str, str]
    places: tuple[int, int]


def loops_of(nodes: Mapping[str, Any]) -> dict[str, Loop]:
    """The loops of a graph's nodes, by the nodes by which values leave them."""
    frames: dict[str, list[str]] = {}
    readers: dict[str, list[str]] = {}
    for name, node in nodes.items():
        if node.op in ENTERS:
            frames.setdefault(node.attr["frame_name"].s.decode("utf-8", "replace"), []).append(name)
        for text in node.input:
            readers.setdefault(_name(text), []).append(name)
    found: dict[str, Loop] = {}
    for frame, enters in frames.items():
        loop = _loop(frame, enters, nodes, readers)
        found.update(dict.fromkeys(loop.exits, loop))
    return found


def _loop(
    frame: str, enters: Sequence[str], nodes: Mapping[str, Any], readers: Mapping[str, list[str]]
) -> Loop:
    def reader(name: str, ops: Collection[str]) -> list[str]:
        return [r for r in readers.get(name, ()) if nodes[r].op in ops]

    variables = [e for e in enters if reader(e, MERGES)]
    merges = [_only(f"loop {frame!r}: Merges of {e!r}", reader(e, MERGES)) for e in variables]
    nexts, taken = list[str](), list[str]()
    exits, conditions = dict[str, int](), set[str]()
    for i, merge in enumerate(merges):
        after = [t for t in nodes[merge].input if _op(nodes, t) in _NEXT]
        nexts.append(nodes[_name(_only(f"loop {frame!r}: steps of {merge!r}", after))].input[0])
        switches = reader(merge, SWITCHES)
        taken.append(switches[0] if switches else merge)
        for switch in switches[:1]:
            conditions.add(_behind(nodes, nodes[switch].input[1]))
            exits.update((e, i) for e in reader(switch, EXITS))
    condition = _only(f"loop {frame!r}: conditions", sorted(conditions))
    if _op(nodes, condition) != "LoopCond":
        raise InvalidGraph(f"loop {frame!r}: {condition!r} is no LoopCond")
    constants = tuple(e for e in enters if e not in variables)
    return Loop(
        frame, tuple(variables), tuple(merges), tuple(taken), tuple(nexts), exits, constants,
        nodes[_name(condition)].input[0],
    )  # fmt: skip


def branches_of(
    merge: str, nodes: Mapping[str, Any], given: Collection[str], loops: Mapping[str, Loop]
) -> Branches:
    """The branches that meet in a Merge.

    Args:
      merge: its name.
      nodes: those of the graph.
      given: names of nodes that are given, behind which nothing is looked at.
      loops: those of the graph, by what leaves them.
    """
    edges = [t for t in nodes[merge].input if not t.startswith("^")]
    if len(edges) != 2:
        raise InvalidGraph(f"node {merge!r} (Merge): {len(edges)} values meet, expected 2")
    begins = [list(_begins(edge, nodes, given, loops)) for edge in edges]
    sides = [{side for _, side in begin} for begin in begins]
    if sides[0] == set() and len(sides[1]) == 1:  # a constant, which is taken else
        sides[0] = {1 - next(iter(sides[1]))}
    if sides[1] == set() and len(sides[0]) == 1:
        sides[1] = {1 - next(iter(sides[0]))}
    switches = tuple(dict.fromkeys(s for begin in begins for s, _ in begin))
    predicates = {_behind(nodes, nodes[s].input[1]) for s in switches}
    if [len(s) for s in sides] != [1, 1] or sides[0] == sides[1] or len(predicates) != 1:
        raise InvalidGraph(
            f"node {merge!r} (Merge): its inputs are no two branches of one predicate"
        )
    first = next(iter(sides[0]))  # of the first input
    ordered = (edges[0], edges[1]) if first == 0 else (edges[1], edges[0])
    return Branches(
        nodes[switches[0]].input[1], switches, ordered, (0, 1) if first == 0 else (1, 0)
    )


def _begins(
    edge: str, nodes: Mapping[str, Any], given: Collection[str], loops: Mapping[str, Loop]
) -> Iterator[tuple[str, int]]:
    """The Switches that a branch begins with, and which of their outputs it reads."""
    waiting, seen = [(edge, 0)], set[tuple[str, int]]()
    while waiting:
        text, depth = waiting.pop()
        name = _name(text)
        if (text, depth) in seen or name in given or name not in nodes:
            continue
        seen.add((text, depth))
        node = nodes[name]
        inputs = list(node.input)
        if node.op in SWITCHES:
            if depth == 0:
                if not text.startswith("^"):
                    yield name, int(text.endswith(":1"))
                continue
            depth -= 1
        elif node.op in MERGES:
            depth += 1
        elif node.op in EXITS and name in loops:
            loop = loops[name]
            inputs = [nodes[e].input[0] for e in (*loop.enters, *loop.constants)]
        waiting += [(t.replace("^", ""), depth) for t in inputs]


def _behind(nodes: Mapping[str, Any], text: str) -> str:
    """The output that identities pass on."""
    seen = set[str]()
    while _op(nodes, text) in _PASSING and text not in seen:
        seen.add(text)
        text = nodes[_name(text)].input[0]
    return text.removesuffix(":0")


def _name(text: str) -> str:
    return text.lstrip("^").split(":")[0]


def _op(nodes: Mapping[str, Any], text: str) -> str:
    node = nodes.get(_name(text))
    return "" if node is None else str(node.op)


def _only(what: str, found: Sequence[str]) -> str:
    if len(found) != 1:
        raise InvalidGraph(f"{what}: expected one, found {len(found)}")
    return found[0]
