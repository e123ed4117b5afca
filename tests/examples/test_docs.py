"""Python blocks of the documentation run, from top to bottom of each page."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    "README.md",
    "docs/quickstart.md",
    "docs/training.md",
    "docs/layers.md",
    "docs/artifacts.md",
    "docs/quantize.md",
]


@pytest.mark.turns(2)
@pytest.mark.parametrize("page", PAGES)
def test_python_blocks(page, capsys):
    text = (ROOT / page).read_text()
    blocks = list(re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
    assert blocks
    names = {}
    for block in blocks:
        # Line numbers of the page, so that a failure shows where it is.
        lines = "\n" * text.count("\n", 0, block.start(1))
        exec(compile(lines + block[1], str(ROOT / page), "exec"), names)
    if page == "README.md":
        assert float(capsys.readouterr().out.split()[-1]) < 0.1
