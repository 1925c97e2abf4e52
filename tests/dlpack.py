"""dlpack.py: NumPy, and PyTorch if it is installed, together with eingrad in one process, through
ctypes (examples/python/eingrad.py). Nothing is copied, as addresses and writes show, and memory is
valid until its last user ends. EINGRAD_LIB names the library."""
import ctypes
import gc
import sys
import weakref
import numpy as np
import eingrad
try:
    import torch
except ImportError:
    torch = None

raw = eingrad.eg("raw", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
fill = eingrad.eg("fill", ctypes.c_int, ctypes.c_void_p, ctypes.c_double)


def address(x):
    if isinstance(x, eingrad.Tensor):
        return raw(x.pointer, None)
    return x.data_ptr() if torch is not None and isinstance(x, torch.Tensor) else x.ctypes.data


def refuses(kind, words, action):
    try:
        action()
    except kind as e:
        assert words in str(e), e
    else:
        raise AssertionError("not refused: " + words)


class Unversioned:
    """An array whose library is older than DLPack 1.0."""

    def __init__(self, x):
        self.x = x

    def __dlpack__(self):
        return self.x.__dlpack__()


def every_layout(x):
    """x of shape (4, 6), seen in ways that are no row-major arrays."""
    yield from (x, x.T, x[1:, ::2], x[:0], x[2], x[2, 3:4].reshape(()), x[:, None, :],
                np.broadcast_to(x[:, None, :], (4, 3, 6)))
    yield from (x[::-1], x[:, ::-2])


def numpy_both_ways():
    for dtype in ("f2", "f4", "f8", "i1", "u1", "i4", "i8", "?", "c16"):
        whole = (np.arange(24).reshape(4, 6) % 7).astype(dtype)
        for x in every_layout(whole):
            t = eingrad.tensor(x)
            y = np.from_dlpack(t)
            assert y.dtype == x.dtype and y.shape == x.shape
            assert (y == x).all()
            if x.size:
                assert address(t) == address(x) == address(y), (dtype, x.shape, x.strides)
                assert all(a == b for a, b, n in zip(x.strides, y.strides, x.shape) if n > 1)
            u = np.from_dlpack(Unversioned(eingrad.tensor(whole)))
            assert address(u) == address(whole)
    x = np.zeros((2, 3), "f4")
    t = eingrad.tensor(x)
    x[1, 2] = 5
    y = np.from_dlpack(t)
    assert y[1, 2] == 5
    assert fill(t.pointer, 7) == 0 and (x == 7).all() and (y == 7).all()
    if y.flags.writeable:
        y[0, 0] = 1
        assert x[0, 0] == 1
    print(f"numpy: array {address(x):#x}, eingrad {address(t):#x}, array again {address(y):#x}; "
          "each sees the others' writes")


def read_only():
    x = np.arange(6.0)
    x.flags.writeable = False
    try:
        x.__dlpack__(max_version=(1, 1))
    except (BufferError, TypeError):
        return print("read-only: this NumPy exports none")
    t = eingrad.tensor(x)
    assert fill(t.pointer, 1) != 0
    refuses(ValueError, "read-only", lambda: eingrad.check(None))
    assert not np.from_dlpack(t).flags.writeable
    refuses(BufferError, "the unversioned form cannot express", lambda: t.__dlpack__())
    assert np.from_dlpack(eingrad.einsum("i -> i", t)).tolist() == x.tolist()


def refusals():
    refuses(TypeError, "complex64", lambda: eingrad.tensor(np.zeros(2, "c8")))
    refuses(TypeError, "uint16", lambda: eingrad.tensor(np.zeros(2, "u2")))
    bytes_ = np.zeros(9, "i1")
    refuses(ValueError, "no multiple of 4 bytes",
            lambda: eingrad.tensor(np.frombuffer(bytes_.data, "f4", 2, 1)))
    refuses(BufferError, "on the CPU",
            lambda: eingrad.tensor(np.zeros(1)).__dlpack__(dl_device=(2, 0)))
    refuses(ValueError, "index 'j'", lambda: eingrad.einsum("i j, j -> i", np.zeros((2, 3)),
                                                           np.zeros(2)))


def lifetimes():
    # in: the array lives as long as the tensor, and not longer
    x = np.arange(1000.0)
    before, gone = sys.getrefcount(x), weakref.ref(x)
    t = eingrad.tensor(x)
    assert sys.getrefcount(x) > before
    t2 = eingrad.tensor(x)
    del t2
    gc.collect()
    address_of_x = address(x)
    del x
    gc.collect()
    assert gone() is not None and address(t) == address_of_x
    # through: NumPy's view of eingrad's tensor of NumPy's array holds the first array
    y = np.from_dlpack(t)
    del t
    gc.collect()
    assert gone() is not None and y[999] == 999
    del y
    gc.collect()
    assert gone() is None
    # out: the numbers live as long as the array, and nothing is put in their place
    kept = [np.from_dlpack(eingrad.einsum("i -> i", np.full(1000, float(k)))) for k in range(50)]
    for k in range(200):
        eingrad.einsum("i -> i", np.full(1000, -1.0))
    gc.collect()
    assert all((a == k).all() for k, a in enumerate(kept))
    # a capsule that nobody takes deletes what it holds
    x = np.arange(3.0)
    before = sys.getrefcount(x)
    t = eingrad.tensor(x)
    t.__dlpack__(max_version=(1, 1))
    t.__dlpack__()
    del t
    gc.collect()
    assert sys.getrefcount(x) == before
    # and so does one that was refused
    z = np.zeros(3, "c8")
    before = sys.getrefcount(z)
    refuses(TypeError, "complex64", lambda: eingrad.tensor(z))
    gc.collect()
    assert sys.getrefcount(z) == before


def dropped_results():
    class Usage(ctypes.Structure):
        _fields_ = [("mallocs", ctypes.c_uint64)] + [
            (name, ctypes.c_size_t) for name in ("bytes", "peak", "used", "used_peak")] + [
            ("nodes", ctypes.c_uint64)]
    stats = eingrad.eg("stats", Usage, ctypes.c_void_p)
    x = np.zeros(10000, "f4")
    eingrad.einsum("i -> i", x)
    before = stats(eingrad.cx)
    for _ in range(2000):
        eingrad.einsum("i -> i", x)
    after = stats(eingrad.cx)
    assert after.used == before.used and after.bytes - before.bytes < 2 << 20
    print(f"2000 dropped results of 40 kB hold {after.used - before.used} bytes; headers at rest "
          f"and the pool {after.bytes - before.bytes}")


def values():
    rng = np.random.default_rng(1)
    q, k = rng.normal(size=(5, 4)), np.asfortranarray(rng.normal(size=(3, 4)))
    assert np.allclose(np.from_dlpack(eingrad.einsum("i d, j d -> i j", q, k[::-1])), q @ k[::-1].T)
    dq, dk = eingrad.gradient("i d, j d -> i j", q, k)
    assert np.allclose(np.from_dlpack(dq), np.broadcast_to(k.sum(0), q.shape))
    assert np.allclose(np.from_dlpack(dk), np.broadcast_to(q.sum(0), k.shape))


def torch_both_ways():
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8,
                  torch.uint8, torch.int32, torch.int64, torch.bool, torch.complex128):
        whole = (torch.arange(24).reshape(4, 6) % 7).to(dtype)
        for x in (whole, whole.T, whole[1:, ::2], whole[2], whole[:, None, :].expand(4, 3, 6),
                  whole[:0]):
            t = eingrad.tensor(x)
            y = torch.from_dlpack(t)
            assert y.dtype == x.dtype and y.shape == x.shape and torch.equal(x, y)
            if x.numel():
                assert address(t) == address(x) == address(y)
    x = torch.zeros(3, 4)
    t = eingrad.tensor(x)
    y, z = torch.from_dlpack(t), np.from_dlpack(t)
    x[0, 0] = 2
    y[1, 1] = 3
    row = eingrad.tensor(x[2])
    assert fill(row.pointer, 4) == 0
    assert z.tolist() == x.tolist() == y.tolist() == [[2, 0, 0, 0], [0, 3, 0, 0], [4] * 4]
    print(f"torch: tensor {address(x):#x}, eingrad {address(t):#x}, tensor again {address(y):#x}, "
          f"NumPy {address(z):#x}; each sees the others' writes")
    h = torch.randn(5, 4).to(torch.bfloat16)  # read as it is, with sums of f32
    y = torch.from_dlpack(eingrad.einsum("i d, j d -> i j", h, x))
    assert y.dtype == torch.float32 and torch.allclose(y, h.float() @ x.T)
    q, k = torch.randn(5, 4, dtype=torch.float64), np.ones((3, 4))
    assert torch.allclose(torch.from_dlpack(eingrad.einsum("i d, j d -> i j", q, k)),
                          q @ torch.from_numpy(k).T)
    del x, t, y, row
    gc.collect()
    assert z[2].tolist() == [4] * 4


checks = [numpy_both_ways, read_only, refusals, lifetimes, dropped_results, values]
for check in checks + ([torch_both_ways] if torch else []):
    check()
print(f"NumPy {np.__version__}, {'PyTorch ' + torch.__version__ if torch else 'no PyTorch'}: "
      f"{len(checks) + bool(torch)} checks, no copies")
