"""eingrad in Python, by ctypes and DLPack: arrays of NumPy, PyTorch and others are operands, and
results are given to them, without a copy.

    import eingrad, numpy, torch
    y = eingrad.einsum("i d, j d -> i j", numpy.ones((3, 4)), torch.ones(5, 4, dtype=torch.float64))
    numpy.from_dlpack(y), torch.from_dlpack(y)
    dq, dk = eingrad.gradient("i d, j d -> i j", q, k)     # of the sum of the result

EINGRAD_LIB names the library; the default is libeingrad.so.0. One thread at a time."""
import ctypes
import os
import weakref
from ctypes import CFUNCTYPE, c_char_p, c_int, c_uint64, c_void_p

lib = ctypes.CDLL(os.environ.get("EINGRAD_LIB", "libeingrad.so.0"))


class Mark(ctypes.Structure):
    _fields_ = [("scope", c_void_p), ("serial", c_uint64)]


def declare(library, name, result, *arguments):
    function = getattr(library, name)
    function.restype, function.argtypes = result, arguments
    return function


def eg(name, result, *arguments):
    return declare(lib, "eg_" + name, result, *arguments)


push, pop = eg("push", Mark, c_void_p), eg("pop", None, c_void_p, Mark)
owner_open, owner_close = eg("owner_open", c_void_p, c_void_p), eg("owner_close", None, c_void_p)
keep_in = eg("keep_in", c_void_p, c_void_p, c_void_p)
from_dlpack = eg("from_dlpack", c_void_p, c_void_p, c_void_p, c_void_p)
from_unversioned = eg("from_dlpack_unversioned", c_void_p, c_void_p, c_void_p, c_void_p)
to_dlpack = eg("to_dlpack", c_void_p, c_void_p)
to_unversioned = eg("to_dlpack_unversioned", c_void_p, c_void_p)
einsum_n = eg("einsum_n", c_void_p, c_char_p, c_int, c_void_p)
total = eg("sum", c_void_p, c_char_p, c_void_p)
grad = eg("grad", c_int, c_void_p, c_void_p, c_int, c_void_p, c_void_p)
error, error_code = eg("error", c_char_p, c_void_p), eg("error_code", c_int, c_void_p)
clear = eg("clear", None, c_void_p)
cx = eg("open_with", c_void_p, c_void_p)(None)
ERRORS = {2: ValueError, 3: IndexError, 4: TypeError, 6: OSError, 7: MemoryError, 9: BufferError}

# Capsules by their address: one that is being deleted must not be given a reference. PyDLL keeps
# the interpreter's lock.
python = ctypes.PyDLL(None)
DESTRUCTOR = ctypes.PYFUNCTYPE(None, c_void_p)
capsule_new = declare(python, "PyCapsule_New", ctypes.py_object, c_void_p, c_char_p, DESTRUCTOR)
capsule_is = declare(python, "PyCapsule_IsValid", c_int, c_void_p, c_char_p)
capsule_get = declare(python, "PyCapsule_GetPointer", c_void_p, c_void_p, c_char_p)
capsule_rename = declare(python, "PyCapsule_SetName", c_int, c_void_p, c_char_p)
VERSIONED, UNVERSIONED = b"dltensor_versioned", b"dltensor"
USED = {VERSIONED: b"used_dltensor_versioned", UNVERSIONED: b"used_dltensor"}
DELETER_AT = {VERSIONED: 16, UNVERSIONED: 56}  # bytes from the start of the struct


@DESTRUCTOR
def end_capsule(capsule):
    """Nobody took the tensor: it is deleted with its capsule."""
    for name, at in DELETER_AT.items():
        if capsule_is(capsule, name):
            tensor = capsule_get(capsule, name)
            CFUNCTYPE(None, c_void_p)(c_void_p.from_address(tensor + at).value)(tensor)


def check(result):
    if error(cx):
        kind, sentence = ERRORS.get(error_code(cx), ValueError), error(cx).decode()
        clear(cx)
        raise kind(sentence)
    return result


class Tensor:
    """A tensor of eingrad's, which lives as long as this object and what was made from it."""

    def __init__(self, owner, pointer):
        self.pointer = pointer
        weakref.finalize(self, owner_close, owner)

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if dl_device not in (None, (1, 0)):
            raise BufferError("eingrad's tensors are on the CPU")
        if copy:
            owner = check(owner_open(cx))
            return Tensor(owner, keep_in(owner, self.pointer)).__dlpack__(max_version=max_version)
        if max_version and max_version[0] >= 1:
            return capsule_new(check(to_dlpack(self.pointer)), VERSIONED, end_capsule)
        return capsule_new(check(to_unversioned(self.pointer)), UNVERSIONED, end_capsule)


def tensor(x):
    """x itself, or a tensor in the memory of whatever has __dlpack__."""
    if isinstance(x, Tensor):
        return x
    try:
        capsule = x.__dlpack__(max_version=(1, 1))
    except TypeError:  # from before DLPack 1.0
        capsule = x.__dlpack__()
    name = VERSIONED if capsule_is(id(capsule), VERSIONED) else UNVERSIONED
    managed = capsule_get(id(capsule), name)
    owner = check(owner_open(cx))
    capsule_rename(id(capsule), USED[name])
    take = from_dlpack if name == VERSIONED else from_unversioned
    return check(Tensor(owner, take(cx, managed, owner)))


def results(count, spec, operands, compute):
    """compute(array of operands) → `count` tensors, each kept in an owner of its own that was
    opened before the scope in which they are made."""
    xs = [tensor(x) for x in operands]
    owners = [check(owner_open(cx)) for _ in range(count)]
    mark = push(cx)
    made = compute(spec.encode(), len(xs), (c_void_p * len(xs))(*(x.pointer for x in xs)))
    kept = [keep_in(owner, y) for owner, y in zip(owners, made)]
    pop(cx, mark)
    found = [Tensor(owner, y) for owner, y in zip(owners, kept)]
    return check(found)


def einsum(spec, *operands):
    return results(1, spec, operands, lambda *call: [einsum_n(*call)])[0]


def gradient(spec, *operands):
    """The gradients of the sum of einsum(spec, …) with respect to each operand."""
    def compute(spec, n, xs):
        found = (c_void_p * n)()
        grad(total(None, einsum_n(spec, n, xs)), None, n, xs, found)
        return found
    return results(len(operands), spec, operands, compute)
