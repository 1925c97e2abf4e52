"""The coefficients of lib/tensor/epow.h: q of degree 4 in e^r = 1 + r + r^2 q(r), |r| <= ln 2 / 2, with the smallest relative error, by least
squares whose weights grow with the error (Lawson 1961); the numbers in the header are these, rounded to f32.
    python3 tests/reference/epow.py"""
import math
import struct
from fractions import Fraction

DEGREE, END = 4, math.log(2) / 2 * 1.0001
r = [END * math.cos(math.pi * k / 301) for k in range(302)]
rest = [sum(x ** (k - 2) / math.factorial(k) for k in range(2, 25)) for x in r]   # (e^r - 1 - r) / r^2


def solve(rows):
    """The solution of linear equations, exactly; each row ends in its right side."""
    rows = [[Fraction(v) for v in row] for row in rows]
    for i in range(len(rows)):
        p = max(range(i, len(rows)), key=lambda k: abs(rows[k][i]))
        rows[i], rows[p] = rows[p], rows[i]
        for k in range(len(rows)):
            if k != i:
                f = rows[k][i] / rows[i][i]
                rows[k] = [a - f * b for a, b in zip(rows[k], rows[i])]
    return [float(row[-1] / row[i]) for i, row in enumerate(rows)]


weight, best = [1.] * len(r), (1, None)
for _ in range(60):
    s = [w * (x * x * math.exp(-x)) ** 2 for w, x in zip(weight, r)]
    c = solve([[sum(a * (x / END) ** (i + j) for a, x in zip(s, r)) for j in range(DEGREE + 1)] +
               [sum(a * (x / END) ** i * t for a, x, t in zip(s, r, rest))] for i in range(DEGREE + 1)])
    error = [abs(sum(v * (x / END) ** k for k, v in enumerate(c)) - t) * x * x * math.exp(-x) for x, t in zip(r, rest)]
    best = min(best, (max(error), c), key=lambda b: b[0])
    weight = [w * (e / max(error) + 1e-12) for w, e in zip(weight, error)]
    weight = [w / sum(weight) for w in weight]
error, c = best
show = [struct.unpack("f", struct.pack("f", v / END ** k))[0].hex() for k, v in enumerate(c)]
print(f"largest relative error {error:.2g}\nq {' '.join(show)}")
