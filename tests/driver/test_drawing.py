"""`read --svg` and `--graphviz`: what is drawn, and that nothing lies on anything."""

import itertools
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from amdjax.driver.drawing import _Place, _spread
from tests.driver.test_look import images

SVG = "{http://www.w3.org/2000/svg}"


def boxes(path):
    """Rectangles of nodes, by what their titles say."""
    found = {}
    for group in ElementTree.parse(path).iter(f"{SVG}g"):
        box = group.find(f"{SVG}rect")
        found[group.find(f"{SVG}title").text] = [
            float(box.get(k)) for k in ("x", "y", "width", "height")
        ]
    return found


def test_networks(network, ok, tmp_path):
    path = tmp_path / "network.svg"
    ok("read", network, "--svg", "-o", path, "--batch", 2)
    found = boxes(path)
    assert {"input x", "Conv stem", "Add body/add", "output probs"} <= set(found)
    assert found["Conv stem"][1] < found["MaxPool pool"][1] < found["Add body/add"][1]
    sizes = list(found.values())
    for i, (x, y, w, h) in enumerate(sizes):
        for u, v, m, n in sizes[:i]:
            assert x + w <= u or u + m <= x or y + h <= v or v + n <= y
    text = path.read_text()
    for shape in ("2×3×8×8", "2×8×4×4", "stem.w 8×3×3×3"):
        assert shape in text


def test_graphs_of_tensorflow(tmp_path, ok):
    path = tmp_path / "graph.pb"
    path.write_bytes(images().bytes())
    ok("read", path, "--svg", "-o", tmp_path / "graph.svg")
    found = boxes(tmp_path / "graph.svg")
    assert {"input x", "Relu y", "output y"} <= set(found)
    assert "1×6×6×4" in (tmp_path / "graph.svg").read_text()


def test_graphviz(network, ok):
    text = ok("read", network, "--graphviz")["text"]
    assert text.startswith("digraph {")
    assert len(re.findall(r"->", text)) == 12
    assert 'label="1×8×4×4"' in text


def test_a_picture_needs_a_file(network, amdjax_command):
    done = amdjax_command("read", network, "--svg")
    assert done.code == 2
    assert "-o graph.svg" in done.err


@pytest.mark.parametrize("seed", range(5))
def test_places_have_room_and_are_near_to_what_is_wanted(seed):
    draw = np.random.default_rng(seed)
    layer = [_Place(None, 0, float(w)) for w in draw.uniform(5, 60, 7)]
    wanted = np.sort(draw.uniform(0, 200, 7))
    _spread(layer, list(wanted))
    for p, q in itertools.pairwise(layer):
        assert q.x - p.x >= (p.width + q.width) / 2 + 18 - 1e-6
    lone = [_Place(None, 0, 10.0) for _ in range(3)]
    _spread(lone, [0.0, 100.0, 200.0])
    assert [p.x for p in lone] == [0.0, 100.0, 200.0]
