"""The command `python -m amdjax`."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from amdjax.driver.errors import BadUsage, Failed
from amdjax.driver.output import Answer, show
from amdjax.driver.parsing import overview, parse
from amdjax.driver.tables import COMMANDS


def main(words: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
      words: the command, the file and the flags; those of the process if None.

    Returns:
      The exit code: 0 all is well, 1 it differs or fails, 2 a flag or a file is wrong.

    Example:
      >>> main(["targets", "--jsn"])
      2
    """
    words = list(sys.argv[1:] if words is None else words)
    if not words or words[0] in ("-h", "--help", "help"):
        print(overview())
        return 0 if words else 2
    if words[0] == "--version":
        # late: the package is there already, its name here is not
        import amdjax

        print(amdjax.__version__)
        return 0
    as_json = "--json" in words
    try:
        options = parse(words)
        answer = _function(COMMANDS[options.command].run)(options)
        show(answer, as_json)
        return answer.code
    except SystemExit as e:  # help
        return int(e.code or 0)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # what read the output has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as e:
        return _told(e, words, as_json)


def _function(name: str) -> Any:
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(f"amdjax.driver.{module}"), function)


def _told(error: Exception, words: Sequence[str], as_json: bool) -> int:
    """Tell of an error in one line; returns the exit code."""
    if "--debug" in words:
        traceback.print_exception(error)
    code = 2 if isinstance(error, BadUsage) else 1
    lines = [found for line in str(error).splitlines() if (found := " ".join(line.split()))]
    text = "; ".join(lines).replace(":;", ":") or type(error).__name__
    if not isinstance(error, (BadUsage, Failed)) and not _is_expected(error):
        text = f"{type(error).__name__}: {text} (--debug shows where)"
    if as_json:
        show(Answer({"error": text, "code": code}), True)
    name = words[0] if words[0] in COMMANDS else ""
    print(f"amdjax {name}".rstrip() + f": {text}", file=sys.stderr)
    return code


def _is_expected(error: Exception) -> bool:
    """Whether its message says all that is to say."""
    return isinstance(error, (ValueError, OSError, NotImplementedError))
