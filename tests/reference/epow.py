"""The coefficients of lib/tensor/epow.h, rounded to f32: polynomials with the smallest relative error of the function, by least squares
whose weights grow with the error (Lawson 1961).
  q, of degree 4, in e^r = 1 + r + r^2 q(r), |r| <= ln 2 / 2
  p, of degree 4, in tanh x = x + x^3 p(x^2), |x| <= 0.625
    python3 tests/reference/epow.py"""
import math
import struct
from fractions import Fraction


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


def fit(name, degree, end, at, target, share):
    """Prints the polynomial in x/end that is closest to target at the points; share: of an error of it in the function's value."""
    weight, best = [1.] * len(at), (1, None)
    for _ in range(60):
        s = [w * f * f for w, f in zip(weight, share)]
        c = solve([[sum(a * (x / end) ** (i + j) for a, x in zip(s, at)) for j in range(degree + 1)] +
                   [sum(a * (x / end) ** i * t for a, x, t in zip(s, at, target))] for i in range(degree + 1)])
        error = [abs(sum(v * (x / end) ** k for k, v in enumerate(c)) - t) * f for x, t, f in zip(at, target, share)]
        best = min(best, (max(error), c), key=lambda b: b[0])
        weight = [w * (e / max(error) + 1e-12) for w, e in zip(weight, error)]
        weight = [w / sum(weight) for w in weight]
    error, c = best
    show = [struct.unpack("f", struct.pack("f", v / end ** k))[0].hex() for k, v in enumerate(c)]
    print(f"{name} {' '.join(show)}\n  largest relative error {error:.2g}")


END = math.log(2) / 2 * 1.0001
r = [END * math.cos(math.pi * k / 301) for k in range(302)]
fit("q", 4, END, r, [sum(x ** (k - 2) / math.factorial(k) for k in range(2, 25)) for x in r], [x * x * math.exp(-x) for x in r])

END = 0.625 ** 2
u = [END * (1 - math.cos(math.pi * (k + .5) / 301)) / 2 for k in range(301)]


def tanh_rest(x):
    """(tanh x - x) / x^3 from the series of sinh and cosh, without cancellation"""
    odd = sum((1 - (2 * k + 1)) * x ** (2 * k - 2) / math.factorial(2 * k + 1) for k in range(1, 20))   # (sinh x - x cosh x) / x^3
    return odd / math.cosh(x)


fit("p", 4, END, u, [tanh_rest(math.sqrt(v)) for v in u], [v * math.sqrt(v) / math.tanh(math.sqrt(v)) for v in u])
