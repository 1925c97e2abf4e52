"""The tables of docs/benchmarks.md from the JSON lines of `bench --json`.
usage: python3 tests/bench/report.py LINES [DOCUMENT]    replaces the tables in DOCUMENT, between the marks of the machine's
maker; else prints them"""
import json
import math
import sys

GEMMS = ["BLIS", "OpenBLAS"]
PEERS = GEMMS + ["NumPy", "PyTorch"]
CONTRACTION = ["attention", "projection", "batch", "square", "thin", "tccg", "move", "reduce", "network"]
GEMM = CONTRACTION[:6]
TITLES = {"attention": "Attention scores and values", "projection": "Projections and their gradients",
          "batch": "Batches of small squares", "square": "Squares: transposed, windows (`/ww`), every second column (`/22`)",
          "thin": "Thin", "tccg": "Tensor contractions (TCCG)",
          "move": "Transpositions, carried out", "reduce": "Reductions, dot, outer, diagonal, trace",
          "network": "Chains and networks",
          "sdpa": "Attention alone, 8 heads of 64",
          "score": "Scores and masks: 2048 positions, 4 heads of 32; the time divided by that of plain causal attention, "
                   "and the time of PyTorch's compiled flex_attention (forward only) divided by eingrad's",
          "module": "Modules: (batch, length, width, heads), forward and all gradients", "tape": "Small operations", "rows": "Rows", "train": "Training"}


def seconds(t):
    for unit, scale in (("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3)):
        if t < 1000 * scale:
            return "%.3g %s" % (t / scale, unit)
    return "%.2f s" % t


def ratio(row, peer):
    p = row["peers"].get(peer)
    return p.get("ratio") or p["seconds"] / row["seconds"] if p else None


def mean(values):
    return math.exp(sum(math.log(v) for v in values) / len(values)) if values else None


def figure(x):
    return "" if x is None else "%.3g" % x if x < 100 else "%.0f" % x


def gemm_size(case):                            # of a product of two: the smallest of m, n, k
    spec, *sizes = case.split(" /")[0].split()
    size = {s[0]: int(s[1:]) for s in sizes}
    a, b = spec.split("->")[0].split(",")
    out = spec.split("->")[1]
    kinds = {(True, False, True): 1, (False, True, True): 1, (True, True, False): 1}
    for letter, n in size.items():
        kind = (letter in a, letter in b, letter in out)
        if kind in kinds:
            kinds[kind] *= n
    return min(kinds.values())


# The targets of the project's stages, the last one where there are several: what is below, and by how much.
def targets(row, one_thread):
    group, case = row["group"], row["case"]
    size = gemm_size(case) if group in GEMM else 0
    out = []

    def least(what, have, want, form="%.2f of %.2f"):
        if have is not None and have < want:
            out.append(("%s " + form) % (what, have, want))
    if row["threads"] == 1 and row["flop"]:
        if (group == "square" and size >= 256 and "/" not in case) or (group == "projection" and size > 4):
            least("share of peak", row["peak"], 0.78)
        if group in ("square", "batch") and 32 <= size <= 128 and "/" not in case:
            least("share of peak or roof", max(row["peak"], row["roof"]), 0.75)
        if group in ("square", "batch") and size == 16 and "/" not in case:
            least("share of peak", row["peak"], 0.40 if "cb->" in case else 0.55)
        if case.startswith("ibhd,jbhd"):
            least("share of roof", row["roof"], 0.80)
    if row["threads"] == 1 and group in ("move", "reduce") and row["read"] + row["written"] > 1e5:
        least("share of memory", row["roof"], 0.70)
    if group in CONTRACTION:
        for peer in ("NumPy", "PyTorch"):
            least(peer, ratio(row, peer), 30 if " i10 j10 " in case else 6 if " i16 j16 b32 h4 d16" in case else 0.9)
        if row["threads"] == 1 and group in GEMM:
            least("OpenBLAS on packed copies" if row["note"] else "OpenBLAS", ratio(row, "OpenBLAS"), 0.95 if size >= 32 else 0.9)
    if group == "sdpa":
        gradient = case.endswith("gradient")
        if not case.startswith("window"):
            least("PyTorch", ratio(row, "PyTorch"), 1.25 if case.startswith("no mask") else 1.3 if gradient else 1.4)
        wanted = {"no mask, length 4096": (0.75, 0.68), "causal, length 4096": (0.70, 0.60), "window 256, length 16384": (0.45, 0.40)}
        if row["threads"] == 1:
            least("share of peak", row["peak"], wanted.get(case.split(", forward")[0], (0.55, 0.55))[gradient])
    if group == "module" and case in ("encoder (4,512,512,8)", "encoder (10,60,512,8)"):
        least("PyTorch", ratio(row, "PyTorch"), 1.2 if "(4," in case else 1.15)
        if row["threads"] == 1:
            least("share of peak", row["peak"], 0.65)
    if group == "rows":
        least("PyTorch", ratio(row, "PyTorch"), 1.15)
    if group == "module" and case.startswith("attention"):
        want = {"(1,8,16,2)": 40, "(32,16,64,4)": 3.5}.get(case.split()[1], 1.1)
        for peer in ("PyTorch", "SDPA", "compiled"):
            least(peer, ratio(row, peer), want)
        if want == 1.1 and row["threads"] == 1:
            least("share of peak", row["peak"], 0.70)
    if case.startswith("20 operations"):
        least("PyTorch", ratio(row, "PyTorch"), 25, "%.1f of %.0f")
    if case.startswith("step of"):
        wanted = {"character": (1.25, 1.45), "reverse": (2.5, 3)}["character" if "character" in case else "reverse"]
        least("PyTorch", ratio(row, "PyTorch"), wanted[row["threads"] > 1])
    if case.startswith("reverse to"):
        least("PyTorch", ratio(row, "PyTorch"), 4.5 if row["threads"] > 1 else 4)
    if row["threads"] == 2 and one_thread and row["flop"] >= 5e7 and not row["memory_bound"]:
        least("two threads over one", one_thread["seconds"] / row["seconds"], 1.8)
    if "/22" in case or "/ww" in case:
        least("contiguous speed", row.get("contiguous"), 0.90)
    return out


def tables(lines):
    machine = next(r for r in lines if "machine" in r)
    limits = {r["limits"]: r for r in lines if "limits" in r}
    rows = [r for r in lines if "case" in r]
    by = {(r["case"], r["type"], r["threads"]): r for r in rows}
    for r in rows:
        plain = by.get((r["case"].split(" /")[0], r["type"], r["threads"]))
        if plain and plain is not r:
            r["contiguous"] = plain["seconds"] / r["seconds"]
    yield "%s, %s%s. eingrad %s: %s." % (machine["machine"], machine["date"], ", quick" if machine["quick"] else "",
                                         machine["eingrad"], machine["kernel"])
    yield ""
    for peer in PEERS:
        yield "- %s: %s" % (peer, machine[peer])
    for n, r in sorted(limits.items()):
        yield "- limits with %d thread%s: f32 %.0f GFLOP/s, f64 %.0f GFLOP/s; copies of %s GB/s at %s MB" % (
            n, "s" if n > 1 else "", r["f32"] / 1e9, r["f64"] / 1e9, ", ".join("%.0f" % (v[1] / 1e9) for v in r["levels"]),
            ", ".join("%g" % (v[0] / 1e6) for v in r["levels"]))
    yield "- best of %d turns" % machine["rounds"]
    yield ""
    yield "### Geometric means of their time / eingrad's"
    yield ""
    yield "| | cases | " + " | ".join(PEERS) + " |"
    yield "|---|---|" + "---|" * len(PEERS)
    for label in CONTRACTION + ["all contractions", "\\*", "all contractions, 2 threads", "\\*, 2 threads", "rows"]:
        some = [r for r in rows if label in labels(r)]
        if some:
            # BLIS and OpenBLAS on packed copies count in a line of their own
            fair = {p: [r for r in some if label.startswith("\\*") or not r["note"] or p not in GEMMS] for p in PEERS}
            means = [mean([q for q in (ratio(r, p) for r in fair[p]) if q]) for p in PEERS]
            yield "| %s | %d | %s |" % (label, len(some), " | ".join(figure(m) for m in means))
    yield ""
    for group, title in TITLES.items():
        names = list(dict.fromkeys(r["case"] for r in rows if r["group"] == group))
        if names:
            yield "### %s" % title
            yield ""
            yield from {"sdpa": attention, "module": modules, "score": scores}.get(group, contractions if group in CONTRACTION else others)(names, by)
            yield ""
    names = list(dict.fromkeys(r["case"] for r in rows if r["group"] in CONTRACTION and r["threads"] == 2))
    if names:
        yield "### Contractions on two threads"
        yield ""
        yield from two_threads(names, by)
        yield ""
    missed = {}
    for r in rows:
        for t in targets(r, by.get((r["case"], r["type"], 1))):
            missed.setdefault(r["case"], []).append("%s, %d: %s" % (r["type"], r["threads"], t))
    yield "### Below the targets, in some type or number of threads: %d of %d cases" % (
        len(missed), len({r["case"] for r in rows}))
    yield ""
    yield "| case | has, of what was wanted |"
    yield "|---|---|"
    for case, what in missed.items():
        yield "| `%s` | %s |" % (case, "; ".join(what))


def labels(row):                                # the lines of means that a row counts in
    if row["group"] not in CONTRACTION:
        return [row["group"]] if row["threads"] == 1 else []
    several = ", 2 threads" if row["threads"] > 1 else ""
    return ([] if several else [row["group"]]) + ["all contractions" + several] + (["\\*" + several] if row["note"] else [])


def share(row):
    return "%.0f %%" % (100 * row["peak"]) if row["flop"] else ""


def contractions(names, by):
    yield "| case | time | GFLOP/s | of peak | of roof | plan | BLIS | OpenBLAS | NumPy | PyTorch | spread " \
          "| f64: of peak | roof | OpenBLAS | NumPy | PyTorch |"
    yield "|---|" + "---|" * 15
    for name in names:
        f32, f64 = (by.get((name, how, 1)) for how in ("f32", "f64"))
        if not (f32 or f64):
            continue
        cells = ["`%s`%s" % (name, "\\*" if (f32 or f64)["note"] else "")]
        cells += [seconds(f32["seconds"]), "%.3g" % (f32["flop"] / f32["seconds"] / 1e9) if f32["flop"] else "", share(f32),
                  "%.0f %%" % (100 * f32["roof"]), *(figure(ratio(f32, p)) for p in ["plan"] + PEERS),
                  "%.0f %%" % (100 * f32["spread"])] if f32 else [""] * 10
        cells += [share(f64), "%.0f %%" % (100 * f64["roof"]), *(figure(ratio(f64, p)) for p in PEERS[1:])] if f64 else [""] * 5
        yield "| " + " | ".join(cells) + " |"


def two_threads(names, by):                     # gain: over one thread
    part = "time | gain | of peak | of roof | BLIS | OpenBLAS | NumPy | PyTorch | spread"
    yield "| case | f32: " + part + " | f64: " + part + " |"
    yield "|---|" + "---|" * 18
    for name in names:
        cells, note = ["`%s`" % name], False
        for how in "f32", "f64":
            one, two = (by.get((name, how, n)) for n in (1, 2))
            note = note or two and two["note"]
            cells += [seconds(two["seconds"]), figure(one["seconds"] / two["seconds"]) if one else "", share(two), "%.0f %%" % (100 * two["roof"]),
                      *(figure(ratio(two, p)) for p in PEERS), "%.0f %%" % (100 * two["spread"])] if two else [""] * 9
        cells[0] += "\\*" if note else ""
        yield "| " + " | ".join(cells) + " |"


def modules(names, by):                         # PyTorch: nn.MultiheadAttention, nn.TransformerEncoder
    yield "| case | 1 thread | of peak | nn | own, on SDPA | compiled | spread | 2 threads | nn | own, on SDPA | compiled |"
    yield "|---|" + "---|" * 10
    for name in names:
        cells = [name]
        for n in 1, 2:
            r = by.get((name, "f32", n))
            peers = [figure(ratio(r, p)) for p in ("PyTorch", "SDPA", "compiled")] if r else [""] * 3
            cells += [seconds(r["seconds"]) if r else ""] + ([share(r) if r else ""] if n == 1 else []) + peers
            if n == 1:
                cells.append("%.0f %%" % (100 * r["spread"]) if r else "")
        yield "| " + " | ".join(cells) + " |"


def attention(names, by):                       # PyTorch: scaled_dot_product_attention
    part = "time | of peak | PyTorch"
    yield "| case | 1 thread: " + part + " | spread | 2 threads: " + part + " |"
    yield "|---|" + "---|" * 7
    for name in names:
        cells = [name]
        for n in 1, 2:
            r = by.get((name, "f32", n))
            cells += [seconds(r["seconds"]), share(r), figure(ratio(r, "PyTorch"))] if r else [""] * 3
            if n == 1:
                cells.append("%.0f %%" % (100 * r["spread"]) if r else "")
        yield "| " + " | ".join(cells) + " |"


def scores(names, by):
    both = ", forward and gradient"
    part = "time | of peak | over causal"
    yield "| score | 1 thread, forward: " + part + " | flex_attention | with gradient: " + part + " | 2 threads, forward: time | " \
          "over causal | flex_attention | with gradient: time | over causal |"
    yield "|---|" + "---|" * 12
    for name in (n for n in names if not n.endswith(both)):
        cells = [name]
        for threads in 1, 2:
            for case in name, name + both:
                r = by.get((case, "f32", threads))
                causal = ratio(r, "causal") if r else None
                cells += [seconds(r["seconds"]) if r else ""] + ([share(r) if r else ""] if threads == 1 else [])
                cells += [figure(1 / causal) if causal else ""]
                cells += [figure(ratio(r, "PyTorch")) if r else ""] if case == name else []
        yield "| " + " | ".join(cells) + " |"


def others(names, by):
    yield "| case | 1 thread | PyTorch | with fused Adam | spread | 2 threads | PyTorch | with fused Adam | |"
    yield "|---|" + "---|" * 8
    for name in names:
        cells, note = [name], ""
        for n in 1, 2:
            r = by.get((name, "f32", n))
            peers = [figure(ratio(r, p)) for p in ("PyTorch", "PyTorch, fused Adam")] if r else ["", ""]
            cells += [seconds(r["seconds"]) if r else "", *peers]
            if n == 1:
                cells.append("%.0f %%" % (100 * r["spread"]) if r else "")
            note = r["note"] if r else note
        yield "| " + " | ".join(cells + [note]) + " |"


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    text = "\n".join(tables(lines)) + "\n"
    if len(sys.argv) < 3:
        sys.stdout.write(text)
        return
    with open(sys.argv[2], encoding="utf-8") as f:
        document = f.read()
    machine = next(r["machine"] for r in lines if "machine" in r)
    maker = next((m for m in ("Intel", "AMD") if m in machine), machine)
    begin, end = "<!-- results: %s -->\n" % maker, "<!-- end of results: %s -->\n" % maker
    if begin not in document or end not in document:
        sys.exit("%s: no tables of this maker: %s%s" % (sys.argv[2], begin, end))
    head, rest = document.split(begin, 1)
    tail = rest.split(end, 1)[1]
    with open(sys.argv[2], "w", encoding="utf-8") as f:
        f.write(head + begin + text + end + tail)


main()
