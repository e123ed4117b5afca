"""The doctor's report, and the processes in which it runs its checks."""

import io
import os
import re
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("hip", reason="needs hip-python", exc_type=ImportError)

import amdjax
from amdjax import doctor as doctor_room, targets
from amdjax.core.config import config
from amdjax.doctor import checks
from amdjax.doctor.report import Report
from amdjax.emulator.hip.library import emulated_hip
from amdjax.runtime.hip import driver as hip_driver


def run(*options: str, **environment: str) -> tuple[int, str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("AMDJAX_", "ROCM_"))}
    done = subprocess.run(
        [sys.executable, "-m", "amdjax.doctor", *options],
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert not done.stderr
    return done.returncode, done.stdout


@pytest.mark.turns(3)
def test_an_emulated_device_is_well():
    code, text = run(AMDJAX_EMULATE="gfx942")
    assert code == 0, text
    assert "Instinct MI300X (emulated), gfx942, 304 CUs" in text
    assert text.endswith("All well: amdjax can use emulated:0 (gfx942).\n")
    assert "hip-python" in text and "AMDJAX_EMULATE=gfx942" in text
    for check in checks.CHECKS:
        assert f"  {check.name} " in text
    assert re.search(r"copy within memory +\d+\.\d GB/s", text)


@pytest.mark.skipif(os.path.exists("/dev/kfd"), reason="there is a GPU")
def test_a_machine_without_gpu_and_library():
    code, text = run(AMDJAX_HIP_LIBRARY="/nowhere/libamdhip64.so")
    assert code == 1
    assert "! there is no AMD GPU" in text
    assert "1. There is no AMD GPU." in text and "AMDJAX_EMULATE=gfx942 emulates one" in text
    assert "2. The HIP runtime library does not load (/nowhere/libamdhip64.so: cannot open" in text
    assert "amdrocm-runtime" in text and "Self-test" not in text
    advice = text[text.index("What to do") :].splitlines()
    assert all(len(line) <= 100 for line in advice)


def test_a_target_that_does_not_exist():
    code, text = run("--no-self-test", AMDJAX_EMULATE="gfx943")
    assert code == 1 and "unknown GPU target 'gfx943'" in text


@pytest.fixture
def emulate():
    before = config.emulate
    config.update("emulate", "gfx1100")
    yield
    config.update("emulate", before)


def test_the_room_is_the_function(emulate):
    out = io.StringIO()
    assert amdjax.doctor(self_test=False, file=out) is True
    assert "gfx1100" in out.getvalue() and "Self-test" not in out.getvalue()
    with pytest.raises(TypeError, match="selftest"):
        amdjax.doctor(selftest=False)


def test_an_unsupported_device_is_named_with_its_reason(emulate, monkeypatch):
    strange = replace(targets.get("gfx942"), name="gfx943")
    amdjax.doctor(self_test=False, file=io.StringIO())
    ordinal = emulated_hip().runtime.add_device(strange, 1 << 20)
    monkeypatch.setattr(doctor_room, "_ordinals", lambda emulated, driver: [ordinal])
    out = io.StringIO()
    assert amdjax.doctor(self_test=False, file=out) is False
    assert f"device {ordinal} is not supported: unknown GPU target 'gfx943'" in out.getvalue()


def test_failed_checks_are_summed_up(emulate, monkeypatch):
    found = [
        checks.Outcome("sort", False, "WRONG: largest difference 1.0e+00"),
        checks.Outcome("loop", True, "equal"),
    ]
    monkeypatch.setattr(checks, "outcomes", lambda *args: iter(found))
    out = io.StringIO()
    assert amdjax.doctor(file=out) is False
    assert "WRONG: largest difference" in out.getvalue()
    assert f"failed 1 of {len(checks.CHECKS) + 1} checks: sort" in out.getvalue()


# Checks

LINE = "import json; print(json.dumps([{name!r}, True, 'equal']), flush=True)\n"


def starting(monkeypatch, program):
    """Let the processes run `program(names)` instead of checks."""

    def start(device, names, errors):
        command = [sys.executable, "-c", program(list(names))]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)

    monkeypatch.setattr(checks, "_start", start)


def test_a_process_that_dies_costs_one_check(monkeypatch):
    def program(names):
        dying = "import os, sys; print('Memory access fault', file=sys.stderr); os.abort()\n"
        return "".join(dying if n == "b" else LINE.format(name=n) for n in names)

    starting(monkeypatch, program)
    found = list(checks.outcomes("hip", 0, ["a", "b", "c"]))
    assert [(o.name, o.passed) for o in found] == [("a", True), ("b", False), ("c", True)]
    assert found[1].text == "FAILED: the process ended by SIGABRT; Memory access fault"


def test_a_check_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(checks, "_SECONDS_PER_CHECK", 1)
    starting(monkeypatch, lambda names: "import time; time.sleep(60)")
    (outcome,) = checks.outcomes("hip", 0, ["a"])
    assert not outcome.passed and "nothing came within 1 s" in outcome.text


@pytest.mark.parametrize(
    ("found", "expected", "worst"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.5], [1.0, 2.0], 0.25),
        ([0.5], [0.0], 0.5),
        ([np.nan], [1.0], np.inf),
        ([1.0], [np.nan], np.inf),
        ([1.0, 2.0], [1.0], np.inf),
        ([np.inf], [1.0], np.inf),
    ],
)
def test_differences(found, expected, worst):
    arrays = np.array(found, np.float32), np.array(expected, np.float32)
    assert checks._difference(*arrays) == worst


def test_a_wrong_result_is_told(monkeypatch):
    cpu = amdjax.devices("cpu")[0]
    check = checks.Check("off by one", lambda x: x, lambda rng: [np.arange(5)])
    assert checks._run(check, cpu, cpu).passed
    monkeypatch.setattr(checks, "_difference", lambda found, expected: 0.25)
    outcome = checks._run(check, cpu, cpu)
    assert not outcome.passed and outcome.text.startswith("WRONG: largest difference 2.5e-01")


@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda c: c.name)
def test_checks_run_where_they_are_compared(check):
    cpu = amdjax.devices("cpu")[0]
    outcome = checks._run(check, cpu, cpu)
    assert outcome.passed and outcome.text.startswith("equal")


def test_a_report_repeats_each_problem_once():
    out = io.StringIO()
    report = Report(out)
    for _ in range(2):
        report.problem("the lamp is broken", "Get another.")
    assert not report.conclude("fine")
    assert out.getvalue().count("The lamp is broken.\n     Get another.") == 1
    assert Report(out).conclude("fine")


# What users set, and mistype


def test_settings_that_do_not_exist():
    _, text = run("--no-self-test", AMDJAX_EMULATE="gfx942", AMDJAX_PLATFORM="emulated")
    advice = text[text.index("What to do") :]
    assert "There is no setting AMDJAX_PLATFORM.\n     Did you mean 'AMDJAX_PLATFORMS'?" in advice


def test_a_misspelled_platform_is_told_and_the_rest_goes_on():
    code, text = run(AMDJAX_EMULATE="gfx942", AMDJAX_PLATFORMS="emulate")
    assert code == 1 and "matrix product, f16" in text and "FAILED" not in text
    assert "there is no platform 'emulate'.\n     Did you mean 'emulated'?" in text


def test_platforms_that_keep_programs_away_are_told():
    code, text = run("--no-self-test", AMDJAX_EMULATE="gfx942", AMDJAX_PLATFORMS="cpu")
    assert code == 1
    assert "Programs run on cpu and not on emulated, since AMDJAX_PLATFORMS is 'cpu'." in text


@pytest.mark.skipif(os.path.exists("/dev/kfd"), reason="there is a GPU")
def test_platforms_count_before_emulation():
    _, text = run("--no-self-test", AMDJAX_EMULATE="gfx942", AMDJAX_PLATFORMS="hip")
    assert "there is no AMD GPU" in text and "the emulator" not in text


@pytest.mark.skipif(os.path.exists("/dev/kfd"), reason="there is a GPU")
def test_a_library_of_another_kind():
    _, text = run(AMDJAX_HIP_LIBRARY="libm.so.6")
    assert "2. The HIP runtime library does not load (libm.so.6 has no functions of HIP)." in text
    assert "amdrocm-runtime" in text


def test_hip_python_without_its_parts(monkeypatch):
    """As after an installation without dependencies."""

    def broken(name):
        raise ModuleNotFoundError("No module named 'rocm_parts'", name="rocm_parts")

    monkeypatch.setattr(hip_driver, "importlib", SimpleNamespace(import_module=broken))
    with pytest.raises(hip_driver.HipUnavailable, match=r"rocm_parts'\. Install it anew"):
        hip_driver.load_hip_python()


def test_help_is_for_people():
    code, text = run("--help")
    assert code == 0 and "Report on AMD GPUs" in text and ">>>" not in text


def test_arguments_of_the_function():
    with pytest.raises(TypeError, match=r"file must be an open text file, got 'report\.txt'"):
        amdjax.doctor(file="report.txt")
    with pytest.raises(TypeError, match=r"^doctor\(\) takes 0 positional arguments"):
        amdjax.doctor(False)


@pytest.mark.parametrize(
    "what, sentence",
    [
        ("there is no GPU", "There is no GPU."),
        ("hip-python is not there.", "hip-python is not there."),
        ("/dev/kfd is closed", "/dev/kfd is closed."),
        ("hip:0 failed", "hip:0 failed."),
    ],
)
def test_sentences_begin_with_capitals_where_names_do_not(what, sentence):
    out = io.StringIO()
    report = Report(out)
    report.problem(what)
    report.conclude("")
    assert f"  1. {sentence}\n" in out.getvalue()


@pytest.mark.turns(3)
def test_little_memory_and_another_generator_are_no_problems():
    settings = {"AMDJAX_EMULATE_MEMORY": "1M", "AMDJAX_DEFAULT_PRNG_IMPL": "rbg"}
    code, text = run(AMDJAX_EMULATE="gfx1100", **settings)
    assert code == 0, text


def test_long_names_of_rows_keep_their_distance():
    out = io.StringIO()
    Report(out).row("/dev/dri/renderD128", "group render")
    assert out.getvalue() == "  /dev/dri/renderD128 group render\n"
