"""The coefficients of lib/ops/gauss.h: w = Phi(-a) / 2^(c a^2) on [0, 13.3], c the header's -log2(e)/2, as a ratio p/q of polynomials of
degree 4, that of q monic, with the smallest error relative to w (1 + 2 a^2): by least squares whose weights grow with the error (Lawson
1961), then by trying neighbours of the coefficients, which are numbers of f32.
    python3 tests/reference/gauss.py"""
import mpmath as mp
import numpy as np

mp.mp.dps = 50
DEGREE, END, UNIT = 4, 13.3, 3      # powers of x/UNIT keep the normal equations well conditioned
c = -mp.mpf(float.fromhex("-0x1.715476p-1"))
nodes = (1 - np.cos(np.linspace(0, np.pi, 501))) / 2
x = np.unique(np.concatenate([END * nodes, END * nodes ** 2]))
f = np.array([float(mp.erfc(mp.mpf(v) / mp.sqrt(2)) / 2 * mp.mpf(2) ** (c * mp.mpf(v) ** 2)) for v in x])
allowed, u, weight, q, best = 1 + 2 * x * x, x / UNIT, np.ones_like(x), np.ones_like(x), (1e9, None)
for _ in range(600):
    columns = [u ** k for k in range(DEGREE + 1)] + [-f * u ** k for k in range(1, DEGREE + 1)]
    scale = np.sqrt(weight) / (f * np.abs(q) * allowed)
    a = np.linalg.lstsq(np.stack(columns, 1) * scale[:, None], f * scale, rcond=None)[0]
    p = sum(a[k] * u ** k for k in range(DEGREE + 1))
    q = 1 + sum(a[DEGREE + k] * u ** k for k in range(1, DEGREE + 1))
    error = np.abs(p / q / f - 1) / allowed
    best = min(best, (error.max(), a), key=lambda b: b[0])
    weight *= error / error.max() + 1e-12
    weight /= weight.sum()
a = best[1]
last = a[-1] / UNIT ** DEGREE
p = [a[k] / UNIT ** k / last for k in range(DEGREE + 1)]
q = [1 / last] + [a[DEGREE + k] / UNIT ** k / last for k in range(1, DEGREE)]
numbers = np.array(p + q).astype(np.float32)


def error_of(numbers):
    d = numbers.astype(np.float64)
    p = sum(d[k] * x ** k for k in range(DEGREE + 1))
    q = sum(d[DEGREE + 1 + k] * x ** k for k in range(DEGREE)) + x ** DEGREE
    return np.max(np.abs(p / q / f - 1) / allowed)


least, generator = error_of(numbers), np.random.default_rng(0)
for _ in range(6000):
    other = numbers.copy()
    for j in generator.choice(len(numbers), size=generator.integers(1, 4), replace=False):
        other[j] += np.spacing(other[j]) * generator.integers(-3, 4)
    error = error_of(other)
    if error < least:
        least, numbers = error, other
show = lambda values: " ".join(float(v).hex() for v in values)
print(f"largest error / (1 + 2 a^2): {best[0]:.2g}, in f32 {least:.2g}\np {show(numbers[:DEGREE + 1])}\nq {show(numbers[DEGREE + 1:])} 1")
