"""Cases take turns from commit to commit, and none is left out."""

import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import conftest
from tests.support.turns import in_turn


class Item(SimpleNamespace):
    """What a rotation asks of a case."""

    __hash__ = object.__hash__


def item(function, case=None, **marks):
    """A case of a test; one without parameters where `case` is None."""
    if case is None:
        parameters = {}
    else:
        parameters = {"callspec": SimpleNamespace(params={"device": case.split("-")[0]})}
    return Item(
        nodeid=f"tests/lax/test_x.py::{function}" + (f"[{case}]" if case else ""),
        path=Path("tests/lax/test_x.py"),
        get_closest_marker={name: SimpleNamespace(args=(n,)) for name, n in marks.items()}.get,
        **parameters,
    )


def due(function, case, share, rotation, monkeypatch):
    """The targets on which a case runs at a rotation."""
    monkeypatch.setenv("AMDJAX_TEST_ROTATION", str(rotation))
    targets = ("cpu", *conftest.emulated(f"test_x.py::{function}"))
    items = [item(function, f"{target}-{case}", share=share) for target in targets]
    return [case.callspec.params["device"] for case in conftest.those_due(items)]


@pytest.mark.parametrize("share", [1, 2, 3, 4, 5])
def test_both_waves_see_all_cases_in_some_commits(share, monkeypatch):
    for function in ("test_values", "test_rules", "test_of_another_name"):
        for case in range(20):
            runs = [due(function, case, share, r, monkeypatch) for r in range(2 * share)]
            assert all("cpu" in targets for targets in runs)
            for target in conftest.EMULATED:
                assert sum(target in targets for targets in runs) == 1


@pytest.mark.parametrize("share", [2, 5])
def test_all_cases_run_on_some_further_target(share, monkeypatch):
    turns = 10 * share * conftest.SAMPLED_SHARE
    for case in range(9):
        runs = [due("test_x", case, share, r, monkeypatch) for r in range(turns)]
        found = {target for targets in runs for target in targets}
        assert found == {"cpu", *conftest.EMULATED, *conftest.SAMPLED}


@pytest.mark.parametrize("share", [1, 2, 3, 7])
def test_each_commit_runs_cases_of_every_test(share, monkeypatch):
    for function, count in (("test_values", 1), ("test_rules", 2), ("test_of_another_name", 20)):
        cases = [item(function, f"cpu-{i}", turns=share, share=5) for i in range(count)]
        most, found = -(-count // share), set()
        for rotation in range(0, 2520, 21):
            monkeypatch.setenv("AMDJAX_TEST_ROTATION", str(rotation))
            run = {case.nodeid for case in conftest.those_due(cases)}
            assert max(most - 1, 1) <= len(run) <= most
            found |= run
        assert found == {case.nodeid for case in cases}


def test_marked_tests_without_parameters_run_at_some_commits(monkeypatch):
    marked = [item(f"test_{i}", turns=3) for i in range(9)]
    others = [item("test_of_no_mark"), item("test_values", "cpu-0", turns=3)]
    runs = []
    for rotation in range(3):
        monkeypatch.setenv("AMDJAX_TEST_ROTATION", str(rotation))
        runs.append({case.nodeid for case in conftest.those_due([*marked, *others])})
    for case in marked:
        assert sum(case.nodeid in run for run in runs) == 1
        assert conftest.those_due([case]) == [case], "named alone"
    assert all(case.nodeid in run for run in runs for case in others)


@pytest.mark.parametrize("offset", [0, 1, "a test"])
@pytest.mark.parametrize("share", [2, 3, 4, 5, 10])
def test_lists_within_lists_leave_none_out(share, offset, monkeypatch):
    """Parameters in turn of a test whose cases take turns, which takes a list in turn."""
    found = set()
    for rotation in range(2520):
        monkeypatch.setenv("AMDJAX_TEST_ROTATION", str(rotation))
        outer = in_turn(range(40), share)
        for case in in_turn(outer, share, "test_of_them"):
            found |= {(case, inner) for inner in in_turn(range(4), 2, offset)}
    assert found == set(itertools.product(range(40), range(4)))


@pytest.mark.parametrize("count", [1, 4, 9])
def test_tests_that_share_a_list_try_all_of_it(count):
    cases = range(count)
    assert {x for i in range(3) for x in in_turn(cases, 3, i)} == set(cases)
