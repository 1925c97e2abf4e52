"""Golden files for tests/test_io.c, by NumPy and the safetensors package.
   python io.py            writes tests/data/*.npy, *.npz and *.safetensors
   python io.py check DIR  checks what the tests left in DIR (EG_IO_KEEP=DIR) in the other direction
Element k of every array, in row-major order, is k - 3 (bool: k odd; unsigned: k)."""
import io, os, sys, zipfile
import numpy as np
from safetensors.numpy import load_file
import torch
import safetensors.torch

data = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")
shape = (2, 3, 4)

def values(kind, dims=shape):
    k = np.arange(int(np.prod(dims))).reshape(dims)
    return k % 2 == 1 if kind == "b" else k if kind == "u" else k - 3

def npy(name, array, version=None):
    with open(os.path.join(data, name + ".npy"), "wb") as f:
        np.lib.format.write_array(f, array, version=version) if version else np.save(f, array)

def write():
    os.makedirs(data, exist_ok=True)
    for t in "f4 f8 i4 i8 b1 f2 i1 u1 i2 u2".split():
        npy(t, values(t[0]).astype("<" + t))
        if t not in ("b1", "i1", "u1"):
            npy(t + "_big", values(t[0]).astype(">" + t))
        npy(t + "_fortran", np.asfortranarray(values(t[0]).astype("<" + t)))
    npy("f4_big_fortran", np.asfortranarray(values("f").astype(">f4")))
    npy("f8_scalar", np.array(-3.0))
    npy("f4_empty", np.zeros((3, 0, 2), "f4"))
    npy("f4_row", values("f", (5,)).astype("<f4"))
    npy("f4_v2", values("f").astype("<f4"), (2, 0))
    npy("f4_v3", values("f").astype("<f4"), (3, 0))
    npy("c16", np.zeros(2, "c16"))
    npy("u4", np.zeros(2, "u4"))
    npy("U3", np.array(["abc"]))
    npy("fields", np.zeros(2, dtype=[("a", "f4"), ("b", "i4")]))
    halves = np.array([0, 0x8000, 1, 0x03FF, 0x0400, 0x3C00, 0xC000, 0x7BFF, 0x7C00, 0xFC00, 0x3555, 0x7E00], "<u2")
    npy("halves", halves.view("<f2"))
    npy("halves_f4", halves.view("<f2").astype("<f4"))
    t = {}
    for name, dtype in dict(a_f64=torch.float64, b_f32=torch.float32, c_i64=torch.int64, d_i32=torch.int32, e_bool=torch.bool).items():
        t[name] = torch.from_numpy(values(name[2]).copy()).to(dtype)
    t["f_0d"] = torch.tensor(-3.0, dtype=torch.float64)
    t["g_empty"] = torch.zeros(3, 0, 2)
    order = sorted(t)
    safetensors.torch.save_file({k: t[k] for k in order}, os.path.join(data, "exact.safetensors"), {"note": 'a "quoted" line\nand ü'})
    w = {}
    for name, dtype in dict(i8=torch.int8, u8=torch.uint8, i16=torch.int16, f16=torch.float16, bf16=torch.bfloat16).items():
        w[name] = torch.from_numpy(values("u" if name == "u8" else "i").copy()).to(dtype)
    safetensors.torch.save_file(w, os.path.join(data, "wide.safetensors"))
    safetensors.torch.save_file({"f8": torch.zeros(2).to(torch.float8_e5m2)}, os.path.join(data, "f8.safetensors"))
    npz()
    for f in os.listdir(data):
        os.chmod(os.path.join(data, f), 0o644)

def npz():
    arrays = dict(x=values("f").astype("<f4"), y=np.asfortranarray(values("i").astype(">i8")), mask=values("b"), half=values("f").astype("<f2"),
                  zeros=np.zeros(5000, "<f8"), scalar=np.array(-3.0), none=np.zeros((3, 0, 2), "f4"))
    np.savez(os.path.join(data, "stored.npz"), **{k: a for k, a in arrays.items() if k != "zeros"})
    np.savez_compressed(os.path.join(data, "deflated.npz"), **arrays)
    # ZIP64 in every record, which the zipfile module writes where a limit is crossed; members that are no arrays; a comment
    limit, zipfile.ZIP64_LIMIT, zipfile.ZIP_FILECOUNT_LIMIT = zipfile.ZIP64_LIMIT, 0, 0
    with zipfile.ZipFile(os.path.join(data, "zip64.npz"), "w", zipfile.ZIP_DEFLATED) as z:
        z.comment = b"a comment"
        for name, a in (("x", arrays["x"]), ("größe", arrays["scalar"])):
            text = io.BytesIO()
            np.save(text, a)
            z.writestr(zipfile.ZipInfo(name + ".npy"), text.getvalue())
        z.writestr(zipfile.ZipInfo("notes.txt"), "no array")
    zipfile.ZIP64_LIMIT = limit

def check(folder):
    n = 0
    for f in sorted(os.listdir(folder)):
        path = os.path.join(folder, f)
        if f.endswith(".npy"):
            x = np.load(path)
            assert x.flags.c_contiguous and (x == values("u" if f[0] == "u" else x.dtype.kind, x.shape)).all(), f
            n += 1
        if f.endswith(".npz"):
            with np.load(path) as z:
                for k in z:
                    assert (z[k] == values(z[k].dtype.kind, z[k].shape)).all(), (f, k)
                    n += 1
            assert zipfile.ZipFile(path).testzip() is None
        if f.endswith(".safetensors"):
            for k, x in load_file(path).items():
                assert (x == values(x.dtype.kind, x.shape)).all(), (f, k)
                n += 1
    print(n, "arrays are right")

check(sys.argv[2]) if sys.argv[1:2] == ["check"] else write()
