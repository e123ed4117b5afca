"""Where barriers stand: `#` for all memory, `+` for LDS only, in programs as text."""

import pytest

from amdjax.codegen.gpu.barriers import Access, Barriers


def placed(program: str) -> str:
    """The program with its barriers.

    `r`, `w`, `a` and `s` read, write, atomically change and store (plainly) in the buffer that
    follows: capitals are in LDS. Digits behind are a pattern, of which 5 and more belong to the
    loop. `(…)` is a loop, `[…|…]` a branch, `!` a barrier that is there anyway.
    """
    barriers = Barriers()
    out: list[str] = []
    open_: list = []

    def place():
        out.append("")
        at = len(out) - 1
        return lambda only_lds: out.__setitem__(at, "+" if only_lds else "#")

    tokens = iter(program)
    pending = next(tokens, None)
    while pending is not None:
        token, pending = pending, next(tokens, None)
        if token in "rwas":
            buffer, pending = pending, next(tokens, None)
            pattern = None
            if pending is not None and pending.isdigit():
                pattern, pending = int(pending), next(tokens, None)
            kind = {"r": "read", "a": "atomic"}.get(token, "write")
            values = () if pattern is None else (pattern,)
            store = len(out) if token == "s" else None
            access = Access(buffer, kind, buffer.isupper(), pattern, values, store)
            barriers.access(access, place())
            out.append(token + buffer + ("" if pattern is None else str(pattern)))
            continue
        if token == "!":
            barriers.waited()
        elif token == "(":
            open_.append((barriers.loop(place(), 5, 0), barriers.arm()))
            [c.__enter__() for c in open_[-1]]
        elif token == "[":
            open_.append((barriers.branch(), barriers.arm()))
            [c.__enter__() for c in open_[-1]]
        elif token == "|":
            branch, arm = open_[-1]
            arm.__exit__(None, None, None)
            arm = barriers.arm()
            arm.__enter__()
            open_[-1] = branch, arm
        elif token in ")]":
            [c.__exit__(None, None, None) for c in open_.pop()[::-1]]
        out.append(token)
    barriers.place()
    return "".join(out)


@pytest.mark.parametrize("text", [
    "wa#ra", "wA+rA", "rA+wA", "wA+wA", "rArA", "aaaa", "wa#aa#ra", "wAwB+rArB",
    "wA1rA1", "wA1+rA2",
    # One barrier serves several buffers, and LDS alone does not wait for global memory.
    "wawA+rA#ra",
    # What came before a loop is waited for before it.
    "wA+(rA)", "wA1(rA1)", "wA1+(rA5)",
    # Rounds follow each other: the pattern of a round is its own.
    "(+wA+rA)", "(wA1rA1)", "(+wA5rA5)", "(sa5)", "(#sa5ra5)",
    "(wA+rAwB+rB)",
    "wa!ra", "wAwa!rAra+wA", "(+wA!rA)", "wA[!|rB]+rA",
    # Arms of a branch do not meet each other.
    "[wA|rA]", "wA[+rA|+rA]rA", "[wA|rB]+rA", "[wA+rA|rA]+wA",
])  # fmt: skip
def test_barriers(text):
    assert placed(text.replace("#", "").replace("+", "")) == text
