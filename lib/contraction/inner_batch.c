/* inner_batch.c: a product whose batch axes have the smallest strides in an operand, as in the
 * values of `ijbh,jbhd->ibhd`: the elements of one batch are a cache line apart, and packing would
 * load every line once per batch. Here a block of the operand (some batches, rows and k) is
 * transposed into scratch memory, batch by batch, so that each line is loaded once, and the
 * products of the block are computed by direct.c or gemm.c. A batch axis that continues the
 * contiguous axis of c is placed so that both become one (`efbad,cf->abcde`: 12 lanes of e become
 * 144 of d e). If the lines of a few columns of b fit in the first-level cache, b is read in place
 * instead: those columns are computed for all batches that share the lines before the next ones.
 * Blocks of k are those of the kernels, so that the sum of an element has the same order and bits
 * as without this. */
#include "contraction/gemm.h"

/* BLOCK_BYTES: bytes of an operand's block. NEAR_BYTES: those of a block that stays in the
 * second-level cache while its products are computed. FAR_BYTES: operands of more bytes do not stay
 * there from one use to the next. ROWS: a block is not divided into fewer rows.
 * LEAST: fewer batches are not worthwhile. LINE: bytes. SETS, WAYS: of the first-level cache, whose
 * lines have EG_LINE bytes; MORE: lines by which a set may exceed its ways. */
enum {
    BLOCK_BYTES = 3 << 20,
    NEAR_BYTES = 384 << 10,
    FAR_BYTES = 3 << 19,
    ROWS = 96,
    LEAST = 8,
    LINE = 128,
    SETS = 64,
    WAYS = 12,
    MORE = 6
};

/* An operand. packed: it is transposed into `buffer`. joins: its last batch axis continues m in c,
 * so that both can become one axis. */
typedef struct part {
    int which;
    bool packed, joins;
    char *buffer;
} part;
typedef struct blocks {
    eg_axis group_axes[EG_PAIR_AXES], rest_axes[EG_PAIR_AXES];
    /* group: the batch axes that are contiguous in the operand, the last one innermost; rest: the
     * other batch axes */
    eg_axes group, rest;
    int64_t z, m, n, k; /* a block: elements of the first axis of each list */
    int64_t columns;    /* of b, read in place at a time; 0: the operands are transposed */
    bool far;           /* the operands do not fit in the second-level cache */
    part part[2];
} blocks;

static int64_t inner_first(const eg_axes *l) { return l->n ? l->axis[0].size : 1; }
static int64_t inner(const eg_axes *l) { return l->total / inner_first(l); }
static bool has_unit_stride(const eg_axes *l, int which)
{
    for (int i = 0; i < l->n; i++)
        if (l->axis[i].step[which] == 1 || l->axis[i].step[which] == -1) return true;
    return false;
}

/* Finds the batch axes that are contiguous in an operand, from stride 1 on. */
static void group_of(blocks *b, const eg_axes *batch, int which)
{
    bool taken[EG_PAIR_AXES] = { false };
    b->group = (eg_axes){ .n = 0, .total = 1, .axis = b->group_axes };
    b->rest = (eg_axes){ .n = 0, .total = 1, .axis = b->rest_axes };
    for (int i = 0; i < batch->n; i++)
        if (!taken[i] && batch->axis[i].step[which] == b->group.total) {
            taken[i] = true;
            for (int j = b->group.n++; j > 0; j--) b->group_axes[j] = b->group_axes[j - 1];
            b->group_axes[0] = batch->axis[i];
            b->group.total *= batch->axis[i].size;
            i = -1;
        }
    for (int i = 0; i < batch->n; i++)
        if (!taken[i]) {
            b->rest_axes[b->rest.n++] = batch->axis[i];
            b->rest.total *= batch->axis[i].size;
        }
}

/* Returns the elements of the group's first axis in a block, where a batch has `bytes` bytes: as
 * many as share a cache line, if such a block stays in the second-level cache and one of all
 * batches does not; else all of them. */
static int64_t batches_of(const eg_axes *group, int64_t bytes, int64_t w)
{
    const int64_t z = inner_first(group), each = inner(group),
                  few = (EG_LINE / w + each - 1) / each;
    const bool near = few * each * bytes <= NEAR_BYTES && z * each * bytes > NEAR_BYTES;
    return near ? few : z;
}
/* Returns the columns of b that can be read in place at a time: those whose lines, one for each
 * element, stay in the first-level cache while the batches are computed that share them. 0 if these
 * are too few, or if a or c is not contiguous along m. */
static int64_t columns_in_place(const eg_gemm *g, const blocks *b)
{
    if (b->part[0].packed || !b->part[1].packed || !eg__direct_suits(g)) return 0;
    const int64_t w = g->dtype == EG_F64 ? 8 : 4, k = g->k.total;
    const eg_axis *n = g->n.axis;
    const int64_t columns = eg__min64(eg__min64(eg__direct_columns(g->dtype), n->size),
                                      SETS * WAYS / eg__min64(k, SETS * WAYS));
    if (columns < EG_FAR_LEAST || g->m.axis->sa != 1) return 0;
    uint8_t lines[SETS] = { 0 }; /* in each set */
    for (int64_t j = 0; j < columns; j++)
        for (int64_t p = 0; p < k; p++) {
            const int64_t at = w * (j * n->sb + p * g->k.axis->sb);
            if (++lines[(uint64_t)at / EG_LINE % SETS] > WAYS + MORE) return 0;
        }
    return columns;
}
/* Chooses the sizes of blocks from the shape only. False if in no operand the batch axes have the
 * smallest strides, or if the smallest block is too large. */
static bool inner_plan(const eg_gemm *g, blocks *b)
{
    const eg_axes *rows[2] = { &g->m, &g->n };
    const int64_t w = g->dtype == EG_F64 ? 8 : 4;
    bool any = false;
    for (int s = 0; s < 2; s++) {
        part *p = &b->part[s];
        *p = (part){ .which = s ? EG_OF_B : EG_OF_A };
        if (has_unit_stride(rows[s], p->which) || has_unit_stride(&g->k, p->which)) continue;
        if (!any) group_of(b, &g->batch, p->which);
        int64_t step = 1;
        bool together = b->group.total >= LEAST;
        for (int i = b->group.n - 1; i >= 0; step *= b->group.axis[i--].size)
            together &= b->group.axis[i].step[p->which] == step;
        p->packed = together;
        any |= together;
    }
    if (!any) return false;
    b->z = inner_first(&b->group);
    b->m = inner_first(&g->m);
    b->n = inner_first(&g->n);
    b->k = g->k.n == 1 ? eg__min64(inner_first(&g->k), EG_KC) : inner_first(&g->k);
    b->columns = columns_in_place(g, b);
    if (b->columns) {
        b->z = batches_of(&b->group, b->m * b->k * w, w);
        b->far = (b->m * b->k + b->k * b->n + b->m * b->n) * g->batch.total * w > FAR_BYTES;
        return true;
    }
    for (int s = 0; s < 2; s++) {
        if (!b->part[s].packed) continue;
        int64_t *r = s ? &b->n : &b->m;
        b->z = eg__min64(b->z,
                         batches_of(&b->group, *r * inner(rows[s]) * b->k * inner(&g->k) * w, w));
        for (;;) {
            const int64_t z = b->z * inner(&b->group), n = *r * inner(rows[s]),
                          bytes = z * n * b->k * inner(&g->k) * w;
            if (bytes <= BLOCK_BYTES) break;
            if (n > ROWS && *r > 1)
                *r = (*r + 1) / 2;
            else if (z > LINE / w && b->z > 1)
                b->z = (b->z + 1) / 2;
            else if (*r > 1)
                *r = (*r + 1) / 2;
            else
                return false;
        }
    }
    const eg_axis *m = g->m.axis, *last = &b->group.axis[b->group.n - 1];
    b->part[0].joins = b->part[0].packed && !b->part[1].packed && g->m.n == 1 && b->m == m->size &&
                       last->sb == 0 && last->sc == m->sc * m->size;
    return true;
}

/* -- a block: elements [at, at + size) of a list's first axis --------------------------------- */
static eg_axes inner_cut(const eg_axes *l, int64_t size, eg_axis *axes)
{
    eg_axes c = { .n = l->n, .total = l->n ? size * inner(l) : 1, .axis = axes };
    for (int i = 0; i < l->n; i++) axes[i] = l->axis[i];
    if (c.n) axes[0].size = size;
    return c;
}
static int64_t offset(const eg_axes *l, int64_t at, int which)
{
    return l->n ? at * l->axis[0].step[which] : 0;
}
/* sets row-major strides from `step` on in operand s */
static void restride(const eg_axes *l, int s, int64_t step)
{
    for (int i = l->n - 1; i >= 0; step *= l->axis[i--].size) l->axis[i].step[s] = step;
}

/* Lines, numbered by y: dst[z·zs + y·ys + x] = src[y, x, z] */
typedef struct transposing {
    const eg_axes *x, *y;
    int which;
    size_t w;
    int64_t batches, zs, ys, pieces;
    const char *src;
    char *dst;
} transposing;
/* Transposes one thread's share of the lines. */
static void inner_piece(void *user, int64_t number, int thread)
{
    (void)thread;
    const transposing *t = user;
    const eg_axis one = { .size = 1 }, *x = t->x->n ? &t->x->axis[t->x->n - 1] : &one;
    for (int64_t y = t->y->total * number / t->pieces; y < t->y->total * (number + 1) / t->pieces;
         y++) {
        int64_t at;
        eg__offsets(t->y, t->which, y, 1, &at);
        for (int64_t i = 0; i < t->x->total; i += x->size) {
            int64_t along;
            eg__offsets(t->x, t->which, i, 1, &along);
            eg__transpose(t->w, x->size, t->batches, t->src + (at + along) * (int64_t)t->w,
                          x->step[t->which], t->dst + (y * t->ys + i) * (int64_t)t->w, t->zs,
                          false);
        }
    }
}
/* Pads n by one to two cache lines, so that batches do not share a cache set. */
static int64_t padded(int64_t n) { return (n + 31) / 16 * 16; }
/* Transposes a block of operand s into its memory, batch by batch, and sets the strides that its
 * axes have there. */
static void inner_transpose(eg_ctx *cx, const part *p, int s, bool small, size_t w, eg_axes *group,
                            eg_axes *rows, const eg_axes *k, const char *src)
{
    /* x: the axis with the smaller stride; the small kernels read a along its rows */
    const eg_axes *x = k, *y = rows;
    if (rows->n && ((small && s == 0) || !k->n ||
                    rows->axis[rows->n - 1].step[p->which] < k->axis[k->n - 1].step[p->which])) {
        x = rows;
        y = k;
    }
    const bool join = p->joins && small; /* the batches are then contiguous for every k */
    transposing t = { x,        y, p->which, w,        group->total, padded(x->total * y->total),
                      x->total, 1, src,      p->buffer };
    if (join) {
        t.zs = x->total;
        t.ys = padded(x->total * group->total);
    }
    const int team = eg__team(cx, x->total * y->total * group->total, 1 << 17);
    t.pieces = eg__min64(y->total, 4 * team);
    eg__parallel(cx, team, t.pieces, inner_piece, &t);
    restride(group, s, t.zs);
    restride(x, s, 1);
    restride(y, s, t.ys);
    if (!join) return;
    const int64_t more = group->axis[--group->n].size;
    group->total /= more;
    rows->total = rows->axis->size *= more;
}

bool eg__inner_batch_suits(const eg_gemm *g, bool *small)
{
    blocks b;
    if (!inner_plan(g, &b)) return false;
    eg_axis axes[3];
    eg_gemm one = *g;
    if (g->m.n == 1) one.m = inner_cut(&g->m, b.m, &axes[0]);
    if (g->n.n == 1) one.n = inner_cut(&g->n, b.n, &axes[1]);
    if (g->k.n == 1) one.k = inner_cut(&g->k, b.k, &axes[2]);
    *small = eg__direct_suits(&one);
    return true;
}

/* Allocates the memory into which blocks of the operands are transposed. False after an error. */
static bool inner_buffers(eg_ctx *cx, const eg_gemm *g, blocks *b)
{
    const size_t w = g->dtype == EG_F64 ? 8 : 4;
    for (int s = 0; s < 2; s++) {
        part *p = &b->part[s];
        if (!p->packed) continue;
        const int64_t n = (s ? b->n * inner(&g->n) : b->m * inner(&g->m)),
                      z = b->z * inner(&b->group), k = b->k * inner(&g->k);
        const int64_t by_z = z * padded(n * k), by_k = k * padded(n * z);
        p->buffer = eg__scratch(cx, s ? EG_SCRATCH_BATCH_B : EG_SCRATCH_BATCH_A,
                                (size_t)(by_z > by_k ? by_z : by_k) * w);
        if (!p->buffer) return false;
    }
    return true;
}
/* The first elements of a block along batch, m, n and k; rest: where its other batch axes are. */
typedef struct block_at {
    eg_offsets rest;
    int64_t z, m, n, k;
} block_at;
/* Transposes the block of the operands whose batch axes have the smallest strides, and multiplies.
 * False after an error. */
static bool inner_block(eg_ctx *cx, const eg_gemm *g, const blocks *b, const block_at *at)
{
    const int64_t w = g->dtype == EG_F64 ? 8 : 4;
    const eg_axes *group = &b->group;
    eg_axis axes[4][EG_PAIR_AXES];
    eg_gemm one = { .dtype = g->dtype,
                    .of = { g->dtype, g->dtype },
                    .alpha = g->alpha,
                    .add = g->add || at->k > 0 };
    one.batch = inner_cut(group, eg__min64(b->z, inner_first(group) - at->z), axes[0]);
    one.m = inner_cut(&g->m, eg__min64(b->m, inner_first(&g->m) - at->m), axes[1]);
    one.n = inner_cut(&g->n, eg__min64(b->n, inner_first(&g->n) - at->n), axes[2]);
    one.k = inner_cut(&g->k, eg__min64(b->k, inner_first(&g->k) - at->k), axes[3]);
    one.a = g->a + w * (at->rest.a + offset(group, at->z, EG_OF_A) + offset(&g->m, at->m, EG_OF_A) +
                        offset(&g->k, at->k, EG_OF_A));
    one.b = g->b + w * (at->rest.b + offset(group, at->z, EG_OF_B) + offset(&g->n, at->n, EG_OF_B) +
                        offset(&g->k, at->k, EG_OF_B));
    one.c = g->c + w * (at->rest.c + offset(group, at->z, EG_OF_C) + offset(&g->m, at->m, EG_OF_C) +
                        offset(&g->n, at->n, EG_OF_C));
    const bool small = eg__direct_suits(&one);
    for (int s = 0; s < 2; s++) {
        if (!b->part[s].packed) continue;
        const char **from = s ? &one.b : &one.a;
        inner_transpose(cx, &b->part[s], s, small, (size_t)w, &one.batch, s ? &one.n : &one.m,
                        &one.k, *from);
        *from = b->part[s].buffer;
    }
    if (small) one.tiling = eg__direct_tiling(&one);
    return small ? eg__direct(cx, &one) : eg__gemm(cx, &one);
}
/* Multiplies batches [z, z + b->z) of the group, where b is read in place: `tiles` times `each`
 * columns from n on. The batches are inside of the tiles, so that they share the lines of b; strips
 * of m become the innermost batch axis, so that a product is a single tile. If the operands are
 * far, they prefetch the lines of the next columns; next: where the columns after these tiles
 * begin, or NULL. False after an error. */
static bool inner_tiles(eg_ctx *cx, const eg_gemm *g, const blocks *b, block_at at, int64_t tiles,
                        int64_t each, const block_at *next)
{
    const int64_t w = g->dtype == EG_F64 ? 8 : 4, strip = 2 * eg__direct_lanes(g->dtype),
                  z = eg__min64(b->z, inner_first(&b->group) - at.z);
    eg_axis axes[EG_PAIR_AXES + 2], n = *g->n.axis, m = *g->m.axis;
    eg_gemm one = *g;
    int outer = 0;
    if (tiles > 1) axes[outer++] = (eg_axis){ tiles, .sb = each * n.sb, .sc = each * n.sc };
    one.batch = inner_cut(&b->group, z, axes + outer);
    one.batch.n += outer;
    one.batch.axis = axes;
    one.batch.total *= tiles;
    if (m.size > strip && m.size % strip == 0) {
        const int64_t strips = m.size / strip;
        one.batch.total *= strips;
        axes[one.batch.n++] = (eg_axis){ strips, .sa = strip * m.sa, .sc = strip * m.sc };
        m.size = strip;
    }
    n.size = each;
    one.m = (eg_axes){ 1, m.size, &m };
    one.n = (eg_axes){ 1, each, &n };
    one.a += w * (at.rest.a + offset(&b->group, at.z, EG_OF_A));
    one.b += w * (at.rest.b + offset(&b->group, at.z, EG_OF_B) + offset(&g->n, at.n, EG_OF_B));
    one.c += w * (at.rest.c + offset(&b->group, at.z, EG_OF_C) + offset(&g->n, at.n, EG_OF_C));
    one.tiling = eg__direct_tiling(&one);
    if (b->far) {
        one.tiling.sharing = one.batch.total / tiles;
        one.tiling.next = each * n.sb;
        if (next)
            one.tiling.beyond = offset(&b->group, next->z - at.z, EG_OF_B) +
                                offset(&g->n, next->n - at.n - (tiles - 1) * each, EG_OF_B);
    }
    return eg__direct(cx, &one);
}
/* Computes the blocks of one element of the other batch axes, where b is read in place. False after
 * an error. */
static bool inner_in_place(eg_ctx *cx, const eg_gemm *g, const blocks *b, eg_offsets rest)
{
    const int64_t n = g->n.total, tiles = (n + b->columns - 1) / b->columns, each = n / tiles,
                  wider = n % tiles; /* so many have one column more */
    block_at at = { .rest = rest }, next = at;
    for (; at.z < inner_first(&b->group); at = next) {
        next.n = wider * (each + 1);
        if (wider && !inner_tiles(cx, g, b, at, wider, each + 1, &next)) return false;
        at.n = next.n;
        next = (block_at){ .rest = rest, .z = at.z + b->z };
        if (!inner_tiles(cx, g, b, at, tiles - wider, each,
                         next.z < inner_first(&b->group) ? &next : NULL))
            return false;
    }
    return true;
}
/* Computes the blocks of one element of the other batch axes. False after an error. */
static bool inner_blocks(eg_ctx *cx, const eg_gemm *g, const blocks *b, eg_offsets rest)
{
    block_at at = { .rest = rest };
    for (at.z = 0; at.z < inner_first(&b->group); at.z += b->z)
        for (at.k = 0; at.k < inner_first(&g->k); at.k += b->k)
            for (at.m = 0; at.m < inner_first(&g->m); at.m += b->m)
                for (at.n = 0; at.n < inner_first(&g->n); at.n += b->n)
                    if (!inner_block(cx, g, b, &at)) return false;
    return true;
}
bool eg__inner_batch(eg_ctx *cx, const eg_gemm *g)
{
    blocks b;
    if (!inner_plan(g, &b) || (!b.columns && !inner_buffers(cx, g, &b))) return false;
    for (int64_t r = 0; r < b.rest.total; r++)
        if (!(b.columns ? inner_in_place : inner_blocks)(cx, g, &b, eg__offsets_of(&b.rest, r)))
            return false;
    return true;
}
