"""Cases on emulated GPUs take turns from commit to commit, and none is left out."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import conftest


def due(function, case, share, rotation, monkeypatch):
    """The targets on which a case runs at a rotation."""
    monkeypatch.setenv("AMDJAX_TEST_ROTATION", str(rotation))
    mark = SimpleNamespace(args=(share,))

    def item(target):
        return SimpleNamespace(
            nodeid=f"tests/lax/test_x.py::{function}[{target}-{case}]",
            path=Path("tests/lax/test_x.py"),
            callspec=SimpleNamespace(params={"device": target}),
            get_closest_marker={"share": mark}.get,
        )

    targets = conftest.emulated(f"test_x.py::{function}")
    return [target for target in ("cpu", *targets) if conftest.is_due(item(target))]


@pytest.mark.parametrize("share", [1, 2, 3, 4])
def test_both_waves_see_all_cases_in_ten_commits(share, monkeypatch):
    for function in ("test_values", "test_rules", "test_of_another_name"):
        for case in range(20):
            runs = [due(function, case, share, r, monkeypatch) for r in range(10)]
            assert all(targets[0] == "cpu" for targets in runs)
            for target in conftest.EMULATED:
                assert 5 // share <= sum(target in targets for targets in runs) <= -(-5 // share)


def test_some_cases_run_on_further_targets(monkeypatch):
    runs = {t for c in range(99) for r in range(10) for t in due("test_x", c, 2, r, monkeypatch)}
    assert runs == {"cpu", *conftest.EMULATED, *conftest.SAMPLED}
