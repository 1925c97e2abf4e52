/* einsum.c: the cases of contraction, from the 80 multiply-adds of an attention to squares of
 * 2048. */
#include "bench.h"
#include "einsum/einsum.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* sizes: letters and their sizes, in pairs. views: a mark per operand: 'w' a window of a larger
 * array, '2' every second column, 'p' the last two of four axes are outermost in memory, as eingrad
 * stores a result ->ijbh, '.' row-major */
typedef struct row {
    const char *group, *spec, *sizes, *views;
} row;
static const row rows[] = {
#define ATTENTION(s) \
    { "attention", "ibhd,jbhd->ijbh", s, NULL }, { "attention", "ijbh,jbhd->ibhd", s, NULL }
    ATTENTION("i10 j10 b1 h2 d4"),
    ATTENTION("i16 j16 b32 h4 d16"),
    ATTENTION("i60 j60 b10 h8 d64"),
    ATTENTION("i128 j128 b8 h8 d64"),
    ATTENTION("i512 j512 b4 h8 d64"),
#define VALUES(s)                               \
    {                                           \
        "attention", "ijbh,jbhd->ibhd", s, "p." \
    }
    VALUES("i16 j16 b32 h4 d16"),
    VALUES("i60 j60 b10 h8 d64"),
    VALUES("i128 j128 b8 h8 d64"),
    VALUES("i512 j512 b4 h8 d64"),
#define PROJECTION(spec, s)         \
    {                               \
        "projection", spec, s, NULL \
    }
#define PROJECTIONS(s) \
    PROJECTION("blm,mhd->blhd", s), PROJECTION("blhd,hdm->blm", s), PROJECTION("blm,blhd->mhd", s)
    PROJECTIONS("b10 l60 m512 h8 d64"),
    PROJECTIONS("b32 l16 m64 h4 d16"),
#define BATCH(spec, n)                                 \
    {                                                  \
        "batch", spec, "z1024 a" n " b" n " c" n, NULL \
    }
    BATCH("zab,zbc->zac", "8"),
    BATCH("zab,zbc->zac", "16"),
    BATCH("zab,zbc->zac", "24"),
    BATCH("zab,zbc->zac", "32"),
    BATCH("zab,zbc->zac", "48"),
    BATCH("zab,zbc->zac", "64"),
    BATCH("zab,zcb->zac", "16"),
    BATCH("zab,zcb->zac", "64"),
#define SQUARE(spec, n, views)                     \
    {                                              \
        "square", spec, "a" n " b" n " c" n, views \
    }
#define AB(n) SQUARE("ab,bc->ac", n, NULL)
    AB("4"),
    AB("8"),
    AB("16"),
    AB("32"),
    AB("64"),
    AB("96"),
    AB("128"),
    AB("256"),
    AB("512"),
    AB("1024"),
    AB("2048"),
#define FORMS(n)                                                                                  \
    SQUARE("ba,bc->ac", n, NULL), SQUARE("ab,cb->ac", n, NULL), SQUARE("ba,cb->ac", n, NULL),     \
        SQUARE("ab,bc->ac", n, "ww"), SQUARE("ab,bc->ac", n, "22"), SQUARE("ba,bc->ac", n, "22"), \
        SQUARE("ab,cb->ac", n, "22"), SQUARE("ba,cb->ac", n, "22")
    FORMS("96"),
    FORMS("512"),
#define THIN(s)                      \
    {                                \
        "thin", "ab,bc->ac", s, NULL \
    }
/* a token, and some sequences, times weights in memory, in both layouts */
#define TOKENS(n)                                        \
    { "thin", "ab,bc->ac", "a" n " b4096 c4096", NULL }, \
    {                                                    \
        "thin", "ab,cb->ac", "a" n " b4096 c4096", NULL  \
    }
    TOKENS("1"),
    TOKENS("4"),
    TOKENS("8"),
    TOKENS("16"),
    THIN("a1 b512 c512"),
    THIN("a4 b512 c512"),
    THIN("a4096 b64 c64"),
    THIN("a512 b1 c512"),
    THIN("a512 b4 c512"),
    THIN("a64 b4096 c64"),
    THIN("a512 b512 c1"),
    THIN("a512 b512 c4"),
    THIN("a64 b64 c4096"),
#define TCCG(spec, s)         \
    {                         \
        "tccg", spec, s, NULL \
    }
    TCCG("abc,bda->dc", "a64 b48 c96 d64"),
    TCCG("acd,dbc->ab", "a160 b160 c32 d48"),
    TCCG("cad,dcb->ab", "a160 b160 c48 d32"),
    TCCG("bda,dc->abc", "a48 b64 c48 d64"),
    TCCG("dca,bd->abc", "a48 b64 c48 d64"),
    TCCG("ebad,ce->abcd", "a24 b24 c24 d24 e48"),
    TCCG("aebf,dfce->abcd", "a24 b20 c24 d20 e16 f24"),
    TCCG("aebf,fdec->abcd", "a24 b20 c24 d20 e16 f24"),
    TCCG("aecf,bfde->abcd", "a24 b20 c24 d20 e16 f24"),
    TCCG("eafd,fbec->abcd", "a24 b20 c24 d20 e16 f24"),
    TCCG("efbad,cf->abcde", "a12 b12 c16 d12 e12 f32"),
    TCCG("dega,gfbc->abcdef", "a8 b8 c8 d8 e8 f8 g24"),
#define MOVE(spec, s)         \
    {                         \
        "move", spec, s, NULL \
    }
    MOVE("ij->ji", "i512 j512"),
    MOVE("ij->ji", "i4096 j4096"),
    MOVE("ijk->kji", "i64 j64 k64"),
    MOVE("ijk->kji", "i256 j256 k256"),
    MOVE("bhij->bihj", "b32 h4 i16 j16"),
    MOVE("bhij->bihj", "b16 h8 i512 j64"),
#define REDUCE(spec, s)         \
    {                           \
        "reduce", spec, s, NULL \
    }
    REDUCE("ij->", "i512 j512"),
    REDUCE("ij->", "i4096 j4096"),
    REDUCE("ij->i", "i512 j512"),
    REDUCE("ij->i", "i4096 j4096"),
    REDUCE("ij->j", "i512 j512"),
    REDUCE("ij->j", "i4096 j4096"),
    REDUCE("i,i->", "i64"),
    REDUCE("i,i->", "i4096"),
    REDUCE("i,i->", "i4000000"),
    REDUCE("i,i->i", "i4000000"),
    REDUCE("i,j->ij", "i64 j64"),
    REDUCE("i,j->ij", "i2048 j2048"),
    REDUCE("ii->i", "i1024"),
    REDUCE("ii->", "i1024"),
#define NETWORK(spec, s)         \
    {                            \
        "network", spec, s, NULL \
    }
    NETWORK("ab,bc,cd,de->ae", "a64 b256 c16 d256 e64"),
    NETWORK("ab,bc,cd,de,ef,fg,gh,hi->ai", "a8 b32 c8 d64 e16 f48 g8 h64 i8"),
    NETWORK("ae,be,ce,abc->e", "a32 b32 c32 e48"),
    NETWORK("bi,bj,bk,ijk,bl->bl", "b64 i24 j24 k24 l32"),
    NETWORK("abc,bde,dcf,eg,fga->", "a16 b16 c16 d16 e16 f16 g16"),
    NETWORK("ab,bcd,ce,dfg,eh,fi,gj,hk,ikl,jlm,m->a", "a8 b8 c8 d8 e8 f8 g8 h8 i8 j8 k8 l8 m8"),
    NETWORK("ab,cb,cd,ed,ef,gf,gh,ih,ij,kj,kl,al->",
            "a32 b32 c32 d32 e32 f32 g32 h32 i32 j32 k32 l32"),
};

enum { MOST = 12, RANK = 8 };
typedef struct operand {
    int rank;
    char letter[RANK];
    int64_t dim[RANK], stride[RANK];
    eg_tensor *x;
} operand;
typedef struct contraction {
    const row *row;
    eg_dtype dtype;
    int64_t size[128];
    int count;
    operand in[MOST], out;
    eg_tensor *x[MOST];
} contraction;

/* The same elements on both sides of the pipe: a hash of the index, in [-1/2, 1/2). */
static double number(int64_t i)
{
    return (double)((uint32_t)((uint64_t)i * 2654435761u) >> 8) / 16777216.0 - 0.5;
}
static void fill(void *to, eg_dtype dtype, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (dtype == EG_F32)
            ((float *)to)[i] = (float)number(i);
        else
            ((double *)to)[i] = number(i);
    }
}

static void read_sizes(contraction *c)
{
    for (const char *p = c->row->sizes; *p; p += *p == ' ') {
        char letter = *p, *end;
        c->size[(int)letter] = strtoll(p + 1, &end, 10);
        p = end;
    }
}
static const char *read_term(contraction *c, const char *p, operand *o)
{
    for (o->rank = 0; *p && *p != ',' && *p != '-'; p++) {
        o->letter[o->rank] = *p;
        o->dim[o->rank++] = c->size[(int)*p];
    }
    return p;
}
static eg_tensor *make(contraction *c, operand *o, char view)
{
    int64_t dims[RANK], n = 1;
    for (int a = 0; a < o->rank; a++)
        n *= dims[a] = view == 'w'                       ? o->dim[a] + 16
                       : view == '2' && a == o->rank - 1 ? 2 * o->dim[a]
                       : view == 'p'                     ? o->dim[(a + 2) % 4]
                                                         : o->dim[a];
    eg_tensor *x = eg_full_n(bench_cx, c->dtype, 0, o->rank, dims);
    void *to = c->dtype == EG_F32 ? (void *)eg_mut_f32(x) : (void *)eg_mut_f64(x);
    if (to) fill(to, c->dtype, n);
    for (int a = 0; a < o->rank && view == 'w'; a++) x = eg_slice_axis(x, a, 8, 8 + o->dim[a], 1);
    if (view == '2') x = eg_slice_axis(x, o->rank - 1, EG_END, EG_END, 2);
    if (view == 'p') x = eg_permute(x, 2, 3, 0, 1);
    eg_raw(x, o->stride);
    return x;
}

/* -- the same as matrices: letters of one kind that are contiguous become one axis ------------- */
static bool holds(const operand *o, char letter)
{
    return memchr(o->letter, letter, (size_t)o->rank) != NULL;
}
static int64_t stride_of(const operand *o, char letter)
{
    int64_t s = 0;
    for (int a = 0; a < o->rank; a++)
        if (o->letter[a] == letter) s += o->stride[a];
    return s;
}
static int letters_of(const contraction *c, bool a, bool b, bool out,
                      char *to) /* in the order of the output, else of the first operand */
{
    int n = 0;
    for (int pass = 0; pass < 3; pass++) {
        const operand *o = pass == 0 ? &c->out : &c->in[pass - 1];
        for (int k = 0; k < o->rank; k++)
            if (holds(&c->in[0], o->letter[k]) == a && holds(&c->in[1], o->letter[k]) == b &&
                holds(&c->out, o->letter[k]) == out && !memchr(to, o->letter[k], (size_t)n))
                to[n++] = o->letter[k];
    }
    return n;
}
static bool fuse(const contraction *c, int n, const char *letter, const operand *p,
                 const operand *q, int64_t *size, int64_t *ps, int64_t *qs)
{
    *size = 1, *ps = *qs = 1;
    for (int k = n - 1; k >= 0; k--) {
        int64_t s = stride_of(p, letter[k]), r = q ? stride_of(q, letter[k]) : 0;
        if (*size == 1)
            *ps = s, *qs = r;
        else if (s != *ps * *size || (q && r != *qs * *size))
            return false;
        *size *= c->size[(int)letter[k]];
    }
    return true;
}
static int64_t *offsets(const contraction *c, int n, const char *letter, const operand *o,
                        int64_t batch)
{
    int64_t *z = malloc((size_t)batch * sizeof *z);
    for (int64_t i = 0; z && i < batch; i++) {
        int64_t rest = i;
        z[i] = 0;
        for (int k = n - 1; k >= 0; k--) {
            z[i] += rest % c->size[(int)letter[k]] * stride_of(o, letter[k]);
            rest /= c->size[(int)letter[k]];
        }
    }
    return z;
}
typedef struct matrices {
    gemm g;
    void *room[3];
    int64_t *z[2];
    bool packed;
} matrices;
static void matrices_close(matrices *m)
{
    for (int k = 0; k < 3; k++) free(m->room[k]);
    free(m->z[0]), free(m->z[1]);
    *m = (matrices){ .packed = false };
}
/* Operands with strides that no gemm takes are replaced by packed copies that are made beforehand,
 * in the peer's favour. */
static bool matrices_pack(matrices *m)
{
    gemm *g = &m->g;
    size_t item = g->dtype == EG_F32 ? 4 : 8;
    if (posix_memalign(&m->room[0], 64, (size_t)(g->batch * g->m * g->k) * item) ||
        posix_memalign(&m->room[1], 64, (size_t)(g->batch * g->n * g->k) * item))
        return false;
    fill(m->room[0], g->dtype, g->batch * g->m * g->k),
        fill(m->room[1], g->dtype, g->batch * g->n * g->k);
    g->a = m->room[0], g->b = m->room[1];
    g->am = g->k, g->ak = 1, g->bk = g->n, g->bn = 1;
    for (int64_t i = 0; i < g->batch; i++)
        m->z[0][i] = i * g->m * g->k, m->z[1][i] = i * g->k * g->n;
    return m->packed = true;
}
static bool matrices_open(matrices *m, const contraction *c)
{
    char z[16], mm[16], nn[16], kk[16];
    *m = (matrices){ .g.dtype = c->dtype };
    if (c->count != 2) return false;
    int zs = letters_of(c, true, true, true, z), ms = letters_of(c, true, false, true, mm),
        ns = letters_of(c, false, true, true, nn);
    int ks = letters_of(c, true, true, false, kk);
    gemm *g = &m->g;
    if (ms + ns == 0 || ms + ns + ks == 0) return false;
    g->batch = 1;
    for (int k = 0; k < zs; k++) g->batch *= c->size[(int)z[k]];
    bool whole = fuse(c, ms, mm, &c->in[0], NULL, &g->m, &g->am, &(int64_t){ 0 }) &&
                 fuse(c, ns, nn, &c->in[1], NULL, &g->n, &g->bn, &(int64_t){ 0 }) &&
                 fuse(c, ks, kk, &c->in[0], &c->in[1], &g->k, &g->ak, &g->bk);
    m->z[0] = offsets(c, zs, z, &c->in[0], g->batch),
    m->z[1] = offsets(c, zs, z, &c->in[1], g->batch);
    if (!m->z[0] || !m->z[1]) return false;
    size_t item = c->dtype == EG_F32 ? 4 : 8;
    g->a = eg_raw(c->x[0], NULL), g->b = eg_raw(c->x[1], NULL);
    g->az = m->z[0], g->bz = m->z[1];
    if (!whole) {
        g->m = g->n = g->k = 1;
        for (int k = 0; k < ms; k++) g->m *= c->size[(int)mm[k]];
        for (int k = 0; k < ns; k++) g->n *= c->size[(int)nn[k]];
        for (int k = 0; k < ks; k++) g->k *= c->size[(int)kk[k]];
        if (!matrices_pack(m)) return false;
    }
    if (posix_memalign(&m->room[2], 64, (size_t)(g->batch * g->m * g->n) * item)) return false;
    memset(m->room[2], 0, (size_t)(g->batch * g->m * g->n) * item);
    g->c = m->room[2];
    return true;
}

/* -- eingrad ---------------------------------------------------------------------------------- */
static bool run(void *user, int64_t n)
{
    const contraction *c = user;
    for (int64_t k = 0; k < n; k++) {
        eg_mark m = eg_push(bench_cx);
        eg_tensor *y = eg_einsum_n(c->row->spec, c->count, c->x);
        /* a transpose or diagonal is a view; here it is copied */
        if (c->count == 1) eg_contiguous(y);
        eg_pop(bench_cx, m);
    }
    return !eg_error(bench_cx);
}
typedef struct planned {
    eg_plan *plan;
    const void *operands[MOST];
    void *out;
} planned;
static bool run_plan(void *user, int64_t n)
{
    const planned *p = user;
    for (int64_t k = 0; k < n; k++)
        if (eg_plan_run(p->plan, p->operands, p->out)) return false;
    return true;
}
/* As eingrad's run, into memory that exists already, as for the gemm peers. */
static bool planned_open(planned *p, const contraction *c)
{
    eg_shape shapes[MOST];
    size_t n = c->dtype == EG_F32 ? 4 : 8;
    *p = (planned){ .plan = NULL };
    for (int k = 0; k < c->count; k++)
        shapes[k] = eg_shape_of(c->x[k]), p->operands[k] = eg_raw(c->x[k], NULL);
    eg_mark m = eg_push(bench_cx);
    /* the layout that eg_einsum chooses */
    eg_shape out = eg_shape_of(eg_einsum_n(c->row->spec, c->count, c->x));
    p->plan = eg_plan_new_with(&(eg_plan_args){ .size = sizeof(eg_plan_args),
                                                .spec = c->row->spec,
                                                .count = c->count,
                                                .operands = shapes,
                                                .out = &out });
    eg_pop(bench_cx, m);
    for (int a = 0; a < c->out.rank; a++) n *= (size_t)c->out.dim[a];
    return p->plan && !posix_memalign(&p->out, 64, n);
}
static double element(eg_tensor *y, const void *p, int64_t i)
{
    return eg_type(y) == EG_F32 ? (double)((const float *)p)[i] : ((const double *)p)[i];
}

/* Compares Σ y w and Σ |y w|, where w are the elements above, to find results that differ between
 * the two sides of the pipe. */
static void check(const contraction *c, const char *peer, const char *reply)
{
    double theirs, ours = 0, scale = 0;
    eg_mark m = eg_push(bench_cx);
    eg_tensor *y = eg_einsum_n(c->row->spec, c->count, c->x);
    const void *p = c->dtype == EG_F32 ? (const void *)eg_f32(y) : (const void *)eg_f64(y);
    for (int64_t i = 0; p && i < eg_size(y); i++) {
        double t = element(y, p, i) * number(i);
        ours += t, scale += fabs(t);
    }
    if (p && sscanf(reply, "sum %lf", &theirs) == 1 && fabs(ours - theirs) > 1e-3 * scale)
        fprintf(stderr, "bench: %s %s: %s has another result: %g, not %g\n", c->row->spec,
                c->row->sizes, peer, theirs, ours);
    eg_pop(bench_cx, m);
}

static double product(const contraction *c, const operand *o)
{
    double n = 1;
    bool seen[128] = { false };
    for (int a = 0; a < o->rank; a++)
        if (!seen[(int)o->letter[a]]) seen[(int)o->letter[a]] = true, n *= (double)o->dim[a];
    (void)c;
    return n;
}
static double operations(const contraction *c)
{
    if (c->count > 2) { /* opt_einsum's count for the order that eingrad finds */
        eg_labelset set[MOST] = { { { 0 } } }, out = { { 0 } };
        double size[EG_LABEL_MAX] = { 0 };
        static double room[1 << 15]; /* of eg__order_bytes */
        int pairs[MOST][2];
        eg_cost cost;
        for (int k = 0; k < c->count; k++)
            for (int a = 0; a < c->in[k].rank; a++)
                set[k].bits[c->in[k].letter[a] / 64] |= (uint64_t)1 << c->in[k].letter[a] % 64;
        for (int a = 0; a < c->out.rank; a++)
            out.bits[c->out.letter[a] / 64] |= (uint64_t)1 << c->out.letter[a] % 64;
        for (int l = 0; l < 128; l++) size[l] = (double)c->size[l];
        return eg__order(c->count, set, &out, size, 0, pairs, &cost, room) ? cost.work : 0;
    }
    double n = 1;
    bool summed = false;
    for (int l = 0; l < 128; l++)
        if (c->size[l]) n *= (double)c->size[l], summed |= !holds(&c->out, (char)l);
    return c->count == 1 ? (summed ? n : 0) : summed ? 2 * n : n;
}

/* Makes the operands; `line`: how NumPy and PyTorch make the same. */
static void open_case(contraction *c, const row *r, eg_dtype dtype, char *line, size_t room)
{
    *c = (contraction){ .row = r, .dtype = dtype };
    read_sizes(c);
    const char *p = r->spec;
    int at = snprintf(line, room, "einsum %s %s", eg_type_name(dtype), r->spec);
    for (; *p && *p != '-'; p += *p == ',') {
        operand *o = &c->in[c->count];
        p = read_term(c, p, o);
        char view = r->views ? r->views[c->count] : '.';
        c->x[c->count++] = make(c, o, view);
        at += snprintf(line + at, room - (size_t)at, " ");
        for (int a = 0; a < o->rank; a++)
            at += snprintf(line + at, room - (size_t)at, "%s%lld", a ? "x" : "",
                           (long long)o->dim[a]);
        at += snprintf(line + at, room - (size_t)at, "/%c", view);
    }
    read_term(c, p + 2, &c->out);
}

static void one(size_t number, eg_dtype dtype)
{
    static const char *const gemms[] = { "BLIS", "OpenBLAS" }, *const pythons[] = { "NumPy",
                                                                                    "PyTorch" };
    const row *r = &rows[number];
    char name[160], line[1024], order[64], reply[256];
    snprintf(name, sizeof name, "%s %s%s%s", r->spec, r->sizes, r->views ? " /" : "",
             r->views ? r->views : "");
    if (!bench_wanted(r->group, name, dtype)) return;
    contraction c;
    eg_mark mark = eg_push(bench_cx);
    open_case(&c, r, dtype, line, sizeof line);
    if (eg_error(bench_cx)) {
        fprintf(stderr, "bench: %s: %s\n", name, eg_error(bench_cx));
        exit(1);
    }

    contender list[CONTENDERS];
    const char *note = NULL;
    int n = 0;
    list[n++] = (contender){ .name = "eingrad", .run = run, .user = &c };
    planned plan = { .plan = NULL }; /* a plan runs on one thread */
    if (bench_threads == 1 && c.count > 1 && planned_open(&plan, &c))
        list[n++] = (contender){ .name = "plan", .run = run_plan, .user = &plan };
    snprintf(order, sizeof order, "case %zu %d", number, dtype == EG_F64);
    for (int k = 0; k < 2; k++)
        if (bench_ask(gemms[k], order, reply, sizeof reply) && strcmp(reply, "none")) {
            list[n++] = (contender){ .name = gemms[k] };
            if (!strcmp(reply, "packed")) note = "gemm on packed copies";
        }
    for (int k = 0; k < 2; k++) {
        if (!bench_ask(pythons[k], line, reply, sizeof reply)) continue;
        if (strncmp(reply, "error", 5))
            check(&c, pythons[k], reply);
        else
            fprintf(stderr, "bench: %s: %s: %s\n", name, pythons[k], reply);
        list[n++] = (contender){ .name = pythons[k] };
    }
    double read = 0, item = dtype == EG_F32 ? 4 : 8;
    for (int k = 0; k < c.count; k++) read += item * product(&c, &c.in[k]);
    bench_case(
        &(report){ r->group, name, note, dtype, operations(&c), read, item * product(&c, &c.out) },
        n, list);
    eg_plan_free(plan.plan), free(plan.out);
    eg_pop(bench_cx, mark);
}

void einsum_cases(eg_dtype dtype)
{
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) one(k, dtype);
}

/* -- the side of BLIS and OpenBLAS: "case NUMBER IS_F64", then "run NAME SECONDS" -------------- */
int einsum_serve(const char *peer, int threads, const char *library)
{
    const bool openblas = !strcmp(peer, "OpenBLAS");
    const char *version = openblas ? gemm_openblas_open(threads, library) : gemm_blis_open(threads);
    char line[256], order[1024];
    contraction c;
    matrices m = { .packed = false };
    contender it = { .name = peer, .run = openblas ? gemm_openblas : gemm_blis, .user = &m.g };
    int64_t calls = 1;
    bench_cx = eg_open(.threads = 1);
    for (eg_mark mark = eg_push(bench_cx); fgets(line, sizeof line, stdin); fflush(stdout)) {
        size_t number;
        int f64;
        double seconds = 0;
        if (sscanf(line, "case %zu %d", &number, &f64) == 2) {
            matrices_close(&m), calls = 1;
            eg_pop(bench_cx, mark), mark = eg_push(bench_cx);
            open_case(&c, &rows[number], f64 ? EG_F64 : EG_F32, order, sizeof order);
            bool good = matrices_open(&m, &c) &&
                        (!openblas || gemm_openblas_takes(&m.g) || matrices_pack(&m));
            puts(!good ? "none" : m.packed ? "packed" : "ok");
        } else if (sscanf(line, "run %*s %lf", &seconds) == 1)
            printf("best %.6g\n", bench_turn(&it, seconds, &calls));
        else
            puts(version ? version : "-");
    }
    matrices_close(&m);
    eg_close(bench_cx);
    return 0;
}
