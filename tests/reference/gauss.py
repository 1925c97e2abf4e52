"""The coefficients of lib/ops/gauss.h: Mills' ratio e^(x^2/2) Phi(-x) on [0, 14] as a ratio of polynomials p/q with the smallest relative
error, by least squares whose weights grow with the error (Lawson 1961); the numbers in the header are these, rounded to f32.
    python3 tests/reference/gauss.py"""
import mpmath as mp
import numpy as np

mp.mp.dps = 60
P, Q, END, UNIT = 4, 5, 14, 3       # degrees; powers of x/UNIT keep the normal equations well conditioned
nodes = (1 - np.cos(np.linspace(0, np.pi, 501))) / 2
x = np.unique(np.concatenate([END * nodes, END * nodes ** 2]))
f = np.array([float(mp.erfc(mp.mpf(v) / mp.sqrt(2)) / 2 * mp.exp(mp.mpf(v) ** 2 / 2)) for v in x])
u, weight, q, best = x / UNIT, np.ones_like(x), np.ones_like(x), (1, None)
for _ in range(400):
    columns = [u ** k for k in range(P + 1)] + [-f * u ** k for k in range(1, Q + 1)]
    scale = np.sqrt(weight) / (f * np.abs(q))
    c = np.linalg.lstsq(np.stack(columns, 1) * scale[:, None], f * scale, rcond=None)[0]
    p, q = sum(c[k] * u ** k for k in range(P + 1)), 1 + sum(c[P + k] * u ** k for k in range(1, Q + 1))
    error = np.abs(p / q / f - 1)
    best = min(best, (error.max(), c), key=lambda b: b[0])
    weight *= error / error.max() + 1e-12
    weight /= weight.sum()
error, c = best
show = lambda values: " ".join(float(np.float32(v)).hex() for v in values)
print(f"largest relative error {error:.2g}\np {show(c[k] / UNIT ** k for k in range(P + 1))}\n"
      f"q 0x1p+0 {show(c[P + k] / UNIT ** k for k in range(1, Q + 1))}")
