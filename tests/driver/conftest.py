import json

import pytest

from amdjax.driver import main
from tests.support import model_files


class Done:
    """What a command left: its exit code and what it printed."""

    def __init__(self, code, printed):
        self.code, self.out, self.err = code, printed.out, printed.err

    @property
    def data(self):
        return json.loads(self.out)


@pytest.fixture
def amdjax_command(capsys):
    """Runs a command of words in this process."""

    def run(*words):
        capsys.readouterr()
        code = main([str(w) for w in words])
        return Done(code, capsys.readouterr())

    return run


@pytest.fixture
def ok(amdjax_command):
    """Runs a command that has to succeed, and gives what `--json` says."""

    def run(*words):
        done = amdjax_command(*words, "--json")
        assert done.code == 0, done.err + done.out
        return done.data

    return run


@pytest.fixture(scope="session")
def network(tmp_path_factory):
    return model_files.network(tmp_path_factory.mktemp("models") / "network.onnx")


@pytest.fixture(scope="session")
def affine(tmp_path_factory):
    return model_files.affine(tmp_path_factory.mktemp("models") / "affine.onnx")
