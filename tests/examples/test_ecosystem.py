"""What `tools/ecosystem.py` does with libraries is what JAX's numbers were recorded for."""

import importlib.util
import json
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"


def test_every_use_has_recorded_numbers():
    spec = importlib.util.spec_from_file_location("uses", TOOLS / "ecosystem_uses.py")
    uses = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(uses)
    names = {use.__name__ for each in uses.USES.values() for use in each}
    assert names == set(json.loads((TOOLS / "ecosystem.json").read_text()))
