"""LLVM IR text to object code, in this process or as a helper process.

Imports llvmlite alone, so that a helper started as ``python compile_worker.py`` is ready after
a tenth of a second. The helper reads requests from standard input until that ends or stays
silent for a while; everything in the protocol is a length followed by bytes.
"""

from __future__ import annotations

import os
import re
import select
import signal
import struct
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, BinaryIO, NamedTuple, Protocol

import llvmlite.binding as llvm
from llvmlite.binding import ffi

IDLE_SECONDS = 20.0

# Request: optimization level, bytes of text. Reply: 0 for object code or 1 for a message, bytes.
REQUEST = struct.Struct("<II")
REPLY = struct.Struct("<II")

# What the text writer leaves behind, with vectorization and unrolling already decided by the
# schedule. Measured on gelu, softmax and gemm kernels these make the same loops as -O3 does, at a
# quarter of its time; rotation saves a branch an iteration.
_CLEAN_UP = ("instruction_combine", "simplify_cfg")
_LOOPS = (
    "sroa",
    "simplify_cfg",
    "instruction_combine",
    "new_gvn",
    "loop_simplify",
    "lcssa",
    "loop_rotate",
    "instruction_combine",
    "simplify_cfg",
)
# Of functions that are written without what most of these remove, and with loops in that form.
_ROTATED_LOOPS = ("simplify_cfg", "instruction_combine", "new_gvn", "simplify_cfg")
MAX_LEVEL = 4

#: An attribute of functions whose loops ask behind a round whether there is another one, and whose
#: index arithmetic is folded and written once. Micro-kernels among them need peepholes alone.
ROTATED = '"rotated"'
#: An attribute of functions that are better off without loop strength reduction.
NO_STRENGTH_REDUCTION = '"no-strength-reduction"'
#: An attribute of functions that are compiled at level 0, whatever their module is compiled at.
RUNS_ONCE = '"runs-once"'
#: llvmlite's own lock, which admits one thread at a time, and the same thread again.
LLVM_LOCK: AbstractContextManager[Any] = getattr(ffi.lib, "_lock", None) or nullcontext()


class Machine(NamedTuple):
    """What LLVM generates code for."""

    triple: str
    cpu: str
    features: str

    @property
    def is_gpu(self) -> bool:
        return self.triple.startswith(("amdgcn", "nvptx"))


class CompileError(RuntimeError):
    """LLVM rejected the text; the message shows the lines around the place."""


class Compiler:
    """Compiles for one machine.

    Levels: 0 quick code generation for code that runs once; 1 peepholes; 2 also value numbering and
    loop rotation; 3 LLVM's function simplification (loop-invariant motion, unswitching, ...)
    for scalar code; 4 all of -O3.
    """

    def __init__(self, machine: Machine) -> None:
        if machine.is_gpu:
            llvm.initialize_all_targets()
            llvm.initialize_all_asmprinters()
        else:
            llvm.initialize_native_target()
            llvm.initialize_native_asmprinter()
        self._target = llvm.Target.from_triple(machine.triple)
        self._machine = machine
        # LLVM's own code generation has two speeds that differ: FastISel at 0, and the rest.
        self._machines = {level: self.target_machine(level) for level in (0, 2)}

    def target_machine(self, level: int = 2) -> llvm.TargetMachine:
        """A machine the caller owns (an LLJIT takes its machine over)."""
        return self._target.create_target_machine(
            cpu=self._machine.cpu,
            features=self._machine.features,
            opt=level,
            reloc="pic",
            codemodel="default",
            jit=not self._machine.is_gpu,
        )

    def code(self, text: str, opt: int = 2) -> bytes:
        """What a machine of this kind is given: object code, or PTX for its driver."""
        if self._machine.triple.startswith("nvptx"):
            return self.assembly(text, opt).encode()
        return self.object_code(text, opt)

    def object_code(self, text: str, opt: int = 2) -> bytes:
        return self._emit(text, opt, "emit_object")

    def assembly(self, text: str, opt: int = 2, *, verbose: bool = False) -> str:
        for machine in self._machines.values():
            machine.set_asm_verbosity(verbose)
        return self._emit(text, opt, "emit_assembly")

    def _emit(self, text: str, opt: int, method: str) -> Any:
        opt = 0 if RUNS_ONCE in text else opt
        machine = self._machines[2 if opt else 0]
        # A context of its own: constants and types are interned in it and would pile up.
        context = llvm.create_context()
        try:
            module = self._parse(text, context)
            try:
                _run_passes(module, machine, opt, _cleaning(text))
                if self._machine.triple.startswith("amdgcn") and "fptrunc" in text:
                    module = self._with_signs(module, context)
                with LLVM_LOCK:  # options are the process's
                    _reduce_strength(NO_STRENGTH_REDUCTION not in text)
                    return getattr(machine, method)(module)
            finally:
                module.close()
        finally:
            context.close()

    def _with_signs(self, module: llvm.ModuleRef, context: llvm.ContextRef) -> llvm.ModuleRef:
        """The module, or in its place one whose products keep the sign of zero in 16 bits."""
        text = str(module)
        if (apart := rounded_apart(text)) == text:
            return module
        module.close()
        return self._parse(apart, context)

    @staticmethod
    def _parse(text: str, context: llvm.ContextRef) -> llvm.ModuleRef:
        try:
            module = llvm.parse_assembly(text, context)
        except RuntimeError as error:
            raise CompileError(_with_lines(str(error), text)) from None
        try:
            module.verify()
        except RuntimeError as error:
            module.close()
            raise CompileError(f"{error}\n{_shortened(text)}") from None
        return module


_ASSIGNED = re.compile(r"^ +(%[\w.$-]+) = (\w+)(.*)", re.MULTILINE)
_FUNCTION = re.compile(r"^define .*?^\}", re.MULTILINE | re.DOTALL)
_NAMES = re.compile(r"%[\w.$-]+")
_ROUNDED = re.compile(
    r"^( +)(%[\w.$-]+) = fptrunc ((?:\w+ )*)(?:float|<(\d+) x float>) (%[\w.$-]+)"
    r" to (?:half|<\d+ x half>)",
    re.MULTILINE,
)
#: What may end in a product, and what LLVM looks through to see one.
_PRODUCTS = frozenset({"fmul", "fdiv"})
_TRANSPARENT = frozenset({"fneg", "freeze", "extractelement", "insertelement", "shufflevector"})


def rounded_apart(text: str) -> str:
    """A module for AMD GPUs that computes products in float before they are rounded to half.

    LLVM makes one instruction of both, which adds a zero to the product: -0 becomes 0. What it does
    not see through is without instructions, and comes after all passes: of factors that are half
    themselves products are half, too, by then.

    Args:
      text: LLVM IR, optimized.
    """

    def function(match: re.Match[str]) -> str:
        body = match[0]
        made = {name: (opcode, rest) for name, opcode, rest in _ASSIGNED.findall(body)}

        @cache
        def multiplies(name: str) -> bool:
            opcode, rest = made.get(name, ("", ""))
            through = opcode in _TRANSPARENT and any(map(multiplies, _NAMES.findall(rest)))
            return opcode in _PRODUCTS or through

        def apart(rounding: re.Match[str]) -> str:
            indent, result, flags, lanes, x = rounding.groups()
            if "nsz" in flags or not multiplies(x):
                return rounding[0]
            hidden = result.replace("%", "%apart.")
            if lanes is None:
                opaque = f'{indent}{hidden} = call float asm "", "=v,0"(float {x})\n'
                return opaque + f"{indent}{result} = fptrunc {flags}float {hidden} to half"
            lines, whole, before = [], f"<{lanes} x half>", "poison"
            for i in range(int(lanes)):
                at, after = f"{hidden}.{i}", f"{hidden}.{i}.all" if i + 1 < int(lanes) else result
                lines += [
                    f"{at} = extractelement <{lanes} x float> {x}, i32 {i}",
                    f'{at}.made = call float asm "", "=v,0"(float {at})',
                    f"{at}.half = fptrunc {flags}float {at}.made to half",
                    f"{after} = insertelement {whole} {before}, half {at}.half, i32 {i}",
                ]
                before = after
            return "\n".join(indent + line for line in lines)

        return _ROUNDED.sub(apart, body)

    return _FUNCTION.sub(function, text)


def _cleaning(text: str) -> Sequence[str]:
    """The passes of level 2."""
    if ROTATED not in text:
        return _LOOPS
    return _CLEAN_UP if NO_STRENGTH_REDUCTION in text else _ROTATED_LOOPS


_reduces_strength = True


def _reduce_strength(wanted: bool) -> None:
    """Have code generation run loop strength reduction, or not."""
    global _reduces_strength
    if wanted is not _reduces_strength:
        llvm.set_option("amdjax", f"-disable-lsr={str(not wanted).lower()}")
        _reduces_strength = wanted


def _run_passes(
    module: llvm.ModuleRef, machine: llvm.TargetMachine, opt: int, cleaning: Sequence[str]
) -> None:
    if opt <= 0:
        return
    tuning = llvm.create_pipeline_tuning_options(min(opt, 3))
    builder = llvm.create_pass_builder(machine, tuning)
    if opt >= MAX_LEVEL:
        builder.getModulePassManager().run(module, builder)
        return
    if opt == 3:
        passes = builder.getFunctionPassManager()
    else:
        passes = llvm.create_new_function_pass_manager()
        for name in _CLEAN_UP if opt == 1 else cleaning:
            getattr(passes, f"add_{name}_pass")()
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)


def _with_lines(message: str, text: str) -> str:
    """Add the lines around the one that LLVM's parser names in `<string>:LINE:COLUMN:`."""
    _, _, place = message.partition("<string>:")
    number = place.partition(":")[0]
    if not number.isdigit():
        return message
    lines, at = text.splitlines(), int(number)
    shown_lines = range(max(at - 4, 1), min(at + 3, len(lines)) + 1)
    shown = "\n".join(f"{'>' if i == at else ' '} {i:5}  {lines[i - 1]}" for i in shown_lines)
    return f"{message}\n{shown}"


def _shortened(text: str) -> str:
    return text if len(text) <= 4000 else text[:4000] + f"\n... {len(text)} characters in all"


class Readable(Protocol):
    """What requests and replies are read from."""

    def read(self, count: int, /) -> bytes | None: ...


def read_exactly(stream: Readable, count: int) -> bytes:
    """`count` bytes, or EOFError when the other side is gone."""
    data = stream.read(count)
    if data is None or len(data) != count:
        raise EOFError
    return data


def _serve(compiler: Compiler, requests: _FullReads, replies: BinaryIO) -> None:
    while select.select([requests], [], [], IDLE_SECONDS)[0]:
        try:
            opt, size = REQUEST.unpack(read_exactly(requests, REQUEST.size))
            text = read_exactly(requests, size).decode()
        except EOFError:
            return
        try:
            status, data = 0, compiler.code(text, opt)
        except Exception as error:
            status, data = 1, str(error).encode()
        replies.write(REPLY.pack(status, len(data)) + data)
        replies.flush()


def main() -> None:
    # The parent's Ctrl-C is the parent's business: it closes the pipe when it gives up.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a stray print must not land between replies
    # Unbuffered: select() sees only what Python has not read ahead.
    requests = os.fdopen(os.dup(0), "rb", buffering=0)
    _serve(Compiler(Machine(*sys.argv[-3:])), _FullReads(requests), replies)


class _FullReads:
    """Raw reads return what is there; this one returns all that was asked for."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw

    def fileno(self) -> int:
        return self._raw.fileno()

    def read(self, count: int) -> bytes:
        parts = []
        while count:
            part = self._raw.read(count)
            if not part:
                break
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


if __name__ == "__main__":
    main()
