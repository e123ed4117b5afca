"""Calls of compiled programs as LLVM IR: what Python would do between a call and its kernels.

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

_TEXT = r"""
declare i64 @amdjax_run(ptr)

; Slots of objects

define internal ptr @type_of(ptr %x) alwaysinline {
  %p = getelementptr ptr, ptr %x, i64 1
  %t = load ptr, ptr %p
  ret ptr %t
}

define internal ptr @slot(ptr %x, ptr %where) alwaysinline {
  %at = load i64, ptr %where
  %p = getelementptr i8, ptr %x, i64 %at
  ret ptr %p
}

; Fill an empty slot; the reference goes to it.
define internal void @fill(ptr %x, ptr %where, ptr %value) alwaysinline {
  %p = call ptr @slot(ptr %x, ptr %where)
  store ptr %value, ptr %p
  ret void
}

define internal ptr @word(ptr %w, i64 %i) alwaysinline {
  %p = getelementptr ptr, ptr %w, i64 %i
  %v = load ptr, ptr %p
  ret ptr %v
}

define internal i64 @number(ptr %w, i64 %i) alwaysinline {
  %p = getelementptr i64, ptr %w, i64 %i
  %v = load i64, ptr %p
  ret i64 %v
}

; What a call depends on besides its arguments, borrowed; null where it is for Python to see to.
define internal ptr @current() {
  %threads = call ptr @PyThreadState_GetDict()
  %none = icmp eq ptr %threads, null
  br i1 %none, label %no, label %known
known:
  %name = load ptr, ptr @local
  %found = call ptr @PyDict_GetItemWithError(ptr %threads, ptr %name)
  %new = icmp eq ptr %found, null
  br i1 %new, label %make, label %look
make:
  %context = load ptr, ptr @context
  %config = load ptr, ptr @config
  %attributes = load ptr, ptr @attributes
  %first = call ptr @PyObject_GetAttr(ptr %context, ptr %attributes)
  %second = call ptr @PyObject_GetAttr(ptr %config, ptr %attributes)
  %pair = call ptr @PyTuple_New(i64 2)
  %a = icmp eq ptr %first, null
  %b = icmp eq ptr %second, null
  %c = icmp eq ptr %pair, null
  %ab = or i1 %a, %b
  %failed = or i1 %ab, %c
  br i1 %failed, label %drop, label %put
drop:
  call void @Py_DecRef(ptr %first)
  call void @Py_DecRef(ptr %second)
  call void @Py_DecRef(ptr %pair)
  br label %clear
put:
  call i32 @PyTuple_SetItem(ptr %pair, i64 0, ptr %first)
  call i32 @PyTuple_SetItem(ptr %pair, i64 1, ptr %second)
  %status = call i32 @PyDict_SetItem(ptr %threads, ptr %name, ptr %pair)
  call void @Py_DecRef(ptr %pair)
  %kept = icmp eq i32 %status, 0
  br i1 %kept, label %look, label %clear
look:
  %dicts = phi ptr [%found, %known], [%pair, %put]
  %of_context = call ptr @PyTuple_GetItem(ptr %dicts, i64 0)
  %trace_name = load ptr, ptr @trace
  %trace = call ptr @PyDict_GetItemWithError(ptr %of_context, ptr %trace_name)
  %base = load ptr, ptr @base
  %plain = icmp eq ptr %trace, %base
  br i1 %plain, label %listen, label %no
listen:
  %events = load ptr, ptr @events
  %recorder_name = load ptr, ptr @recorder
  %recorder = call ptr @PyDict_GetItemWithError(ptr %events, ptr %recorder_name)
  %silence = load ptr, ptr @none
  %quiet = icmp eq ptr %recorder, %silence
  br i1 %quiet, label %key, label %no
key:
  %of_config = call ptr @PyTuple_GetItem(ptr %dicts, i64 1)
  %key_name = load ptr, ptr @trace_key
  %value = call ptr @PyDict_GetItemWithError(ptr %of_config, ptr %key_name)
  ret ptr %value
clear:
  call void @PyErr_Clear()
  br label %no
no:
  ret ptr null
}

; Matching arguments. What is matched is held by its caller, and no code of Python runs.

; Where the memory of an array lies, and the buffer to be held; false if it is not that of a
; record, or gone.
define internal i1 @place(ptr %w, ptr %x, ptr %to, ptr %held) {
  %b.p = call ptr @slot(ptr %x, ptr @at_buffer)
  %b = load ptr, ptr %b.p
  %none = icmp eq ptr %b, null
  br i1 %none, label %no, label %check
check:
  %t = call ptr @type_of(ptr %b)
  %home = call ptr @word(ptr %w, i64 HOME)
  %in.host = icmp eq ptr %home, null
  br i1 %in.host, label %host, label %elsewhere
host:
  %small = load ptr, ptr @small
  %usual = icmp eq ptr %t, %small
  br i1 %usual, label %read, label %other
other:
  %memory = load ptr, ptr @memory
  %is = call i32 @PyType_IsSubtype(ptr %t, ptr %memory)
  %is.host = icmp ne i32 %is, 0
  br i1 %is.host, label %read, label %no
elsewhere:
  %device = load ptr, ptr @device
  %on.device = icmp eq ptr %t, %device
  br i1 %on.device, label %whose, label %no
whose:
  %home.p = call ptr @slot(ptr %b, ptr @at_home)
  %its = load ptr, ptr %home.p
  %here = icmp eq ptr %its, %home
  br i1 %here, label %read, label %no
read:
  %a.p = call ptr @slot(ptr %b, ptr @at_address)
  %a = load ptr, ptr %a.p
  %unset = icmp eq ptr %a, null
  br i1 %unset, label %no, label %yes
yes:
  %v = call ptr @PyLong_AsVoidPtr(ptr %a)
  store ptr %v, ptr %to
  store ptr %b, ptr %held
  ret i1 true
no:
  ret i1 false
}

; Whether an array is at a placement and has no name; any is that is in the host's memory.
define internal i1 @is_at(ptr %x, ptr %place) alwaysinline {
  %host = icmp eq ptr %place, null
  br i1 %host, label %yes, label %where
where:
  %its.p = call ptr @slot(ptr %x, ptr @at_placement)
  %its = load ptr, ptr %its.p
  %same = icmp eq ptr %its, %place
  br i1 %same, label %name, label %no
name:
  %name.p = call ptr @slot(ptr %x, ptr @at_named)
  %its.name = load ptr, ptr %name.p
  %none = load ptr, ptr @none
  %unnamed = icmp eq ptr %its.name, %none
  br i1 %unnamed, label %yes, label %no
yes:
  ret i1 true
no:
  ret i1 false
}

; Whether two names are the same; the second is a string.
define internal i1 @same_name(ptr %x, ptr %name) {
  %same = icmp eq ptr %x, %name
  br i1 %same, label %yes, label %type
type:
  %t = call ptr @type_of(ptr %x)
  %str = load ptr, ptr @str
  %is = icmp eq ptr %t, %str
  br i1 %is, label %compare, label %no
compare:
  %c = call i32 @PyUnicode_Compare(ptr %x, ptr %name)
  %equal = icmp eq i32 %c, 0
  ret i1 %equal
yes:
  ret i1 true
no:
  ret i1 false
}

; Match a tree with a node; what lies behind the node, null if it is another tree.
define internal ptr @walk(ptr %w, ptr %node, ptr %x, ptr %places, ptr %held) {
entry:
  %at = alloca i64
  %k.p = alloca ptr
  %v.p = alloca ptr
  %kind = load i64, ptr %node
  switch i64 %kind, label %no [
    i64 LEAF, label %leaf i64 SAME, label %same i64 TUPLE, label %tuple
    i64 LIST, label %list i64 DICT, label %dict i64 ARRAY, label %any ]
leaf:
  %t = call ptr @type_of(ptr %x)
  %kind.wanted = call ptr @word(ptr %w, i64 KIND)
  %plain = icmp eq ptr %t, %kind.wanted
  br i1 %plain, label %typed, label %no
typed:
  %aval.p = call ptr @slot(ptr %x, ptr @at_aval)
  %aval = load ptr, ptr %aval.p
  %wanted = call ptr @word(ptr %node, i64 2)
  %fits = icmp eq ptr %aval, %wanted
  br i1 %fits, label %placed, label %no
placed:
  %place = call ptr @word(ptr %w, i64 PLACE)
  %at.place = call i1 @is_at(ptr %x, ptr %place)
  br i1 %at.place, label %where, label %no
where:
  %i = call i64 @number(ptr %node, i64 1)
  %to = getelementptr ptr, ptr %places, i64 %i
  %hold = getelementptr ptr, ptr %held, i64 %i
  %there = call i1 @place(ptr %w, ptr %x, ptr %to, ptr %hold)
  %leaves = call i64 @number(ptr %w, i64 LEAVES)
  %array.p = getelementptr ptr, ptr %hold, i64 %leaves
  store ptr %x, ptr %array.p
  %after.leaf = getelementptr i64, ptr %node, i64 3
  br i1 %there, label %done.leaf, label %no
done.leaf:
  ret ptr %after.leaf
any:
  %any.type = call ptr @type_of(ptr %x)
  %any.exact = call ptr @word(ptr %node, i64 3)
  %any.is = icmp eq ptr %any.type, %any.exact
  br i1 %any.is, label %any.typed, label %no
any.typed:
  %any.p = call ptr @slot(ptr %x, ptr @at_aval)
  %any.aval = load ptr, ptr %any.p
  %any.wanted = call ptr @word(ptr %node, i64 2)
  %any.fits = icmp eq ptr %any.aval, %any.wanted
  br i1 %any.fits, label %any.placed, label %no
any.placed:
  %placement = call ptr @word(ptr %node, i64 4)
  %anywhere = icmp eq ptr %placement, null
  br i1 %anywhere, label %any.done, label %any.where
any.where:
  %any.at = call ptr @slot(ptr %x, ptr @at_placement)
  %any.placement = load ptr, ptr %any.at
  %any.there = icmp eq ptr %any.placement, %placement
  br i1 %any.there, label %any.done, label %no
any.done:
  %any.i = call i64 @number(ptr %node, i64 1)
  %any.hold = getelementptr ptr, ptr %held, i64 %any.i
  store ptr %x, ptr %any.hold
  %after.any = getelementptr i64, ptr %node, i64 5
  ret ptr %after.any
same:
  %object = call ptr @word(ptr %node, i64 1)
  %is = icmp eq ptr %x, %object
  %after.same = getelementptr i64, ptr %node, i64 2
  br i1 %is, label %done.same, label %no
done.same:
  ret ptr %after.same
tuple:
  br label %sequence
list:
  br label %sequence
sequence:
  %size = phi ptr [@PyTuple_Size, %tuple], [@PyList_Size, %list]
  %get = phi ptr [@PyTuple_GetItem, %tuple], [@PyList_GetItem, %list]
  %type = call ptr @type_of(ptr %x)
  %exact = call ptr @word(ptr %node, i64 1)
  %is.sequence = icmp eq ptr %type, %exact
  br i1 %is.sequence, label %count, label %no
count:
  %n = call i64 %size(ptr %x)
  %m = call i64 @number(ptr %node, i64 2)
  %long = icmp eq i64 %n, %m
  %children = getelementptr i64, ptr %node, i64 3
  br i1 %long, label %items, label %no
items:
  %j = phi i64 [0, %count], [%j.next, %item.done]
  %child = phi ptr [%children, %count], [%after, %item.done]
  %more = icmp slt i64 %j, %n
  br i1 %more, label %item, label %done
item:
  %y = call ptr %get(ptr %x, i64 %j)
  %after = call ptr @walk(ptr %w, ptr %child, ptr %y, ptr %places, ptr %held)
  %other = icmp eq ptr %after, null
  br i1 %other, label %no, label %item.done
item.done:
  %j.next = add i64 %j, 1
  br label %items
done:
  ret ptr %child
dict:
  %dict.type = call ptr @type_of(ptr %x)
  %dict.exact = load ptr, ptr @dict
  %is.dict = icmp eq ptr %dict.type, %dict.exact
  br i1 %is.dict, label %dict.count, label %no
dict.count:
  %dn = call i64 @PyDict_Size(ptr %x)
  %dm = call i64 @number(ptr %node, i64 1)
  %dict.long = icmp eq i64 %dn, %dm
  %pairs = getelementptr i64, ptr %node, i64 2
  store i64 0, ptr %at
  br i1 %dict.long, label %entries, label %no
entries:
  %pair = phi ptr [%pairs, %dict.count], [%pair.after, %value]
  %got = call i32 @PyDict_Next(ptr %x, ptr %at, ptr %k.p, ptr %v.p)
  %ended = icmp eq i32 %got, 0
  br i1 %ended, label %dict.done, label %entry.key
entry.key:
  %k = load ptr, ptr %k.p
  %k.wanted = load ptr, ptr %pair
  %k.same = call i1 @same_name(ptr %k, ptr %k.wanted)
  %value.node = getelementptr i64, ptr %pair, i64 1
  br i1 %k.same, label %value, label %no
value:
  %v = load ptr, ptr %v.p
  %pair.after = call ptr @walk(ptr %w, ptr %value.node, ptr %v, ptr %places, ptr %held)
  %pair.other = icmp eq ptr %pair.after, null
  br i1 %pair.other, label %no, label %entries
dict.done:
  ret ptr %pair
no:
  ret ptr null
}

; Running

; A copy of an object of so many words; null if Python raised.
define internal ptr @copied(ptr %x, i64 %words) {
entry:
  %type = call ptr @type_of(ptr %x)
  %new = call ptr @PyType_GenericAlloc(ptr %type, i64 0)
  %failed = icmp eq ptr %new, null
  br i1 %failed, label %done, label %loop
loop:
  %i = phi i64 [2, %entry], [%i.next, %next]
  %more = icmp slt i64 %i, %words
  br i1 %more, label %one, label %done
one:
  %value = call ptr @word(ptr %x, i64 %i)
  %unset = icmp eq ptr %value, null
  br i1 %unset, label %next, label %set
set:
  call void @Py_IncRef(ptr %value)
  %to = getelementptr ptr, ptr %new, i64 %i
  store ptr %value, ptr %to
  br label %next
next:
  %i.next = add i64 %i, 1
  br label %loop
done:
  ret ptr %new
}

; A new buffer, taken from free addresses if there are any; null if Python raised.
define internal ptr @allocate(ptr %memory) {
  %free = call ptr @word(ptr %memory, i64 2)
  %none = icmp eq ptr %free, null
  br i1 %none, label %python, label %count
count:
  %n = call i64 @PyList_Size(ptr %free)
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %take, label %python
take:
  %last = sub i64 %n, 1
  %address = call ptr @PyList_GetItem(ptr %free, i64 %last)
  call void @Py_IncRef(ptr %address)
  %status = call i32 @PyList_SetSlice(ptr %free, i64 %last, i64 %n, ptr null)
  %kept = icmp ne i32 %status, 0
  br i1 %kept, label %leave, label %taken
taken:
  %like = load ptr, ptr %memory
  %words = call i64 @number(ptr %memory, i64 1)
  %buffer = call ptr @copied(ptr %like, i64 %words)
  %failed = icmp eq ptr %buffer, null
  br i1 %failed, label %back, label %fill
fill:
  call void @fill(ptr %buffer, ptr @at_address, ptr %address)
  ret ptr %buffer
back:
  %again = call i32 @PyList_Append(ptr %free, ptr %address)
  br label %leave
leave:
  call void @Py_DecRef(ptr %address)
  ret ptr null
python:
  %make = call ptr @word(ptr %memory, i64 3)
  %made = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr %make, ptr null)
  ret ptr %made
}

define internal ptr @address_of(ptr %buffer) alwaysinline {
  %p = call ptr @slot(ptr %buffer, ptr @at_address)
  %a = load ptr, ptr %p
  %v = call ptr @PyLong_AsVoidPtr(ptr %a)
  ret ptr %v
}

; A part of a buffer.
define internal ptr @part_of(ptr %memory, ptr %whole, ptr %start, i64 %offset) {
  %like = load ptr, ptr %memory
  %words = call i64 @number(ptr %memory, i64 1)
  %buffer = call ptr @copied(ptr %like, i64 %words)
  %failed = icmp eq ptr %buffer, null
  br i1 %failed, label %no, label %fill
fill:
  call void @Py_IncRef(ptr %whole)
  call void @fill(ptr %buffer, ptr @at_whole, ptr %whole)
  %v = getelementptr i8, ptr %start, i64 %offset
  %address = call ptr @PyLong_FromVoidPtr(ptr %v)
  %unmade = icmp eq ptr %address, null
  br i1 %unmade, label %drop, label %done
done:
  call void @fill(ptr %buffer, ptr @at_address, ptr %address)
  ret ptr %buffer
drop:
  call void @Py_DecRef(ptr %buffer)
  br label %no
no:
  ret ptr null
}

; Put an object into a slot in place of another.
define internal void @replace(ptr %x, ptr %where, ptr %value) {
  %p = call ptr @slot(ptr %x, ptr %where)
  %old = load ptr, ptr %p
  call void @Py_IncRef(ptr %value)
  store ptr %value, ptr %p
  call void @Py_DecRef(ptr %old)
  ret void
}

; Where the donated leaves of a record are listed.
define internal ptr @donations(ptr %w) alwaysinline {
  %outs = call i64 @number(ptr %w, i64 OUTS)
  %words = mul i64 %outs, RESULT
  %at = add i64 %words, HEADER
  %p = getelementptr i64, ptr %w, i64 %at
  ret ptr %p
}

; Whether the memory of each donated leaf is its array's alone, besides being held, and ours.
define internal i1 @are_alone(ptr %w, ptr %held) noinline {
entry:
  %n = call i64 @number(ptr %w, i64 DONATED)
  %list = call ptr @donations(ptr %w)
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%i.next, %next]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %one, label %yes
one:
  %leaf = call i64 @number(ptr %list, i64 %i)
  %b = call ptr @word(ptr %held, i64 %leaf)
  %count = load i64, ptr %b
  %alone = icmp eq i64 %count, 2
  br i1 %alone, label %own, label %no
own:
  %name = load ptr, ptr @is_own
  %is = call ptr @PyObject_GetAttr(ptr %b, ptr %name)
  call void @Py_DecRef(ptr %is)  ; it is a constant
  %true = load ptr, ptr @true
  %ours = icmp eq ptr %is, %true
  br i1 %ours, label %next, label %no
next:
  %i.next = add i64 %i, 1
  br label %loop
yes:
  ret i1 true
no:
  ret i1 false
}

; Hold the arrays of donated leaves.
define internal void @hold_donated(ptr %w, ptr %arrays) noinline {
entry:
  %n = call i64 @number(ptr %w, i64 DONATED)
  %list = call ptr @donations(ptr %w)
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%i.next, %one]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %one, label %done
one:
  %leaf = call i64 @number(ptr %list, i64 %i)
  %x = call ptr @word(ptr %arrays, i64 %leaf)
  call void @Py_IncRef(ptr %x)
  %i.next = add i64 %i, 1
  br label %loop
done:
  ret void
}

; Let them go, without their memory if it has been spent.
define internal void @drop_donated(ptr %w, ptr %arrays, i1 %spent) noinline {
entry:
  %n = call i64 @number(ptr %w, i64 DONATED)
  %list = call ptr @donations(ptr %w)
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%i.next, %go]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %one, label %done
one:
  %leaf = call i64 @number(ptr %list, i64 %i)
  %x = call ptr @word(ptr %arrays, i64 %leaf)
  br i1 %spent, label %empty, label %go
empty:
  %none = load ptr, ptr @none
  call void @replace(ptr %x, ptr @at_buffer, ptr %none)
  br label %go
go:
  call void @Py_DecRef(ptr %x)
  %i.next = add i64 %i, 1
  br label %loop
done:
  ret void
}

; The results of a record whose arguments lie at the third word of `block` and later, 1 if there is
; no memory for them, null if Python raised.
define internal ptr @execute(ptr %record, ptr %w, ptr %block, ptr %held) {
entry:
  %leaves = call i64 @number(ptr %w, i64 LEAVES)
  %outs = call i64 @number(ptr %w, i64 OUTS)
  %made = alloca ptr, i64 %outs
  %code = call ptr @word(ptr %w, i64 CODE)
  store ptr %code, ptr %block
  call void @Py_IncRef(ptr %record)
  br label %hold
hold:
  %i = phi i64 [0, %entry], [%i.next, %hold.one]
  %i.more = icmp slt i64 %i, %leaves
  br i1 %i.more, label %hold.one, label %owners
hold.one:
  %b = call ptr @word(ptr %held, i64 %i)
  call void @Py_IncRef(ptr %b)
  %i.next = add i64 %i, 1
  br label %hold
owners:
  %arrays = getelementptr ptr, ptr %held, i64 %leaves
  %donated = call i64 @number(ptr %w, i64 DONATED)
  %donates.none = icmp eq i64 %donated, 0
  br i1 %donates.none, label %arena, label %check
check:
  %alone = call i1 @are_alone(ptr %w, ptr %held)
  br i1 %alone, label %keep, label %other.call
other.call:
  br label %release
keep:
  call void @hold_donated(ptr %w, ptr %arrays)
  br label %arena
arena:
  %arena.memory = getelementptr ptr, ptr %w, i64 ARENA
  %arena.like = load ptr, ptr %arena.memory
  %arena.none = icmp eq ptr %arena.like, null
  br i1 %arena.none, label %whole, label %arena.make
arena.make:
  %arena.new = call ptr @allocate(ptr %arena.memory)
  %arena.failed = icmp eq ptr %arena.new, null
  br i1 %arena.failed, label %stop, label %arena.put
arena.put:
  %arena.address = call ptr @address_of(ptr %arena.new)
  %arena.slot = getelementptr ptr, ptr %block, i64 1
  store ptr %arena.address, ptr %arena.slot
  br label %whole
whole:
  %workspace = phi ptr [null, %arena], [%arena.new, %arena.put]
  %first = add i64 %leaves, 3
  %results = getelementptr ptr, ptr %block, i64 %first
  %whole.memory = getelementptr ptr, ptr %w, i64 WHOLE
  %whole.like = load ptr, ptr %whole.memory
  %whole.none = icmp eq ptr %whole.like, null
  br i1 %whole.none, label %each, label %whole.make
whole.make:
  %whole.new = call ptr @allocate(ptr %whole.memory)
  %whole.failed = icmp eq ptr %whole.new, null
  br i1 %whole.failed, label %stop, label %whole.put
whole.put:
  %whole.address = call ptr @address_of(ptr %whole.new)
  store ptr %whole.address, ptr %results
  br label %each
each:
  %shared = phi ptr [null, %whole], [%whole.new, %whole.put]
  %start = phi ptr [null, %whole], [%whole.address, %whole.put]
  %apart = icmp eq ptr %shared, null
  br label %outs.loop
outs.loop:
  %j = phi i64 [0, %each], [%j.next, %out.done]
  %j.more = icmp slt i64 %j, %outs
  br i1 %j.more, label %out, label %run
out:
  %j.words = mul i64 %j, RESULT
  %j.at = add i64 %j.words, HEADER
  %o = getelementptr i64, ptr %w, i64 %j.at
  %memory = getelementptr i64, ptr %o, i64 2
  br i1 %apart, label %out.apart, label %out.part
out.apart:
  %donor = call i64 @number(ptr %o, i64 7)
  %donates = icmp sge i64 %donor, 0
  br i1 %donates, label %out.donated, label %out.own
out.donated:
  %given = call ptr @word(ptr %held, i64 %donor)
  call void @Py_IncRef(ptr %given)
  %home = call ptr @word(ptr %w, i64 HOME)
  %in.host = icmp eq ptr %home, null
  br i1 %in.host, label %out.taken, label %out.overwritten
out.overwritten:
  %no.copy = load ptr, ptr @none
  call void @replace(ptr %given, ptr @at_host, ptr %no.copy)
  br label %out.taken
out.own:
  %own = call ptr @allocate(ptr %memory)
  %own.failed = icmp eq ptr %own, null
  br i1 %own.failed, label %stop, label %out.taken
out.taken:
  %taken = phi ptr [%given, %out.donated], [%given, %out.overwritten], [%own, %out.own]
  %own.address = call ptr @address_of(ptr %taken)
  %own.slot = getelementptr ptr, ptr %results, i64 %j
  store ptr %own.address, ptr %own.slot
  br label %out.array
out.part:
  %offset = call i64 @number(ptr %o, i64 6)
  %part = call ptr @part_of(ptr %memory, ptr %shared, ptr %start, i64 %offset)
  %part.failed = icmp eq ptr %part, null
  br i1 %part.failed, label %stop, label %out.array
out.array:
  %buffer = phi ptr [%taken, %out.taken], [%part, %out.part]
  %array.like = load ptr, ptr %o
  %array.words = call i64 @number(ptr %o, i64 1)
  %array = call ptr @copied(ptr %array.like, i64 %array.words)
  %array.failed = icmp eq ptr %array, null
  br i1 %array.failed, label %out.drop, label %out.done
out.drop:
  call void @Py_DecRef(ptr %buffer)
  br label %stop
out.done:
  call void @fill(ptr %array, ptr @at_buffer, ptr %buffer)
  %array.slot = getelementptr ptr, ptr %made, i64 %j
  store ptr %array, ptr %array.slot
  %j.next = add i64 %j, 1
  br label %outs.loop
run:
  %issue = call ptr @word(ptr %w, i64 ISSUE)
  %by.machine = icmp eq ptr %issue, null
  br i1 %by.machine, label %machine, label %issued
machine:
  %status = call i64 @amdjax_run(ptr %block)
  %ran = icmp eq i64 %status, 0
  br i1 %ran, label %assemble, label %stop
issued:
  %slots = call i64 @number(ptr %w, i64 SLOTS)
  %size = mul i64 %slots, 8
  %bytes = call ptr @PyBytes_FromStringAndSize(ptr %block, i64 %size)
  %bytes.failed = icmp eq ptr %bytes, null
  br i1 %bytes.failed, label %stop, label %tell
tell:
  %told = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr %issue, ptr %bytes, ptr null)
  call void @Py_DecRef(ptr %bytes)
  call void @Py_DecRef(ptr %told)
  %untold = icmp eq ptr %told, null
  br i1 %untold, label %stop, label %assemble
assemble:
  %tree = call ptr @word(ptr %w, i64 TREE)
  %single = icmp eq ptr %tree, null
  br i1 %single, label %only, label %listed
only:
  %result = load ptr, ptr %made
  br label %end
listed:
  %list = call ptr @PyList_New(i64 %outs)
  %list.failed = icmp eq ptr %list, null
  br i1 %list.failed, label %stop, label %list.loop
list.loop:
  %l = phi i64 [0, %listed], [%l.next, %list.one]
  %l.more = icmp slt i64 %l, %outs
  br i1 %l.more, label %list.one, label %list.done
list.one:
  %item = call ptr @word(ptr %made, i64 %l)
  call i32 @PyList_SetItem(ptr %list, i64 %l, ptr %item)
  %l.next = add i64 %l, 1
  br label %list.loop
list.done:
  %none = load ptr, ptr @none
  %as.list = icmp eq ptr %tree, %none
  br i1 %as.list, label %end, label %build
build:
  %built = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr %tree, ptr %list, ptr null)
  call void @Py_DecRef(ptr %list)
  br label %end
stop:
  %reason = phi ptr [inttoptr (i64 1 to ptr), %arena.make], [inttoptr (i64 1 to ptr), %whole.make],
    [inttoptr (i64 1 to ptr), %out.own], [inttoptr (i64 1 to ptr), %out.part],
    [inttoptr (i64 1 to ptr), %out.drop], [null, %machine], [null, %issued], [null, %tell],
    [null, %listed]
  %so.far = phi i64 [0, %arena.make], [0, %whole.make], [%j, %out.own], [%j, %out.part],
    [%j, %out.drop], [%outs, %machine], [%outs, %issued], [%outs, %tell], [%outs, %listed]
  %stop.workspace = phi ptr [null, %arena.make], [%workspace, %whole.make],
    [%workspace, %out.own], [%workspace, %out.part], [%workspace, %out.drop],
    [%workspace, %machine], [%workspace, %issued], [%workspace, %tell], [%workspace, %listed]
  %stop.shared = phi ptr [null, %arena.make], [null, %whole.make], [%shared, %out.own],
    [%shared, %out.part], [%shared, %out.drop], [%shared, %machine], [%shared, %issued],
    [%shared, %tell], [%shared, %listed]
  %stop.spent = phi i1 [false, %arena.make], [false, %whole.make], [false, %out.own],
    [false, %out.part], [false, %out.drop], [true, %machine], [false, %issued], [true, %tell],
    [true, %listed]
  %raised = icmp eq ptr %reason, null
  br i1 %raised, label %drop, label %again
again:
  call void @PyErr_Clear()  ; Python will see, and tell
  br label %drop
drop:
  %d = phi i64 [0, %stop], [0, %again], [%d.next, %drop.one]
  %d.more = icmp slt i64 %d, %so.far
  br i1 %d.more, label %drop.one, label %end
drop.one:
  %gone = call ptr @word(ptr %made, i64 %d)
  call void @Py_DecRef(ptr %gone)
  %d.next = add i64 %d, 1
  br label %drop
end:
  %answer = phi ptr [%result, %only], [%list, %list.done], [%built, %build], [%reason, %drop]
  %end.workspace = phi ptr [%workspace, %only], [%workspace, %list.done], [%workspace, %build],
    [%stop.workspace, %drop]
  %end.shared = phi ptr [%shared, %only], [%shared, %list.done], [%shared, %build],
    [%stop.shared, %drop]
  %spent = phi i1 [true, %only], [true, %list.done], [true, %build], [%stop.spent, %drop]
  call void @Py_DecRef(ptr %end.workspace)
  call void @Py_DecRef(ptr %end.shared)
  br i1 %donates.none, label %release, label %empty
empty:
  call void @drop_donated(ptr %w, ptr %arrays, i1 %spent)
  br label %release
release:
  %back = phi ptr [inttoptr (i64 1 to ptr), %other.call], [%answer, %end], [%answer, %empty],
    [%back, %release.one]
  %r = phi i64 [0, %other.call], [0, %end], [0, %empty], [%r.next, %release.one]
  %r.more = icmp slt i64 %r, %leaves
  br i1 %r.more, label %release.one, label %out.of.it
release.one:
  %rb = call ptr @word(ptr %held, i64 %r)
  call void @Py_DecRef(ptr %rb)
  %r.next = add i64 %r, 1
  br label %release
out.of.it:
  call void @Py_DecRef(ptr %record)
  ret ptr %back
}

; Calls of compiled functions

; The results if a call is the one of a record, 1 if it is another, null if Python raised.
define internal ptr @attempt(ptr %record, ptr %w, ptr %args, i64 %n, ptr %names) noinline {
entry:
  %slots = call i64 @number(ptr %w, i64 SLOTS)
  %leaves = call i64 @number(ptr %w, i64 LEAVES)
  %block = alloca i64, i64 %slots, align 16
  %twice = mul i64 %leaves, 2
  %held = alloca ptr, i64 %twice  ; buffers, then arrays
  %bytes = mul i64 %slots, 8
  call void @llvm.memset.p0.i64(ptr %block, i8 0, i64 %bytes, i1 false)
  %places = getelementptr ptr, ptr %block, i64 3
  %donations = call ptr @donations(ptr %w)
  %donated = call i64 @number(ptr %w, i64 DONATED)
  %nodes = getelementptr i64, ptr %donations, i64 %donated
  %code = call i64 @number(ptr %w, i64 CODE)
  %issue = call i64 @number(ptr %w, i64 ISSUE)
  %either = or i64 %code, %issue
  %in.python = icmp eq i64 %either, 0
  br i1 %in.python, label %list, label %start
list:
  ; Before matching: making a list may collect garbage, and so run code of Python.
  %made = call ptr @PyList_New(i64 %leaves)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %raised, label %start
raised:
  ret ptr null
start:
  %arrays = phi ptr [null, %entry], [%made, %list]
  br label %positional
positional:
  %i = phi i64 [0, %start], [%i.next, %matched]
  %node = phi ptr [%nodes, %start], [%after, %matched]
  %i.more = icmp slt i64 %i, %n
  br i1 %i.more, label %match, label %named
match:
  %x = call ptr @word(ptr %args, i64 %i)
  %after = call ptr @walk(ptr %w, ptr %node, ptr %x, ptr %places, ptr %held)
  %other = icmp eq ptr %after, null
  br i1 %other, label %no, label %matched
matched:
  %i.next = add i64 %i, 1
  br label %positional
named:
  %named.n = call i64 @number(ptr %w, i64 NAMES)
  br label %keywords
keywords:
  %j = phi i64 [0, %named], [%j.next, %keyword.value]
  %pair = phi ptr [%node, %named], [%pair.after, %keyword.value]
  %j.more = icmp slt i64 %j, %named.n
  br i1 %j.more, label %keyword, label %yes
keyword:
  %name = call ptr @PyTuple_GetItem(ptr %names, i64 %j)
  %wanted = load ptr, ptr %pair
  %same = call i1 @same_name(ptr %name, ptr %wanted)
  br i1 %same, label %keyword.value, label %no
keyword.value:
  %value.node = getelementptr i64, ptr %pair, i64 1
  %value.at = add i64 %n, %j
  %value = call ptr @word(ptr %args, i64 %value.at)
  %pair.after = call ptr @walk(ptr %w, ptr %value.node, ptr %value, ptr %places, ptr %held)
  %pair.other = icmp eq ptr %pair.after, null
  %j.next = add i64 %j, 1
  br i1 %pair.other, label %no, label %keywords
yes:
  br i1 %in.python, label %list.loop, label %run
list.loop:
  %l = phi i64 [0, %yes], [%l.next, %list.one]
  %l.more = icmp slt i64 %l, %leaves
  br i1 %l.more, label %list.one, label %call
list.one:
  %array = call ptr @word(ptr %held, i64 %l)
  call void @Py_IncRef(ptr %array)
  call i32 @PyList_SetItem(ptr %arrays, i64 %l, ptr %array)
  %l.next = add i64 %l, 1
  br label %list.loop
call:
  %f = call ptr @word(ptr %w, i64 TREE)
  %called = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr %f, ptr %arrays, ptr null)
  call void @Py_DecRef(ptr %arrays)
  ret ptr %called
run:
  %result = call ptr @execute(ptr %record, ptr %w, ptr %block, ptr %held)
  ret ptr %result
no:
  call void @Py_DecRef(ptr %arrays)
  ret ptr inttoptr (i64 1 to ptr)
}

; The method in Python.
define internal ptr @in_python(ptr %f, ptr %self, ptr %args, i64 %n, ptr %names) noinline {
entry:
  %no.names = icmp eq ptr %names, null
  br i1 %no.names, label %count, label %named
named:
  %k = call i64 @PyTuple_Size(ptr %names)
  br label %count
count:
  %named.n = phi i64 [0, %entry], [%k, %named]
  %all = add i64 %n, %named.n
  %more = add i64 %all, 1
  %given = alloca ptr, i64 %more
  store ptr %self, ptr %given
  %rest = getelementptr ptr, ptr %given, i64 1
  %bytes = mul i64 %all, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %rest, ptr %args, i64 %bytes, i1 false)
  %m = add i64 %n, 1
  %result = call ptr @PyObject_Vectorcall(ptr %f, ptr %given, i64 %m, ptr %names)
  ret ptr %result
}

define ptr @amdjax_call(ptr %self, ptr %args, i64 %n, ptr %names) {
entry:
  %key = call ptr @current()
  %elsewhere = icmp eq ptr %key, null
  br i1 %elsewhere, label %python, label %programs
programs:
  %programs.p = call ptr @slot(ptr %self, ptr @at_programs)
  %programs.object = load ptr, ptr %programs.p
  %no.programs = icmp eq ptr %programs.object, null
  br i1 %no.programs, label %python, label %records
records:
  %records.p = call ptr @slot(ptr %programs.object, ptr @at_records)
  %known = load ptr, ptr %records.p
  %no.records = icmp eq ptr %known, null
  br i1 %no.records, label %python, label %count
count:
  call void @Py_IncRef(ptr %known)
  %no.names = icmp eq ptr %names, null
  br i1 %no.names, label %start, label %named
named:
  %k = call i64 @PyTuple_Size(ptr %names)
  br label %start
start:
  %named.n = phi i64 [0, %count], [%k, %named]
  %size = call i64 @PyTuple_Size(ptr %known)
  br label %search
search:
  %i = phi i64 [0, %start], [%i.next, %next]
  %more = icmp slt i64 %i, %size
  br i1 %more, label %one, label %unknown
unknown:
  call void @Py_DecRef(ptr %known)
  br label %python
one:
  %record = call ptr @PyTuple_GetItem(ptr %known, i64 %i)
  %bytes = call ptr @PyTuple_GetItem(ptr %record, i64 0)
  %w = call ptr @PyBytes_AsString(ptr %bytes)
  %w.key = call ptr @word(ptr %w, i64 KEY)
  %w.n = call i64 @number(ptr %w, i64 ARGUMENTS)
  %w.k = call i64 @number(ptr %w, i64 NAMES)
  %key.same = icmp eq ptr %w.key, %key
  %n.same = icmp eq i64 %w.n, %n
  %k.same = icmp eq i64 %w.k, %named.n
  %both = and i1 %key.same, %n.same
  %fits = and i1 %both, %k.same
  br i1 %fits, label %try, label %next
try:
  %result = call ptr @attempt(ptr %record, ptr %w, ptr %args, i64 %n, ptr %names)
  %other = icmp eq ptr %result, inttoptr (i64 1 to ptr)
  br i1 %other, label %next, label %done
done:
  call void @Py_DecRef(ptr %known)
  ret ptr %result
next:
  %i.next = add i64 %i, 1
  br label %search
python:
  %call = load ptr, ptr @call
  %slow = call ptr @in_python(ptr %call, ptr %self, ptr %args, i64 %n, ptr %names)
  ret ptr %slow
}

; Single operations

; Run a record on arrays whose types are known to be right.
define internal ptr @on_arrays(ptr %record, ptr %args, i64 %n) noinline {
entry:
  %bytes = call ptr @PyTuple_GetItem(ptr %record, i64 0)
  %w = call ptr @PyBytes_AsString(ptr %bytes)
  %slots = call i64 @number(ptr %w, i64 SLOTS)
  %block = alloca i64, i64 %slots, align 16
  %held = alloca ptr, i64 %n
  %size = mul i64 %slots, 8
  call void @llvm.memset.p0.i64(ptr %block, i8 0, i64 %size, i1 false)
  %places = getelementptr ptr, ptr %block, i64 3
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%i.next, %placed]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %one, label %yes
one:
  %x = call ptr @word(ptr %args, i64 %i)
  %to = getelementptr ptr, ptr %places, i64 %i
  %hold = getelementptr ptr, ptr %held, i64 %i
  %there = call i1 @place(ptr %w, ptr %x, ptr %to, ptr %hold)
  br i1 %there, label %placed, label %no
placed:
  %i.next = add i64 %i, 1
  br label %loop
yes:
  %result = call ptr @execute(ptr %record, ptr %w, ptr %block, ptr %held)
  ret ptr %result
no:
  ret ptr inttoptr (i64 1 to ptr)
}

; What an operation gives on arrays with parameters behind them, as `attempt` does.
define internal ptr @operate(ptr %operation, ptr %args, i64 %n, ptr %names) {
entry:
  %key = call ptr @current()
  %elsewhere = icmp eq ptr %key, null
  br i1 %elsewhere, label %no, label %types
types:
  ; All are in the host's memory, or all at the placement of the first.
  %some.arrays = icmp sgt i64 %n, 0
  br i1 %some.arrays, label %first, label %types.loop
first:
  %first.x = load ptr, ptr %args
  %first.type = call ptr @type_of(ptr %first.x)
  %placed = load ptr, ptr @placed
  %is.placed = icmp eq ptr %first.type, %placed
  br i1 %is.placed, label %first.placed, label %types.loop
first.placed:
  %first.p = call ptr @slot(ptr %first.x, ptr @at_placement)
  %first.place = load ptr, ptr %first.p
  %lost = icmp eq ptr %first.place, null
  br i1 %lost, label %no, label %types.loop
types.loop:
  %i = phi i64 [0, %types], [0, %first], [0, %first.placed], [%i.next, %type.right]
  %kind.p = phi ptr [@array, %types], [@array, %first], [@placed, %first.placed],
    [%kind.p, %type.right]
  %place = phi ptr [null, %types], [null, %first], [%first.place, %first.placed],
    [%place, %type.right]
  %i.more = icmp slt i64 %i, %n
  br i1 %i.more, label %type, label %count
type:
  %x = call ptr @word(ptr %args, i64 %i)
  %t = call ptr @type_of(ptr %x)
  %kind = load ptr, ptr %kind.p
  %plain = icmp eq ptr %t, %kind
  br i1 %plain, label %type.placed, label %no
type.placed:
  %at.place = call i1 @is_at(ptr %x, ptr %place)
  br i1 %at.place, label %type.set, label %no
type.set:
  %aval.p = call ptr @slot(ptr %x, ptr @at_aval)
  %aval = load ptr, ptr %aval.p
  %unset = icmp eq ptr %aval, null
  %i.next = add i64 %i, 1
  br i1 %unset, label %no, label %type.right
type.right:
  br label %types.loop
count:
  %no.names = icmp eq ptr %names, null
  br i1 %no.names, label %make, label %named
named:
  %k = call i64 @PyTuple_Size(ptr %names)
  br label %make
make:
  %named.n = phi i64 [0, %count], [%k, %named]
  %somewhere = icmp ne ptr %place, null
  %place.n = zext i1 %somewhere to i64
  %avals.at = add i64 %place.n, 2
  %last = add i64 %n, %avals.at
  %all = add i64 %last, %named.n
  %some = icmp sgt i64 %named.n, 0
  %more = zext i1 %some to i64
  %size = add i64 %all, %more
  %tuple = call ptr @PyTuple_New(i64 %size)
  %failed = icmp eq ptr %tuple, null
  br i1 %failed, label %clear, label %head
head:
  call void @Py_IncRef(ptr %operation)
  call i32 @PyTuple_SetItem(ptr %tuple, i64 0, ptr %operation)
  call void @Py_IncRef(ptr %key)
  call i32 @PyTuple_SetItem(ptr %tuple, i64 1, ptr %key)
  br i1 %somewhere, label %place.put, label %avals
place.put:
  call void @Py_IncRef(ptr %place)
  call i32 @PyTuple_SetItem(ptr %tuple, i64 2, ptr %place)
  br label %avals
avals:
  %j = phi i64 [0, %head], [0, %place.put], [%j.next, %aval.put]
  %j.more = icmp slt i64 %j, %n
  br i1 %j.more, label %aval.put, label %after.avals
aval.put:
  %y = call ptr @word(ptr %args, i64 %j)
  %y.p = call ptr @slot(ptr %y, ptr @at_aval)
  %y.aval = load ptr, ptr %y.p
  call void @Py_IncRef(ptr %y.aval)
  %y.at = add i64 %j, %avals.at
  call i32 @PyTuple_SetItem(ptr %tuple, i64 %y.at, ptr %y.aval)
  %j.next = add i64 %j, 1
  br label %avals
after.avals:
  br i1 %some, label %values, label %look
values:
  call void @Py_IncRef(ptr %names)
  call i32 @PyTuple_SetItem(ptr %tuple, i64 %last, ptr %names)
  %values.at = add i64 %last, 1
  br label %values.loop
values.loop:
  %l = phi i64 [0, %values], [%l.next, %value]
  %l.more = icmp slt i64 %l, %named.n
  br i1 %l.more, label %value, label %look
value:
  %value.at = add i64 %n, %l
  %v = call ptr @word(ptr %args, i64 %value.at)
  call void @Py_IncRef(ptr %v)
  %v.at = add i64 %values.at, %l
  call i32 @PyTuple_SetItem(ptr %tuple, i64 %v.at, ptr %v)
  %l.next = add i64 %l, 1
  br label %values.loop
look:
  %operations = load ptr, ptr @operations
  %record = call ptr @PyDict_GetItemWithError(ptr %operations, ptr %tuple)
  call void @Py_IncRef(ptr %record)
  call void @Py_DecRef(ptr %tuple)
  %unknown = icmp eq ptr %record, null
  br i1 %unknown, label %clear, label %run
run:
  %result = call ptr @on_arrays(ptr %record, ptr %args, i64 %n)
  call void @Py_DecRef(ptr %record)
  ret ptr %result
clear:
  call void @PyErr_Clear()
  br label %no
no:
  ret ptr inttoptr (i64 1 to ptr)
}

define ptr @amdjax_bind(ptr %self, ptr %args, i64 %n, ptr %names) {
  %result = call ptr @operate(ptr %self, ptr %args, i64 %n, ptr %names)
  %other = icmp eq ptr %result, inttoptr (i64 1 to ptr)
  br i1 %other, label %python, label %done
done:
  ret ptr %result
python:
  %bind = load ptr, ptr @bind
  %slow = call ptr @in_python(ptr %bind, ptr %self, ptr %args, i64 %n, ptr %names)
  ret ptr %slow
}

@operators = internal global [OPERATORS x ptr] zeroinitializer

define void @amdjax_set_operator(i64 %k, ptr %method) {
  %p = getelementptr [OPERATORS x ptr], ptr @operators, i64 0, i64 %k
  store ptr %method, ptr %p
  ret void
}

; An operator on two arrays is an operation of which its method in Python is the name.
define internal ptr @operator(i64 %k, ptr %self, ptr %other) noinline {
  %p = getelementptr [OPERATORS x ptr], ptr @operators, i64 0, i64 %k
  %method = load ptr, ptr %p
  %args = alloca [2 x ptr]
  store ptr %self, ptr %args
  %second = getelementptr ptr, ptr %args, i64 1
  store ptr %other, ptr %second
  %result = call ptr @operate(ptr %method, ptr %args, i64 2, ptr null)
  %unknown = icmp eq ptr %result, inttoptr (i64 1 to ptr)
  br i1 %unknown, label %python, label %done
done:
  ret ptr %result
python:
  %slow = call ptr @PyObject_Vectorcall(ptr %method, ptr %args, i64 2, ptr null)
  ret ptr %slow
}

; The finalizer of a buffer whose address goes back to a list; of others Python's.
define ptr @amdjax_release(ptr %self, ptr %unused) {
  %free.p = call ptr @slot(ptr %self, ptr @at_free)
  %free = load ptr, ptr %free.p
  %address.p = call ptr @slot(ptr %self, ptr @at_address)
  %address = load ptr, ptr %address.p
  %a = icmp eq ptr %free, null
  %b = icmp eq ptr %address, null
  %unset = or i1 %a, %b
  %none = load ptr, ptr @none
  br i1 %unset, label %done, label %set
set:
  %type = call ptr @type_of(ptr %free)
  %list = load ptr, ptr @list
  %listed = icmp eq ptr %type, %list
  br i1 %listed, label %append, label %python
append:
  %status = call i32 @PyList_Append(ptr %free, ptr %address)
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %raised, label %done
python:
  %release = load ptr, ptr @release
  %result = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr %release, ptr %self, ptr null)
  ret ptr %result
raised:
  ret ptr null
done:
  call void @Py_IncRef(ptr %none)
  ret ptr %none
}

declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""


def dispatch_ir() -> str:
    """The text of the module."""
    constants = {
        "KEY": KEY, "ARGUMENTS": ARGUMENTS, "NAMES": NAMES, "LEAVES": LEAVES, "SLOTS": SLOTS,
        "CODE": CODE, "ISSUE": ISSUE, "KIND": KIND, "PLACE": PLACE, "HOME": HOME, "ARENA": ARENA,
        "WHOLE": WHOLE, "TREE": TREE, "DONATED": DONATED, "OUTS": OUTS, "HEADER": HEADER,
        "RESULT": RESULT, "LEAF": LEAF, "SAME": SAME, "TUPLE": TUPLE, "LIST": LIST, "DICT": DICT,
        "ARRAY": ARRAY,
    }  # fmt: skip
    text = _TEXT.replace("[OPERATORS x", f"[{OPERATORS} x")
    for name, number in constants.items():
        text = text.replace(f"i64 {name},", f"i64 {number},").replace(
            f"i64 {name})", f"i64 {number})"
        )
        text = text.replace(f", {name}\n", f", {number}\n").replace(
            f"i64 {name}\n", f"i64 {number}\n"
        )
    lines = [text]
    for name, signature in PYTHON.items():
        result, _, arguments = signature.partition(" ")
        lines.append(f"declare {result} @{name}{arguments}")
    lines += [f"@{name} = internal global i64 0" for name in STATE]
    lines.append("define void @amdjax_dispatch_configure(ptr %w) {")
    for i, name in enumerate(STATE):
        lines.append(f"  %{name} = call i64 @number(ptr %w, i64 {i})")
        lines.append(f"  store i64 %{name}, ptr @{name}")
    lines.append("  ret void\n}")
    for k in range(OPERATORS):
        lines += [
            f"define ptr @amdjax_operator_{k}(ptr %self, ptr %other) {{",
            f"  %r = call ptr @operator(i64 {k}, ptr %self, ptr %other)",
            "  ret ptr %r\n}",
        ]
    return "\n".join(lines)
