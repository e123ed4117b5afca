"""What is typed: help, typos, files that are none. One line each, and exit code 2."""

import json
import subprocess
import sys

import pytest

from amdjax.driver.tables import COMMANDS, GROUPS, MEANINGLESS
from tests.support import model_files

TYPOS = [
    (["raed", "MODEL"], "Did you mean 'read'?"),
    (["run"], "no FILE is named"),
    (["run", "MODEL", "other.onnx"], "takes one FILE"),
    (["ops", "MODEL"], "takes no FILE"),
    (["run", "MODEL", "--bath", "3"], "Did you mean '--batch'?"),
    (["read", "MODEL", "--fill0", "x"], "a flag of compile"),
    (["run", "MODEL", "--batch", "three"], "--batch takes an integer"),
    (["run", "MODEL", "--batch", "0"], "at least 1"),
    (["run", "MODEL", "--batch"], "--batch"),
    (["run", "MODEL", "--seed", "-1"], "--seed"),
    (["run", "MODEL", "--input-dim", "@y", "2", "4"], "there is no input 'y'"),
    (["run", "MODEL", "--input-dim", "2", "4"], "takes @NAME first"),
    (["run", "MODEL", "--input-dim", "@x", "2", "four"], "'four' is no size"),
    (["run", "MODEL", "--input-dim", "@x", "2"], "has 2 axes"),
    (["run", "MODEL", "--input-dim", "@x", "2", "5"], "axis 1 has 4 elements"),
    (["run", "MODEL", "--dyn-input-dim", "@x", "1..", "4"], "no size, name, or range"),
    (["run", "MODEL", "--dim-param", "@m", "2"], "Dimensions: n"),
    (["run", "MODEL", "--dim-param", "@n", "2", "3"], "takes one size"),
    (["run", "MODEL", "--fill0", "xx"], "Did you mean 'x'?"),
    (["run", "MODEL", "--fill1", "q"], "no input 'q'"),
    (["run", "MODEL", "--load-arg", "@x", "nothing.npy"], "no file 'nothing.npy'"),
    (["run", "MODEL", "--load-arg", "@z", "nothing.npy"], "no input 'z'"),
    (["run", "MODEL", "--target", "gfx1101x"], "Did you mean"),
    (["run", "MODEL", "--target", "sm_90"], "there is no such device here"),
    (["run", "MODEL", "--cpu", "--target", "gfx942"], "exclude each other"),
    (["run", "MODEL", "--onnx", "--tf"], "exclude each other"),
    (["run", "MODEL", "--output", "y.png"], ".npz"),
    (["run", "modle.onnx"], "there is no file"),
    (["perf", "MODEL", "--max-latency", "20"], "a time such as 20ms"),
    (["perf", "MODEL", "-n", "0"], "--iterations takes"),
    (["run", "MODEL", "--tf"], "model: "),
]


@pytest.mark.parametrize(
    "words, said", TYPOS, ids=lambda v: " ".join(v) if isinstance(v, list) else ""
)
def test_typos_are_told_in_one_line(words, said, affine, amdjax_command):
    done = amdjax_command(*(str(affine) if w == "MODEL" else w for w in words))
    assert done.code == 2
    assert said in done.err
    assert done.err.count("\n") == 1
    assert not done.out
    assert "Traceback" not in done.err


@pytest.mark.parametrize("flag", sorted(MEANINGLESS))
def test_flags_without_meaning_are_refused_and_say_why(flag, affine, amdjax_command):
    done = amdjax_command("run", affine, flag)
    assert done.code == 2
    assert MEANINGLESS[flag] in done.err


def test_errors_are_json_too(affine, amdjax_command):
    done = amdjax_command("run", affine, "--json", "--batch", "x")
    assert done.code == 2
    assert done.data == {"error": "--batch takes an integer of at least 1, got 'x'", "code": 2}


def test_debug_adds_a_traceback(affine, amdjax_command):
    done = amdjax_command("run", affine, "--debug", "--fill0", "q")
    assert done.code == 2
    assert "Traceback" in done.err


@pytest.mark.parametrize("kind", ["empty", "text", "cut", "folder"])
@pytest.mark.parametrize("ending", [".onnx", ".pb", ".txt"])
def test_broken_files(kind, ending, network, tmp_path, amdjax_command):
    path = tmp_path / f"model{ending}"
    if kind == "folder":
        path.mkdir()
    else:
        whole = network.read_bytes()
        content = {"empty": b"", "text": b"no model at all", "cut": whole[: len(whole) // 2]}
        path.write_bytes(content[kind])
    for command in ("read", "params", "run"):
        done = amdjax_command(command, path)
        assert done.code == 2, done.err
        assert done.err.count("\n") == 1
        assert path.name in done.err


def test_files_are_known_by_flags_too(affine, tmp_path, ok):
    path = tmp_path / "model.bin"
    path.write_bytes(affine.read_bytes())
    assert ok("params", path, "--onnx")["kind"] == "onnx"


def test_every_command_has_help_of_all_its_flags(amdjax_command):
    overview = amdjax_command("--help")
    assert overview.code == 0
    for name, command in COMMANDS.items():
        assert name in overview.out
        done = amdjax_command(name, "--help")
        assert done.code == 0
        for group in command.groups:
            for flag in GROUPS[group]:
                assert flag.names[0] in done.out
                assert flag.help
    assert amdjax_command().code == 2


def test_flags_are_named_once():
    for name, command in COMMANDS.items():
        flags = [*command.flags, *(f for group in command.groups for f in GROUPS[group])]
        names = [n for flag in flags for n in flag.names]
        assert len(names) == len(set(names)), name
        assert not set(names) & set(MEANINGLESS)


def test_help_loads_neither_compiler_nor_readers():
    code = """
import sys
from amdjax.driver import main
main(["--help"]), main(["run", "--help"])
heavy = ("llvmlite", "onnx", "google.protobuf", "scipy", "rich", "amdjax.onnx", "amdjax.tf",
         "amdjax.jit.plan", "amdjax.quantize", "amdjax.find", "amdjax.emulator")
print([m for m in heavy if m in sys.modules])"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_command_as_a_process(affine, tmp_path):
    words = [sys.executable, "-m", "amdjax", "params", str(affine), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["numbers"] == 15
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"\x08\xff")
    words[4:] = [str(broken)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_support_files_can_have_several_inputs(tmp_path, ok):
    path = model_files.affine(tmp_path / "two.onnx", ("left", "right"))
    made = ok("run", path, "--fill1", "left", "--fill0", "right", "--dim-param", "@n", "2")
    one = ok("run", path, "--fill0", "@left", "--fill1", "right", "--batch", "2")
    assert made["outputs"] == one["outputs"]
