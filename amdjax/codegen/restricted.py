"""LLVM IR of functions that are written in a part of Python's syntax; they are parsed, never run.

Code between Python, threads and kernels is branches and memory. As blocks and phis it is long and
hard to read; as Python it says what it does.

| written | means |
|---|---|
| `def f(x, n: i64) -> ptr:` | a function; parameters are pointers if nothing else is said |
| `@inline` | of a function that is written where it is called, and knows the names there |
| `x = …` | a name for a value, in this block and those inside |
| `x: i64 = …`, `x: ptr` | a variable, which may be assigned again |
| `p[i]`, `p[i] = x` | the pointer that lies `i` words behind `p`; a word put there |
| `p + i` | the address `i` words behind `p` |
| `x.name`, `x.name = y` | the pointer in `x`, as many bytes in as the global `at_name` holds |
| `state.name`, `state.name = x` | the pointer that the global `name` holds |
| `f(x)` | a function of the text or of others, what a builtin writes, or what `f` points to |
| `//`, `%`, `>>` | of integers that are not negative; they are compared with their signs |
| `a and b`, `not a`, `x if a else y` | as in Python; null and 0 are false |
| `if`, `while`, `break`, `for i in range(n)`, `return` | as in Python |

Names of functions that others may call begin with `amdjax_`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from amdjax.codegen import llvm
from amdjax.codegen.llvm import I1, I8, I32, I64, PTR, VOID, Function, Module, Type, Value

_TYPES = {"ptr": PTR, "i64": I64, "i32": I32, "i8": I8, "i1": I1, "void": VOID}
_COMPARISONS = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "slt", ast.LtE: "sle", ast.Gt: "sgt", ast.GtE: "sge",
}  # fmt: skip
_ARITHMETIC = {
    ast.Add: Function.add, ast.Sub: Function.sub, ast.Mult: Function.mul,
    ast.FloorDiv: Function.udiv, ast.Mod: Function.urem, ast.RShift: Function.lshr,
    ast.LShift: Function.shl, ast.BitOr: Function.or_,
}  # fmt: skip


@dataclass(frozen=True)
class Source:
    """Functions and what they know. Its `repr` identifies it, `str` writes it.

    Args:
      text: the functions.
      constants: numbers and values by name.
      declared: types of functions of others, as "ptr (ptr, i64)".
      definitions: of globals, and what else stands in the module, as IR.
      attributes: of all functions.
    """

    text: str
    constants: Mapping[str, Value | int]
    declared: Mapping[str, str]
    definitions: Sequence[str]
    attributes: str = ""

    def __str__(self) -> str:
        """The module as LLVM IR."""
        module = Module(footer=list(self.definitions))
        for name, signature in self.declared.items():
            result, _, arguments = signature.partition(" ")
            module.declarations[name] = f"declare {result} @{name}{arguments}"
        functions = [f for f in ast.parse(self.text).body if isinstance(f, ast.FunctionDef)]
        inlined = {f.name: f for f in functions if f.decorator_list}
        functions = [f for f in functions if not f.decorator_list]
        signatures = {**self.declared, **{f.name: _signature(f) for f in functions}}
        for f in functions:
            _Writer(self, module, f, signatures, inlined).write()
        return str(module)


def _type(annotation: ast.expr | None, default: Type) -> Type:
    return _TYPES[annotation.id] if isinstance(annotation, ast.Name) else default


def _signature(node: ast.FunctionDef) -> str:
    arguments = ", ".join(str(_type(arg.annotation, PTR)) for arg in node.args.args)
    return f"{_type(node.returns, VOID)} ({arguments})"


class _Writer:
    """Writes a function."""

    def __init__(
        self, source: Source, module: Module, node: ast.FunctionDef,
        signatures: Mapping[str, str], inlined: Mapping[str, ast.FunctionDef],
    ):  # fmt: skip
        self.source, self.node, self.signatures, self.inlined = source, node, signatures, inlined
        args = [(arg.arg, _type(arg.annotation, PTR)) for arg in node.args.args]
        linkage = "" if node.name.startswith("amdjax_") else "internal"
        result = _type(node.returns, VOID)
        self.f = module.function(
            node.name, args, result, linkage=linkage, attributes=source.attributes
        )
        self.values = {name: value for (name, _), value in zip(args, self.f.args)}
        self.variables: dict[str, tuple[Type, Value]] = {}
        self.exits: list[str] = []  # of the loops around
        self.left: set[str] = set()  # those that are taken
        self.depth = 0  # of inlined functions
        self.closed = False  # whether the block has ended, so that nothing can follow

    def write(self) -> None:
        self.suite(self.node.body)
        if not self.closed and self.f.result is not VOID:
            raise ValueError(f"{self.node.name} may end without a result")
        if not self.closed:
            self.f.ret()

    # Statements

    def suite(self, body: list[ast.stmt]) -> None:
        for node in body:
            getattr(self, f"write_{type(node).__name__.lower()}")(node)

    def block(self, label: str, body: list[ast.stmt], then: str) -> bool:
        """A block of its own that goes on at `then`; whether it does."""
        outer, self.values = self.values, dict(self.values)
        self.start(label)
        self.suite(body)
        self.values = outer
        reaches = not self.closed
        if reaches:
            self.f.br(then)
        return reaches

    def start(self, label: str) -> None:
        self.f.start_block(label)
        self.closed = False

    def labels(self, *hints: str) -> list[str]:
        return [self.f.new_label(hint) for hint in hints]

    def write_expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring
            self.value(node.value)

    def write_return(self, node: ast.Return) -> None:
        if self.depth:
            raise ValueError(f"an inlined function returns before its end: {ast.unparse(node)}")
        self.f.ret(self.value(node.value, self.f.result) if node.value else None)
        self.closed = True

    def write_assign(self, node: ast.Assign) -> None:
        (target,) = node.targets
        if not isinstance(target, ast.Name):
            value = self.value(node.value)
            self.f.store(value, self.address(target))
        elif target.id in self.variables:
            type, at = self.variables[target.id]
            self.f.store(self.value(node.value, type), at)
        elif target.id in self.values:
            raise ValueError(f"{target.id} is assigned again, but is no variable with a type")
        else:
            self.values[target.id] = self.value(node.value)

    def write_annassign(self, node: ast.AnnAssign) -> None:
        assert isinstance(node.target, ast.Name)
        self.variable(node.target.id, _type(node.annotation, PTR))
        if node.value:
            self.write_assign(ast.Assign([node.target], node.value))

    def variable(self, name: str, type: Type) -> Value:
        """The place of a new variable, from where LLVM takes it into registers."""
        at = self.f.alloca(type)
        self.variables[name] = type, at
        return at

    def write_if(self, node: ast.If) -> None:
        then, other, after = self.labels("then", "else", "join")
        self.branch(node.test, then, other if node.orelse else after)
        reached = self.block(then, node.body, after)
        if node.orelse:
            reached |= self.block(other, node.orelse, after)
        if reached or not node.orelse:
            self.start(after)

    def write_while(self, node: ast.While) -> None:
        again, inside, after = self.labels("while", "do", "done")
        endless = isinstance(node.test, ast.Constant)
        self.f.br(again)
        self.start(again)
        if endless:
            self.f.br(inside)
        else:
            self.branch(node.test, inside, after)
        self.exits.append(after)
        self.block(inside, node.body, again)
        self.exits.pop()
        if endless and after not in self.left:
            self.closed = True
        else:
            self.start(after)

    def write_for(self, node: ast.For) -> None:
        assert isinstance(node.target, ast.Name) and isinstance(node.iter, ast.Call)
        stop = self.value(node.iter.args[0])
        again, inside, following, after = self.labels("for", "do", "next", "done")
        at = self.variable(node.target.id, I64)
        self.f.store(llvm.const(I64, 0), at)
        self.f.br(again)
        self.start(again)
        self.f.cond_br(self.f.icmp("slt", self.f.load(I64, at), stop), inside, after)
        self.exits.append(after)
        self.block(inside, node.body, following)
        self.exits.pop()
        self.start(following)
        self.f.store(self.f.add(self.f.load(I64, at), llvm.const(I64, 1)), at)
        self.f.br(again)
        self.start(after)

    def write_break(self, node: ast.Break) -> None:
        self.f.br(self.exits[-1])
        self.left.add(self.exits[-1])
        self.closed = True

    # Conditions

    def branch(self, node: ast.expr, yes: str, no: str) -> None:
        """Go on at `yes` or at `no`."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self.branch(node.operand, no, yes)
        elif isinstance(node, ast.BoolOp):
            for part in node.values[:-1]:
                (more,) = self.labels("more")
                ends = (more, no) if isinstance(node.op, ast.And) else (yes, more)
                self.branch(part, *ends)
                self.start(more)
            self.branch(node.values[-1], yes, no)
        else:
            value = self.value(node, I1)
            if value.type != I1:
                value = self.f.icmp("ne", value, llvm.const(value.type, 0))
            self.f.cond_br(value, yes, no)

    def choose(self, test: ast.expr, then: ast.expr, other: ast.expr, like: Type) -> Value:
        yes, no, after = self.labels("then", "else", "join")
        self.branch(test, yes, no)
        ends = []
        for label, node in ((yes, then), (no, other)):
            self.start(label)
            value = self.value(node, like)
            ends.append((value, self.f.block))
            self.f.br(after)
        self.start(after)
        return self.f.phi(ends[0][0].type, ends)

    # Values

    def value(self, node: ast.expr, like: Type = I64) -> Value:
        """A value; numbers that are written down have the type `like`."""
        f = self.f
        match node:
            case ast.Constant(value=None):
                return llvm.const(PTR, 0)
            case ast.Constant(value=bool(value)):
                return llvm.const(I1, value)
            case ast.Constant(value=int(value)):
                return llvm.const(like, value)
            case ast.Name(id=name):
                return self.named(name)
            case ast.Subscript() | ast.Attribute():
                return f.load(PTR, self.address(node))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                a = self.value(left)
                return f.icmp(_COMPARISONS[type(op)], a, self.value(right, a.type))
            case ast.BinOp(left=left, op=op, right=right):
                a = self.value(left, like)
                if a.type.is_ptr:
                    return f.gep(a, self.value(right), I64)
                return _ARITHMETIC[type(op)](f, a, self.value(right, a.type))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return f.neg(self.value(operand, like))
            case ast.BoolOp() | ast.UnaryOp():
                return self.choose(node, ast.Constant(True), ast.Constant(False), I1)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self.choose(test, body, orelse, like)
            case ast.Call(func=ast.Name(id=name), args=args):
                return self.call(name, args)
        raise NotImplementedError(ast.unparse(node))

    def named(self, name: str) -> Value:
        if name in self.variables:
            return self.f.load(*self.variables[name])
        if name in self.values:
            return self.values[name]
        if name in self.signatures:
            return Value(PTR, f"@{name}")
        known = self.source.constants[name]
        return known if isinstance(known, Value) else llvm.const(I64, known)

    def address(self, node: ast.expr) -> Value:
        """Where in memory something is that can be read and written."""
        f = self.f
        match node:
            case ast.Attribute(value=ast.Name(id="state"), attr=name):
                return Value(PTR, f"@{name}")
            case ast.Attribute(value=value, attr=name):
                offset = f.load(I64, Value(PTR, f"@at_{name}"))
                return f.gep(self.value(value), offset, I8)
            case ast.Subscript(value=value, slice=index):
                return f.gep(self.value(value), self.value(index), I64)
        raise NotImplementedError(ast.unparse(node))

    def call(self, name: str, nodes: list[ast.expr]) -> Value:
        f = self.f
        if name in _BUILTINS:
            texts = [node.value if isinstance(node, ast.Constant) else None for node in nodes]
            args = [t if isinstance(t, str) else self.value(n) for t, n in zip(texts, nodes)]
            return _BUILTINS[name](f, *args)
        if name in self.inlined:
            return self.inline(self.inlined[name], nodes)
        if name not in self.signatures:
            return f.call_pointer(self.named(name), VOID, *map(self.value, nodes))
        signature = self.signatures[name]
        result, _, types = signature.partition(" ")
        likes = [_TYPES.get(t, I64) for t in types.strip("()").split(", ")]
        likes += [I64] * (len(nodes) - len(likes))
        given = ", ".join(str(self.value(node, like)) for node, like in zip(nodes, likes))
        text = f"call {signature} @{name}({given})"
        if result != "void":
            return f.op(text, _TYPES[result])
        f.emit(text)
        return llvm.undef(VOID)

    def inline(self, node: ast.FunctionDef, nodes: list[ast.expr]) -> Value:
        """What a function returns, whose last statement that is, if any."""
        values, variables = self.values, self.variables
        args = {arg.arg: self.value(x) for arg, x in zip(node.args.args, nodes)}
        self.values = {**values, **args}
        self.variables = {name: v for name, v in variables.items() if name not in args}
        last = node.body[-1]
        returned = last.value if isinstance(last, ast.Return) else None
        self.depth += 1
        self.suite(node.body[:-1] if returned else node.body)
        result = self.value(returned) if returned else llvm.undef(VOID)
        self.depth -= 1
        self.values, self.variables = values, variables
        return result


def _filled(f: Function, to: Value, size: Value, byte: Value) -> Value:
    value, no = llvm.const(I8, int(byte.ref)), llvm.const(I1, False)
    return f.intrinsic("memset", VOID, to, value, size, no, overload=(PTR, I64))


def _moved(f: Function, to: Value, source: Value, size: Value) -> Value:
    no = llvm.const(I1, False)
    return f.intrinsic("memmove", VOID, to, source, size, no, overload=(PTR, PTR, I64))


def _load(f: Function, at: Value, how: str) -> Value:
    type = _TYPES[how.partition(" ")[0]]
    atomic = f"load atomic {type}, {at} {how.partition(' ')[2]}, align {type.bits // 8}"
    return f.op(atomic, type) if " " in how else f.load(type, at)


def _store(f: Function, at: Value, x: Value, how: str) -> Value:
    type, _, order = how.partition(" ")
    if order.startswith("align"):
        f.emit(f"store {type} {x.ref}, {at}, {order}")
    elif order:
        f.emit(f"store atomic {type} {x.ref}, {at} {order}, align {_TYPES[type].bits // 8}")
    else:
        f.emit(f"store {type} {x.ref}, {at}")
    return llvm.undef(VOID)


def _update(op: str) -> Callable[..., Value]:
    def write(f: Function, at: Value, x: Value, how: str) -> Value:
        type, _, order = how.partition(" ")
        return f.op(f"atomicrmw {op} {at}, {type} {x.ref} {order}", _TYPES[type])

    return write


def _acquired(f: Function, lock: Value) -> Value:
    old = f.op(f"cmpxchg {lock}, i32 0, i32 1 acquire monotonic", Type("{ i32, i1 }"))
    return f.op(f"extractvalue {old}, 1", I1)


def _instruction(f: Function, text: str, type: str) -> Value:
    if type != "void":
        return f.op(text, _TYPES[type])
    f.emit(text)
    return llvm.undef(VOID)


def _extreme(name: str) -> Callable[..., Value]:
    return lambda f, a, b: f.intrinsic(name, a.type, a, b)


#: What stands for instructions, with the function that writes them.
_BUILTINS: Mapping[str, Callable[..., Value]] = {
    "number": lambda f, p, i: f.load(I64, f.gep(p, i, I64)),  # the word `i` words behind `p`
    "behind": lambda f, p, n: f.gep(p, n, I8),  # the address `n` bytes behind `p`
    "address": lambda f, p: f.op(f"ptrtoint {p} to i64", I64),
    "pointer": lambda f, n: f.op(f"inttoptr {n} to ptr", PTR),
    "type_of": lambda f, x: f.load(PTR, f.gep(x, 1, I64)),  # of an object of Python
    "stack": lambda f, n: f.op(f"alloca i64, {n}, align 16", PTR),  # room for `n` words
    "fill": _filled,  # (p, bytes, the byte, a number)
    "move": _moved,  # (to, source, bytes), which may overlap
    "ask": lambda f, to, *args: f.call_pointer(args[0], _TYPES[to], *args[1:]),  # ("i32", p, …)
    "ones": lambda f, x: f.unary_intrinsic("ctpop", x),
    "below": lambda f, a, b: f.icmp("ult", a, b),
    "resized": lambda f, x, to: f.int_resize(x, to, signed=False),
    "signed": lambda f, x: f.int_resize(x, "i64", signed=True),
    "smin": _extreme("smin"),
    "smax": _extreme("smax"),
    "umin": _extreme("umin"),
    "umax": _extreme("umax"),
    "load": _load,  # (p, "i32" or "i32 seq_cst")
    "store": _store,  # (p, x, as `load`, or "i32 align 2")
    "add": _update("add"),  # (p, x, "i32 seq_cst"); the old value
    "sub": _update("sub"),
    "acquired": _acquired,  # whether a lock was free, and is held now
    "instruction": _instruction,  # (text, "i64")
}
