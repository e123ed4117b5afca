"""`debug.breakpoint`: a prompt over the frames that traced a program, with the values they get."""

from __future__ import annotations

import cmd
import inspect
import linecache
import pprint
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import IO, Any

from amdjax.core import source_info
from amdjax.core.pytree import tree_flatten, tree_leaves, tree_unflatten
from amdjax.core.trace import Tracer
from amdjax.lax.parallel import stop_gradient
from amdjax.transforms.callbacks import debug_callback, pure_callback

_one_at_a_time = threading.Lock()


class _Unreadable:
    """Stands for a variable that is no pytree, such as a dict whose keys have no order."""

    def __repr__(self) -> str:
        return "<cant_flatten>"


@dataclass(frozen=True)
class Frame:
    """A frame of the stack that traced the program, as far as a prompt needs it.

    Attributes:
      filename: the file of its code.
      lineno: the line that it was at.
      locals: its variables by name.
      source: the lines of its function.
      offset: which of these it was at; None if they are not known.
    """

    filename: str
    lineno: int
    locals: dict[str, Any]
    source: list[str]
    offset: int | None


def _frame(frame: FrameType) -> Frame:
    code, line = frame.f_code, frame.f_lineno
    try:
        if code.co_name == "<module>":
            source, first = linecache.getlines(code.co_filename), 1
        else:
            source, first = inspect.getsourcelines(code)
    except OSError:
        source, first = [], 1
    offset = line - first
    known = 0 <= offset < len(source)
    names = dict(frame.f_locals)
    for name, value in names.items():
        try:
            tree_leaves(value)
        except Exception:  # whatever a container's own flattening raises
            names[name] = _Unreadable()
    lines = "".join(source).split("\n") if known else []
    return Frame(code.co_filename, line, names, lines, offset if known else None)


def _frames(first: FrameType | None, filtered: bool, limit: int | None) -> list[Frame]:
    """The frames of the stack, the innermost first."""
    found: list[Frame] = []
    frame = first
    while frame is not None and (limit is None or len(found) < limit):
        if not (filtered and source_info.is_internal(frame.f_code)):
            found.append(_frame(frame))
        frame = frame.f_back
    return found


class _Snapshot:
    """Frames whose traced values are filled in when the program runs."""

    def __init__(self, frames: Sequence[Frame]) -> None:
        self.frames = frames
        # Names keep their order; keys of a dict would be sorted.
        values = [[list(frame.locals.values()) for frame in frames]]
        self.leaves, self.tree = tree_flatten(values)
        self.traced = [x for x in self.leaves if isinstance(x, Tracer)]

    def filled(self, values: Sequence[Any]) -> list[Frame]:
        """The frames with these values in place of the traced ones."""
        rest = iter(values)
        leaves = [next(rest) if isinstance(x, Tracer) else x for x in self.leaves]
        (columns,) = tree_unflatten(self.tree, leaves)
        return [
            Frame(f.filename, f.lineno, dict(zip(f.locals, column)), f.source, f.offset)
            for f, column in zip(self.frames, columns, strict=True)
        ]


class Prompt(cmd.Cmd):
    """Reads commands and shows values until told to go on.

    Args:
      frames: the innermost first.
      stdin: where commands come from; the terminal by default.
      stdout: where answers go.
    """

    prompt = "(jdb) "
    intro = "Entering jdb:"

    def __init__(
        self, frames: Sequence[Frame], stdin: IO[str] | None = None, stdout: IO[str] | None = None
    ) -> None:
        super().__init__(stdin=stdin, stdout=stdout)
        self.use_rawinput = stdin is None
        self.frames = frames
        self.level = 0

    def _say(self, text: str) -> None:
        self.stdout.write(text + "\n")

    def _show(self, expression: str, form: Callable[[Any], str]) -> None:
        try:
            value = eval(expression, {}, self.frames[self.level].locals)
            self._say(form(value))
        except Exception:
            kind, error = sys.exc_info()[:2]
            self._say("*** " + traceback.format_exception_only(kind, error)[-1].strip())

    def _context(self, lines: int) -> None:
        frame = self.frames[self.level]
        self._say(f"> {frame.filename}({frame.lineno})")
        if frame.offset is None:
            return
        first = max(frame.offset - lines - 1, 0)
        for i, text in enumerate(frame.source[first : frame.offset + lines + 1], first):
            self._say(f"{'->' if i == frame.offset else '  '}  {text}")

    def default(self, line: str) -> None:
        """The value of an expression."""
        self._show(line, repr)

    def emptyline(self) -> bool:
        """Nothing; the last command is not repeated."""
        return False

    def do_p(self, arg: str) -> None:
        """P EXPRESSION: print its value."""
        self._show(arg, repr)

    def do_pp(self, arg: str) -> None:
        """Pp EXPRESSION: print its value over several lines."""
        self._show(arg, pprint.pformat)

    def do_up(self, arg: str) -> None:
        """u(p): go to the frame that called this one."""
        if self.level == len(self.frames) - 1:
            self._say("At topmost frame.")
        else:
            self.level += 1
        self._context(2)

    def do_down(self, arg: str) -> None:
        """d(own): go to the frame that this one called."""
        if self.level == 0:
            self._say("At bottommost frame.")
        else:
            self.level -= 1
        self._context(2)

    def do_list(self, arg: str) -> None:
        """l(ist): show the code around the line where the frame is."""
        self._context(5)

    def do_where(self, arg: str) -> None:
        """w(here), bt: show all frames, the innermost last."""
        self._say("Traceback:")
        for frame in reversed(self.frames):
            self._say(f'  File "{frame.filename}", line {frame.lineno}')
            code = None if frame.offset is None else frame.source[frame.offset].strip()
            self._say(f"    {code or '<no source>'}")

    def do_continue(self, arg: str) -> bool:
        """c(ont(inue)): let the program go on."""
        return True

    def do_quit(self, arg: str) -> None:
        """q(uit), exit: end the program."""
        sys.exit(0)

    do_u, do_d, do_l = do_up, do_down, do_list
    do_w = do_bt = do_where
    do_c = do_cont = do_continue
    do_q = do_exit = do_EOF = do_quit

    def run(self) -> None:
        """Read commands until one ends it."""
        while True:
            try:
                self.cmdloop()
                return
            except KeyboardInterrupt:
                self._say("--KeyboardInterrupt--")


def breakpoint(
    *, backend: str | None = None, filter_frames: bool = True, num_frames: int | None = None,
    ordered: bool = False, token: Any = None, **kwargs: Any,
) -> Any:  # fmt: skip
    r"""Stop when the program gets here, and ask what to look at.

    The prompt knows the variables of the frames that traced the program; what was traced has the
    value that it has in this run. `help` lists the commands, which are those of `pdb` that only
    look: `p`, `pp`, `u`, `d`, `l`, `w`, `c`, `q`.

    Args:
      backend: "cli", which is the only one.
      filter_frames: whether frames of amdjax and of libraries that asked for it are left out.
      num_frames: how many frames to keep, from here outwards; all if omitted.
      ordered: whether it keeps its place among ordered prints and breakpoints.
      token: a pytree of arrays, to be used further on; the prompt appears once they are computed,
        and not at all if what is returned is not used.
      **kwargs: `stdin` and `stdout`, files that commands come from and answers go to.

    Returns:
      `token`, or None.

    Raises:
      ValueError: both `ordered` and `token` are given, or there is no such backend.

        >>> import amdjax, io
        >>> def f(x):
        ...     y = x + 1
        ...     amdjax.debug.breakpoint(stdin=io.StringIO("p x, y\\nc\\n"), stdout=None)
        ...     return y
        >>> print(amdjax.jit(f)(2.0))  # doctest: +SKIP
        Entering jdb:
        (jdb) (Array(2., dtype=float32), Array(3., dtype=float32))
        (jdb) 3.0
    """
    if token is not None and ordered:
        raise ValueError("`ordered` and `token` are mutually exclusive arguments.")
    if backend not in (None, "cli"):
        raise ValueError(f"debug.breakpoint: backend must be 'cli', got {backend!r}")
    snapshot = _Snapshot(_frames(sys._getframe(1), filter_frames, num_frames))

    def ask(*values: Any) -> None:
        with _one_at_a_time:
            Prompt(snapshot.filled(values), **kwargs).run()

    if token is None:
        debug_callback(ask, *snapshot.traced, ordered=ordered)
        return None

    def ask_and_pass_on(token: Any, *values: Any) -> Any:
        ask(*values)
        return token

    token, traced = stop_gradient((token, snapshot.traced))
    return pure_callback(ask_and_pass_on, token, token, *traced, vmap_method="sequential")
