"""Calls of compiled programs in machine code: what Python would do between a call and its kernels.

The functions here have the signatures of Python's own built-in functions and are made into methods
by `runtime.dispatch`. Each looks whether a call is one of those that were recorded, which are
arrays of one place whose types are compared as pointers; if so, it makes the results,
runs the program and is done. Whatever else it meets it leaves to the method in Python it stands
for: it raises nothing of its own.

Of Python only functions of its API are called. Where slots of objects lie is measured.

A *record* is a tuple whose first item is a bytes object of 64-bit words; the others are what
addresses among these words belong to:

| words | hold |
|---|---|
| `KEY` | what the trace depends on (`config._trace_key`) |
| `ARGUMENTS`, `NAMES` | how many arguments are given by position and by name |
| `LEAVES` | how many arrays they hold |
| `SLOTS` | words that the program takes: itself, arena, 0, arguments, results, zeros |
| `CODE` | the program, which `amdjax_run` runs |
| `ISSUE` | what is called with these words as bytes instead, on GPUs; or null |
| `KIND`, `PLACE` | the type of arguments, and their placement; null of those in the host's memory |
| `HOME` | the pool of the device's memory that they lie in; null for the host's |
| `ARENA` | memory for the workspace |
| `WHOLE` | memory that all results share |
| `TREE` | what makes the result of a list of arrays: null of the only one, `None` a list |
| `DONATED` | how many leaves are gone after the call |
| `OUTS` | how many results; of each, behind these: an array without memory, how many words that |
|   | has, memory, offset in the shared memory, the leaf whose memory it takes over or -1 |
| behind the results | the leaves that are donated |
| behind these | arguments, one behind the other; each by name has its name before it |

A call is none of the record where memory of a donated leaf is others' too, or not ours. If both
`CODE` and `ISSUE` are null, `TREE` makes the result of a list of the arguments' arrays.

Memory is four words: a buffer without an address, how many words that has, a list of free
addresses, and what makes a buffer if that is null or empty; all null if there is none. What is
made anew is a copy of an object that lacks a value, so that all its other slots are as they should
be. Arguments are trees in prefix form:

| node | words |
|---|---|
| `LEAF` | which leaf, its type: an array as `KIND`, `PLACE` and `HOME` say, that has no name |
| `ARRAY` | which leaf, its type, that of the object, its placement or null |
| `SAME` | the object |
| `TUPLE`, `LIST` | its type, how many children; these |
| `DICT` | how many children; of each the key, and the child |
"""

from __future__ import annotations

from amdjax.codegen.llvm import PTR, Value
from amdjax.codegen.restricted import Source

KEY, ARGUMENTS, NAMES, LEAVES, SLOTS, CODE, ISSUE, KIND, PLACE, HOME = range(10)
ARENA, WHOLE, TREE, DONATED, OUTS, HEADER = 10, 14, 18, 19, 20, 21
RESULT = 8  # words of each
LEAF, SAME, TUPLE, LIST, DICT, ARRAY = range(6)
OPERATORS = 32  # how many there may be

#: What `amdjax_dispatch_configure` is told, in this order. Those that begin with `at_` are offsets.
STATE = (
    "none", "str", "dict",
    "array", "at_aval", "at_buffer", "placed", "at_placement", "at_named",
    "memory", "small", "at_address", "at_free", "at_whole", "device", "at_home", "at_host", "list",
    "true", "is_own",
    "local", "context", "config", "attributes", "trace", "trace_key", "base", "events", "recorder",
    "at_programs", "at_records", "operations", "call", "bind", "release",
)  # fmt: skip

#: Functions of Python that are called, with their types.
PYTHON = {
    "PyBytes_AsString": "ptr (ptr)",
    "PyBytes_FromStringAndSize": "ptr (ptr, i64)",
    "PyDict_GetItemWithError": "ptr (ptr, ptr)",
    "PyDict_Next": "i32 (ptr, ptr, ptr, ptr)",
    "PyDict_SetItem": "i32 (ptr, ptr, ptr)",
    "PyDict_Size": "i64 (ptr)",
    "PyErr_Clear": "void ()",
    "PyList_Append": "i32 (ptr, ptr)",
    "PyList_GetItem": "ptr (ptr, i64)",
    "PyList_New": "ptr (i64)",
    "PyList_SetItem": "i32 (ptr, i64, ptr)",
    "PyList_SetSlice": "i32 (ptr, i64, i64, ptr)",
    "PyList_Size": "i64 (ptr)",
    "PyLong_AsVoidPtr": "ptr (ptr)",
    "PyLong_FromVoidPtr": "ptr (ptr)",
    "PyObject_CallFunctionObjArgs": "ptr (ptr, ...)",
    "PyObject_GetAttr": "ptr (ptr, ptr)",
    "PyObject_Vectorcall": "ptr (ptr, ptr, i64, ptr)",
    "PyThreadState_GetDict": "ptr ()",
    "PyTuple_GetItem": "ptr (ptr, i64)",
    "PyTuple_New": "ptr (i64)",
    "PyTuple_SetItem": "i32 (ptr, i64, ptr)",
    "PyTuple_Size": "i64 (ptr)",
    "PyType_GenericAlloc": "ptr (ptr, i64)",
    "PyType_IsSubtype": "i32 (ptr, ptr)",
    "PyUnicode_Compare": "i32 (ptr, ptr)",
    "Py_DecRef": "void (ptr)",
    "Py_IncRef": "void (ptr)",
}

_TEXT = '''
def current() -> ptr:
    "What a call depends on besides its arguments, borrowed; null where it is for Python to see to."
    threads = PyThreadState_GetDict()
    if not threads:
        return None
    pair: ptr = PyDict_GetItemWithError(threads, state.local)
    if not pair:
        pair = watched(threads)
        if not pair:
            PyErr_Clear()
            return None
    if PyDict_GetItemWithError(PyTuple_GetItem(pair, 0), state.trace) != state.base:
        return None
    if PyDict_GetItemWithError(state.events, state.recorder) != state.none:
        return None
    return PyDict_GetItemWithError(PyTuple_GetItem(pair, 1), state.trace_key)

def watched(threads) -> ptr:
    "The dictionaries that calls of a thread depend on, kept among its own; null if Python raised."
    first = PyObject_GetAttr(state.context, state.attributes)
    second = PyObject_GetAttr(state.config, state.attributes)
    pair = PyTuple_New(2)
    if not first or not second or not pair:
        Py_DecRef(first)
        Py_DecRef(second)
        Py_DecRef(pair)
        return None
    PyTuple_SetItem(pair, 0, first)
    PyTuple_SetItem(pair, 1, second)
    failed = PyDict_SetItem(threads, state.local, pair)
    Py_DecRef(pair)
    return None if failed else pair

# Matching arguments. What is matched is held by its caller, and no code of Python runs.

def place(w, x, to, held) -> i1:
    """Where the memory of an array lies, and the buffer to be held; false if it is not that of a
    record, or gone."""
    b = x.buffer
    if not b:
        return False
    if w[HOME]:
        if type_of(b) != state.device or b.home != w[HOME]:
            return False
    elif type_of(b) != state.small and not PyType_IsSubtype(type_of(b), state.memory):
        return False
    if not b.address:
        return False
    to[0] = PyLong_AsVoidPtr(b.address)
    held[0] = b
    return True

def is_at(x, place) -> i1:
    "Whether an array is at a placement and has no name; any is that is in the host's memory."
    return not place or x.placement == place and x.named == state.none

def same_name(x, name) -> i1:
    "Whether two names are the same; the second is a string."
    if x == name:
        return True
    return type_of(x) == state.str and PyUnicode_Compare(x, name) == 0

def walk(w, node, x, places, held) -> ptr:
    "Match a tree with a node; what lies behind the node, null if it is another tree."
    kind = number(node, 0)
    if kind == LEAF:
        return leaf(w, node, x, places, held)
    if kind == TUPLE or kind == LIST:
        return sequence(w, node, x, places, held, kind)
    if kind == DICT:
        return dictionary(w, node, x, places, held)
    if kind == SAME:
        return node + 2 if x == node[1] else None
    if kind == ARRAY and type_of(x) == node[3] and x.aval == node[2]:
        if not node[4] or x.placement == node[4]:
            held[number(node, 1)] = x
            return node + 5
    return None

def leaf(w, node, x, places, held) -> ptr:
    if type_of(x) != w[KIND] or x.aval != node[2] or not is_at(x, w[PLACE]):
        return None
    i = number(node, 1)
    held[i + number(w, LEAVES)] = x
    return node + 3 if place(w, x, places + i, held + i) else None

def sequence(w, node, x, places, held, kind: i64) -> ptr:
    if type_of(x) != node[1]:
        return None
    n = PyTuple_Size(x) if kind == TUPLE else PyList_Size(x)
    if n != number(node, 2):
        return None
    child: ptr = node + 3
    for i in range(n):
        y = PyTuple_GetItem(x, i) if kind == TUPLE else PyList_GetItem(x, i)
        child = walk(w, child, y, places, held)
        if not child:
            return None
    return child

def dictionary(w, node, x, places, held) -> ptr:
    if type_of(x) != state.dict or PyDict_Size(x) != number(node, 1):
        return None
    entry = stack(3)  # where the dictionary is, a key and its value
    entry[0] = 0
    pair: ptr = node + 2
    while PyDict_Next(x, entry, entry + 1, entry + 2):
        if not same_name(entry[1], pair[0]):
            return None
        pair = walk(w, pair + 1, entry[2], places, held)
        if not pair:
            return None
    return pair

# Running

def copied(x, words: i64) -> ptr:
    "A copy of an object of so many words; null if Python raised."
    new = PyType_GenericAlloc(type_of(x), 0)
    if new:
        for i in range(words - 2):
            if x[i + 2]:
                Py_IncRef(x[i + 2])
                new[i + 2] = x[i + 2]
    return new

def allocate(memory) -> ptr:
    "A new buffer, taken from free addresses if there are any; null if Python raised."
    free = memory[2]
    n = PyList_Size(free) if free else 0
    if n <= 0:
        return PyObject_CallFunctionObjArgs(memory[3], None)
    address = PyList_GetItem(free, n - 1)
    Py_IncRef(address)
    if not PyList_SetSlice(free, n - 1, n, None):
        buffer = copied(memory[0], number(memory, 1))
        if buffer:
            buffer.address = address
            return buffer
        PyList_Append(free, address)
    Py_DecRef(address)
    return None

def address_of(buffer) -> ptr:
    return PyLong_AsVoidPtr(buffer.address)

def part_of(memory, whole, start, offset: i64) -> ptr:
    "A part of a buffer."
    buffer = copied(memory[0], number(memory, 1))
    if not buffer:
        return None
    Py_IncRef(whole)
    buffer.whole = whole
    address = PyLong_FromVoidPtr(behind(start, offset))
    if address:
        buffer.address = address
        return buffer
    Py_DecRef(buffer)
    return None

def donations(w) -> ptr:
    "Where the donated leaves of a record are listed."
    return w + (HEADER + RESULT * number(w, OUTS))

def are_alone(w, held) -> i1:
    "Whether the memory of each donated leaf is its array's alone, besides being held, and ours."
    for i in range(number(w, DONATED)):
        b = held[number(donations(w), i)]
        if number(b, 0) != 2:
            return False
        ours = PyObject_GetAttr(b, state.is_own)
        Py_DecRef(ours)  # it is a constant
        if ours != state.true:
            return False
    return True

def hold_donated(w, arrays):
    "Hold the arrays of donated leaves."
    for i in range(number(w, DONATED)):
        Py_IncRef(arrays[number(donations(w), i)])

def drop_donated(w, arrays, spent: i1):
    "Let them go, without their memory if it has been spent."
    for i in range(number(w, DONATED)):
        x = arrays[number(donations(w), i)]
        if spent:
            buffer = x.buffer
            Py_IncRef(state.none)
            x.buffer = state.none
            Py_DecRef(buffer)
        Py_DecRef(x)

def let_go(objects, n: i64):
    for i in range(n):
        Py_DecRef(objects[i])

def make_results(w, block, held, made, owned) -> i64:
    "Make arrays with memory for the results, as many as there are unless Python raised."
    results = block + (3 + number(w, LEAVES))
    if w[ARENA]:
        owned[0] = allocate(w + ARENA)
        if not owned[0]:
            return -1
        block[1] = address_of(owned[0])
    if w[WHOLE]:
        owned[1] = allocate(w + WHOLE)
        if not owned[1]:
            return -1
        results[0] = address_of(owned[1])
    for j in range(number(w, OUTS)):
        out = w + (HEADER + RESULT * j)
        memory = out + 2
        donor = number(out, 7)
        buffer: ptr
        if owned[1]:
            buffer = part_of(memory, owned[1], results[0], number(out, 6))
        elif donor >= 0:
            buffer = held[donor]
            Py_IncRef(buffer)
            if w[HOME]:
                copy_in_host = buffer.host
                Py_IncRef(state.none)
                buffer.host = state.none
                Py_DecRef(copy_in_host)
        else:
            buffer = allocate(memory)
        if not buffer:
            return j
        if not owned[1]:
            results[j] = address_of(buffer)
        array = copied(out[0], number(out, 1))
        if not array:
            Py_DecRef(buffer)
            return j
        array.buffer = buffer
        made[j] = array
    return number(w, OUTS)

def run(w, block) -> i64:
    "Run the program; RAISED if Python raised, UNSPENT if it did before anything was written."
    if not w[ISSUE]:
        return RAISED if amdjax_run(block) else 0
    bytes = PyBytes_FromStringAndSize(block, 8 * number(w, SLOTS))
    if not bytes:
        return UNSPENT
    told = PyObject_CallFunctionObjArgs(w[ISSUE], bytes, None)
    Py_DecRef(bytes)
    Py_DecRef(told)
    return 0 if told else RAISED

def assembled(w, made) -> ptr:
    "What is made of the arrays of results; null if Python raised."
    outs = number(w, OUTS)
    if not w[TREE]:
        return made[0]
    list = PyList_New(outs)
    if not list:
        let_go(made, outs)
        return None
    for i in range(outs):
        PyList_SetItem(list, i, made[i])
    if w[TREE] == state.none:
        return list
    built = PyObject_CallFunctionObjArgs(w[TREE], list, None)
    Py_DecRef(list)
    return built

def execute(record, w, block, held) -> ptr:
    """The results of a record whose arguments lie at the third word of `block` and later, OTHER if
    there is no memory for them, null if Python raised."""
    leaves = number(w, LEAVES)
    arrays = held + leaves
    block[0] = w[CODE]
    answer: ptr = OTHER
    Py_IncRef(record)
    for i in range(leaves):
        Py_IncRef(held[i])
    if are_alone(w, held):
        hold_donated(w, arrays)
        made = stack(number(w, OUTS))
        owned = stack(2)  # the workspace, and what all results share
        fill(owned, 16, 0)
        spent: i1 = False
        count = make_results(w, block, held, made, owned)
        if count == number(w, OUTS):
            status = run(w, block)
            spent = status != UNSPENT
            if status:
                let_go(made, count)
                answer = None
            else:
                answer = assembled(w, made)
        else:
            PyErr_Clear()  # Python will see, and tell
            let_go(made, count)
        let_go(owned, 2)
        drop_donated(w, arrays, spent)
    let_go(held, leaves)
    Py_DecRef(record)
    return answer

# Calls of compiled functions

def attempt(record, w, args, n: i64, names) -> ptr:
    "The results if a call is the one of a record, OTHER if it is another, null if Python raised."
    leaves = number(w, LEAVES)
    block = stack(number(w, SLOTS))
    held = stack(2 * leaves)  # buffers, then arrays
    fill(block, 8 * number(w, SLOTS), 0)
    in_python = not (w[CODE] or w[ISSUE])
    arrays: ptr = None
    if in_python:
        # Before matching: making a list may collect garbage, and so run code of Python.
        arrays = PyList_New(leaves)
        if not arrays:
            return None
    if not matches(w, args, n, names, block + 3, held):
        Py_DecRef(arrays)
        return OTHER
    if not in_python:
        return execute(record, w, block, held)
    for i in range(leaves):
        set_list_item(arrays, i, held[i])
    called = PyObject_CallFunctionObjArgs(w[TREE], arrays, None)
    Py_DecRef(arrays)
    return called

def set_list_item(list, i: i64, x):
    Py_IncRef(x)
    PyList_SetItem(list, i, x)

def matches(w, args, n: i64, names, places, held) -> i1:
    node: ptr = donations(w) + number(w, DONATED)
    for i in range(n):
        node = walk(w, node, args[i], places, held)
        if not node:
            return False
    for j in range(number(w, NAMES)):
        if not same_name(PyTuple_GetItem(names, j), node[0]):
            return False
        node = walk(w, node + 1, args[n + j], places, held)
        if not node:
            return False
    return True

def in_python(f, self, args, n: i64, names) -> ptr:
    "The method in Python."
    count = n + (PyTuple_Size(names) if names else 0)
    given = stack(count + 1)
    given[0] = self
    move(given + 1, args, 8 * count)
    return PyObject_Vectorcall(f, given, n + 1, names)

def amdjax_call(self, args, n: i64, names) -> ptr:
    key = current()
    if key and self.programs and self.programs.records:
        known = self.programs.records
        Py_IncRef(known)
        named = PyTuple_Size(names) if names else 0
        for i in range(PyTuple_Size(known)):
            record = PyTuple_GetItem(known, i)
            w = PyBytes_AsString(PyTuple_GetItem(record, 0))
            if w[KEY] == key and number(w, ARGUMENTS) == n and number(w, NAMES) == named:
                result = attempt(record, w, args, n, names)
                if result != OTHER:
                    Py_DecRef(known)
                    return result
        Py_DecRef(known)
    return in_python(state.call, self, args, n, names)

# Single operations

def on_arrays(record, args, n: i64) -> ptr:
    "Run a record on arrays whose types are known to be right."
    w = PyBytes_AsString(PyTuple_GetItem(record, 0))
    block = stack(number(w, SLOTS))
    held = stack(n)
    fill(block, 8 * number(w, SLOTS), 0)
    for i in range(n):
        if not place(w, args[i], block + (3 + i), held + i):
            return OTHER
    return execute(record, w, block, held)

def set_item(tuple, i: i64, x):
    Py_IncRef(x)
    PyTuple_SetItem(tuple, i, x)

def operate(operation, args, n: i64, names) -> ptr:
    "What an operation gives on arrays with parameters behind them, as `attempt` does."
    key = current()
    if not key:
        return OTHER
    # All are in the host's memory, or all at the placement of the first.
    kind: ptr = state.array
    place: ptr = None
    if n > 0 and type_of(args[0]) == state.placed:
        kind = state.placed
        place = args[0].placement
        if not place:
            return OTHER
    for i in range(n):
        x = args[i]
        if type_of(x) != kind or not is_at(x, place) or not x.aval:
            return OTHER
    named = PyTuple_Size(names) if names else 0
    first = 3 if place else 2
    last = first + n
    tuple = PyTuple_New(last + (named + 1 if named > 0 else 0))
    if not tuple:
        PyErr_Clear()
        return OTHER
    set_item(tuple, 0, operation)
    set_item(tuple, 1, key)
    if place:
        set_item(tuple, 2, place)
    for i in range(n):
        set_item(tuple, first + i, args[i].aval)
    if named > 0:
        set_item(tuple, last, names)
        for i in range(named):
            set_item(tuple, last + 1 + i, args[n + i])
    record = PyDict_GetItemWithError(state.operations, tuple)
    Py_IncRef(record)
    Py_DecRef(tuple)
    if not record:
        PyErr_Clear()
        return OTHER
    result = on_arrays(record, args, n)
    Py_DecRef(record)
    return result

def amdjax_bind(self, args, n: i64, names) -> ptr:
    result = operate(self, args, n, names)
    if result != OTHER:
        return result
    return in_python(state.bind, self, args, n, names)

def amdjax_set_operator(k: i64, method):
    operators[k] = method

def operator(k: i64, self, other) -> ptr:
    "An operator on two arrays is an operation of which its method in Python is the name."
    args = stack(2)
    args[0] = self
    args[1] = other
    result = operate(operators[k], args, 2, None)
    if result != OTHER:
        return result
    return PyObject_Vectorcall(operators[k], args, 2, None)

def amdjax_release(self, unused) -> ptr:
    "The finalizer of a buffer whose address goes back to a list; of others Python's."
    if self.free and self.address:
        if type_of(self.free) != state.list:
            return PyObject_CallFunctionObjArgs(state.release, self, None)
        if PyList_Append(self.free, self.address):
            return None
    Py_IncRef(state.none)
    return state.none
'''

_CONSTANTS: dict[str, Value | int] = {
    "KEY": KEY, "ARGUMENTS": ARGUMENTS, "NAMES": NAMES, "LEAVES": LEAVES, "SLOTS": SLOTS,
    "CODE": CODE, "ISSUE": ISSUE, "KIND": KIND, "PLACE": PLACE, "HOME": HOME, "ARENA": ARENA,
    "WHOLE": WHOLE, "TREE": TREE, "DONATED": DONATED, "OUTS": OUTS, "HEADER": HEADER,
    "RESULT": RESULT, "LEAF": LEAF, "SAME": SAME, "TUPLE": TUPLE, "LIST": LIST, "DICT": DICT,
    "ARRAY": ARRAY, "RAISED": 1, "UNSPENT": 2, "OTHER": Value(PTR, "inttoptr (i64 1 to ptr)"),
    "operators": Value(PTR, "@operators"),
}  # fmt: skip


def dispatch_source() -> Source:
    """The functions."""
    told = [f"    state.{name} = w[{i}]" for i, name in enumerate(STATE)]
    operators = [
        f"def amdjax_operator_{k}(self, other) -> ptr: return operator({k}, self, other)"
        for k in range(OPERATORS)
    ]
    text = "\n".join([_TEXT, "def amdjax_dispatch_configure(w):", *told, *operators])
    definitions = [f"@{name} = internal global i64 0" for name in STATE]
    definitions.append(f"@operators = internal global [{OPERATORS} x ptr] zeroinitializer")
    return Source(text, _CONSTANTS, PYTHON | {"amdjax_run": "i64 (ptr)"}, definitions)
