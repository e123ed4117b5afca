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


@pytest.mark.parametrize("share", [1, 2, 3, 4, 5])
def test_both_waves_see_all_cases_in_some_commits(share, monkeypatch):
    for function in ("test_values", "test_rules", "test_of_another_name"):
        for case in range(20):
            runs = [due(function, case, share, r, monkeypatch) for r in range(2 * share)]
            assert all(targets[0] == "cpu" for targets in runs)
            for target in conftest.EMULATED:
                assert sum(target in targets for targets in runs) == 1


@pytest.mark.parametrize("share", [2, 5])
def test_all_cases_run_on_some_further_target(share, monkeypatch):
    turns = 10 * share * conftest.SAMPLED_SHARE
    for case in range(9):
        runs = [due("test_x", case, share, r, monkeypatch) for r in range(turns)]
        found = {target for targets in runs for target in targets}
        assert found == {"cpu", *conftest.EMULATED, *conftest.SAMPLED}
