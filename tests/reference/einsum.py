"""Every einsum of the test suites of NumPy and opt_einsum, and some of others, with NumPy's results, for test_einsum.c.
    python3 tests/reference/einsum.py > tests/data/einsum.txt      (numpy, opt_einsum and pytest installed)
Both suites are run with their entry points recorded; their calls are then computed by numpy.einsum in f64 on operands whose element
k is 2 sin(0.7 k + number of the operand). A line is, between tabs: spec, shapes, kind, shape of the result, values. Kind: "=" as
NumPy, "1" if a size of 1 is broadcast along a letter, "x" if both refuse. Values: elements 0, s, 2s, … (s = max(1, size // 6)) and then
sum of cos(0.3 k) y[k], each followed by the sum of the absolute values of the products in it. Letters beyond ASCII become names."""
import io, math, warnings
from contextlib import redirect_stderr, redirect_stdout
import numpy as np
import opt_einsum, opt_einsum.contract, opt_einsum.blas
import pytest

asked = {}

def letters_of(args):
    """Interleaved input as a string."""
    ops, subs, rest = [], [], list(args)
    while len(rest) >= 2:
        ops.append(rest.pop(0))
        subs.append(list(rest.pop(0)))
    out = list(rest[0]) if rest else None
    keys = {x for s in subs for x in s if x is not Ellipsis}
    name = {x: opt_einsum.get_symbol(k) for k, x in enumerate(sorted(keys))}
    spell = lambda t: "".join("..." if x is Ellipsis else name[x] for x in t)
    return ",".join(map(spell, subs)) + ("->" + spell(out) if out is not None else ""), ops

def ask(args, shapes=False):
    try:
        if isinstance(args[0], str):
            spec, ops = args[0], list(args[1:])
        else:
            spec, ops = letters_of(args)
        dims = [tuple(int(n) for n in x) if shapes else np.shape(x) for x in ops]
    except Exception:
        return
    if ops:
        asked.setdefault((spec, tuple(dims)))

depth = 0
def watched(f, kind):
    def g(*args, **kw):
        global depth
        if depth == 0 and args:
            if kind == "expression":
                constants = kw.get("constants", ())
                ask((args[0], *(np.shape(x) if k in constants else x for k, x in enumerate(args[1:]))), True)
            else:
                ask(args, kind == "path" and kw.get("shapes", False))
        depth += 1
        try:
            return f(*args, **kw)
        finally:
            depth -= 1
    return g

np.einsum = watched(np.einsum, "einsum")
np.einsum_path = watched(np.einsum_path, "einsum")
opt_einsum.contract = watched(opt_einsum.contract, "einsum")
opt_einsum.contract_path = watched(opt_einsum.contract_path, "path")
opt_einsum.contract_expression = watched(opt_einsum.contract_expression, "expression")
with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.main(["-q", "-x", "--maxfail=1000", "-p", "no:cacheprovider", "-k", "not precision and not backends and not large", "--pyargs",
                 "numpy._core.tests.test_einsum", "opt_einsum.tests.test_contract", "opt_einsum.tests.test_input", "opt_einsum.tests.test_paths",
                 "opt_einsum.tests.test_edge_cases", "opt_einsum.tests.test_sharing", "opt_einsum.tests.test_blas", "opt_einsum.tests.test_parser"])
from opt_einsum.tests.test_blas import blas_tests
sizes = dict(zip("abcdefghijklmn", (2, 3, 4, 5, 4, 3, 2, 6, 5, 4, 3, 2, 3, 4)))
for (terms, out, _), _ in blas_tests:
    asked.setdefault((",".join(terms) + "->" + out, tuple(tuple(sizes[c] for c in t) for t in terms)))

# What others ask of theirs: PyTorch's test_linalg.py (test_einsum, test_einsum_corner_cases), JAX's lax_numpy_einsum_test.py (TensorFlow's
# and dask's cases too), einops' test_einsum.py and test_examples.py; sizes as there. In names: our spelling, then NumPy's.
others = """
ki,...k->i...; 5x3 2x5
k...,jk->...; 5x3 2x5
ngrg...->nrg...; 2x1x3x1x4
...ik, ...j -> ...ij; 2x3x5 5
Bik,k...j->i...j; 2x3x5 5x3
i...j, ij... -> ...ij; 2x3x5 2x5x2x3
bn,anm,bm->ba; 5x10 15x10x20 5x20
abCd,dFg->abCFg; 2x3x3x5 5x4x6
ij,ab->ijab; 3x5 7x9
 ; ()
 -> ; ()
 , ; () ()
 , -> ; () ()
 i , i -> i ; 1 1
 i j -> j; 2x0
 i j k  ,  k  -> i j ; 3x0x6 6
...->; ()
Z...->...Z; 1
i,ij->ij; 2 2x3
iji,i->j; 3x4x3 3
sa,shb->shab; 2x1 2x3x4
...ijk->ki; 3x4x5
iijkk->ik; 3x3x5x4x4
iijkl->il; 3x3x5x4x4
ij...,jk...->ik...; 2x3x5x1 3x4x5x1
ijj,k->ik; 2x3x3 4
ijkl,ijml->ijkm; 1x8x20x4 1x8x20x4
ntk,kd,dc->nc; 2x6x5 5x4 4x3
...ij,...j; 2x1x3x3 2x4x3
cij,cjk->cik; 3x4x5 3x1x6
cij,cjk->cik; 1x4x5 3x5x6
cij,cjk->cik; 1x4x5 3x1x6
... ...; 2
ai...; 2
a->... .; 2
a->i; 2
aa; 2x3
a, ba; 2 2x3
... one two three, three four five -> ... two five; 32x5x2x3x4 4x5x6; ...abc,cde->...be
one two three ..., three four five -> two five ...; 2x3x4x32x5 4x5x6; abc...,cde->be...
first_tensor second_tensor -> first_tensor; 5x4; ab->a
 one  two  ,  three four->two  four  ; 2x3 4x5; ab,cd->bd
i middle i -> middle; 5x10x5; aba->b
i ... i -> i ...; 5x3x2x1x4x5; a...a->a...
i j alpha beta, alpha i ...  -> beta ... j; 3x3x1x4 1x3x4x5x6; ijab,ai...->b...j
"""
ours = {}
for line in filter(None, others.split("\n")):
    spec, shapes, *numpys = line.split("; ")
    dims = tuple(tuple(map(int, d.split("x"))) if d != "()" else () for d in shapes.split())
    key = (numpys[0] if numpys else spec, dims)
    asked.setdefault(key)
    if numpys:
        ours[key] = spec

def spelled(spec):
    """None: no term has two axes, so that its names could not be told from letters."""
    if spec.isascii():
        return spec
    name = {c: f"n{k}" for k, c in enumerate(sorted({c for c in spec if c.isalpha()}))}
    terms = spec.split("->")[0].split(",")
    if max(map(len, terms)) < 2:
        return None
    text = ", ".join(" ".join(name[c] for c in t) for t in terms)
    return text + (" -> " + " ".join(name[c] for c in spec.split("->")[1]) if "->" in spec else "")

def wave(s, dims):
    return (2 * np.sin(0.7 * np.arange(math.prod(dims)) + s)).reshape(dims)

def value(spec, ops):
    try:
        return np.asarray(np.einsum(spec, *ops, optimize=False))
    except Exception:
        pass
    return np.asarray(opt_einsum.contract(spec, *ops))

print("# Generated by tests/reference/einsum.py: numpy " + np.__version__ + ", opt_einsum " + opt_einsum.__version__)
for spec, dims in asked:
    text = lambda d: "x".join(map(str, d)) if d else "()"
    head = [ours.get((spec, dims)) or spelled(spec), " ".join(map(text, dims))]
    sizes = {c: n for t, d in zip(spec.split("->")[0].split(","), dims) for c, n in zip(t, d)}      # of letters, about
    if head[0] is None or sum(map(math.prod, dims)) > 200000 or math.prod(sizes.values()) > 10**8:
        continue
    try:
        y = value(spec, [wave(k, d) for k, d in enumerate(dims)])
        m = value(spec, [np.abs(wave(k, d)) for k, d in enumerate(dims)])
    except Exception:
        print(*head, "x", "", "", sep="\t")
        continue
    size, stretch = {}, False
    terms = spec.replace(" ", "").split("->")[0].split(",")
    for t, d in zip(terms, dims):
        t = t.replace("...", "." * (len(d) - len(t.replace("...", ""))))
        for c, n in zip(t, d):
            if c != ".":
                stretch |= size.setdefault(c, n) != n
                size[c] = max(size[c], n)
    y, m = y.reshape(-1), m.reshape(-1)
    shape = text(value(spec, [wave(k, d) for k, d in enumerate(dims)]).shape)
    w = np.cos(0.3 * np.arange(y.size))
    pick = range(0, y.size, max(1, y.size // 6))
    values = [f"{y[k]:.17g} {m[k]:.4g}" for k in pick] + [f"{w @ y:.17g} {np.abs(w) @ m:.4g}"]
    print(*head, "1" if stretch else "=", shape, " ".join(values), sep="\t")
