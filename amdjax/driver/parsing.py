"""From what was typed to options."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from amdjax.core.errors import did_you_mean
from amdjax.driver.errors import BadUsage
from amdjax.driver.tables import COMMANDS, GROUPS, MEANINGLESS, Command, Flag

PROGRAM = "python -m amdjax"


def overview() -> str:
    """What the commands are."""
    wide = max(map(len, COMMANDS))
    lines = [
        f"usage: {PROGRAM} COMMAND [FILE] [flags]", "",
        "Reads, compiles, runs, times and checks models from files: ONNX (.onnx), TensorFlow (.pb,",
        "SavedModel folders) and saved programs (.amdjax).", "", "commands:",
    ]  # fmt: skip
    lines += [f"  {name:{wide}}  {command.summary}" for name, command in COMMANDS.items()]
    lines += ["", f"{PROGRAM} COMMAND --help lists a command's flags; --version tells the version."]
    lines += ["Exit codes: 0 all is well, 1 it differs or fails, 2 a flag or a file is wrong."]
    return "\n".join(lines)


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The options of a command: its name as `command`, flags by their fields.

    Args:
      words: the command, the file and the flags.

    Raises:
      BadUsage: something is unknown, missing or no value of its flag; the message names it.
      SystemExit: help was asked for, and printed.
    """
    name, *rest = words
    command = COMMANDS.get(name)
    if command is None:
        what = f"there is no command {name!r}"
        raise BadUsage(f"{what}.{did_you_mean(name, COMMANDS)} {PROGRAM} --help lists them")
    parser = _parser(name, command)
    options, left = parser.parse_known_args(rest)
    known = [n for flag in _flags(command) for n in flag.names]
    for word in left:
        if not word.startswith("-"):
            what = f"{name} takes one FILE" if command.takes_file else f"{name} takes no FILE"
            raise BadUsage(f"{what}, got {word!r} too")
        flag = word.partition("=")[0]
        if flag in MEANINGLESS:
            raise BadUsage(f"{flag} says nothing here: {MEANINGLESS[flag]}; leave it out")
        raise BadUsage(f"{name} has no flag {flag}.{did_you_mean(flag, known) or _elsewhere(flag)}")
    options.command = name
    return options


def _elsewhere(flag: str) -> str:
    having = [n for n, c in COMMANDS.items() if any(flag in f.names for f in _flags(c))]
    return f" It is a flag of {', '.join(having)}." if having else ""


def _flags(command: Command) -> tuple[Flag, ...]:
    return (*command.flags, *(flag for group in command.groups for flag in GROUPS[group]))


def _fail(message: str) -> NoReturn:
    if message.endswith("required: FILE"):
        message = "no FILE is named; it goes before flags that take several words"
    raise BadUsage(message.removeprefix("argument "))


def _parser(name: str, command: Command) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        f"{PROGRAM} {name}", description=command.summary, allow_abbrev=False,
        usage=f"{PROGRAM} {name} {'FILE ' * command.takes_file}[flags]",
        formatter_class=argparse.RawDescriptionHelpFormatter, epilog=_not_taken(),
    )  # fmt: skip
    parser.error = _fail  # type: ignore[method-assign]
    if command.takes_file:
        about = "an ONNX model (.onnx), a graph of TensorFlow (.pb, .pbtxt, a SavedModel's folder)"
        parser.add_argument("file", metavar="FILE", help=f"{about} or a saved program (.amdjax)")
    for flag in command.flags:
        _add(parser, flag)
    for title in command.groups:
        group = parser.add_argument_group(title)
        for flag in GROUPS[title]:
            _add(group, flag)
    return parser


def _not_taken() -> str:
    text = f"MIGraphX's {', '.join(MEANINGLESS)} say nothing here and are refused."
    return textwrap.fill(text, 79)


def _add(parser: Any, flag: Flag) -> None:
    how: dict[str, Any] = {"help": flag.help, "dest": flag.field}
    if not flag.metavar:
        parser.add_argument(*flag.names, action="store_true", **how)
        return
    how["metavar"] = flag.metavar
    if flag.kind == "words":
        how["nargs"] = "+"
    if flag.is_repeated:
        how |= {"action": "append", "default": []}
    if flag.kind in _KINDS:
        how["type"] = _KINDS[flag.kind](flag)
    parser.add_argument(*flag.names, **how)


def _integer(least: int) -> Callable[[Flag], Any]:
    def of(flag: Flag) -> Any:
        def value(text: str) -> int:
            if not text.isascii() or not text.isdigit() or int(text) < least:
                raise BadUsage(
                    f"{flag.names[0]} takes an integer of at least {least}, got {text!r}"
                )
            return int(text)

        return value

    return of


def _number(flag: Flag) -> Any:
    def value(text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            found = -1.0
        if not 0 <= found < float("inf"):
            raise BadUsage(f"{flag.names[0]} takes a number of at least 0, got {text!r}")
        return found

    return value


def _time(flag: Flag) -> Any:
    def value(text: str) -> float:
        found = re.fullmatch(r"(\d+(?:\.\d+)?)(us|µs|ms|s)", text)
        if found is None:
            raise BadUsage(f"{flag.names[0]} takes a time such as 20ms or 1.5s, got {text!r}")
        return float(found[1]) * {"s": 1.0, "ms": 1e-3}.get(found[2], 1e-6)

    return value


def _choice(flag: Flag) -> Any:
    def value(text: str) -> str:
        if text not in flag.choices:
            shown = ", ".join(flag.choices)
            hint = did_you_mean(text, flag.choices)
            raise BadUsage(f"{flag.names[0]} takes one of {shown}, got {text!r}.{hint}")
        return text

    return value


_KINDS: dict[str, Callable[[Flag], Any]] = {
    "count": _integer(1), "natural": _integer(0), "number": _number, "time": _time,
    "choice": _choice,
}  # fmt: skip
