#!/usr/bin/env python3
"""Arrays and their text by NumPy's str(): tests/data/print.txt, read by tests/test_tensor.c.

    python3 tests/reference/print_numpy.py > tests/data/print.txt      (NumPy 2.4)
    python3 tests/reference/print_numpy.py 20000 1                     (more arrays, another seed)

A case is one line, dtype sizes lines data, and then that many lines of text. The data are hexadecimal little-endian bytes,
or "ramp start step": start + i step, computed in double.
"""
import sys
import numpy as np

TYPES = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64, "bool": np.bool_, "c128": np.complex128}


def floats(rng, dtype, n):
    kind = rng.integers(12)
    if kind == 0:
        x = rng.integers(-20, 20, n).astype(float)
    elif kind == 1:
        x = np.round(rng.normal(size=n), int(rng.integers(1, 6)))
    elif kind == 2:
        x = rng.normal(size=n) * 10.0 ** rng.integers(-12, 12)
    elif kind == 3:
        x = rng.normal(size=n) * 10.0 ** rng.integers(-4, 4, n)
    elif kind == 4:                                         # any bits
        bits = rng.integers(0, 2 ** 63, n, dtype=np.uint64) * np.uint64(2) + rng.integers(0, 2, n, dtype=np.uint64)
        x = bits.view(np.float64) if dtype == np.float64 else (bits >> np.uint64(32)).astype(np.uint32).view(np.float32)
    elif kind == 5:                                         # powers of two: neighbours at unequal distances
        x = 2.0 ** rng.integers(-60, 60, n) * rng.choice([-1, 1], n)
    elif kind == 6:
        x = rng.choice([0.0, -0.0, 1.0, 1e-4, 9.9999e-5, 1e8, 99999999.0, 1e16, 1e15, 0.1, 1e-5, 123456.789, 1e100 if dtype == np.float64 else 1e30], n)
    elif kind == 7:
        x = rng.choice([np.nan, np.inf, -np.inf, 1.5, -2.25, 0.0], n)
    elif kind == 8:
        x = rng.choice([np.nan, np.inf], n)
    elif kind == 9:
        x = 10.0 ** rng.integers(-5, 9, n) * rng.choice([1, 1, 1, 2.5], n)
    elif kind == 10:                                        # halves at the eighth place
        x = (rng.integers(-10 ** 9, 10 ** 9, n) * 10 + 5) / 10.0 ** 9
    else:
        x = rng.uniform(0, 1, n)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(x).astype(dtype)


def array(rng, dtype, dims):
    n = int(np.prod(dims, dtype=int))
    if dtype == np.bool_:
        x = rng.integers(0, 2, n).astype(bool)
    elif dtype in (np.float32, np.float64):
        x = floats(rng, dtype, n)
    else:
        top = 10 ** int(rng.integers(1, 10 if dtype == np.int32 else 19))
        x = rng.integers(-top if rng.integers(2) else 0, top, n).astype(dtype)
    return x.reshape(dims)


def case(name, x, data):
    text = str(x).split("\n")
    print(name, "x".join(map(str, x.shape)) or "-", len(text), data)
    print("\n".join(text))


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    rng = np.random.default_rng(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    for k in range(count):
        name = ("f32", "f64", "f32", "f64", "i32", "i64", "bool")[k % 7]
        rank = int(rng.choice([0, 1, 1, 1, 2, 2, 3, 4]))
        dims = [int(d) for d in rng.integers(1 if rng.integers(20) else 0, (25, 25, 7, 4, 3)[rank], rank)]
        x = array(rng, TYPES[name], dims)
        case(name, x, x.tobytes().hex() or "-")
    for name, dims, start, step in [
            ("f64", (1000,), 0, 1), ("f64", (1001,), 0, 1), ("f32", (2000,), -1, .125), ("i64", (7, 200), 0, 1), ("i32", (1200, 2), -3, 2),
            ("f64", (8, 7, 30), 0, .1), ("f32", (2, 2, 2, 200), 0, 1), ("i64", (3, 3, 3, 3, 3, 3, 3), 0, 1), ("f64", (6, 300), 1e5, 1e3),
            ("i64", (10000000000000, 0), 0, 1), ("f64", (500,), 0, 1e-3), ("f32", (1, 1, 1, 1, 1, 1, 1, 1, 20), 0, 1.5)]:
        n = int(np.prod(dims, dtype=int))
        x = (start + np.arange(n, dtype=float) * step).astype(TYPES[name]).reshape(dims)
        case(name, x, "ramp %r %r" % (float(start), float(step)))
    for k in range(count // 10):
        rank = int(rng.choice([0, 0, 1, 1, 1, 2, 3]))
        dims = [int(d) for d in rng.integers(1, (1, 12, 5, 3)[rank], rank)]
        x = np.stack([floats(rng, np.float64, int(np.prod(dims, dtype=int))) for _ in range(2)], -1).copy().view(np.complex128).reshape(dims)
        case("c128", x, x.tobytes().hex())


main()
