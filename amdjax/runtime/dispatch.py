"""Methods in machine code for calls of compiled programs; `dispatch_ir` says what they do.

They need CPython as it is known here, with its lock. Elsewhere calls take the way through Python,
which does the same.
"""

from __future__ import annotations

import ctypes
import sys
import sysconfig
from array import array
from collections.abc import Mapping
from functools import cache
from typing import Any

from amdjax.codegen.engine import engine
from amdjax.runtime import native, vm
from amdjax.runtime.dispatch_ir import OPERATORS, PYTHON, STATE, dispatch_source

_KNOWN = (3, 11), (3, 13)  # versions of Python, the first and the last
_FASTCALL, _KEYWORDS, _NOARGS, _O = 0x80, 0x02, 0x04, 0x08
OPT = 2


@cache
def is_supported() -> bool:
    """Whether this Python is one that the methods know."""
    return (
        sys.implementation.name == "cpython"
        and _KNOWN[0] <= sys.version_info[:2] <= _KNOWN[1]
        and not sysconfig.get_config_var("Py_GIL_DISABLED")
        and not hasattr(sys, "getobjects")  # objects begin with other words
        and ctypes.sizeof(ctypes.c_void_p) == 8
    )


def slot_offset(instance: Any, name: str) -> int:
    """Where in an instance the value of a slot lies, in bytes; the value must be nothing else's."""
    value = getattr(instance, name)
    size = type(instance).__basicsize__
    words = array("Q", ctypes.string_at(id(instance), size))
    if words[1] != id(type(instance)) or words.count(id(value)) != 1:
        raise RuntimeError(f"{type(instance).__name__}.{name} lies where it was not expected")
    return words.index(id(value)) * 8


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class Methods:
    """The machine code, and what it is told; lives as long as the process.

    Args:
      state: for each name of `dispatch_ir.STATE` an object or the number of an offset.
    """

    def __init__(self, state: Mapping[str, Any]):
        functions = {name: getattr(ctypes.pythonapi, name) for name in PYTHON}
        addresses = {n: ctypes.cast(f, ctypes.c_void_p).value or 0 for n, f in functions.items()}
        run = vm.run_program()
        addresses["amdjax_run"] = ctypes.cast(run, ctypes.c_void_p).value or 0
        engine().define(addresses)
        names = ("call", "bind", "release", "set_operator", "dispatch_configure")
        operators = (f"operator_{k}" for k in range(OPERATORS))
        wanted = [f"amdjax_{name}" for name in (*names, *operators)]
        (self._code,) = native.build([(dispatch_source(), wanted)], opt=OPT)
        words = array("q", [x if n.startswith("at_") else id(x) for n, x in state.items()])
        if tuple(state) != STATE:
            raise ValueError("the state is not what the machine code asks for")
        configure = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(
            self._code["amdjax_dispatch_configure"]
        )
        configure(words.buffer_info()[0])
        self._set = ctypes.PYFUNCTYPE(None, ctypes.c_int64, ctypes.py_object)(
            self._code["amdjax_set_operator"]
        )
        self._operators = 0
        self._held: list[Any] = [state, run]
        # What Python calls must not go before Python does.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._code))
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(run))

    def replace(self, owner: type, name: str, function: str, flags: int) -> None:
        """Put a method in machine code in place of one in Python, of the same name and text."""
        method = getattr(owner, name)
        parameters = "($self, /, *args, **kwargs)" if flags & _KEYWORDS else "($self, other, /)"
        doc = f"{name}{parameters}\n--\n\n{method.__doc__ or ''}".encode()
        definition = _MethodDef(name.encode(), self._code[function], flags, doc)
        new = ctypes.pythonapi.PyDescr_NewMethod
        new.restype, new.argtypes = ctypes.py_object, (ctypes.py_object, ctypes.c_void_p)
        self._held += [definition, method]
        setattr(owner, name, new(owner, ctypes.addressof(definition)))

    def replace_call(self, owner: type, name: str, function: str) -> None:
        """As `replace`, of a method of any arguments."""
        self.replace(owner, name, function, _FASTCALL | _KEYWORDS)

    def replace_finalizer(self, owner: type) -> None:
        """As `replace`, of the finalizer of small buffers."""
        self.replace(owner, "__del__", "amdjax_release", _NOARGS)

    def replace_operator(self, owner: type, method: Any) -> bool:
        """As `replace`, of a binary operator; false if there are too many."""
        k = self._operators
        if k == OPERATORS:
            return False
        self._operators += 1
        self._set(k, method)
        self.replace(owner, method.__name__, f"amdjax_operator_{k}", _O)
        return True
