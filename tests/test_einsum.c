/* test_einsum.c: every form in the test suites of NumPy and opt_einsum, and some of PyTorch, JAX
 * and einops (tests/data/einsum.txt, written by tests/reference/einsum.py), their gradients, and
 * random specs compared with the definition of the sum. EG_SPECS=100000 sets the number of random
 * specs. */
#include <eingrad.h>
#include <eingrad/check.h>
#include <stdlib.h>
#include "fixtures.h"
#include "random_views.h"
#include "tests.h"

static eg_ctx *cx;
static void setup(void) { cx = eg_open(.dtype = EG_F64); }
static void teardown(void) { eg_close(cx); }

/* -- the forms of the suites ------------------------------------------------------------------ */
enum { MOST = 64 };
typedef struct form {
    char *spec, *kind, *values;
    int count, rank[MOST], out_rank;
    int64_t dim[MOST][EG_RANK_MAX], out[EG_RANK_MAX];
} form;

static int read_dims(char **s, int64_t *dim)
{
    int rank = 0;
    if (strncmp(*s, "()", 2) == 0) {
        *s += 2;
        return 0;
    }
    for (;; ++*s) {
        dim[rank++] = strtoll(*s, s, 10);
        if (**s != 'x') return rank;
    }
}
static bool next_form(FILE *f, char *line, size_t size, form *q)
{
    do
        if (!fgets(line, (int)size, f)) return false;
    while (*line == '#');
    char *field[5], *s = line;
    for (int k = 0; k < 5; k++) {
        field[k] = s;
        s += strcspn(s, "\t\n");
        if (*s) *s++ = 0;
    }
    q->spec = field[0];
    q->kind = field[2];
    q->values = field[4];
    q->count = 0;
    for (s = field[1]; *s; s += *s == ' ') {
        q->rank[q->count] = read_dims(&s, q->dim[q->count]);
        q->count++;
    }
    s = field[3];
    q->out_rank = *s ? read_dims(&s, q->out) : 0;
    return true;
}
static eg_tensor *wave_of(eg_dtype dtype, double s, int rank, const int64_t *dims)
{
    eg_tensor *x = wave_n(cx, s, rank, dims);
    return dtype == EG_F64 ? x : eg_cast(x, dtype);
}
static FILE *open_forms(void)
{
    const char *path = source_path("tests/data/einsum.txt");
    FILE *f = fopen(path, "r");
    ck_assert_msg(f != NULL, "%s is missing", path);
    return f;
}
static eg_tensor *einsum(const form *q, eg_tensor *const *x, bool broadcast)
{
    return eg_einsum_with(&(eg_einsum_args){ .size = sizeof(eg_einsum_args),
                                             .spec = q->spec,
                                             .count = q->count,
                                             .operands = x,
                                             .broadcast = broadcast });
}
/* The message names the operation and ends before the string with carets. */
static void refused(const form *q, eg_tensor *const *x)
{
    ck_assert_msg(!eg_ok(einsum(q, x, false)), "'%s' is accepted", q->spec);
    const char *message = eg_error(cx);
    ck_assert_msg(message && strncmp(message, "einsum: ", 8) == 0, "'%s': %s", q->spec, message);
    const char *newline = strchr(message, '\n');
    ck_assert_msg(newline && strchr(newline, '^'), "'%s': %s", q->spec, message);
    eg_clear(cx);
}
static void compare(const form *q, eg_tensor *y, double allowed)
{
    ck_assert_msg(eg_ok(y), "'%s': %s", q->spec, eg_error(cx));
    ck_assert_msg(eg_rank(y) == q->out_rank, "'%s': rank %d", q->spec, eg_rank(y));
    for (int r = 0; r < q->out_rank; r++)
        ck_assert_msg(eg_dim(y, r) == q->out[r], "'%s': axis %d is %lld", q->spec, r,
                      (long long)eg_dim(y, r));
    const int64_t n = eg_size(y), step = n / 6 > 1 ? n / 6 : 1;
    const double *p = eg_f64(eg_cast(y, EG_F64));
    double whole = 0;
    char *s = q->values;
    for (int64_t k = 0; k < n; k++) {
        whole += cos(0.3 * (double)k) * p[k];
        if (k % step) continue;
        const double want = strtod(s, &s), size = strtod(s, &s);
        ck_assert_msg(fabs(p[k] - want) <= allowed * size, "'%s': element %lld is %.17g, not %.17g",
                      q->spec, (long long)k, p[k], want);
    }
    const double want = strtod(s, &s), size = strtod(s, &s);
    ck_assert_msg(fabs(whole - want) <= allowed * size, "'%s': %.17g, not %.17g", q->spec, whole,
                  want);
}

GROUP("einsum", .setup = setup, .teardown = teardown, .timeout = 600)

TEST(forms_of_numpy_and_opt_einsum)
{
    static char line[16384];
    int seen[3] = { 0 };
    FILE *f = open_forms();
    for (form q; next_form(f, line, sizeof line, &q);) {
        for (int single = 0; single < 2; single++) {
            const eg_mark m = eg_push(cx);
            const eg_dtype dtype = single ? EG_F32 : EG_F64;
            eg_tensor *x[MOST];
            eg_shape shape[MOST];
            for (int k = 0; k < q.count; k++) {
                x[k] = wave_of(dtype, k, q.rank[k], q.dim[k]);
                shape[k] = eg_shape_of(x[k]);
            }
            /* refused there; here it is a zero-filled diagonal, as design and docs/notation.md
             * say */
            if (strcmp(q.spec, "ij->jij") == 0) {
                ck_assert(eg_get(einsum(&q, x, false), 1, 0, 1) == eg_get(x[0], 0, 1));
                eg_pop(cx, m);
                continue;
            }
            if (*q.kind != '=') refused(&q, x);
            if (*q.kind != 'x') {
                eg_tensor *y = einsum(&q, x, *q.kind == '1');
                compare(&q, y, single ? 1e-5 : 1e-12);
                /* a call from the cache has the same bits, and so has a plan */
                eg_tensor *again = einsum(&q, x, *q.kind == '1');
                char why[512];
                eg_plan *p =
                    eg_plan_new(.spec = q.spec, .count = q.count, .operands = shape,
                                .broadcast = *q.kind == '1', .why = why, .why_size = sizeof why);
                ck_assert_msg(p != NULL, "'%s': %s", q.spec, why);
                eg_tensor *out = eg_full_n(cx, dtype, 7, q.out_rank, q.out);
                ck_assert_msg(eg_plan_run_on(p, x, out, why, sizeof why) == 0, "'%s': %s", q.spec,
                              why);
                eg_plan_free(p);
                const size_t bytes = (size_t)eg_size(y) * (single ? 4 : 8);
                ck_assert(memcmp(eg_raw(eg_contiguous(y), NULL), eg_raw(eg_contiguous(again), NULL),
                                 bytes) == 0);
                eg_assert_close(out, eg_contiguous(y), single ? 1e-6 : 1e-14);
                const eg_explained *e =
                    eg_explain_shapes(cx, .spec = q.spec, .broadcast = *q.kind == '1',
                                      .count = q.count, .shapes = shape);
                ck_assert_msg(e && strlen(e->text) > 20 && e->gradients == q.count, "'%s': %s",
                              q.spec, eg_error(cx));
            }
            seen[*q.kind == '=' ? 0 : *q.kind == '1' ? 1 : 2]++;
            eg_assert_ok(cx);
            eg_pop(cx, m);
        }
    }
    fclose(f);
    ck_assert_int_ge(seen[0], 1500); /* both types */
    ck_assert_int_ge(seen[1], 20);
    ck_assert_int_ge(seen[2], 50);
}

static eg_tensor *of_form(void *user, eg_tensor *const *x)
{
    const form *q = user;
    return einsum(q, x, *q->kind == '1');
}
LOOP_TEST(gradients_of_the_forms, 1)
{
    static char line[16384];
    int number = 0, checked = 0;
    FILE *f = open_forms();
    for (form q; next_form(f, line, sizeof line, &q); number++) {
        const eg_mark m = eg_push(cx);
        eg_tensor *x[MOST];
        int64_t entries = 0;
        for (int k = 0; k < q.count; k++)
            entries += eg_size(x[k] = wave_of(EG_F64, k, q.rank[k], q.dim[k]));
        if (*q.kind != 'x' && entries <= 300 && entries && (*q.kind == '1' || number % 8 == _i)) {
            const eg_report *r = eg_gradcheck(.f = of_form, .user = &q, .count = q.count, .xs = x,
                                              .order = 2, .directions = 2, .atol = 1e-7);
            ck_assert_msg(r != NULL, "'%s': %s", q.spec, eg_error(cx));
            for (int k = 0; k < q.count; k++)
                ck_assert_msg(r->passed || r->input[k] == EG_ZERO || r->input[k] == EG_EMPTY ||
                                  r->input[k] == EG_RIGHT,
                              "'%s': %s", q.spec, r->text);
            checked++;
        }
        eg_pop(cx, m);
    }
    fclose(f);
    ck_assert_int_ge(checked, 60);
}

/* -- random specs ----------------------------------------------------------------------------- */
static uint64_t state;
static int draw(int n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % (uint64_t)n);
}
enum { LETTERS = 7 };
typedef struct problem {
    int count, rank[5];
    char term[5][9], out[9];
    int64_t size[LETTERS];
    bool arrow, broadcast;
    char spec[64];
} problem;
static char letter(int k) { return (char)(k % 2 ? 'A' + k : 'a' + k); }
static int number_of(char c) { return c < 'a' ? c - 'A' : c - 'a'; }

static void make_problem(problem *q)
{
    const int letters = 1 + draw(LETTERS);
    *q = (problem){ .count = 1 + draw(draw(3) ? 2 : 4),
                    .arrow = draw(6) > 0,
                    .broadcast = draw(8) == 0 };
    for (int k = 0; k < letters; k++) q->size[k] = draw(40) ? 1 + draw(4) : draw(3) * 9;
    char *s = q->spec;
    for (int k = 0; k < q->count; k++) {
        q->rank[k] = draw(5);
        if (k) *s++ = ',';
        for (int r = 0; r < q->rank[k]; r++)
            *s++ = q->term[k][r] =
                letter(r && draw(12) == 0 ? number_of(q->term[k][0]) : draw(letters));
    }
    int times[LETTERS] = { 0 }, n = 0;
    for (int k = 0; k < q->count; k++)
        for (int r = 0; r < q->rank[k]; r++) times[number_of(q->term[k][r])]++;
    if (q->arrow) {
        int order[LETTERS], used = 0;
        for (int k = 0; k < letters; k++)
            if (times[k]) order[used++] = k;
        for (int k = used - 1; k > 0; k--) {
            int j = draw(k + 1), t = order[k];
            order[k] = order[j];
            order[j] = t;
        }
        for (int k = 0; k < used; k++)
            if (draw(2) && n < 6) q->out[n++] = letter(order[k]);
        if (n && draw(25) == 0) {
            q->out[n] = q->out[draw(n)];
            n++;
        }
        *s++ = '-';
        *s++ = '>';
        for (int k = 0; k < n; k++) *s++ = q->out[k];
    } else
        for (char c = 'A'; c <= 'z'; c++)
            if (((c >= 'A' && c <= 'Z') || c >= 'a') && number_of(c) < LETTERS &&
                letter(number_of(c)) == c && times[number_of(c)] == 1)
                q->out[n++] = c;
    *s = 0;
}
/* An operand of these sizes inside a larger tensor: axes in another order, with steps, reversed,
 * expanded. */
static eg_tensor *operand(eg_dtype dtype, int rank, const int64_t *want)
{
    int axes[9], back[9];
    int64_t dim[9];
    bool expanded[9] = { false };
    for (int r = 0; r < rank; r++) axes[r] = r;
    if (draw(2))
        for (int r = rank - 1; r > 0; r--) {
            int j = draw(r + 1), t = axes[r];
            axes[r] = axes[j];
            axes[j] = t;
        }
    int step[9], gap[9];
    for (int r = 0; r < rank; r++) {
        back[axes[r]] = r;
        expanded[r] = want[axes[r]] > 1 && draw(20) == 0;
        step[r] = draw(6) ? 1 : 2;
        gap[r] = draw(6) ? 0 : draw(3);
        dim[r] = expanded[r] ? 1 : want[axes[r]] * step[r] + gap[r];
    }
    eg_tensor *x = dtype == EG_I64 ? eg_randint_n(cx, -9, 9, rank, dim)
                                   : eg_uniform_n(cx, dtype, -1, 1, rank, dim);
    for (int r = 0; r < rank; r++) {
        if (expanded[r]) continue;
        x = eg_slice_axis(x, r, gap[r], EG_END, step[r]);
        if (eg_dim(x, r) > want[axes[r]]) x = eg_slice_axis(x, r, 0, want[axes[r]], 1);
        if (draw(8) == 0) x = eg_flip_axis(x, r);
    }
    x = eg_permute_n(x, rank, back);
    return eg_expand_n(x, rank, want);
}

static void solve(const problem *q, eg_dtype dtype)
{
    eg_tensor *x[5];
    int64_t size[LETTERS];
    bool drop[5][9] = { { false } };
    memcpy(size, q->size, sizeof size);
    for (int k = 0; k < q->count; k++) {
        int64_t dim[9];
        for (int r = 0; r < q->rank[k]; r++) {
            const char c = q->term[k][r];
            int repeats = 0;
            for (int j = 0; j < q->rank[k]; j++) repeats += q->term[k][j] == c;
            drop[k][r] = q->broadcast && repeats == 1 && draw(5) == 0;
            dim[r] = drop[k][r] ? 1 : size[number_of(c)];
        }
        x[k] = operand(dtype, q->rank[k], dim);
    }
    if (q->broadcast) /* a letter that is 1 in one operand is 1 in all */
        for (int l = 0; l < LETTERS; l++) {
            bool whole = false;
            for (int k = 0; k < q->count; k++)
                for (int r = 0; r < q->rank[k]; r++)
                    whole |= number_of(q->term[k][r]) == l && !drop[k][r];
            if (!whole) size[l] = 1;
        }
    eg_tensor *y = eg_einsum_with(&(eg_einsum_args){ .size = sizeof(eg_einsum_args),
                                                     .spec = q->spec,
                                                     .count = q->count,
                                                     .operands = x,
                                                     .broadcast = q->broadcast });
    ck_assert_msg(eg_ok(y), "'%s': %s", q->spec, eg_error(cx));
    const int rank = (int)strlen(q->out);
    int64_t outs = 1, total = 1, low[LETTERS], dim[9];
    ck_assert_int_eq(eg_rank(y), rank);
    for (int r = 0; r < rank; r++) {
        dim[r] = size[number_of(q->out[r])];
        outs *= dim[r];
        ck_assert_int_eq(eg_dim(y, r), dim[r]);
    }
    for (int l = 0; l < LETTERS; l++) {
        bool here = false;
        for (int k = 0; k < q->count; k++) here |= strchr(q->term[k], letter(l)) != NULL;
        low[l] = here ? size[l] : 1;
        total *= low[l];
    }
    static double want[1 << 16], all[1 << 16];
    const double *value[5];
    if (outs > 1 << 16) return;
    memset(want, 0, (size_t)outs * sizeof *want);
    memset(all, 0, (size_t)outs * sizeof *all);
    for (int k = 0; k < q->count; k++) value[k] = eg_f64(eg_contiguous(eg_cast(x[k], EG_F64)));
    for (int64_t e = 0; e < total; e++) {
        int64_t index[LETTERS], rest = e, at = 0;
        double product = 1;
        for (int l = 0; l < LETTERS; l++) {
            index[l] = rest % low[l];
            rest /= low[l];
        }
        for (int k = 0; k < q->count; k++) {
            int64_t p = 0;
            for (int r = 0; r < q->rank[k]; r++) {
                const int l = number_of(q->term[k][r]);
                p = p * (drop[k][r] ? 1 : size[l]) + (drop[k][r] ? 0 : index[l]);
            }
            product *= value[k][p];
        }
        for (int r = 0; r < rank; r++) at = at * dim[r] + index[number_of(q->out[r])];
        want[at] += product;
        all[at] += fabs(product);
    }
    const double *got = eg_f64(eg_contiguous(eg_cast(y, EG_F64))), allowed = dtype == EG_F64 ? 1e-12
                                                                             : dtype == EG_F32
                                                                                 ? 1e-5
                                                                                 : 0;
    for (int64_t k = 0; k < outs; k++)
        ck_assert_msg(fabs(got[k] - want[k]) <= allowed * all[k],
                      "'%s' in %s: element %lld is %.17g, not %.17g", q->spec, eg_type_name(dtype),
                      (long long)k, got[k], want[k]);
    eg_assert_ok(cx);
}

LOOP_TEST(random_specs, 4)
{
    const char *asked = getenv("EG_SPECS");
    const int many = asked ? atoi(asked) : 5000;
    static const eg_dtype types[] = { EG_F64, EG_F32, EG_F64, EG_F32, EG_I64 };
    state = 77 + (uint64_t)_i;
    eg_seed(cx, state);
    for (int k = 0; k < many / 4; k++) {
        problem q;
        const eg_mark m = eg_push(cx);
        make_problem(&q);
        solve(&q, types[draw(5)]);
        eg_pop(cx, m);
    }
}

/* Sums and products of integers and bools are exact, so they equal those of f64, whichever axes are
 * close to each other in memory, for few elements and many. */
LOOP_TEST(integers_equal_f64, 3)
{
    static const char *const specs[] = { "ab,bc->ac", "ab,cb->ca", "ba,bc->ac", "ab->a",   "ab->b",
                                         "ab->",      "ab,ab->",   "ab,ab->b",  "ab,ab->a" };
    static const int64_t sizes[] = { 1, 5, 63, 64, 65, 150 };
    static const eg_dtype types[] = { EG_I32, EG_I64, EG_BOOL };
    state = 5 + (uint64_t)_i;
    eg_seed(cx, state);
    for (int k = 0; k < 400; k++) {
        const eg_mark m = eg_push(cx);
        const char *spec = specs[k % 9];
        const int64_t size[] = { sizes[draw(6)], sizes[draw(6)], sizes[draw(6)] };
        eg_tensor *x[2], *wide[2];
        int n = 0;
        for (const char *at = spec; *at != '-'; at += at[2] == ',' ? 3 : 2) {
            const int64_t a = size[at[0] - 'a'], b = size[at[1] - 'a'];
            const bool turned = draw(2), apart = draw(2);
            const int64_t rows = turned ? b : a, columns = turned ? a : b;
            eg_tensor *whole = eg_randint(cx, -9, 9, rows + 1, 2 * columns);
            whole = eg_slice_axis(whole, 0, 1, rows + 1, 1);
            whole = eg_slice_axis(whole, 1, 0, apart ? 2 * columns : columns, apart ? 2 : 1);
            whole = eg_cast(draw(2) ? eg_flip_axis(whole, (int)draw(2)) : whole, types[_i]);
            x[n] = turned ? eg_transpose(whole, 0, 1) : whole;
            if (draw(4) == 0) x[n] = eg_expand(eg_slice_axis(x[n], 1, 0, 1, 1), a, b);
            wide[n] = eg_cast(x[n], EG_F64);
            n++;
        }
        eg_tensor *y = eg_einsum_n(spec, n, x), *z = eg_einsum_n(spec, n, wide);
        ck_assert_int_eq(eg_type(y), EG_I64);
        eg_assert_close(eg_cast(y, EG_F64), z, 0);
        eg_assert_ok(cx);
        eg_pop(cx, m);
    }
}

/* Matrices of integers of the whole range, in batches, with several axes of rows and columns, times
 * a factor and added to a result: each row has the values of a product of that row alone, which
 * plain loops compute. */
LOOP_TEST(rows_of_integer_products_are_those_of_each_alone, 3)
{
    static const char *const specs[] = { "ij,jk->ik",   "ij,kj->ik",     "ij,jk->ki",
                                         "ij,zjk->zik", "ij,zjk->izk",   "ijq,qjk->ik",
                                         "ij,jkq->iqk", "ij,zwjk->wizk", "ij,jzk->ikz" };
    static const eg_dtype types[] = { EG_I32, EG_I64, EG_BOOL };
    static const int64_t sizes[] = { 13, 64, 70, 130 };
    eg_nograd(cx, true);
    for (int k = 0; k < 9 * 12; k++) {
        const eg_mark m = eg_push(cx);
        const char *at = specs[k % 9];
        eg_tensor *x[2], *row[2];
        const int64_t i = sizes[k / 9 % 4], j = sizes[k % 4], n = sizes[k / 27];
        for (int q = 0; q < 2; q++, at++) {
            int64_t dim[4];
            int rank = 0;
            for (; *at != ',' && *at != '-'; at++)
                dim[rank++] = *at == 'i' ? i : *at == 'j' ? j : *at == 'k' ? n : 3;
            x[q] = eg_randint_n(cx, -(1ll << 40), 1ll << 40, rank, dim);
            x[q] = eg_cast(_i == 2 ? eg_clip(x[q], 0, 1) : eg_mul(x[q], eg_shift(x[q], 12345)),
                           types[_i]);
            if (k % 3) x[q] = eg_flip_axis(x[q], k % rank);
        }
        eg_tensor *y = eg_einsum_n(specs[k % 9], 2, x), *sum = eg_copy(y);
        eg_einsum_with(&(eg_einsum_args){ .size = sizeof(eg_einsum_args),
                                          .spec = specs[k % 9],
                                          .count = 2,
                                          .operands = x,
                                          .out = sum,
                                          .beta = 1,
                                          .alpha = 3 });
        row[1] = x[1];
        const int axis = (int)(strchr(at, 'i') - strchr(at, '>') - 1);
        for (int64_t r = 0; r < i; r++) {
            row[0] = eg_slice_axis(x[0], 0, r, r + 1, 1);
            eg_tensor *alone = eg_copy(eg_einsum_n(specs[k % 9], 2, row)),
                      *of[] = { eg_copy(eg_slice_axis(y, axis, r, r + 1, 1)),
                                eg_copy(eg_slice_axis(sum, axis, r, r + 1, 1)) };
            const size_t bytes = (size_t)eg_size(alone) * 8;
            ck_assert_msg(!memcmp(eg_i64(alone), eg_i64(of[0]), bytes), "%s, row %d", specs[k % 9],
                          (int)r);
            alone = eg_scale(alone, 4);
            ck_assert_msg(!memcmp(eg_i64(alone), eg_i64(of[1]), bytes), "%s, row %d, added",
                          specs[k % 9], (int)r);
        }
        eg_assert_ok(cx);
        eg_pop(cx, m);
    }
    eg_nograd(cx, false);
}

/* Reads the sizes of an operand's letters, up to a comma or the arrow, from "i5 j7". Moves *at to
 * behind them. Returns the rank. */
static int sizes_of(const char **at, const char *sizes, int64_t *dim)
{
    int rank = 0;
    for (; **at >= 'a'; ++*at) dim[rank++] = strtoll(strchr(sizes, **at) + 1, NULL, 10);
    return rank;
}
/* The layout of a product decides how elements are fetched, not the result: the same bits for any
 * axis order (batches, too) and any number of threads. Two summed letters are added in the order of
 * their strides: there the values agree. Some sizes take several blocks of batches, rows and k. */
TEST(layout_changes_no_bit)
{
    static const struct {
        const char *spec, *sizes;
    } products[] = {
        { "ijbh,jbhd->ibhd", "i5 j7 b2 h4 d3" },
        { "ijbh,jbhd->ibhd", "i130 j70 b2 h8 d64" },
        { "ijbh,jbhd->ibhd", "i210 j300 b8 h7 d5" },
        { "ijbh,jbhd->ibhd", "i61 j37 b3 h8 d64" }, /* weights are read in place */
        { "ijbh,jbhd->ibhd", "i29 j60 b5 h4 d40" },
        { "ijbh,jbhd->ibhd", "i64 j90 b2 h9 d96" },
        { "ijbh,bjhd->bihd", "i33 j40 b3 h11 d16" },
        { "ijbh,jkbh->ikbh", "i40 j35 k50 b3 h11" },
        { "ijbh,jkbh->ikbh", "i150 j258 k101 b1 h33" },
        { "zijq,zjd->zqid", "z20 i6 j9 q4 d8" },
        { "ijlz,jldz->idz", "i17 j40 l13 d9 z40" },
        { "iz,zj->zij", "i50 j40 z30" },
        { "abz,zbc->acz", "a300 b20 c7 z19" },
        { "ab,bc->ac", "a150 b200 c190" },
        { "ab,bc->ac", "a310 b530 c288" }, /* columns of a are read in place */
        { "bda,dc->abc", "a48 b40 c48 d30" },
        { "efbad,cf->abcde", "a5 b4 c9 d7 e6 f8" },
        { "dega,gfbc->abcdef", "a3 b5 c4 d6 e7 f8 g9" },
        { "ab,bc->ac", "a3 b700 c200" },
        { "ab,bc->ac", "a200 b700 c3" },
        { "ab,bc->ac", "a4 b300 c5" },
        { "ab,bc->ac", "a530 b400 c301" }, /* the second is packed at once, the first by panels */
        { "ab,bc->ac", "a50 b1100 c390" }, /* blocks of the second, the first by panels */
        { "ab,bc->ac", "a110 b270 c800" }, /* several blocks of both */
        { "ab,bc->ac", "a1030 b70 c940" }, /* packed in spite of a small size */
    };
    for (size_t p = 0; p < sizeof products / sizeof *products; p++)
        for (int single = 0; single < 2; single++) {
            const eg_mark m = eg_push(cx);
            const eg_dtype dtype = single ? EG_F32 : EG_F64;
            const char *at = products[p].spec;
            eg_tensor *x[2], *first = NULL;
            for (int k = 0; k < 2; k++, at++) {
                int64_t dim[8];
                const int rank = sizes_of(&at, products[p].sizes, dim);
                x[k] = wave_of(dtype, k, rank, dim);
            }
            /* every axis contiguous in the first operand, or in the second; windows */
            for (int turn = 0; turn < 12; turn++) {
                eg_tensor *y[2];
                for (int k = 0; k < 2; k++) {
                    const int rank = eg_rank(x[k]), by = turn / (k ? 4 : 1) % rank;
                    int there[8], back[8];
                    for (int r = 0; r < rank; r++) {
                        there[r] = (r + by) % rank;
                        back[(r + by) % rank] = r;
                    }
                    y[k] = eg_permute_n(eg_copy(eg_permute_n(x[k], rank, there)), rank, back);
                    if (turn > 9)
                        y[k] = strided_by_two(y[k]);
                    else if (turn > 7)
                        for (int r = 0; r < rank; r++)
                            y[k] = eg_slice_axis(eg_pad_axis(y[k], r, 1, 2, 0), r, 1,
                                                 1 + eg_dim(x[k], r), 1);
                }
                eg_threads(cx, 1 + turn % 3);
                eg_tensor *z = eg_contiguous(eg_einsum(products[p].spec, y[0], y[1]));
                eg_assert_ok(cx);
                if (!first) first = z;
                if (strstr(products[p].spec, "jl")) {
                    eg_assert_close(z, first, single ? 1e-5 : 1e-13);
                    continue;
                }
                ck_assert_msg(same_bits(first, z), "%s %s, %s, turn %d: other bits",
                              products[p].spec, products[p].sizes, single ? "f32" : "f64", turn);
            }
            if (strcmp(products[p].spec, "ab,bc->ac") == 0) /* few rows: by other kernels */
                ck_assert_msg(
                    same_bits(eg_contiguous(eg_slice_axis(first, 0, 1, 3, 1)),
                              eg_einsum("ab,bc->ac", eg_slice_axis(x[0], 0, 1, 3, 1), x[1])),
                    "%s %s: a few rows have other bits", products[p].spec, products[p].sizes);
            eg_pop(cx, m);
        }
}

/* A product with operands that are expanded along indices of the result (strides of 0) has the bits
 * of the product of their contiguous copies. */
TEST(expanded_operands_change_no_bit)
{
    static const struct {
        const char *spec, *sizes;
    } products[] = {
        { "bihe,bjhe->bhij", "b2 i33 h3 e20 j17" },
        { "bhij,bihe->bjhe", "b2 i33 h3 e20 j17" },
        { "ie,ej->ij", "i70 e65 j130" },
        { "ie,ej->ji", "i7 e300 j5" },
        { "bie,bje->bij", "b3 i40 e16 j19" },
        { "aie,bej->aibj", "a3 i5 e24 b4 j6" },
        { "ijbh,jbhd->ibhd", "i60 j60 b3 h2 d16" },
    };
    for (size_t p = 0; p < sizeof products / sizeof *products; p++)
        for (int turn = 0; turn < 16; turn++) {
            const eg_mark m = eg_push(cx);
            const eg_dtype dtype = turn % 2 ? EG_F32 : EG_F64;
            const char *at = products[p].spec, *out = strchr(at, '>');
            eg_tensor *x[2], *copy[2];
            for (int k = 0; k < 2; k++, at++) {
                const char *letter = at;
                int64_t dim[8], one[8];
                const int rank = sizes_of(&at, products[p].sizes, dim);
                /* bits of the turn say along which of its axes an operand is expanded */
                for (int r = 0; r < rank; r++)
                    one[r] = strchr(out, letter[r]) && (k ? 5 * turn : turn) >> r & 1 ? 1 : dim[r];
                x[k] = eg_expand_n(wave_of(dtype, k, rank, one), rank, dim);
                copy[k] = eg_contiguous(x[k]);
            }
            eg_threads(cx, 1 + turn % 3);
            eg_tensor *y = eg_einsum(products[p].spec, x[0], x[1]),
                      *z = eg_einsum(products[p].spec, copy[0], copy[1]);
            eg_assert_ok(cx);
            ck_assert_msg(same_bits(y, z), "%s, turn %d: other bits", products[p].spec, turn);
            eg_pop(cx, m);
        }
}

/* An operand that is expanded along an index which it alone is summed over is summed first, as its
 * contiguous copy is: with the same multiply-adds, not with one for each element of both. */
TEST(an_expanded_index_of_one_operand_is_summed_first)
{
    static const struct {
        const char *spec, *sizes, *expanded;
    } products[] = {
        { "ij,jk->i", "i70 j65 k130", "k" },
        { "ij,jk->i", "i70 j65 k130", "i" },
        { "aij,bjkl->ib", "a3 i7 j5 b6 k4 l9", "a" },
        { "aij,bjkl->ib", "a3 i7 j5 b6 k4 l9", "akl" },
        { "ija,aklj->i", "i4 j20 a6 k3 l5", "kl" },
        { "ij,jk->", "i7 j9 k8", "ik" },
    };
    for (size_t p = 0; p < sizeof products / sizeof *products; p++)
        for (int turn = 0; turn < 4; turn++) {
            const eg_mark m = eg_push(cx);
            const eg_dtype dtype = turn % 2 ? EG_F32 : EG_F64;
            const char *at = products[p].spec;
            eg_tensor *x[2], *copy[2];
            for (int k = 0; k < 2; k++, at++) {
                const char *letter = at;
                int64_t dim[8], one[8];
                const int rank = sizes_of(&at, products[p].sizes, dim);
                for (int r = 0; r < rank; r++)
                    one[r] = strchr(products[p].expanded, letter[r]) ? 1 : dim[r];
                x[k] = eg_expand_n(wave_of(dtype, k, rank, one), rank, dim);
                copy[k] = eg_contiguous(x[k]);
            }
            eg_threads(cx, 1 + turn / 2);
            const uint64_t start = eg_stats(cx).multiply_adds;
            eg_tensor *y = eg_einsum(products[p].spec, x[0], x[1]);
            const uint64_t done = eg_stats(cx).multiply_adds - start;
            eg_tensor *z = eg_einsum(products[p].spec, copy[0], copy[1]);
            eg_assert_close(y, z, dtype == EG_F32 ? 1e-5 : 1e-14);
            ck_assert_msg(done <= eg_stats(cx).multiply_adds - start - done, "%s, %s expanded: %d",
                          products[p].spec, products[p].expanded, (int)done);
            eg_pop(cx, m);
        }
}

/* Sums of few products of neighbours are kept in registers, with the bits of other layouts. If one
 * operand has every index of the result, it is row-major. */
TEST(few_products_of_neighbours)
{
    static const char *const specs[] = { "kd,kd->d", "kd,k->d", "bkd,kd->bd", "bdk,kd->bd" };
    for (int s = 0; s < 4; s++)
        for (int64_t k = 1; k < 36; k += k < 8 ? 1 : 9)
            for (int64_t d = 8; d < 120; d = d * 2 + 3) {
                const eg_mark m = eg_push(cx);
                const eg_dtype dtype = (k + d) % 2 ? EG_F32 : EG_F64;
                const int64_t first[][3] = { { k, d }, { k, d }, { 3, k, d }, { 3, k, d } };
                eg_tensor *x = wave_of(dtype, 0, s < 2 ? 2 : 3, first[s]),
                          *y = wave_of(dtype, 1, s == 1 ? 1 : 2, first[0]);
                if (s == 3) x = eg_permute(x, 0, 2, 1);
                eg_threads(cx, 1 + (int)k % 2);
                eg_tensor *z = eg_einsum(specs[s], x, y),
                          *a = eg_einsum(specs[s], strided_by_two(x), strided_by_two(y)),
                          *f = eg_einsum(specs[s], eg_cast(x, EG_F64), eg_cast(y, EG_F64));
                eg_assert_ok(cx);
                ck_assert_ptr_eq(eg_contiguous(z), z);
                eg_assert_close(eg_cast(z, EG_F64), f, dtype == EG_F32 ? 1e-5 : 1e-14);
                /* every second element of "bdk" has k innermost in memory, which is another order
                 */
                if (s < 3)
                    ck_assert_msg(same_bits(z, a), "%s, k = %d, d = %d: other bits", specs[s],
                                  (int)k, (int)d);
                eg_pop(cx, m);
            }
}

/* Returns x without the elements outside [from, to) of the axis of a letter; x itself, if it has no
 * such axis. */
static eg_tensor *part_of(eg_tensor *x, const char *letters, char letter, int64_t from, int64_t to)
{
    for (int r = 0; r < eg_rank(x); r++)
        if (letters[r] == letter) return eg_slice_axis(x, r, from, to, 1);
    return x;
}
/* Operands of more than a megabyte are prefetched. Their products have the bits of the products of
 * their parts, which are smaller. */
TEST(operands_from_memory_change_no_bit)
{
    enum { PARTS = 7 };
    static const struct {
        const char *spec, *sizes;
        int axis; /* of the result: it is divided */
    } products[] = {
        { "mn,m->n", "m600 n1030", 0 },
        { "nm,m->n", "m600 n1030", 0 },
        { "nm,m->n", "m37 n15001", 0 },
        { "mn->n", "m601 n1030", 0 },
        { "mn->m", "m1030 n601", 0 },
        { "mn,mn->n", "m600 n1030", 0 },
        { "mn,mn->m", "m1030 n601", 0 },
        { "jhd,ihd->hij", "i1 j3001 h5 d40", 2 },
        { "jhd,ihd->hij", "i1 j3001 h3 d72", 2 },
        { "jhd,hij->ihd", "i1 j3001 h7 d40", 1 },
        { "mn,bm->bn", "b2 m600 n1030", 1 },
        { "mn,bm->bn", "b7 m600 n1030", 1 },
        { "mn,bm->bn", "b17 m600 n1030", 1 },
        { "nm,bm->bn", "b5 m600 n1030", 1 },
        { "nm,bm->bn", "b14 m600 n1030", 1 },
        { "nm,bm->bn", "b3 m21 n30011", 1 },
        { "jhd,hgd->hgj", "h3 g4 d64 j9001", 2 },
    };
    static const eg_dtype dtypes[] = { EG_F32, EG_F64, EG_BF16, EG_F16 };
    for (size_t p = 0; p < sizeof products / sizeof *products; p++)
        for (int type = 0; type < 4; type++) {
            const eg_mark mark = eg_push(cx);
            const char *at = products[p].spec, *terms[2] = { at, strchr(at, ',') };
            const char letter = strchr(at, '>')[1 + products[p].axis];
            const int count = terms[1] ? 2 : 1;
            eg_tensor *x[2], *part[2], *y[PARTS];
            int64_t size = 0;
            if (terms[1]) terms[1]++;
            for (int k = 0; k < count; k++, at++) {
                int64_t dim[8];
                const int rank = sizes_of(&at, products[p].sizes, dim);
                for (int r = 0; r < rank; r++)
                    if (terms[k][r] == letter) size = dim[r];
                x[k] = eg_cast(wave_of(EG_F64, k, rank, dim), dtypes[k ? type % 2 : type]);
            }
            eg_threads(cx, 1 + (int)p % 2);
            for (int n = 0; n < PARTS; n++) {
                for (int k = 0; k < count; k++)
                    part[k] =
                        part_of(x[k], terms[k], letter, size * n / PARTS, size * (n + 1) / PARTS);
                y[n] = eg_einsum_n(products[p].spec, count, part);
            }
            eg_tensor *z = eg_einsum_n(products[p].spec, count, x);
            eg_assert_ok(cx);
            ck_assert_msg(same_bits(z, eg_concat_axis_n(products[p].axis, PARTS, y)),
                          "%s %s, %s: other bits", products[p].spec, products[p].sizes,
                          eg_type_name(dtypes[type]));
            eg_pop(cx, mark);
        }
}

/* -- alpha, beta, and indices that are integers ------------------------------------------------ */
static eg_tensor *with_alpha(eg_tensor *const *x, int count, const char *spec, double alpha,
                             eg_tensor *out, double beta)
{
    return eg_einsum_with(&(eg_einsum_args){ .size = sizeof(eg_einsum_args),
                                             .spec = spec,
                                             .count = count,
                                             .operands = x,
                                             .alpha = alpha,
                                             .out = out,
                                             .beta = beta });
}
static eg_tensor *scaled_product(void *user, eg_tensor *const *x)
{
    return with_alpha(x, 2, user, 2.5, NULL, 0);
}
TEST(alpha_and_beta)
{
    static const char *const specs[] = { "ij,jk->ik", "ij,jk->", "i j, k l -> (i l) k",
                                         "ij,jj->ij" };
    static const double factors[] = { 0, EG_OFF, 1, -2, 0.5 };
    for (int t = 0; t < 3; t++) {
        const eg_dtype dtype = (eg_dtype[]){ EG_F64, EG_F32, EG_I64 }[t];
        for (size_t f = 0; f < 4; f++)
            for (int a = 0; a < 5; a++)
                for (int b = 0; b < 5; b++) {
                    if (dtype == EG_I64 && (a == 4 || b == 4)) continue;
                    const eg_mark m = eg_push(cx);
                    eg_tensor *x[2];
                    for (int k = 0; k < 2; k++)
                        x[k] = eg_cast(eg_scale(wave_n(cx, k, 2, (int64_t[]){ 4, 4 }), 9), dtype);
                    eg_tensor *y = eg_einsum_n(specs[f], 2, x);
                    const double alpha = eg_option(factors[a], 1), beta = eg_option(factors[b], 0);
                    eg_assert_close(with_alpha(x, 2, specs[f], factors[a], NULL, 0),
                                    eg_scale(y, alpha), dtype == EG_F32 ? 1e-6 : 1e-14);
                    eg_tensor *before =
                        eg_cast(eg_scale(wave_n(cx, 5, eg_rank(y), eg_dims(y)), 7), dtype);
                    eg_tensor *want = eg_add(eg_scale(y, alpha), eg_scale(before, beta));
                    eg_nograd(cx, true);
                    eg_tensor *out = eg_copy(before);
                    ck_assert(with_alpha(x, 2, specs[f], factors[a], out, factors[b]) == out);
                    eg_assert_close(out, want, dtype == EG_F32 ? 1e-6 : 1e-14);
                    eg_shape shape[] = { eg_shape_of(x[0]), eg_shape_of(x[1]) };
                    eg_plan *p = eg_plan_new(.spec = specs[f], .count = 2, .operands = shape,
                                             .alpha = factors[a], .beta = factors[b]);
                    ck_assert_msg(p != NULL, "%s", specs[f]);
                    ck_assert_int_eq(eg_plan_run_on(p, x, before, NULL, 0), 0);
                    eg_plan_free(p);
                    ck_assert(memcmp(eg_raw(out, NULL), eg_raw(before, NULL),
                                     (size_t)eg_size(out) * (dtype == EG_F32 ? 4 : 8)) == 0);
                    eg_nograd(cx, false);
                    eg_pop(cx, m);
                }
    }
    eg_tensor *x[] = { wave_n(cx, 0, 2, (int64_t[]){ 3, 4 }),
                       wave_n(cx, 1, 2, (int64_t[]){ 4, 2 }) };
    eg_assert_grad2(scaled_product, (void *)(uintptr_t) "ij,jk->ik", x[0], x[1]);
    /* .out overlaps an operand, and a path */
    eg_nograd(cx, true);
    eg_tensor *s = wave_n(cx, 0, 2, (int64_t[]){ 3, 3 }), *c[] = { s, s, s };
    eg_tensor *want = eg_add(eg_scale(eg_einsum_n("ij,jk,kl->il", 3, c), 3), eg_scale(s, 2));
    const int path[2][2] = { { 1, 2 }, { 0, 1 } };
    eg_einsum_with(&(eg_einsum_args){ .size = sizeof(eg_einsum_args),
                                      .spec = "ij,jk,kl->il",
                                      .count = 3,
                                      .operands = c,
                                      .alpha = 3,
                                      .out = s,
                                      .beta = 2,
                                      .path = path,
                                      .steps = 2 });
    eg_assert_close(s, want, 1e-13);
    eg_tensor *n[] = { eg_ones(cx, 2, 2), eg_ones(cx, 2, 2) };
    n[0] = eg_cast(n[0], EG_I32);
    ck_assert(!eg_ok(with_alpha(n, 1, "ij->i", 0.5, NULL, 0)));
    eg_assert_error(cx, "einsum: .alpha is 0.5, and the result i64");
    ck_assert(!eg_ok(with_alpha(n, 1, "ij->i", 2, eg_zeros_like(eg_einsum("ij->i", n[0])), 0.5)));
    eg_assert_error(cx, "einsum: .beta is 0.5, and the result i64");
    ck_assert(!eg_ok(with_alpha(n, 1, "ij->i", 1e19, NULL, 0)));
    eg_assert_error(cx, "einsum: .alpha is 1e+19, and the result i64");
    ck_assert(!eg_ok(with_alpha(n, 1, "ij->i", 2, eg_zeros_like(eg_einsum("ij->i", n[0])), -1e19)));
    eg_assert_error(cx, "einsum: .beta is -1e+19, and the result i64");
    eg_assert_ok(cx);
}
TEST(numbers_are_letters)
{
    static const int a[] = { 7, 1000000, 3 }, b[] = { 3, 5 }, d[] = { 2, 2 }, out[] = { 5, 7 };
    static const int *const ab[] = { a, b }, *const dd[] = { d };
    for (int t = 0; t < 4; t++) {
        const eg_dtype dtype = (eg_dtype[]){ EG_F64, EG_F32, EG_I32, EG_BOOL }[t];
        eg_tensor *x[] = { wave_of(dtype, 0, 3, (int64_t[]){ 4, 5, 6 }),
                           wave_of(dtype, 1, 2, (int64_t[]){ 6, 7 }) },
                  *sq = wave_of(dtype, 1, 2, (int64_t[]){ 5, 5 });
        eg_tensor *y[] = { eg_einsum_labels(2, x, ab, 2, out), eg_einsum_labels(2, x, ab, 0, NULL),
                           eg_einsum_labels(1, &sq, dd, 1, d), eg_einsum_labels(1, &sq, dd, 0, d) },
                  *z[] = { eg_einsum("azc,cb->ba", x[0], x[1]),
                           eg_einsum("azc,cb->baz", x[0], x[1]), eg_einsum("ii->i", sq),
                           eg_einsum("ii->", sq) };
        for (int k = 0; k < 4; k++) {
            ck_assert(eg_type(y[k]) == eg_type(z[k]) && eg_rank(y[k]) == eg_rank(z[k]));
            ck_assert(memcmp(eg_raw(eg_contiguous(y[k]), NULL), eg_raw(eg_contiguous(z[k]), NULL),
                             (size_t)eg_size(z[k]) * (dtype == EG_F32 ? 4 : 8)) == 0);
        }
    }
    eg_tensor *x[] = { eg_ones(cx, 4, 5, 6), eg_ones(cx, 7, 7) };
    static const int minus[] = { -1, 2, 3 };
    ck_assert(!eg_ok(eg_einsum_labels(2, x, ab, 2, out)));
    eg_assert_error(cx, "einsum: index 3 is 6 in operand 1 but 7 in operand 2");
    ck_assert(!eg_ok(eg_einsum_labels(1, x, ab, 2, out)));
    eg_assert_error(cx, "einsum: index 5 of the output is in no operand");
    ck_assert(!eg_ok(eg_einsum_labels(1, x, (const int *const[]){ minus }, 2, out)));
    eg_assert_error(cx, "einsum: index -1 of operand 1 is negative");
    ck_assert(!eg_ok(eg_einsum_labels(1, x, NULL, 2, out)));
    eg_assert_error(cx, "einsum: the indices of operand 1 are NULL");
    ck_assert(!eg_ok(eg_einsum_labels(1, x, ab, 33, out)));
    eg_assert_error(cx, "einsum: the output has 33 axes; 0 to 32");
    ck_assert_ptr_null(eg_einsum_labels(0, NULL, NULL, 0, NULL));
}

/* The cotangent of overlapping windows has another layout than that of their copy; gradients of
 * first and second order are the same. One window axis and two; step 1 and 2. */
TEST(windows_have_the_gradients_of_their_copy)
{
    for (int k = 0; k < 8; k++) {
        eg_ctx *c = eg_open(.dtype = EG_F64, .seed = 3);
        const int64_t step = 1 + k % 2;
        eg_tensor *x = eg_normal(c, 0, 1, 2, 11, 9, 5), *f = eg_normal(c, 0, 1, 3, 4, 5), *d[2][2];
        const bool two = k / 2 % 2;
        for (int copied = 0; copied < 2; copied++) {
            eg_tensor *y = eg_unfold("b [h] w c -> b h p w c", x, 3, step);
            if (two) y = eg_unfold("b h p [w] c -> b h w p q c", y, 4, step);
            if (copied) y = eg_copy(y);
            if (k < 4)
                y = two ? eg_einsum("bhwpqc,pqc->bhwc", y, f) : eg_einsum("bhpwc,pqc->bhwqc", y, f);
            else
                y = two ? eg_max("b h w [p q] c", y) : eg_max("b h [p] w c", y);
            eg_tensor **to = d[copied], *xs[] = { x, f }, *one;
            ck_assert_int_eq(eg_grad(eg_sum(NULL, eg_sin(y)), NULL, 1, xs, &one), 0);
            ck_assert_int_eq(eg_grad(eg_sum(NULL, eg_square(one)), NULL, k < 4 ? 2 : 1, xs, to), 0);
        }
        for (int i = 0; i < (k < 4 ? 2 : 1); i++) eg_assert_close(d[0][i], d[1][i], 1e-12);
        eg_assert_ok(c);
        eg_close(c);
    }
}

/* The cotangent of a depthwise convolution's windows is added to that of its operand without being
 * stored, with the bits of that of a copy of the windows. Steps 1 and 2; f32 and f64. */
TEST(cotangents_of_windows_are_not_stored)
{
    for (int k = 0; k < 4; k++) {
        eg_ctx *c = eg_open(.dtype = k % 2 ? EG_F64 : EG_F32, .threads = 1 + k / 2);
        eg_tensor *x = eg_normal(c, 0, 1, 2, 8, 40, 40), *f = eg_normal(c, 0, 1, 8, 3, 5), *d[2],
                  *seed = eg_normal(c, 0, 1, 2, 8, k < 2 ? 38 : 19, 36);
        for (int copied = 0; copied < 2; copied++) {
            eg_tensor *y = eg_unfold("b c [h] w -> b c h w p", x, 3, 1 + k / 2);
            y = eg_unfold("b c h [w] p -> b c h w p q", y, 5, 1);
            eg_tensor *z = eg_einsum("bchwpq,cpq->bchw", copied ? eg_copy(y) : y, f);
            const bool was = eg_nograd(c, true);
            eg_stats_reset(c);
            const size_t before = eg_stats(c).used;
            ck_assert_int_eq(eg_grad(z, seed, 1, &x, &d[copied]), 0);
            const size_t peak = eg_stats(c).used_peak - before,
                         windows = (size_t)eg_size(y) * (k % 2 ? 8 : 4);
            ck_assert_msg(copied || 2 * peak < windows, "%zu bytes; the windows have %zu", peak,
                          windows);
            eg_nograd(c, was);
        }
        ck_assert(same_bits(d[0], d[1]));
        eg_assert_ok(c);
        eg_close(c);
    }
}

/* A large cotangent without a sum has the layout of its operand, which is permuted, and the bits of
 * that of a copy. */
TEST(cotangents_have_the_layout_of_their_operand)
{
    eg_ctx *c = eg_open();
    eg_tensor *leaf = eg_normal(c, 0, 1, 20, 30, 17), *d[2], *g[2], *x[2];
    x[0] = eg_permute(leaf, 1, 2, 0), x[1] = eg_copy(x[0]);
    eg_tensor *y[2], *seed = eg_normal(c, 0, 1, 30, 17);
    for (int k = 0; k < 2; k++) {
        y[k] = eg_einsum("ijk,ijk->ij", x[k], x[k]);
        ck_assert_int_eq(eg_grad(y[k], seed, 1, &x[k], &d[k]), 0);
        ck_assert_int_eq(eg_grad(y[k], seed, 1, &leaf, &g[k]), 0);
    }
    int64_t of_x[3], of_d[3];
    eg_raw(x[0], of_x);
    eg_raw(d[0], of_d);
    ck_assert(same_bits(d[0], d[1]) && same_bits(g[0], g[1]));
    ck_assert_mem_eq(of_x, of_d, sizeof of_x);
    eg_assert_ok(c);
    eg_close(c);
}

/* A packed product with more rows and columns than a block has (lib/contraction/gemm.c: 96 to 192
 * rows; 1536 columns of f64, 3072 of f32) and more terms than EG_KC has the bits of the products of
 * narrow parts, which are one block wide; with activation, too. */
TEST(products_of_several_blocks)
{
    uint64_t seed = 17;
    for (int k = 0; k < 4; k++) {
        const eg_dtype dtype = k % 2 ? EG_F64 : EG_F32;
        eg_ctx *c = eg_open(.dtype = dtype, .threads = 1 + k / 2);
        const int64_t m = 257 + draw_below(&seed, 40), terms = 257 + draw_below(&seed, 20),
                      block = dtype == EG_F64 ? 1536 : 3072,
                      n = (1 + k / 2) * block + 1 + draw_below(&seed, 90);
        eg_tensor *x = eg_normal(c, 0, 1, m, terms), *W = eg_normal(c, 0, .1, n, terms),
                  *b = eg_normal(c, 0, 1, n), *parts[3][40];
        int count = 0;
        for (int64_t from = 0, to; from < n; from = to, count++) {
            to = from + 300 < n ? from + 300 : n;
            eg_tensor *w = eg_slice_axis(W, 0, from, to, 1),
                      *bias = eg_slice_axis(b, 0, from, to, 1);
            parts[0][count] = eg_einsum("mk,nk->mn", x, w);
            parts[1][count] = eg_einsum("mk,nk->nm", x, w);
            parts[2][count] = eg_affine("mk,nk->mn", x, w, bias, .activation = "gelu");
        }
        ck_assert(same_bits(eg_einsum("mk,nk->mn", x, W), eg_concat_axis_n(1, count, parts[0])));
        ck_assert(same_bits(eg_einsum("mk,nk->nm", x, W), eg_concat_axis_n(0, count, parts[1])));
        ck_assert(same_bits(eg_affine("mk,nk->mn", x, W, b, .activation = "gelu"),
                            eg_concat_axis_n(1, count, parts[2])));
        eg_assert_ok(c);
        eg_close(c);
    }
}
