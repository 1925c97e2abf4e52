"""Golden files for tests/program.sh, by NumPy: tests/data/program/*.npy. The elements are small integers, so that every order of a sum gives
the same bits."""
import os
import numpy as np

data = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "program")
os.makedirs(data, exist_ok=True)
rng = np.random.default_rng(2)


def whole(*shape):
    return rng.integers(-4, 5, shape)


def save(name, x):
    np.save(os.path.join(data, name + ".npy"), x)


for t in ("f4", "f8"):                              # C = A B and the gradient of sum(C W)
    A, B, W = (whole(*s).astype(t) for s in ((3, 4), (4, 5), (3, 5)))
    for name, x in (("A", A), ("B", B), ("W", W), ("C", A @ B), ("dA", W @ B.T), ("dB", A.T @ W)):
        save(f"{name}_{t}", x)
A, B = whole(3, 4).astype("i4"), whole(4, 5).astype("i8")
save("A_i4", A)
save("C_i4", np.einsum("ij,kj->ik", A, A, dtype="i8"))      # eingrad sums integers in i8
one, row = (rng.integers(1, 9, s).astype("f8") for s in ((1, 4), (3, 4)))
save("one", one)                                    # a size of 1 under a letter
save("row", row)
save("stretched", np.einsum("ij,ij->ij", one, row))
W = whole(3, 4).astype("f8")
save("Ws", W)
save("done", (W * row).sum(0, keepdims=True))
save("drow", W * one)
save("scalar", np.array(3.0))
save("trace", np.einsum("ii->", np.arange(9.0).reshape(3, 3)))
save("square", np.arange(9.0).reshape(3, 3))
