"""Graphs as pictures: layers from top to bottom, types on edges, colors by kind.

Nodes are put into layers by their longest way from an input. Edges over several layers pass through
points in each. Within layers nodes are ordered by the mean place of their neighbors, a few times
down and up, and then moved toward these places as far as there is room (Sugiyama, Tagawa & Toda,
1981).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from amdjax.driver.graphs import Box, Drawn

COLORS = {
    "end": "#e8e8e8", "convolution": "#9ecae1", "product": "#a1d99b", "normalization": "#dadaeb",
    "pooling": "#fdd0a2", "recurrent": "#fcbba1", "reduction": "#fee391", "activation": "#fa9fb5",
    "movement": "#f7f7f7", "quantization": "#c7e9b4", "arithmetic": "#ffffcc",
}  # fmt: skip
LINE, PAD, GAP, BETWEEN = 14, 8, 18, 44
ROUNDS = 8


@dataclass(eq=False)
class _Place:
    """A node of the drawing, or a point of an edge where there is no box."""

    box: Box | None
    layer: int
    width: float
    above: list[_Place] = field(default_factory=list)
    below: list[_Place] = field(default_factory=list)
    x: float = 0.0


def graphviz(graph: Drawn) -> str:
    """The graph in Graphviz' language."""
    numbers = {id(b): n for n, b in enumerate(graph.boxes)}
    lines = ["digraph {", '  node [shape=box style="rounded,filled" fontname="sans-serif"]']
    for box in graph.boxes:
        label = "\\n".join(_quoted(t) for t in _lines(box))
        lines.append(f'  n{numbers[id(box)]} [label="{label}" fillcolor="{COLORS[box.kind]}"]')
    for source, to, value in _edges(graph):
        label = _quoted(graph.types.get(value, ""))
        lines.append(f'  n{numbers[id(source)]} -> n{numbers[id(to)]} [label="{label}"]')
    return "\n".join([*lines, "}"])


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _lines(box: Box) -> list[str]:
    named = [box.name] if box.name and box.name != box.op else []
    return [box.op, *(t if len(t) <= 36 else f"{t[:17]}…{t[-18:]}" for t in (*named, *box.details))]


def _edges(graph: Drawn) -> list[tuple[Box, Box, str]]:
    makers = {value: box for box in graph.boxes for value in box.makes}
    return [
        (makers[value], box, value)
        for box in graph.boxes for value in dict.fromkeys(box.reads) if value in makers
    ]  # fmt: skip


def svg(graph: Drawn) -> str:
    """The graph as a picture that browsers show."""
    edges = _edges(graph)
    places = {id(b): _Place(b, 0, _width(b)) for b in graph.boxes}
    for source, to, _ in edges:  # boxes come in the order in which they can be computed
        places[id(to)].layer = max(places[id(to)].layer, places[id(source)].layer + 1)
    _lower_inputs(graph, edges, places)
    ways = []
    told: set[tuple[int, str]] = set()  # values whose type stands on an edge
    everything = list(places.values())
    for source, to, value in edges:
        way = [places[id(source)]]
        for layer in range(way[0].layer + 1, places[id(to)].layer):
            way.append(_Place(None, layer, 6.0))
            everything.append(way[-1])
        way.append(places[id(to)])
        for upper, lower in itertools.pairwise(way):
            upper.below.append(lower)
            lower.above.append(upper)
        is_new = (id(source), value) not in told
        told.add((id(source), value))
        ways.append((way, graph.types.get(value, "") if is_new else ""))
    depth = 1 + max((p.layer for p in everything), default=0)
    layers: list[list[_Place]] = [[] for _ in range(depth)]
    for p in everything:
        layers[p.layer].append(p)
    _arrange(layers)
    tops, height = _tops(layers)
    return _picture(graph, layers, ways, tops, height)


def _lower_inputs(
    graph: Drawn, edges: Sequence[tuple[Box, Box, str]], places: dict[int, _Place]
) -> None:
    """Put what nothing precedes right above its first reader."""
    readers: dict[int, list[int]] = {}
    for source, to, _ in edges:
        readers.setdefault(id(source), []).append(places[id(to)].layer)
    has_above = {id(to) for _, to, _ in edges}
    for box in graph.boxes:
        if id(box) not in has_above and id(box) in readers:
            places[id(box)].layer = min(readers[id(box)]) - 1


def _width(box: Box) -> float:
    return 2 * PAD + 7.0 * max(map(len, _lines(box)))


def _height(box: Box | None) -> float:
    return 0.0 if box is None else 2 * PAD + LINE * len(_lines(box)) - 4


def _arrange(layers: list[list[_Place]]) -> None:
    """Order the places of each layer, and give them their middles."""
    for layer in layers:
        _spread(layer, [0.0] * len(layer))
    for n in range(ROUNDS):
        down = n % 2 == 0
        for layer in layers if down else reversed(layers):
            near = lambda p, down=down: p.above if down else p.below
            wanted = {
                id(p): sum(q.x for q in near(p)) / len(near(p)) if near(p) else p.x for p in layer
            }
            layer.sort(key=lambda p: wanted[id(p)])
            _spread(layer, [wanted[id(p)] for p in layer])


def _spread(layer: Sequence[_Place], wanted: Sequence[float]) -> None:
    """Put places, in their order, as near to what is wanted as there is room.

    Least squares: neighbors that would overlap become a block, which lies where its members want
    it to lie in the mean.
    """
    blocks: list[list[float]] = []  # sum of wanted starts, number of places, width
    for p, middle in zip(layer, wanted):
        block = [middle - p.width / 2, 1.0, p.width + GAP]
        while blocks and blocks[-1][0] / blocks[-1][1] + blocks[-1][2] > block[0] / block[1]:
            last = blocks.pop()
            moved = block[0] - block[1] * last[2]
            block = [last[0] + moved, last[1] + block[1], last[2] + block[2]]
        blocks.append(block)
    members = iter(layer)
    for total, count, _ in blocks:
        at = total / count
        for _ in range(round(count)):
            p = next(members)
            p.x = at + p.width / 2
            at += p.width + GAP


def _tops(layers: Sequence[Sequence[_Place]]) -> tuple[list[float], float]:
    """Where layers begin, and how high all are."""
    tops, at = [], float(GAP)
    for layer in layers:
        tops.append(at)
        at += max((_height(p.box) for p in layer), default=0.0) + BETWEEN
    return tops, at - BETWEEN + GAP


def _picture(graph: Drawn, layers: list[list[_Place]], ways: list[tuple[list[_Place], str]],
             tops: list[float], height: float) -> str:  # fmt: skip
    everything = [p for layer in layers for p in layer]
    left = min((p.x - p.width / 2 for p in everything), default=0.0) - GAP
    right = max((p.x + p.width / 2 for p in everything), default=0.0) + GAP
    legend = sorted({p.box.kind for p in everything if p.box is not None} - {"end"})
    width = max(right - left, 96.0 * len(legend) + 2 * GAP)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height + 30:.0f}" '
        f'viewBox="{left:.0f} -30 {width:.0f} {height + 30:.0f}" font-family="sans-serif">',
        f"<title>{escape(graph.name)}</title>",
        f'<rect x="{left:.0f}" y="-30" width="100%" height="100%" fill="white"/>',
    ]
    for n, kind in enumerate(legend):
        x = left + GAP + 96 * n
        lines.append(f'<rect x="{x:.0f}" y="-22" width="12" height="12" rx="3" stroke="#777" '
                     f'fill="{COLORS[kind]}"/>')  # fmt: skip
        lines.append(f'<text x="{x + 16:.0f}" y="-12" font-size="11">{kind}</text>')
    lines += [_line(way, text, tops) for way, text in ways]
    lines += [_drawn(p, tops) for p in everything if p.box is not None]
    return "\n".join([*lines, "</svg>"])


def _drawn(p: _Place, tops: list[float]) -> str:
    box = p.box
    assert box is not None
    top, x = tops[p.layer], p.x - p.width / 2
    parts = [
        f"<g><title>{escape(f'{box.op} {box.name}')}</title>",
        f'<rect x="{x:.1f}" y="{top:.1f}" width="{p.width:.1f}" height="{_height(box):.1f}" rx="5" '
        f'fill="{COLORS[box.kind]}" stroke="#777"/>',
    ]
    for n, text in enumerate(_lines(box)):
        style = 'font-size="13" font-weight="bold"' if n == 0 else 'font-size="11" fill="#444"'
        y = top + PAD + LINE * n + 10
        parts.append(f'<text x="{p.x:.1f}" y="{y:.1f}" text-anchor="middle" {style}>'
                     f"{escape(text)}</text>")  # fmt: skip
    return "".join([*parts, "</g>"])


def _line(way: list[_Place], text: str, tops: list[float]) -> str:
    """An edge as a curve, its type where it leaves its source."""
    first, last = way[0], way[-1]
    x, y = first.x, tops[first.layer] + _height(first.box)
    path = [f"M{x:.1f} {y:.1f}"]
    for p in way[1:]:
        to = tops[p.layer]
        bend = (to - y) / 2
        path.append(f"C{x:.1f} {y + bend:.1f} {p.x:.1f} {to - bend:.1f} {p.x:.1f} {to:.1f}")
        x, y = p.x, to
        if p.box is None:  # past the boxes of its layer
            y = tops[p.layer + 1] - BETWEEN
            path.append(f"L{x:.1f} {y:.1f}")
    end = tops[last.layer]
    tip = f"M{last.x - 4:.1f} {end - 7:.1f}L{last.x:.1f} {end:.1f}L{last.x + 4:.1f} {end - 7:.1f}"
    lines = f'<path d="{"".join(path)}" fill="none" stroke="#777"/>'
    lines += f'<path d="{tip}" fill="none" stroke="#777"/>'
    if text:
        middle = (first.x + way[1].x) / 2
        at = tops[first.layer] + _height(first.box)
        at = (at + tops[way[1].layer]) / 2
        lines += f'<text x="{middle + 4:.1f}" y="{at + 4:.1f}" font-size="10" fill="#06c">'
        lines += f"{escape(text)}</text>"
    return lines
