/* test_expr.c: formulas: eg_expr compared with an evaluator that reads the same text one element at
 * a time in long double, with bounds of the rounding errors; its laws, gradients and refusals;
 * blocks and ranges, which attention uses, too. EG_EXPRESSIONS sets the number of random
 * formulas. */
#include <notation/notation.h>
#include "random_views.h"
#include "tests.h"
#include "stored_values.h"

/* -- a separate evaluator ---------------------------------------------------------------------- */
enum { I = 3, J = 4, R = 5, ENTRIES = I * J + R }; /* x (i j), then r */
typedef enum { INTEGER, FLOAT, TRUTH } kind;
/* A value, its derivatives by all entries, and bounds of their errors in units of rounding. */
typedef struct number {
    kind is;
    int64_t n;
    long double v, d[ENTRIES];
    double e, de[ENTRIES];
    bool doubt; /* a branch or a kink is too near for a comparison */
} number;
typedef struct naive {
    const char *s;
    int64_t i, j;
    double x[I * J], r[R];
    int64_t m[I * J];
    bool b[I];
} naive;

static double unit = 1.2e-16; /* half an ulp of 1, of f64 or f32 */
static number whole(int64_t n) { return (number){ .is = INTEGER, .n = n, .v = n }; }
static number floating(number a)
{
    if (a.is == INTEGER) a.e = unit > 1e-10 && fabsl(a.v) > 1 << 24 ? (double)fabsl(a.v) : 0;
    a.is = FLOAT;
    return a;
}
/* y = f(a, b) with first and second derivatives, rounded by at most `ulps` */
static number smooth(number a, number b, long double y, long double fa, long double fb,
                     long double faa, long double fab, long double fbb, double ulps)
{
    number c = { .is = FLOAT, .v = y, .doubt = a.doubt | b.doubt };
    c.e = (double)(fabsl(fa) * a.e + fabsl(fb) * b.e + ulps * fabsl(y));
    for (int k = 0; k < ENTRIES; k++) {
        c.d[k] = fa * a.d[k] + fb * b.d[k];
        c.de[k] = (double)(fabsl(fa) * a.de[k] + fabsl(fb) * b.de[k] +
                           fabsl(a.d[k]) * (fabsl(faa) * a.e + fabsl(fab) * b.e) +
                           fabsl(b.d[k]) * (fabsl(fab) * a.e + fabsl(fbb) * b.e) +
                           2 * ulps * (fabsl(fa * a.d[k]) + fabsl(fb * b.d[k])));
    }
    return c;
}
static number smooth_1(number a, long double y, long double f, long double ff)
{
    number none = { .is = FLOAT };
    return smooth(a, none, y, f, 0, ff, 0, 0, 4);
}
static bool near(number a, number b)
{
    return fabsl(a.v - b.v) <= 128 * unit * (a.e + b.e) + 1e4L * unit;
}
static number choose(naive *t);
static number join(char op, number a, number b)
{
    if (a.is == INTEGER && b.is == INTEGER) {
        const int64_t m = b.n < 0 ? -b.n : b.n, rest = m ? ((a.n % m) + m) % m : 0;
        switch (op) {
        case '+': return whole(a.n + b.n);
        case '-': return whole(a.n - b.n);
        case '*': return whole(a.n * b.n);
        case '/': return whole(b.n ? (int64_t)floorl((long double)a.n / (long double)b.n) : 0);
        default: return whole(rest);
        }
    }
    a = floating(a), b = floating(b);
    switch (op) {
    case '+': return smooth(a, b, a.v + b.v, 1, 1, 0, 0, 0, 1);
    case '-': return smooth(a, b, a.v - b.v, 1, -1, 0, 0, 0, 1);
    case '*': return smooth(a, b, a.v * b.v, b.v, a.v, 0, 1, 0, 1);
    case '/':
        return smooth(a, b, a.v / b.v, 1 / b.v, -a.v / (b.v * b.v), 0, -1 / (b.v * b.v),
                      2 * a.v / (b.v * b.v * b.v), 2);
    default: {
        const long double m = fabsl(b.v), q = floorl(a.v / m), y = a.v - m * q;
        number c = smooth(a, b, y, 1, -q * (b.v < 0 ? -1 : 1), 0, 0, 0, 1);
        c.e += (double)fabsl(m * q) * 2;
        c.doubt |= fabsl(a.v / m - roundl(a.v / m)) < 1e-9L + 64 * unit * (1 + (a.e + b.e) / m) ||
                   m < 1e-9L;
        return c;
    }
    }
}
static number negated(number a)
{
    number zero = { .is = a.is };
    return a.is == INTEGER ? whole(-a.n) : smooth(zero, a, -a.v, 0, -1, 0, 0, 0, 0);
}
static number pick(bool first, number a, number b, bool doubt)
{
    number c = first ? a : b;
    if (a.is != b.is) c = floating(c);
    c.doubt |= doubt;
    return c;
}
static void skip(naive *t)
{
    while (*t->s == ' ') t->s++;
}
static bool ahead(naive *t, const char *word)
{
    skip(t);
    const size_t n = strlen(word);
    if (strncmp(t->s, word, n)) return false;
    t->s += n;
    return true;
}
static number called(naive *t, const char *f)
{
    number a = choose(t), b = { 0 }, c = { 0 };
    if (ahead(t, ",")) b = choose(t);
    if (ahead(t, ",")) c = choose(t);
    ck_assert(ahead(t, ")"));
    if (!strcmp(f, "abs"))
        return pick(a.v >= 0, a, negated(a), a.is == FLOAT && fabsl(a.v) < 1e-9L);
    if (!strcmp(f, "min"))
        return pick(a.v <= b.v, a, b, (a.is + b.is && near(a, b)) || a.doubt || b.doubt);
    if (!strcmp(f, "max"))
        return pick(a.v >= b.v, a, b, (a.is + b.is && near(a, b)) || a.doubt || b.doubt);
    if (!strcmp(f, "clip")) {
        number y = a.v < b.v ? b : a;
        if (y.v > c.v) y = c;
        if (a.is + b.is + c.is)
            y = floating(y), y.doubt |= near(a, b) || near(a, c) || a.doubt || b.doubt || c.doubt;
        return y;
    }
    a = floating(a);
    const long double x = a.v, e = expl(-fabsl(x)), s = (x < 0 ? e : 1) / (1 + e);
    if (!strcmp(f, "exp")) return smooth_1(a, expl(x), expl(x), expl(x));
    if (!strcmp(f, "log")) return smooth_1(a, logl(x), 1 / x, -1 / (x * x));
    if (!strcmp(f, "sqrt")) return smooth_1(a, sqrtl(x), .5L / sqrtl(x), -.25L / (x * sqrtl(x)));
    if (!strcmp(f, "tanh")) {
        const long double y = tanhl(x);
        return smooth_1(a, y, 4 * expl(-2 * fabsl(x)) / powl(1 + expl(-2 * fabsl(x)), 2),
                        -2 * y * (1 - y * y));
    }
    if (!strcmp(f, "sigmoid"))
        return smooth_1(a, s, e / ((1 + e) * (1 + e)), s * (1 - s) * (1 - 2 * s));
    if (!strcmp(f, "softplus"))
        return smooth_1(a, (x < 0 ? 0 : x) + log1pl(e), s, e / ((1 + e) * (1 + e)));
    if (!strcmp(f, "erf")) {
        const long double y = (long double)M_2_SQRTPI * expl(-x * x);
        number r = smooth_1(a, erfl(x), y, -2 * x * y);
        for (int k = 0; k < ENTRIES; k++) r.de[k] += (double)fabsl(4 * x * x * y * a.d[k]);
        return r;
    }
    if (!strcmp(f, "sin")) return smooth_1(a, sinl(x), cosl(x), -sinl(x));
    if (!strcmp(f, "cos")) return smooth_1(a, cosl(x), -sinl(x), -cosl(x));
    ck_assert_str_eq(f, "pow");
    b = floating(b);
    const long double y = powl(x, b.v), l = x > 0 ? logl(x) : 0;
    return smooth(a, b, y, b.v * powl(x, b.v - 1), y * l, b.v * (b.v - 1) * powl(x, b.v - 2),
                  powl(x, b.v - 1) * (1 + b.v * l), y * l * l, 8);
}
static number atom(naive *t)
{
    static const char *const names[] = { "abs", "min",  "max",  "clip",    "exp",
                                         "log", "sqrt", "tanh", "sigmoid", "softplus",
                                         "erf", "sin",  "cos",  "pow" };
    number y = { 0 };
    if (ahead(t, "-")) return negated(atom(t));
    if (ahead(t, "(")) {
        y = choose(t);
        ck_assert(ahead(t, ")"));
        return y;
    }
    if (ahead(t, "|i|")) return whole(I);
    if (ahead(t, "|j|")) return whole(J);
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        char open[16];
        snprintf(open, sizeof open, "%s(", names[k]);
        if (ahead(t, open)) return called(t, names[k]);
    }
    if (ahead(t, "r[")) {
        const number at = choose(t);
        ck_assert(ahead(t, "]"));
        /* in the branch that is not taken */
        if (at.n < 0 || at.n >= R) return (number){ .is = FLOAT, .v = NAN, .doubt = true };
        y = (number){ .is = FLOAT, .v = t->r[at.n] };
        y.d[I * J + at.n] = 1;
        return y;
    }
    if (ahead(t, "x")) {
        y = (number){ .is = FLOAT, .v = t->x[t->i * J + t->j] };
        y.d[t->i * J + t->j] = 1;
        return y;
    }
    if (ahead(t, "m[i, j]") || ahead(t, "m")) return whole(t->m[t->i * J + t->j]);
    if (ahead(t, "b[i]")) return (number){ .is = TRUTH, .n = t->b[t->i] };
    if (ahead(t, "i")) return whole(t->i);
    if (ahead(t, "j")) return whole(t->j);
    char *end;
    const double v = strtod(t->s, &end);
    ck_assert_msg(end > t->s, "'%s'", t->s);
    const bool real =
        memchr(t->s, '.', (size_t)(end - t->s)) || memchr(t->s, 'e', (size_t)(end - t->s));
    t->s = end;
    return real ? (number){ .is = FLOAT, .v = v, .e = unit > 1e-10 ? fabs(v) : 0 }
                : whole((int64_t)v);
}
static number term(naive *t)
{
    number a = atom(t);
    for (;;) {
        skip(t);
        const char op = *t->s;
        if (op != '*' && op != '/' && op != '%') return a;
        t->s++;
        a = join(op, a, atom(t));
    }
}
static number total(naive *t)
{
    number a = term(t);
    for (;;) {
        skip(t);
        const char op = *t->s;
        if (op != '+' && op != '-') return a;
        t->s++;
        a = join(op, a, term(t));
    }
}
static number compared(naive *t)
{
    number a = total(t), y = { .is = TRUTH, .n = 1 };
    bool any = false;
    for (;;) {
        static const char *const op[] = { "==", "!=", "<=", ">=", "<", ">" };
        size_t k = 0;
        while (k < 6 && !ahead(t, op[k])) k++;
        if (k == 6) return any ? y : a;
        const number b = total(t);
        const bool is[] = { a.v == b.v, a.v != b.v, a.v <= b.v, a.v >= b.v, a.v<b.v, a.v> b.v };
        y.n &= a.is == TRUTH ? (a.n == b.n) == !k : is[k];
        y.doubt |= (a.is != TRUTH && a.is + b.is && near(a, b)) | a.doubt | b.doubt;
        a = b, any = true;
    }
}
static number denied(naive *t)
{
    skip(t);
    if (*t->s != '!' || t->s[1] == '=') return compared(t);
    t->s++;
    number a = denied(t);
    a.n = !a.n;
    return a;
}
static number both(naive *t)
{
    number a = denied(t);
    while (ahead(t, "&")) {
        const number b = denied(t);
        a.n &= b.n, a.doubt |= b.doubt;
    }
    return a;
}
static number either(naive *t)
{
    number a = both(t);
    while (skip(t), *t->s == '|' && t->s[1] == ' ') {
        t->s++;
        const number b = both(t);
        a.n |= b.n, a.doubt |= b.doubt;
    }
    return a;
}
static number choose(naive *t)
{
    number c = either(t);
    if (!ahead(t, "?")) return c;
    const number a = choose(t);
    ck_assert(ahead(t, ":"));
    const number b = choose(t);
    return pick(c.n, a, b, c.doubt);
}

/* -- random formulas -------------------------------------------------------------------------- */
typedef struct script {
    bool predicate; /* without floats, and every tensor has brackets */
    char text[4096];
    uint64_t state;
} script;
static unsigned drawn(script *s, unsigned n)
{
    s->state = s->state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(s->state >> 33) % n;
}
static void say(script *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(script *s, const char *format, ...)
{
    const size_t n = strlen(s->text);
    va_list list;
    va_start(list, format);
    vsnprintf(s->text + n, sizeof s->text - n, format, list);
    va_end(list);
}
static void say_truth(script *s, int depth);
static void say_whole(script *s, int depth)
{
    static const char *const leaf[] = { "i", "j", "|i|", "|j|", "m", "i", "j" };
    const unsigned k = drawn(s, depth > 2 ? 3 : 9);
    if (k == 0)
        say(s, "%u", drawn(s, 6));
    else if (k < 4) {
        const char *name = leaf[drawn(s, 7)];
        say(s, "%s", s->predicate && *name == 'm' ? "m[i, j]" : name);
    } else if (k < 7) {
        say(s, "(");
        say_whole(s, depth + 1);
        const unsigned op = drawn(s, 5);
        say(s, " %c ", "+-*/%"[op]);
        if (op > 2)
            say(s, "%u", 1 + drawn(s, 5));
        else
            say_whole(s, depth + 2);
        say(s, ")");
    } else if (k == 7) {
        say(s, "abs(");
        say_whole(s, depth + 1);
        say(s, ")");
    } else {
        say(s, drawn(s, 2) ? "min(" : "max(");
        say_whole(s, depth + 1);
        say(s, ", ");
        say_whole(s, depth + 2);
        say(s, ")");
    }
}
static void say_float(script *s, int depth)
{
    static const char *const f[] = { "tanh(",    "sigmoid(", "softplus(",      "erf(",
                                     "sin(",     "cos(",     "log(0.5 + abs(", "sqrt(0.1 + abs(",
                                     "exp(tanh(" };
    const unsigned k = drawn(s, depth > 3 ? 4 : 14);
    if (k < 2)
        say(s, "x");
    else if (k == 2)
        say(s, "%u.%u", drawn(s, 3), 1 + drawn(s, 99));
    else if (k == 3) {
        const unsigned way = drawn(s, 4);
        say(s, way == 0 ? "r[m]" : way == 1 ? "r[clip(" : way == 2 ? "r[(" : "r[abs(i - j)]");
        if (way == 1 || way == 2) say_whole(s, 1);
        if (way == 1 || way == 2) say(s, way == 1 ? ", 0, 4)]" : ") %% 5]");
    } else if (k < 8) {
        say(s, "(");
        say_float(s, depth + 1);
        say(s, " %c ", "+-*"[drawn(s, 3)]);
        if (drawn(s, 4))
            say_float(s, depth + 1);
        else
            say_whole(s, 2);
        say(s, ")");
    } else if (k == 8) {
        say_float(s, depth + 1);
        say(s, drawn(s, 2) ? " / (0.5 + abs(" : " %% (0.5 + abs(");
        say_float(s, depth + 1);
        say(s, "))");
        char *at = s->text;
        (void)at;
    } else if (k < 11) {
        const unsigned which = drawn(s, 9);
        say(s, "%s", f[which]);
        say_float(s, depth + 1);
        say(s, which < 6 ? ")" : "))");
    } else if (k == 11) {
        say(s, drawn(s, 2) ? "min(" : "max(");
        say_float(s, depth + 1);
        say(s, ", ");
        say_float(s, depth + 1);
        say(s, ")");
    } else if (k == 12) {
        say(s, "pow(0.5 + abs(");
        say_float(s, depth + 2);
        say(s, "), %u.5)", drawn(s, 3));
    } else {
        say(s, "(");
        say_truth(s, depth + 1);
        say(s, " ? ");
        say_float(s, depth + 1);
        say(s, " : ");
        say_float(s, depth + 1);
        say(s, ")");
    }
}
static void say_truth(script *s, int depth)
{
    static const char *const op[] = { " < ", " <= ", " == ", " != ", " > ", " >= " };
    unsigned k = drawn(s, depth > 2 ? 3 : 6);
    if (k == 3 && s->predicate) k = 4;
    if (k == 0)
        say(s, "b[i]");
    else if (k < 3) {
        say_whole(s, depth + 1);
        say(s, "%s", op[drawn(s, 6)]);
        say_whole(s, depth + 1);
    } else if (k == 3) {
        say_float(s, depth + 2);
        say(s, "%s", op[drawn(s, 2)]);
        say_float(s, depth + 2);
    } else {
        static const char *const joint[] = { " & ", " | ", ") == (", ") != (" };
        const unsigned j = drawn(s, 4);
        say(s, j < 2 ? k == 4 ? "(" : "!(" : k == 4 ? "((" : "!((");
        say_truth(s, depth + 1);
        say(s, "%s", joint[j]);
        say_truth(s, depth + 1);
        say(s, j < 2 ? ")" : "))");
    }
}

static void draw_data(naive *t, uint64_t seed)
{
    script s = { .state = seed * 977 + 5 };
    for (int k = 0; k < I * J; k++) t->x[k] = (float)((drawn(&s, 4001) - 2000.) / 997);
    for (int k = 0; k < R; k++) t->r[k] = (float)((drawn(&s, 4001) - 2000.) / 991);
    for (int k = 0; k < I * J; k++) t->m[k] = drawn(&s, R);
    for (int k = 0; k < I; k++) t->b[k] = drawn(&s, 2);
}
/* Compares value and gradient of one text with those of the evaluator; elements with a doubt are
 * skipped. */
static bool agrees(eg_ctx *cx, eg_dtype type, const char *text, naive *t)
{
    static number y[I * J];
    const eg_mark mark = eg_push(cx);
    eg_given given[8] = { { 0 } };
    eg_tensor *x = eg_cast(eg_from_n(cx, EG_F64, t->x, 2, (int64_t[]){ I, J }), type),
              *r = eg_cast(eg_from_n(cx, EG_F64, t->r, 1, (int64_t[]){ R }), type),
              *in[2] = { x, r }, *d[2];
    unit = type == EG_F64 ? 1.2e-16 : 6e-8;
    int n = 0;
    given[n++] = (eg_given){ "x", x };
    if (strstr(text, "r[")) given[n++] = (eg_given){ "r", r };
    /* only "m" as a word: min and max contain it, too */
    for (const char *c = text; *c; c++)
        if (*c == 'm' && c[1] != 'i' && c[1] != 'a' && c[1] != 'o') {
            given[n++] = (eg_given){ "m", eg_from_n(cx, EG_I64, t->m, 2, (int64_t[]){ I, J }) };
            break;
        }
    if (strstr(text, "b[i]"))
        given[n++] = (eg_given){ "b", eg_from_n(cx, EG_BOOL, t->b, 1, (int64_t[]){ I }) };
    eg_expr_args o = { .size = sizeof o, .axes = "i j", .text = text };
    memcpy(o.with, given, sizeof given);
    eg_tensor *v = eg_expr_with(&o);
    if (eg_error(cx) && strstr(eg_error(cx), "too long")) {
        eg_clear(cx);
        eg_pop(cx, mark);
        return true;
    }
    ck_assert_msg(eg_ok(v), "%s", eg_error(cx));
    const double tiny = type == EG_F64 ? 1e-300 : 1e-36; /* smaller values may underflow */
    const double *value = eg_f64(eg_cast(v, EG_F64));
    double seed[I * J];
    for (int k = 0; k < I * J; k++) {
        t->s = text, t->i = k / J, t->j = k % J;
        y[k] = choose(t);
        ck_assert_msg(!*t->s, "'%s' at '%s'", text, t->s);
        seed[k] = y[k].doubt || !isfinite((double)y[k].v) ? 0 : 1 - .125 * k;
        if (!seed[k]) continue;
        const double most = 8 * unit * (y[k].e + fabs((double)y[k].v)) + tiny;
        ck_assert_msg(fabs(value[k] - (double)y[k].v) <= most,
                      "'%s' at (%d, %d) is %.17g, and should be %.17g to %.2g", text, k / J, k % J,
                      value[k], (double)y[k].v, most);
    }
    eg_tensor *g = eg_cast(eg_from_n(cx, EG_F64, seed, 2, (int64_t[]){ I, J }), type);
    ck_assert_msg(!eg_grad(v, g, 2, in, d), "'%s': %s", text, eg_error(cx));
    for (int k = 0; k < 2; k++) d[k] = eg_cast(d[k], EG_F64);
    for (int e = 0; e < ENTRIES; e++) {
        long double sum = 0, most = 0;
        for (int k = 0; k < I * J; k++)
            if (seed[k] != 0) {
                sum += (long double)seed[k] * y[k].d[e];
                most += fabsl(seed[k] * (y[k].de[e] + fabsl(y[k].d[e])));
            }
        const double is = e < I * J ? eg_f64(d[0])[e] : eg_f64(d[1])[e - I * J];
        /* a doubtful element may be 0 times infinity */
        if (isnan(is) || !isfinite((double)most)) continue;
        ck_assert_msg(fabs(is - (double)sum) <= 16 * unit * (double)most + tiny,
                      "'%s': derivative by entry %d is %.17g, and should be %.17g to %.2g", text, e,
                      is, (double)sum, 16 * unit * (double)most);
    }
    eg_assert_ok(cx);
    eg_pop(cx, mark);
    return false;
}

static bool all_bits(eg_tensor *a, eg_tensor *b)
{
    a = eg_contiguous(a), b = eg_contiguous(b);
    return eg_size(a) == eg_size(b) && eg_type(a) == eg_type(b) &&
           !memcmp(eg_raw(a, NULL), eg_raw(b, NULL),
                   (size_t)eg_size(a) * (eg_type(a) == EG_F64 ? 8 : 4));
}

static const char *const texts[] = {
    "x",
    "x + 1",
    "2 - x",
    "-x * 3",
    "x / 7 + 1 / (1 + x * x)",
    "i - 2 * j + x",
    "(j - 3) / 2 * x",
    "(j - 3) % 4 + x",
    "x % 0.75",
    "x % (-0.75)",
    "1e-3 * x + .5 + 2.",
    "min(x, 0.5) + max(x, -0.25)",
    "clip(x, -1, 1)",
    "clip(x, r[0], 0.5 + abs(r[1]) + abs(r[0]))",
    "abs(x) + abs(i - j)",
    "exp(x) + log(1.5 + abs(x)) + sqrt(2 + x * x)",
    "tanh(x) * sigmoid(x) + softplus(x)",
    "erf(x) + sin(x) * cos(x)",
    "pow(abs(x) + 1, 2.5) + pow(x, 2) - pow(x, 3) + pow(x + 5, -1)",
    "pow(abs(x) + 0.5, r[1])",
    "i < j ? x : 0",
    "0 <= i - j < 2 ? x * x : -1",
    "b[i] & x > 0 | !(i == j) ? x : 2 * x",
    "r[abs(i - j)] + x",
    "r[m] * x + r[4 - m]",
    "30 * tanh((x + r[clip(i - j, 0, 4)]) / 30)",
    "(i >= j ? r[i - j] : -1) + x",
    "i < 2 & j > 1 ? x : i == 2 ? 1 : 0.5",
    "sigmoid(x) * r[i] + r[j] * r[0]",
    "|i| * x + |j|",
};
GROUP("values", .timeout = 60)
TEST(values_and_gradients_of_each_form)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    for (uint64_t seed = 1; seed < 20; seed++)
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
            naive t = { 0 };
            draw_data(&t, seed);
            agrees(cx, EG_F64, texts[k], &t);
        }
    eg_close(cx);
}

TEST(random_formulas)
{
    const char *wanted = getenv("EG_EXPRESSIONS");
    const int64_t count = wanted ? strtoll(wanted, NULL, 10) : 3000;
    int64_t left = 0;
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    for (int64_t k = 0; k < count; k++) {
        script s = { .state = (uint64_t)k * 2654435761u + 17 };
        naive t = { 0 };
        drawn(&s, 2);
        say(&s, "x + ");
        say_float(&s, 0);
        if (strlen(s.text) > 3000) continue;
        draw_data(&t, (uint64_t)k);
        left += agrees(cx, k % 2 ? EG_F32 : EG_F64, s.text, &t);
    }
    ck_assert_int_lt(left, count / 10 + 1);
    eg_close(cx);
}

/* The mask of a predicate that reads tensors, and the softmax of scores under it. */
TEST(random_predicates)
{
    const char *wanted = getenv("EG_EXPRESSIONS");
    const int64_t count = wanted ? strtoll(wanted, NULL, 10) : 2000;
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    int64_t left = 0;
    for (int64_t k = 0; k < count; k++) {
        const eg_mark mark = eg_push(cx);
        script s = { .predicate = true, .state = (uint64_t)k * 2654435761u + 29 };
        naive t = { 0 };
        eg_given with[8] = { { 0 } };
        int n = 0;
        say_truth(&s, 0);
        draw_data(&t, (uint64_t)k);
        if (strstr(s.text, "m["))
            with[n++] = (eg_given){ "m", eg_from_n(cx, EG_I64, t.m, 2, (int64_t[]){ I, J }) };
        if (strstr(s.text, "b[i]"))
            with[n++] = (eg_given){ "b", eg_from_n(cx, EG_BOOL, t.b, 1, (int64_t[]){ I }) };
        if (n && k % 2 && eg_type(with[0].x) == EG_I64) with[0].x = eg_cast(with[0].x, EG_I32);
        eg_where_mask_args o = {
            .size = sizeof o, .where = s.text, .axes = "i j", .sizes = (int64_t[]){ I, J }
        };
        memcpy(o.with, with, sizeof with);
        eg_tensor *mask = eg_where_mask_with(cx, &o);
        if (eg_error(cx)) { /* too long, or a constant divided by 0 */
            ck_assert_msg(strstr(eg_error(cx), "too long") || strstr(eg_error(cx), "division"),
                          "%s", eg_error(cx));
            eg_clear(cx);
            eg_pop(cx, mark);
            left++;
            continue;
        }
        const bool *is = eg_bool(mask);
        for (int e = 0; e < I * J; e++) {
            t.s = s.text, t.i = e / J, t.j = e % J;
            const bool should = choose(&t).n;
            ck_assert_msg(!*t.s && is[e] == should, "'%s' at (%d, %d)", s.text, e / J, e % J);
        }
        eg_softmax_args p = { .size = sizeof p,
                              .spec = "i [j]",
                              .x = eg_from_n(cx, EG_F64, t.x, 2, o.sizes),
                              .where = s.text };
        memcpy(p.with, with, sizeof with);
        ck_assert(all_bits(eg_softmax_with(&p), eg_softmax("i [j]", p.x, .keep = { "ij", mask })));
        eg_assert_ok(cx);
        eg_pop(cx, mark);
    }
    ck_assert_int_lt(left, count / 10 + 1);
    eg_close(cx);
}

/* -- the smallest integer of 64 bits ----------------------------------------------------------- */
/* An element −2^63 counts as −(2^63 − 1), so that its negative and its quotient by −1 are
 * integers. */
TEST(the_smallest_integer_has_a_negative)
{
    static const struct {
        const char *text;
        int64_t want[4];
    } rows[] = {
        { "-t[i]", { INT64_MAX, 1, 0, -INT64_MAX } },
        { "abs(t[i])", { INT64_MAX, 1, 0, INT64_MAX } },
        { "t[i] / u[i]", { INT64_MAX, 1, 0, -1 } },
        { "t[i] / (0 - 1)", { INT64_MAX, 1, 0, -INT64_MAX } },
        { "t[i] / (0 - 3)", { INT64_MAX / 3, 0, 0, -INT64_MAX / 3 - 1 } },
        { "0 / u[i] + t[i] % u[i]", { 0, 0, 0, 0 } },
        { "t[i] % (0 - 1)", { 0, 0, 0, 0 } },
        { "0 - t[i]", { INT64_MAX, 1, 0, -INT64_MAX } },
        { "t[i] * u[i]", { INT64_MAX, 1, 0, -INT64_MAX } },
    };
    eg_ctx *cx = eg_open();
    eg_tensor *t = eg_from(cx, ((int64_t[]){ INT64_MIN, -1, 0, INT64_MAX }), 4),
              *u = eg_from(cx, ((int64_t[]){ -1, -1, INT64_MIN, INT64_MIN }), 4);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        const bool both = strstr(rows[k].text, "u[") != NULL;
        eg_tensor *y = eg_expr("i", rows[k].text, .with = { { "t", t }, { both ? "u" : NULL, u } });
        eg_assert_ok(cx);
        for (int i = 0; i < 4; i++)
            ck_assert_msg(eg_i64(y)[i] == rows[k].want[i], "%s at %d: %lld", rows[k].text, i,
                          (long long)eg_i64(y)[i]);
    }
    eg_softmax("i [j]", eg_zeros(cx, 2, 3), .where = "j <= i", .offset = INT64_MIN);
    eg_assert_error(
        cx, "softmax: .offset is -9223372036854775808, but it is the number of positions before");
    eg_close(cx);
}

/* -- laws ------------------------------------------------------------------------------------- */
static eg_tensor *turned(eg_tensor *x)
{
    return eg_transpose(eg_copy(eg_transpose(x, 0, 1)), 0, 1);
}
static eg_tensor *reversed(eg_tensor *x) { return eg_flip_axis(eg_copy(eg_flip_axis(x, 1)), 1); }
static eg_tensor *gapped(eg_tensor *x)
{
    eg_tensor *twice = eg_stack_axis(-1, x, x);
    return eg_slice_axis(eg_reshape(twice, eg_dim(x, 0), 2 * eg_dim(x, 1)), 1, 0, EG_END, 2);
}
static const char *const laws[] = { "x * sigmoid(x) * g[j] + 0.5", "exp(x) / (1 + x * x)",
                                    "30 * tanh((x + g[clip(j - i, 0, 2)]) / 30)",
                                    "j <= i ? x * g[j] : -g[0]" };
TEST(strides_and_positions_change_no_bit)
{
    eg_tensor *(*const layout[])(eg_tensor *) = { turned, reversed, gapped };
    for (int wide = 0; wide < 2; wide++) {
        eg_ctx *cx = eg_open(.dtype = wide ? EG_F64 : EG_F32);
        eg_tensor *x = eg_normal(cx, 0, 1, 37, 53), *g = eg_normal(cx, 0, 1, 53);
        for (size_t k = 0; k < sizeof laws / sizeof *laws; k++) {
            const bool gain = strstr(laws[k], "g[");
            eg_tensor *d[2], *e[2], *in[2] = { x, g };
            eg_tensor *y =
                eg_expr("i j", laws[k], .with = { { "x", x }, { gain ? "g" : NULL, g } });
            eg_assert_ok(cx);
            eg_grad(y, y, 1 + gain, in, d);
            for (int l = 0; l < 3; l++) {
                eg_tensor *other = eg_detach(layout[l](x)), *with[2] = { other, g };
                eg_tensor *z =
                    eg_expr("i j", laws[k], .with = { { "x", other }, { gain ? "g" : NULL, g } });
                ck_assert_msg(all_bits(y, z), "'%s', layout %d", laws[k], l);
                eg_grad(z, y, 1 + gain, with, e);
                for (int i = 0; i < 1 + gain; i++)
                    ck_assert_msg(all_bits(d[i], e[i]), "'%s', gradient, layout %d", laws[k], l);
            }
            /* an element does not depend on its position in memory */
            for (int from = 0; from < 20; from += 3) {
                eg_tensor *part = eg_slice_axis(x, 0, from, from + 5, 1);
                if (strstr(laws[k], "i")) continue;
                ck_assert(all_bits(
                    eg_slice_axis(y, 0, from, from + 5, 1),
                    eg_expr("i j", laws[k], .with = { { "x", part }, { gain ? "g" : NULL, g } })));
            }
        }
        eg_tensor *one = eg_expand(eg_normal(cx, 0, 1, 1, 53), 37, 53);
        ck_assert(all_bits(eg_expr("i j", "tanh(x)", .with = { { "x", one } }), eg_tanh(one)));
        eg_assert_ok(cx);
        eg_close(cx);
    }
}

/* Neighbouring letters are merged into one axis if the strides allow it; the strides of axes of
 * size 1 do not matter: every shape of sizes 1 and 3, each axis with every second element, or
 * reversed. */
TEST(axes_of_size_1_join_no_others)
{
    eg_ctx *cx = eg_open();
    for (int shape = 0; shape < 16; shape++)
        for (int turn = 0; turn < 81; turn++) {
            const eg_mark mark = eg_push(cx);
            int64_t dim[4], all[4];
            bool every_second[4], back[4];
            for (int k = 0, t = turn; k < 4; k++, t /= 3) {
                dim[k] = shape >> k & 1 ? 3 : 1;
                every_second[k] = t % 3 == 1, back[k] = t % 3 == 2;
                all[k] = dim[k] * (every_second[k] ? 2 : 1);
            }
            eg_tensor *x = eg_normal_n(cx, EG_DEFAULT, 0, 1, 4, all);
            for (int k = 0; k < 4; k++) {
                if (every_second[k]) x = eg_slice_axis(x, k, 0, EG_END, 2);
                if (back[k]) x = eg_flip_axis(x, k);
            }
            eg_tensor *y = eg_expr("a b c d", "x * 2", .with = { { "x", x } }),
                      *z = eg_expr("a b c d", "t[a, b, c, d] ? 1.0 : 0.0",
                                   .with = { { "t", eg_gt(x, eg_zeros_like(x)) } });
            const float *from = eg_f32(eg_copy(x)), *to = eg_f32(y), *is = eg_f32(z);
            eg_assert_ok(cx);
            for (int64_t k = 0; k < eg_size(x); k++) {
                ck_assert_msg(to[k] == 2 * from[k], "shape %d, turn %d", shape, turn);
                ck_assert_msg(is[k] == (from[k] > 0), "shape %d, turn %d, truth", shape, turn);
            }
            eg_pop(cx, mark);
        }
    eg_close(cx);
}

TEST(threads_change_no_bit)
{
    eg_tensor *first[3] = { NULL };
    eg_ctx *base = eg_open(.threads = 1);
    for (int threads = 1; threads <= 4; threads *= 2) {
        eg_ctx *cx = eg_open(.threads = threads);
        eg_seed(cx, 7);
        eg_tensor *x = eg_normal(cx, 0, 1, 300, 700), *r = eg_normal(cx, 0, 1, 999), *d[2];
        eg_tensor *y =
            eg_expr("i j", "x * r[i - j + 699] + tanh(x)", .with = { { "x", x }, { "r", r } });
        eg_grad(y, y, 2, (eg_tensor *[]){ x, r }, d);
        eg_assert_ok(cx);
        eg_tensor *all[3] = { y, d[0], d[1] };
        for (int k = 0; k < 3; k++) {
            if (threads == 1)
                first[k] = eg_from_n(base, EG_F32, eg_raw(eg_contiguous(all[k]), NULL),
                                     eg_rank(all[k]), eg_dims(all[k]));
            else
                ck_assert_msg(all_bits(all[k], first[k]), "%d threads, %d", threads, k);
        }
        eg_close(cx);
    }
    eg_close(base);
}

/* Two sums in one loop have the bits of two loops, in any order and for any indices of the
 * summands. */
static const struct {
    const char *text;
    double sign[4];
    const char *order; /* the summands, from left to right */
} sums[] = {
    { "x + a[i] - b[j]", { 1, 1, -1 }, "xab" },
    { "x - b[j] + a[i]", { 1, -1, 1 }, "xba" },
    { "b[j] - (x - a[i])", { -1, 1, 1 }, "xab" },
    { "c[] - (a[i] - x)", { -1, 1, 1 }, "axc" },
    { "c[] + (b[j] - x)", { 1, -1, 1 }, "bxc" },
    { "(a[i] + b[j]) - x", { 1, 1, -1 }, "abx" },
    { "x - c[] - a[i]", { 1, -1, -1 }, "xca" },
    { "x + x - x", { 1, 1, -1 }, "xxx" },
    { "x + a[i] - b[j] - c[]", { 1, 1, -1, -1 }, "xabc" },
    { "a[i] - (c[] - (x + b[j]))", { 1, 1, -1, 1 }, "xbca" },
};
TEST(sums_of_sums_have_the_bits_of_each)
{
    static const int64_t sizes[][2] = { { 1, 1 }, { 9, 32 }, { 37, 83 }, { 70, 16 }, { 3, 700 } };
    for (size_t z = 0; z < sizeof sizes / sizeof *sizes; z++)
        for (size_t k = 0; k < 2 * sizeof sums / sizeof *sums; k++) {
            eg_ctx *cx = eg_open(.dtype = k & 1 ? EG_F64 : EG_F32, .seed = 5);
            const int64_t n = sizes[z][0], m = sizes[z][1];
            eg_tensor *x = eg_normal(cx, 0, 1, n, m), *a = eg_normal(cx, 0, 9, n),
                      *b = eg_normal(cx, 0, 9, m), *c = eg_scalar(cx, 0.3), *sum = NULL,
                      *in[] = { x, a, b, c }, *d[4], *e[4];
            eg_given with[8] = { { "x", x } };
            const char *text = sums[k / 2].text;
            for (int t = 1, w = 1; t < 4; t++) {
                const char name[] = { "xabc"[t], '[', 0 };
                static const char *const names[] = { "x", "a", "b", "c" };
                if (strstr(text, name)) with[w++] = (eg_given){ names[t], in[t] };
            }
            for (int t = 0; sums[k / 2].order[t]; t++) {
                const int of = (int)(strchr("xabc", sums[k / 2].order[t]) - "xabc");
                eg_tensor *y = of == 1 ? eg_unsqueeze(in[1], 1) : in[of];
                y = sums[k / 2].sign[t] < 0 ? eg_neg(y) : y;
                sum = sum ? eg_add(sum, y) : y;
            }
            eg_tensor *y = eg_expr("i j", text, .with = { with[0], with[1], with[2], with[3] }),
                      *g = eg_normal(cx, 0, 1, n, m);
            eg_assert_ok(cx);
            eg_assert_close(y, sum, 0);
            eg_grad(y, g, 4, in, d);
            eg_grad(sum, g, 4, in, e);
            for (int t = 0; t < 4; t++) eg_assert_close(d[t], e[t], k & 1 ? 1e-12 : 1e-5);
            eg_assert_ok(cx);
            eg_close(cx);
        }
}

/* A part of a formula that only depends on i − j is computed once for each diagonal of a block, and
 * its cotangents are summed along the diagonals. */
static const struct {
    const char *text;
    int64_t from, to; /* d = i − j is limited to this range */
    double sign, add; /* the index: sign · d + add */
} on_diagonals[] = {
    { "x * exp(m[] * (i - j)) + r[clip(i - j, -40, 40) + 40]", -40, 40, 1, 40 },
    { "x * exp(m[] * (i - j)) - r[40 - clip(i - j, -40, 40)]", -40, 40, -1, 40 },
    { "exp(-m[] * (j - i)) * x - r[40 - clip((i + 3) - (j + 3), -40, 9)]", -40, 9, -1, 40 },
    { "r[max(min(2 + i - j, 42), 2)] + x * exp(m[] * (i - (j - 2) - 2))", 0, 40, 1, 2 },
    { "r[clip((i - j) * 3000000000 / 3000000000, -9, 9) + 40] + exp(m[] * (i - j)) * x", -9, 9, 1,
      40 }, /* 64 bits */
};
static double element(eg_tensor *x, int64_t k)
{
    return eg_type(x) == EG_F64 ? eg_f64(x)[k] : (double)eg_f32(x)[k];
}
TEST(values_of_i_minus_j)
{
    static const int64_t sizes[][2] = { { 1, 9 },     { 37, 83 }, { 16, 16 }, { 70, 33 },
                                        { 130, 200 }, { 5, 300 }, { 300, 5 }, { 17, 65 } };
    for (size_t z = 0; z < sizeof sizes / sizeof *sizes; z++)
        for (size_t c = 0; c < 20; c++) { /* formula, f32 or f64, which letter is last */
            const int f = (int)c / 4;
            const bool wide = c & 1, turned = c & 2, minus = f == 1 || f == 2;
            eg_ctx *cx = eg_open(.dtype = wide ? EG_F64 : EG_F32);
            const int64_t n = sizes[z][0], m = sizes[z][1];
            eg_tensor *x = eg_normal(cx, 0, 1, n, m), *r = eg_normal(cx, 0, 1, 81),
                      *slope = eg_scalar(cx, 0.004), *in[] = { x, r, slope }, *d[3];
            eg_tensor *y = eg_expr(turned ? "j i" : "i j", on_diagonals[f].text,
                                   .with = { { "x", turned ? eg_transpose(x, 0, 1) : x },
                                             { "r", r },
                                             { "m", slope } });
            eg_tensor *g = eg_normal_n(cx, EG_DEFAULT, 0, 1, 2, eg_dims(y));
            eg_grad(y, g, 3, in, d);
            d[0] = eg_contiguous(d[0]);
            eg_assert_ok(cx);
            double of_m = 0, of_r[81] = { 0 }, sizes_m = 1, rounding = wide ? 1e-14 : 4e-6;
            for (int64_t i = 0; i < n; i++)
                for (int64_t j = 0; j < m; j++) {
                    const int64_t ab = turned ? j * n + i : i * m + j, k = i - j;
                    const int64_t inside = k < on_diagonals[f].from ? on_diagonals[f].from
                                           : k > on_diagonals[f].to ? on_diagonals[f].to
                                                                    : k;
                    const int64_t at =
                        (int64_t)(on_diagonals[f].sign * (double)inside + on_diagonals[f].add);
                    const double e = exp(eg_item(slope) * (double)k), v = element(x, i * m + j),
                                 gk = element(g, ab), rk = element(r, at);
                    ck_assert_msg(fabs(element(y, ab) - (e * v + (minus ? -rk : rk))) <
                                      rounding * (fabs(e * v) + fabs(rk) + 1),
                                  "%s: (%d, %d)", on_diagonals[f].text, (int)i, (int)j);
                    ck_assert(fabs(element(d[0], i * m + j) - gk * e) <= rounding * fabs(gk * e));
                    of_r[at] += minus ? -gk : gk;
                    of_m += gk * v * e * (double)k, sizes_m += fabs(gk * v * e * (double)k);
                }
            for (int64_t k = 0; k < 81; k++)
                ck_assert_msg(fabs(element(d[1], k) - of_r[k]) < rounding * 300,
                              "%s: r[%d]: %g, not %g", on_diagonals[f].text, (int)k,
                              element(d[1], k), of_r[k]);
            ck_assert_msg(fabs(eg_item(d[2]) - of_m) < rounding * sizes_m, "%s: m: %g, not %g",
                          on_diagonals[f].text, eg_item(d[2]), of_m);
            eg_close(cx);
        }
}
/* The quotient by a scalar has the bits of a division. */
TEST(quotients_by_a_number)
{
    eg_ctx *cx = eg_open();
    static const float by[] = { 30,       3,      -7e-3f, 1.1754942e-38f,
                                3.4e38f,  1e-40f, 0.0f,   -0.0f,
                                INFINITY, NAN,    8,      0.1f };
    enum { N = 40000 };
    eg_tensor *x = eg_normal(cx, 0, 1, N);
    float *v = eg_mut_f32(x);
    for (int k = 0; k < N; k++) v[k] = ldexpf(v[k], k % 150 - 70);
    v[0] = INFINITY, v[1] = -INFINITY, v[2] = NAN, v[3] = 0, v[4] = -0.0f;
    for (size_t b = 0; b < sizeof by / sizeof *by; b++) {
        eg_tensor *c = eg_scalar(cx, (double)by[b]), *d;
        eg_tensor *y = eg_expr("i", "x / c[]", .with = { { "x", x }, { "c", c } });
        eg_grad(y, x, 1, (eg_tensor *[]){ x }, &d);
        eg_assert_ok(cx);
        for (int k = 0; k < N; k++) {
            const float want = v[k] / by[b], got = eg_f32(y)[k], slope = eg_f32(d)[k];
            if (fabsf(want) < 1.1754944e-38f && want != 0) continue;
            ck_assert_msg(isnan(want) ? isnan(got) && isnan(slope)
                                      : !memcmp(&want, &got, 4) && want == slope,
                          "%g / %g: %.9g and %.9g, not %.9g", (double)v[k], (double)by[b],
                          (double)got, (double)slope, (double)want);
        }
    }
    eg_close(cx);
}

/* Where a whole block of numbers is below 0.625 the exponential is left out: the bits are those of
 * the operation, and of the same numbers beside larger ones and NaN. */
TEST(tanh_of_small_numbers_has_the_same_bits)
{
    enum { N = 1500 };
    eg_ctx *cx = eg_open(.threads = 1, .seed = 3);
    const double other[] = { 0.1, 0.625, -0.625, 0.7, -90, INFINITY, NAN };
    eg_tensor *small = eg_uniform(cx, -.6249999, .6249999, N), *same = eg_tanh(small);
    for (size_t k = 0; k < sizeof other / sizeof *other; k++) {
        eg_tensor *x = eg_copy(small);
        for (int at = 37; at < N; at += 256) eg_mut_f32(x)[at] = (float)other[k];
        eg_tensor *y = eg_expr("i", "tanh(x)", .with = { { "x", x } });
        ck_assert_msg(all_bits(y, eg_tanh(x)), "%g", other[k]);
        for (int i = 0; i < N; i++)
            if (i % 256 != 37) ck_assert(!memcmp(eg_f32(y) + i, eg_f32(same) + i, 4));
    }
    eg_close(cx);
}
TEST(infinities_and_nan_are_those_of_the_operations)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    const double v[] = {
        NAN, INFINITY, -INFINITY, 0, -0.0, 1e300, -1e300, 5e-324, 800, -800, 1, -1
    };
    const int n = (int)(sizeof v / sizeof *v);
    eg_tensor *a = eg_expand(eg_reshape(eg_from_n(cx, EG_F64, v, 1, (int64_t[]){ n }), n, 1), n, n),
              *b = eg_transpose(a, 0, 1);
    a = eg_copy(a), b = eg_copy(b);
    const struct {
        const char *text;
        eg_tensor *is;
    } all[] = {
        { "a + b", eg_add(a, b) },
        { "a - b", eg_sub(a, b) },
        { "a * b", eg_mul(a, b) },
        { "a / b", eg_div(a, b) },
        { "min(a, b)", eg_minimum(a, b) },
        { "max(a, b)", eg_maximum(a, b) },
        { "pow(a, b)", eg_pow(a, b) },
        { "abs(a) + 0 * b", eg_add(eg_abs(a), eg_scale(b, 0)) },
        { "tanh(a) + b", eg_add(eg_tanh(a), b) },
        { "sigmoid(a) * b", eg_mul(eg_sigmoid(a), b) },
        { "softplus(a) * b", eg_mul(eg_softplus(a), b) },
        { "erf(a) * b", eg_mul(eg_erf(a), b) },
        { "sqrt(a) * b", eg_mul(eg_sqrt(a), b) },
        { "log(a) * b", eg_mul(eg_log(a), b) },
        { "exp(a) * b", eg_mul(eg_exp(a), b) },
        { "a < b ? a : b", eg_where(eg_lt(a, b), a, b) },
    };
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        eg_tensor *y = eg_expr("i j", all[k].text, .with = { { "a", a }, { "b", b } });
        eg_tensor *d[2], *e[2], *in[2] = { a, b }, *g = eg_ones_like(y);
        eg_assert_ok(cx);
        ck_assert(!eg_grad(y, g, 2, in, d) && !eg_grad(all[k].is, g, 2, in, e));
        for (int o = 0; o < 3; o++) {
            const double *p = eg_f64(o ? d[o - 1] : y), *q = eg_f64(o ? e[o - 1] : all[k].is);
            for (int i = 0; i < n * n; i++)
                ck_assert_msg(p[i] == q[i] || (isnan(p[i]) && isnan(q[i])) ||
                                  fabs(p[i] - q[i]) <= 1e-14 * fabs(q[i]),
                              "'%s', result %d of a = %g, b = %g: %g, not %g", all[k].text, o,
                              v[i / n], v[i % n], p[i], q[i]);
        }
    }
    /* lanes beyond the last one hold its value; their cotangents of 0 are added to no sum */
    eg_tensor *x = eg_ones(cx, 3, 5), *r = eg_ones(cx, 3), *d;
    eg_mut_f64(x)[4] = INFINITY;
    eg_tensor *y = eg_expr("i j", "x * r[i]", .with = { { "x", x }, { "r", r } });
    ck_assert(!eg_grad(y, eg_ones_like(y), 1, &r, &d));
    ck_assert(eg_get(d, 0) == INFINITY && eg_get(d, 1) == 5);
    eg_close(cx);
}

TEST(types_and_sizes_of_nothing)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_zeros(cx, 0, 4), *m = eg_cast(eg_ones(cx, 2, 3), EG_I32), *d;
    eg_tensor *y = eg_expr("i j", "exp(x) + r[5]", .with = { { "x", x }, { "r", eg_ones(cx, 2) } });
    ck_assert(eg_ok(y) && eg_size(y) == 0);
    ck_assert(!eg_grad(y, y, 1, &x, &d) && eg_size(d) == 0);
    ck_assert_int_eq(eg_type(eg_expr("i j", "m + i", .with = { { "m", m } })), EG_I64);
    ck_assert_int_eq(eg_type(eg_expr("i j", "m > i", .with = { { "m", m } })), EG_BOOL);
    ck_assert_int_eq(eg_type(eg_expr("i j", "m / 2.0", .with = { { "m", m } })), EG_F32);
    y = eg_expr("", "c[] * 2", .with = { { "c", eg_scalar(cx, 4) } });
    ck_assert(eg_ok(y) && eg_rank(y) == 0 && eg_item(y) == 8);
    y = eg_expr("query key", "abs(query - key) + s", .with = { { "s", eg_zeros(cx, 3, 2) } });
    ck_assert(eg_ok(y) && eg_get(y, 2, 0) == 2);
    eg_assert_ok(cx);
    eg_close(cx);
}

/* -- gradients -------------------------------------------------------------------------------- */
static eg_tensor *formula(void *text, eg_tensor *const *x)
{
    return eg_expr("i j", text, .with = { { "x", x[0] }, { "r", x[1] } });
}
static const char *const smooth_texts[] = {
    "x * r[i] - x / (3 + r[j])",
    "exp(x * r[0]) + log(3 + x) * r[1]",
    "sqrt(3 + x + r[abs(i - j)])",
    "tanh(x) * sigmoid(r[j + 1] * x)",
    "softplus(x * r[i + 1]) + erf(x)",
    "sin(x * r[j + 1]) * cos(x)",
    "pow(3 + x, r[i + 2])",
    "min(x, r[0] + 5) * max(x, r[1] - 5)",
    "clip(x, r[0] - 0.1, r[0] + 0.1)",
    "abs(x + 4) * r[2] % 7.5",
    "j <= i ? x * x * r[i - j] : r[3]",
    "clip(x * r[0], -9, 9)",
    "x * x[i, 0] + r[2]",
};
TEST(gradients_to_second_order)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    for (size_t k = 0; k < sizeof smooth_texts / sizeof *smooth_texts; k++) {
        eg_tensor *x = wave(cx, (double)k, 3, 4), *r = wave(cx, 1, 5);
        eg_assert_grad2(formula, (void *)(uintptr_t)smooth_texts[k], x, r);
    }
    eg_assert_ok(cx);
    eg_close(cx);
}

/* Elements of which most positions of the loop read only a clamped one, without using it: several
 * threads must not add to them at the same time. */
TEST(unused_reads_of_several_threads_change_no_gradient)
{
    enum { N = 1 << 19, FEW = 4 };
    eg_ctx *cx = eg_open(.threads = 4);
    eg_tensor *x = eg_ones(cx, N), *z = eg_ones(cx, FEW), *d;
    for (int k = 0; k < 60; k++) {
        eg_mark m = eg_push(cx);
        eg_tensor *y = eg_expr(
            "i", k % 2 ? "i >= |i| - 4 ? z[i - |i| + 4] * x : 0.0" : "i < 4 ? z[i] * x : 0.0",
            .with = { { "x", x }, { "z", z } });
        eg_grad(y, eg_ones_like(y), 1, &z, &d);
        eg_assert_close(d, eg_ones_like(z), 0);
        eg_pop(cx, m);
    }
    eg_assert_ok(cx);
    eg_close(cx);
}

/* -- reductions over a letter of their own ---------------------------------------------------- */
static const struct {
    const char *text, *written_out; /* of s (3 4), r (4), m (3 4) of integers below 6 */
} written[] = {
    { "s + sum(k, r[k] * s[i, k])",
      "s + (r[0] * s[i, 0] + r[1] * s[i, 1] + r[2] * s[i, 2] + r[3] * s[i, 3])" },
    { "s * sum(k = 2, exp(-r[k] * (i - j + k)))",
      "s * (exp(-r[0] * (i - j + 0)) + exp(-r[1] * (i - j + 1)))" },
    { "sum(a=2, s + sum(b=2, r[a + b] * |a| * b))",
      "s + (r[0] * 2 * 0 + r[1] * 2 * 1) + (s + (r[1] * 2 * 0 + r[2] * 2 * 1))" },
    { "any(k=3, m == k) ? s : r[j]", "m == 0 | m == 1 | m == 2 ? s : r[j]" },
    { "all(k=2, m != 3 * k) ? s : r[j]", "m != 0 & m != 3 ? s : r[j]" },
    { "sum(k=1, s * s) + sum(k=2, 1)", "s * s + 2" },
    { "s * r[clip(sum(k=3, m[k, j]) - 4, 0, 3)]",
      "s * r[clip(m[0, j] + m[1, j] + m[2, j] - 4, 0, 3)]" },
};
/* A reduction has the bits of the written-out text, in both types, with and without copies; its
 * gradients agree with differences to the second order. */
static eg_tensor *of_sum(void *text, eg_tensor *const *x)
{
    return eg_expr("i j", text, .with = { { "s", x[0] }, { "r", x[1] } });
}
TEST(reductions_are_the_text_written_out)
{
    for (int type = EG_F32; type <= EG_F64; type++) {
        eg_ctx *cx = eg_open(.dtype = (eg_dtype)type, .seed = 4);
        const eg_copies *two = eg_copies_open(eg_owner_open(cx), 2, NULL);
        eg_tensor *m = eg_randint(cx, 0, 6, 3, 4);
        for (size_t c = 0; c < 2 * sizeof written / sizeof *written; c++) {
            eg_tensor *s = eg_normal(cx, 0, 1, 3, 4), *r = eg_normal(cx, 0, 1, 4), *y[2], *d[2][2];
            if (c % 2) s = eg_copies_unstack(two, eg_normal(cx, 0, 1, 2, 3, 4));
            for (int k = 0; k < 2; k++) {
                const char *text = k ? written[c / 2].written_out : written[c / 2].text;
                const bool reads_r = strstr(text, "r["),
                           reads_m = strchr(written[c / 2].written_out, 'm');
                eg_given with[8] = { { "s", s } };
                int n = 1;
                if (reads_r) with[n++] = (eg_given){ "r", r };
                if (reads_m) with[n++] = (eg_given){ "m", m };
                eg_expr_args o = { .size = sizeof o, .axes = "i j", .text = text };
                memcpy(o.with, with, sizeof with);
                y[k] = eg_expr_with(&o);
                ck_assert_msg(!eg_error(cx), "%s: %s", text, eg_error(cx));
                ck_assert_int_eq(
                    eg_grad(y[k], eg_ones_like(y[k]), 2, (eg_tensor *[]){ s, r }, d[k]), 0);
            }
            for (int k = 0; k < 3; k++) {
                eg_tensor *a = k ? d[0][k - 1] : y[0], *b = k ? d[1][k - 1] : y[1];
                if (eg_copies_of(a)) a = eg_copies_stack(a), b = eg_copies_stack(b);
                eg_assert_close(a, b, 0);
            }
        }
        eg_assert_ok(cx);
        eg_close(cx);
    }
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 5);
    eg_tensor *s = eg_normal(cx, 0, 1, 3, 4), *r = eg_normal(cx, 0, 1, 4);
    eg_assert_grad2(of_sum, (void *)"sum(k, tanh(r[k] * s[i, k]) * sin(s + k))", s, r);
    eg_close(cx);
}
/* The size of a letter that is not written is that of each call; edits of a formula do not change
 * the letter of a reduction. */
TEST(letters_of_reductions)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    for (int n = 1; n < 5; n++) {
        eg_tensor *w = eg_arange(cx, EG_F64, 0, n, 1);
        ck_assert_int_eq((int)eg_item(eg_expr("", "sum(k, w[k])", .with = { { "w", w } })),
                         n * (n - 1) / 2);
    }
    const eg_formula *f = eg_formula_parse(cx, "mine", "any(k=2, j == r[i, k]) & k <= |k|");
    ck_assert(f && f->indices == 3 && f->tensors == 1 && eg_formula_has(f, "k"));
    ck_assert_str_eq(eg_formula_replace(f, "i", "i + 5", NULL)->text,
                     "any(k=2, j == r[(i + 5), k]) & k <= |k|");
    ck_assert_str_eq(eg_formula_replace(f, "k", "i", "7")->text, "any(k=2, j == r[i, k]) & i <= 7");
    const eg_formula *term[4];
    f = eg_formula_parse(cx, "mine", "j <= i & any(k=2, r[k] == j & 0 < j) & all(k=2, r[k] == j)");
    ck_assert_int_eq(eg_formula_terms(f, 4, term), 3);
    ck_assert_str_eq(term[0]->text, "j <= i");
    ck_assert_str_eq(term[1]->text, "any(k=2, r[k] == j & 0 < j)");
    ck_assert_str_eq(term[2]->text, "all(k=2, r[k] == j)");
    eg_tensor *x = eg_normal(cx, 0, 1, 5, 3), *n = eg_randint(cx, 0, 4, 5), *y[2];
    for (int k = 0; k < 2; k++)
        y[k] = eg_linear_attention("id,jd,je->ie", x, x, x, .with = { { "n", n } },
                                   .where = k ? "j <= i & (n[j] == 0 | n[j] == 1)"
                                              : "j <= i & any(k=2, n[j] == k)");
    eg_assert_close(y[0], y[1], 0);
    eg_assert_ok(cx);
    eg_close(cx);
}

/* -- refusals --------------------------------------------------------------------------------- */
static const struct {
    const char *text, *says;
} wrong[] = {
    { "", "expr: the expression is empty" },
    { "|i - j| + s", "|i - j| + s\n     ^\n  the absolute value is abs(i - j)" },
    { "foo + s",
      "expr: the expression's name 'foo' is not one of 'i', 'j', 'r', 's'\n  foo + s\n  ^^^" },
    { "tahn(s)", "is 'tanh' meant?" },
    { "s[i]", "expr: 's' has 2 axes, but its brackets have 1 index\n  s[i]\n  ^^^^" },
    { "s + ", "expr: the expression ends where a number or an index is expected" },
    { "i < j ? 1 : i < j", "one of the two values is a condition, the other a number" },
    { "i ? 1 : 2", "'?' needs a condition before it, and this is a number" },
    { "i < j ? s", "'?' has no ':' after its first value" },
    { "clip(s, 1, 0)", "clip's low limit 1 is above its high limit 0" },
    { "s s", "a name where an operator is expected" },
    { "r", "'r' has 1 axis, but without brackets it is read at all 2 letters" },
    { "(i < j) == (j < 2) ? s : (i < j) == 1 ? 1 : 0",
      "a condition is compared with a number\n  (i < j) == (j < 2) ? s : (i < j) == 1 ? 1 : 0\n"
      "                                   ^^\n  a condition c as a number is (c ? 1 : 0)" },
    { "exp(i < j)", "exp takes numbers, and this is a condition\n  exp(i < j)\n      ^^^^^" },
    { "s[i, 0.5]", "an index is an integer, but this is a float\n  s[i, 0.5]\n       ^^^" },
    { "r[0] + s[i, r[0] ]", /* r[0] is one node, and the index is its second occurrence */
      "an index is an integer, but this is a float\n  r[0] + s[i, r[0] ]\n              ^^^^" },
    { "1e999 * s", "the number is too large for a float" },
    { "(s", "'(' is not closed" },
    { "s[i, j", "'[' is not closed" },
    { "s]", "']' closes nothing" },
    { "s @ s", "character '@' has no meaning in an expression" },
    { "min(s)", "min takes 2 numbers, but 1 was given" },
    { "sqrt + s", "sqrt is a function: its numbers follow in ( )" },
    { "r[i - j] + s", "expr: the index of axis 0 of 'r' goes from -3 to 2, but that axis is 4: 'i' "
                      "is 3, 'j' is 4\n  r[i - j] + s\n    ^^^^^" },
    { "r[m] + s", "the index of axis 0 of 'r' goes from 0 to 5, but that axis is 4" },
    { "r[j] * s + 2 * u[j]",
      "but that axis is 2: 'j' is 4\n  r[j] * s + 2 * u[j]\n                 ^^^^" },
    { "(j >= i ? r[i - j] : 0) + s", "the index of axis 0 of 'r' goes from -3 to 0" },
    { "(i < j ? r[i - j] : 0) + s", "the index of axis 0 of 'r' goes from -3 to -1" },
    { "(i > 0 & m >= 1 ? r[m] : 0) + s", "the index of axis 0 of 'r' goes from 1 to 5" },
    { "(i > 0 | m < 2 ? 0 : r[m]) + s", "the index of axis 0 of 'r' goes from 2 to 5" },
    { "(i > 0 & m < 3 ? 0 : r[m]) + s", "the index of axis 0 of 'r' goes from 0 to 5" },
    { "r[i, j, i, j, i, j, i, j, i] + s", "'r' has 1 axis, but its brackets have 9 indices" },
    { "r[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0] + s",
      "one bracket has more than 32 values" },
    /* what other languages write */
    { "s ** 2", "a number, an index or '(' is expected here\n  s ** 2\n     ^\n  a power is "
                "written pow(a, b)" },
    { "s ^ 2", "character '^' has no meaning in an expression\n  s ^ 2\n    ^\n  a power is "
               "written pow(a, b)" },
    { "s // 2", "a quotient is written with one /" },
    { "0.5f * s", "a name follows a number\n  0.5f * s\n     ^\n  a number has no suffix" },
    { "0x10 + s", "a name follows a number\n  0x10 + s\n   ^^^\n  numbers are decimal" },
    { "i => j ? s : 0", "'=>' is written >=\n  i => j ? s : 0\n    ^^" },
    { "i <> j ? s : 0", "write !=" },
    { "i > 0 and j > 0 ? s : 0",
      "a name where an operator is expected\n  i > 0 and j > 0 ? s : 0\n        ^^^\n  write &" },
    { "s if i < j else 0", "a choice is written c ? a : b" },
    { "i < j ? s : -inf", "1 / 0.0 is infinite" },
    { "pi * s", "write 3.14159" },
    { "clamp(s, 0, 1)", "write clip(x, low, high)" },
    { "relu(s)", "expr: 'relu' is not a function\n  relu(s)\n  ^^^^\n  write max(x, 0)" },
    { "sign(s)",
      "'sign' is not a function\n  sign(s)\n  ^^^^\n  write x > 0 ? 1 : x < 0 ? -1 : 0" },
    { "log2(s)", "'log2' is not a function\n  log2(s)\n  ^^^^\n  write log(x) / log(2)" },
    { "asinh(s)", "write log(x + sqrt(x * x + 1))" },
    { "tahn(s)", "expr: 'tahn' is not a function\n  tahn(s)\n  ^^^^\n  is 'tanh' meant?" },
    { "heaviside(s)",
      "functions are abs exp log sqrt tanh sigmoid softplus erf sin cos floor min max pow clip sum "
      "any all" },
    { "summ(k=3, s)", "is 'sum' meant?" },
    { "\u2212s", "character '\u2212' has no meaning in an expression\n  \u2212s\n  ^\n  write -" },
    { "~s", "character '~' has no meaning in an expression" },
    { "|s|", "a size has exactly one index between its bars, as in |i|\n  |s|\n    ^\n  the "
             "absolute value is abs(s)" },
    { "s[i j]", "a name where an operator is expected\n  s[i j]\n      ^" },
    { "(s, s)", "',' where ')' is expected\n  (s, s)\n    ^" },
    { "s[i, j)", "')' where ']' is expected\n  s[i, j)\n        ^" },
    /* reductions over a letter of their own */
    { "sum(s)", "sum begins with a letter of its own, as in sum(k=8, …)\n  sum(s)\n     ^" },
    { "any(k=2 s < 0) ? s : 0", "any begins with a letter of its own, as in any(k=8, …)" },
    { "sum(k=2.5, s)", "sum begins with a letter of its own" },
    { "s + sum", "sum is a function: a letter of its own follows in ( ), as in sum(k=8, …)\n"
                 "  s + sum\n      ^^^" },
    { "any & s < 0 ? s : 0", "any is a function: a letter of its own follows in ( )" },
    { "sum(k=0, s)", "expr: sum has at least one term\n  sum(k=0, s)\n      ^^^" },
    { "sum(k, s)", "letter 'k' has no size: it is no index of a tensor; write 'k=8'" },
    { "sum(k, r[k] + s[i, k] + s[k, j])",
      "letter 'k' is 4, but axis 0 of 's' is 3\n  sum(k, r[k] + s[i, k] + s[k, j])\n"
      "                            ^" },
    { "sum(k=5, r[k]) + s", "the index of axis 0 of 'r' goes from 4 to 4, but that axis is 4" },
    { "sum(i=2, s)", "'i' is a letter already\n  sum(i=2, s)\n      ^" },
    { "sum(r=2, s)", "'r' is a tensor of .with" },
    { "sum(exp=2, s)", "'exp' has another meaning" },
    { "sum(k=2, sum(k=2, s))", "'k' is the letter of another reduction around it" },
    { "sum(k=2, s < k)", "sum takes numbers, and this is a condition\n  sum(k=2, s < k)\n"
                         "           ^^^^^" },
    { "all(k=2, s) ? 1 : 0", "all takes conditions, and this is a number" },
    { "sum(k=2, s", "'(' is not closed" },
    { "sum(k=2, s) + k", "the expression's name 'k' is not one of" },
    { "sum(k, |k| * r[k])", "the size of 'k' is not known here; write it beside the letter" },
    { "sum(k=99, sum(l=99, 1.0)) + s",
      "the reductions of the expression have more than 4096 terms" },
    { "sum(k=99, s * k * k * k)", "the expression is too long: it has more than 256 different" },
};
TEST(a_name_whose_letters_are_axes_is_proposed_as_a_name)
{
    eg_ctx *cx = eg_open(.threads = 1);
    static const char hint[] = "every letter is an axis here: for names begin the string with "
                               "'names:'";
    eg_expr("head=4", "head * 2", .cx = cx);
    eg_assert_error(cx, "the expression's index 'head' is not one of 'h', 'e', 'a', 'd'\n  head * "
                        "2\n  ^^^^\n  every letter is an axis here: for names begin the string");
    eg_where_mask(cx, "pos < 2", "pos=4");
    eg_assert_error(cx, hint);
    eg_expr("h=2 e=3 a=4", "hea * 2", .cx = cx); /* written apart: hardly meant */
    ck_assert_ptr_nonnull(eg_error(cx));
    ck_assert_ptr_null(strstr(eg_error(cx), hint));
    eg_clear(cx);
    eg_assert_close(eg_expr("names: head=4", "head * 2", .cx = cx), eg_arange(cx, EG_I64, 0, 8, 2),
                    0);
    eg_close(cx);
}
/* i < 6, j < 7: the index goes from 0 to size − 1 where the condition holds */
static const struct {
    const char *condition, *index;
    int64_t size;
} bounded[] = {
    { "abs(clip(i, 2, |i| - 3) - j) <= 2", "i - j + 4", 9 },
    { "abs(j - clip(i, 2, |i| - 3)) <= 2", "4 - (i - j)", 9 },
    { "clip(i - j, 0, 3) > 0", "i - j", 6 },
    { "clip(j - i, -1, 4) < 2", "j - i + 5", 7 },
    { "min(i - j, 2) >= 0", "i - j", 6 },
    { "min(2, i - j) >= 0", "i - j", 6 },
    { "min(i, 3) >= j", "i - j", 6 },
    { "max(j - i, 0) <= 2 & j >= i", "j - i", 3 },
    { "j <= clip(i, 1, 4)", "i - j + 1", 7 },
    { "j + 1 <= clip(i, 1, 4) + 2", "i - j + 2", 8 },
    { "!(clip(i, 0, 4) < j)", "i - j", 6 },
    /* of | each side counts, of a denied & too; a side that never holds does not count */
    { "j <= i & (i - j < 2 | j < 2)", "i - j", 6 },
    { "(j <= i & j % 2 == 0) | j == i", "i - j", 6 },
    { "i - j == 1 | i - j == 3 | j == i", "i - j", 4 },
    { "!(j > i & i >= 0)", "i - j", 6 },
    { "j == 9 | i < 2 | i == j + 1 & j > 3", "i", 6 },
    { "(i < 2 | i > 3) & (j == 1 | j == 3)", "j - 1", 3 },
    { "(abs(i - j) < 2 | j <= i) & !(i == 0 & j == 1) & (j <= i | j == i + 1)", "i - j + 1", 7 },
};
static eg_tensor *read_where(eg_ctx *cx, const char *condition, const char *index, int64_t size)
{
    char text[300];
    snprintf(text, sizeof text, "%s ? r[%s] : 0.5", condition, index);
    return eg_expr("i=6 j=7", text, .with = { { "r", eg_ones(cx, size) } });
}
/* Sets the smallest and the largest index where the condition holds; 1 and 0 if it never does. */
static void indices_where(eg_ctx *cx, const char *condition, const char *index, int64_t range[2])
{
    char text[300];
    snprintf(text, sizeof text, "%s ? %s : 1000", condition, index);
    eg_tensor *at = eg_expr("i=6 j=7", text, .cx = cx);
    range[0] = INT64_MAX, range[1] = INT64_MIN;
    for (int64_t i = 0; i < 6; i++)
        for (int64_t j = 0; j < 7; j++) {
            const int64_t k = (int64_t)eg_get(at, i, j);
            if (k == 1000) continue;
            if (k < range[0]) range[0] = k;
            if (k > range[1]) range[1] = k;
        }
    if (range[0] > range[1]) range[0] = 1, range[1] = 0;
    eg_assert_ok(cx);
}
TEST(a_condition_on_clip_bounds_an_index)
{
    eg_ctx *cx = eg_open(.threads = 1);
    for (size_t k = 0; k < sizeof bounded / sizeof *bounded; k++) {
        int64_t range[2];
        indices_where(cx, bounded[k].condition, bounded[k].index, range);
        ck_assert_msg(range[0] >= 0 && range[1] < bounded[k].size, "%s", bounded[k].condition);
        ck_assert_msg(
            eg_ok(read_where(cx, bounded[k].condition, bounded[k].index, bounded[k].size)), "%s",
            eg_error(cx));
        eg_clear(cx);
    }
    eg_close(cx);
}
/* Bounds are never narrower than the indices that occur. */
TEST(bounds_of_random_conditions_contain_every_index)
{
    static const char
        *const part[] = { "i", "j", "i - j", "j - i", "j + 2", "3 - i", "|i|" },
               *const is[] = { "<", "<=", ">", ">=", "==" }, *const joint[] = { "|", "&" },
               *const index[] = { "i - j + 3", "j - i", "i + 1", "4 - j", "j - i - 2" };
    eg_ctx *cx = eg_open(.threads = 1);
    eg_rng rng = { 7, 0, 0 };
#define ANY(list) list[eg_rng_below(&rng, sizeof list / sizeof *list)]
    int accepted = 0;
    for (int k = 0; k < 4000 / SLOWER; k++) {
        char chosen[80], condition[400];
        const int low = (int)eg_rng_below(&rng, 8) - 3, high = low + (int)eg_rng_below(&rng, 5);
        const eg_mark m = eg_push(cx);
        switch (eg_rng_below(&rng, 4)) {
        case 0: snprintf(chosen, sizeof chosen, "clip(%s, %d, %d)", ANY(part), low, high); break;
        case 1: snprintf(chosen, sizeof chosen, "min(%s, %s)", ANY(part), ANY(part)); break;
        case 2: snprintf(chosen, sizeof chosen, "max(%d, %s)", low, ANY(part)); break;
        default:
            snprintf(chosen, sizeof chosen, "clip(%s, %s, %s)", ANY(part), ANY(part), ANY(part));
        }
        const int form = (int)eg_rng_below(&rng, 3);
        if (form == 0)
            snprintf(condition, sizeof condition, "%s %s %s", chosen, ANY(is), ANY(part));
        else if (form == 1)
            snprintf(condition, sizeof condition, "abs(%s - (%s)) %s 2", chosen, ANY(part),
                     ANY(is));
        else
            snprintf(condition, sizeof condition, "!(%s %s %s)", chosen, ANY(is), ANY(part));
        if (eg_rng_below(&rng, 2)) { /* joined to others */
            char first[200];
            strcpy(first, condition);
            snprintf(condition, sizeof condition, "%s(%s) %s %s %s %s %s j %s i)",
                     eg_rng_below(&rng, 2) ? "!(" : "(", first, ANY(joint), ANY(part), ANY(is),
                     ANY(part), ANY(joint), ANY(is));
        }
        const char *at = ANY(index);
        const int64_t size = 1 + (int64_t)eg_rng_below(&rng, 12);
        int64_t range[2];
        indices_where(cx, condition, at, range);
        const bool good = eg_ok(read_where(cx, condition, at, size));
        long long from = 0, to = size - 1;
        const char *says = good ? NULL : strstr(eg_error(cx), "goes from ");
        if (says) sscanf(says, "goes from %lld to %lld", &from, &to);
        ck_assert_msg(good || says, "%s: %s", condition, eg_error(cx));
        ck_assert_msg(range[0] > range[1] || (range[0] >= from && range[1] <= to),
                      "%s, %s: from %lld to %lld, not within %lld and %lld", condition, at,
                      (long long)range[0], (long long)range[1], from, to);
        accepted += good;
        eg_clear(cx);
        eg_pop(cx, m);
    }
    ck_assert_int_gt(accepted, 200 / SLOWER);
    eg_close(cx);
}
/* '...' is what letters for these axes are, to the bit, in the gradient too */
TEST(an_ellipsis_stands_for_axes)
{
    eg_ctx *cx = eg_open(.threads = 1);
    const char *text = "x * sigmoid(x * g[h]) + h * c[]";
    eg_tensor *x = eg_cast(wave(cx, 1, 3, 2, 4), EG_F32), *g = eg_cast(wave(cx, 2, 4), EG_F32),
              *c = eg_scalar(cx, 0.5);
    eg_tensor *xs[] = { x, g, c }, *d[2][3];
    const char *axes[] = { "a b h", "... h" };
    eg_tensor *y[2];
    for (int k = 0; k < 2; k++) {
        y[k] = eg_expr(axes[k], text, .with = { { "x", x }, { "g", g }, { "c", c } });
        eg_grad(eg_sum(NULL, eg_square(y[k])), NULL, 3, xs, d[k]);
    }
    eg_assert_ok(cx);
    ck_assert(same_bits(y[0], y[1]));
    for (int k = 0; k < 3; k++) ck_assert(same_bits(d[0][k], d[1][k]));
    for (int rank = 0; rank < 4; rank++) { /* of any rank, none too */
        eg_tensor *z = eg_full_n(cx, EG_F32, 2, rank, (int64_t[]){ 2, 3, 4 });
        eg_tensor *w = eg_expr("...", "3 * z + 1", .with = { { "z", z } });
        ck_assert(eg_rank(w) == rank && eg_get_n(w, rank, (int64_t[]){ 1, 2, 3 }) == 7);
    }
    eg_tensor *m = eg_expr("a ... h", "x + h - a", .with = { { "x", x } });
    ck_assert_double_eq(eg_get(m, 2, 1, 3), (double)(float)(eg_get(x, 2, 1, 3) + 1));
    eg_expr("...", "x + g", .with = { { "x", x }, { "g", g } });
    eg_assert_error(cx, "'g' has 1 axis, but without brackets it is read at all 3 letters");
    eg_expr("b l", "x * c", .with = { { "x", eg_ones(cx, 2, 3) }, { "c", eg_scalar(cx, 2) } });
    eg_assert_error(cx, "'c' has 0 axes, but without brackets it is read at all 2 letters\n"
                        "  x * c\n      ^\n  write [] after it");
    eg_expr("...", "x + g", .with = { { "x", eg_zeros(cx, 2, 3) }, { "g", eg_zeros(cx, 3, 3) } });
    eg_assert_error(cx, "index '...' is 2 in 'x' but 3 in 'g'");
    /* an axis of '...' has no name that a formula could read */
    ck_assert(!eg_ok(eg_expr("... h", "x * f", .with = { { "x", x } })));
    eg_assert_error(cx, "the expression's name 'f' is not one of 'h', 'x'\n");
    eg_expr("... a b", "a * g[b]", .with = { { "g", g } });
    eg_assert_error(cx, "expr: '...' stands for the other axes of the first tensor of .with, which "
                        "has fewer axes than there are letters\n  ... a b");
    eg_close(cx);
}

GROUP("refusals")
LOOP_TEST(wrong_formulas_are_refused_with_a_caret, sizeof wrong / sizeof *wrong)
{
    eg_ctx *cx = eg_open();
    eg_tensor *r = eg_ones(cx, 4), *s = eg_ones(cx, 3, 4),
              *m = eg_from(cx, ((int64_t[]){ 0, 1, 5, 2, 0, 0, 0, 0, 0, 0, 0, 0 }), 3, 4);
    const bool whole_table = strstr(wrong[_i].text, "r[m]"),
               short_table = strstr(wrong[_i].text, "u[");
    const char *const more = whole_table ? "m" : short_table ? "u" : NULL;
    eg_tensor *y =
        eg_expr("i j", wrong[_i].text,
                .with = { { "r", r }, { "s", s }, { more, whole_table ? m : eg_ones(cx, 2) } });
    ck_assert(!eg_ok(y));
    eg_assert_error(cx, wrong[_i].says);
    eg_close(cx);
}

/* What follows & and | narrows the range of an index as what precedes them does. */
static const char *const narrowed[] = {
    "(i > 0 & m < 4 ? r[m] : 0) + s",
    "(m < 4 & i > 0 ? r[m] : 0) + s",
    "(i > 0 | m > 3 ? 0 : r[m]) + s",
    "(m > 3 | i > 0 ? 0 : r[m]) + s",
    "(j > 1 & (i > 0 & m <= 3) ? r[m] : 0) + s",
    "(!(i > 0 & m < 4) ? 0 : r[m]) + s",
    "(j > 1 & i >= j - 1 ? r[i - j + 1] : 0) + s",
};
LOOP_TEST(conditions_narrow_an_index, sizeof narrowed / sizeof *narrowed)
{
    eg_ctx *cx = eg_open();
    eg_tensor *r = eg_ones(cx, 4), *s = eg_ones(cx, 3, 4),
              *m = eg_from(cx, ((int64_t[]){ 0, 1, 5, 2, 0, 0, 0, 0, 0, 0, 0, 0 }), 3, 4);
    const bool whole_table = strstr(narrowed[_i], "m");
    eg_tensor *y = eg_expr("i j", narrowed[_i],
                           .with = { { "r", r }, { "s", s }, { whole_table ? "m" : NULL, m } });
    eg_assert_ok(cx);
    ck_assert(eg_item(eg_max(NULL, y)) <= 2);
    eg_close(cx);
}

TEST(refusals_of_tensors)
{
    eg_ctx *cx = eg_open();
    eg_tensor *s = eg_ones(cx, 3, 4);
    ck_assert(!eg_ok(eg_expr("i j", "i * s", .with = { { "i", s }, { "s", s } })));
    eg_assert_error(cx, "expr: 'i' is a letter and cannot be a tensor's name too\n  i * s\n  ^");
    ck_assert(!eg_ok(eg_expr("i j", "exp", .with = { { "exp", s } })));
    eg_assert_error(cx, "expr: 'exp' is a function and cannot be a tensor's name too");
    ck_assert(!eg_ok(eg_expr("i j", "s", .with = { { "s", s }, { "s", s } })));
    eg_assert_error(cx, "expr: 's' occurs twice in .with");
    ck_assert(!eg_ok(eg_expr("i j", "s", .with = { { "1s", s } })));
    eg_assert_error(cx, "is not a name");
    ck_assert(!eg_ok(eg_expr("i j", "s", .with = { { "s", NULL }, { "t", s } })));
    eg_assert_error(cx, "expr: 's' of .with is NULL");
    ck_assert(!eg_ok(eg_expr("i j", "s * t", .with = { { "s", s }, { "t", eg_ones(cx, 3, 5) } })));
    eg_assert_error(cx, "index 'j' is 4 in 's' but 5 in 't'");
    ck_assert(!eg_ok(eg_expr("i j", "s", .with = { { "s", s }, { "t", s } })));
    eg_assert_error(cx, "expr: 't' of .with is not used in the expression");
    ck_assert(!eg_ok(eg_expr("i j k", "s[i, j]", .with = { { "s", s } })));
    eg_assert_error(
        cx, "expr: letter 'k' has no size: no tensor has it as an axis; write it beside the "
            "letter, 'k=8'");
    ck_assert(!eg_ok(eg_expr("i j k", "s[i, j] * |k| - k", .with = { { "s", s } })));
    eg_assert_error(cx, "'k=8'\n  s[i, j] * |k| - k\n             ^");
    ck_assert(!eg_ok(eg_expr("i j", "s + t", .with = { { "s", s }, { "t", eg_cast(s, EG_F64) } })));
    eg_assert_error(cx, "expr: 's' is f32 but 't' is f64; eg_cast one of them first\n  s + t\n"
                        "  ^   ^");
    ck_assert(!eg_ok(eg_expr("i j", "st * st1 - t[i, j]",
                             .with = { { "t", s }, { "st1", eg_cast(s, EG_F64) }, { "st", s } })));
    eg_assert_error(cx, "'t' is f32 but 'st1' is f64; eg_cast one of them first\n"
                        "  st * st1 - t[i, j]\n       ^^^   ^");
    ck_assert(!eg_ok(eg_expr("i j", "s + i", .with = { { "s", s }, { "i", s } })));
    eg_assert_error(cx, "'i' is a letter and cannot be a tensor's name too\n  s + i\n      ^");
    /* before a bracket that opens a list of letters 'sum' is the function, else it is the tensor */
    ck_assert(eg_ok(eg_expr("i", "sum(j, sum[i, j]) + sum[i, 0]", .with = { { "sum", s } })));
    /* the nearest name, which may differ in capitals only */
    ck_assert(!eg_ok(eg_expr("time width", "s * widht", .with = { { "s", s } })));
    eg_assert_error(cx, "is 'width' meant?");
    ck_assert(!eg_ok(eg_expr("i j", "s * J", .with = { { "s", s } })));
    eg_assert_error(cx, "is 'j' meant?");
    ck_assert(!eg_ok(eg_expr("i j", "S * j", .with = { { "s", s } })));
    eg_assert_error(cx, "is 's' meant?");
    ck_assert(!eg_ok(eg_expr("i j", "Sqrt(s)", .with = { { "s", s } })));
    eg_assert_error(cx, "is 'sqrt' meant?");
    ck_assert(!eg_ok(eg_expr("i, j", "s", .with = { { "s", s } })));
    eg_assert_error(cx, "expr: the axes must be one term");
    ck_assert(!eg_ok(eg_expr("i [j]", "s", .with = { { "s", s } })));
    eg_assert_error(cx, "expr: the axes must be different letters or names");
    ck_assert(!eg_ok(eg_expr("i j", "s + z[0]", .with = { { "s", s }, { "z", eg_zeros(cx, 0) } })));
    eg_assert_error(cx, "the index of axis 0 of 'z' goes from 0 to 0, but that axis is 0\n  s + "
                        "z[0]\n        ^");
    ck_assert(!eg_ok(eg_expr("i j=2", "i + j", .cx = cx)));
    eg_assert_error(cx, "expr: letter 'i' has no size: no tensor has it as an axis");
    ck_assert(!eg_ok(eg_expr("... i=2", "i", .cx = cx)));
    eg_assert_error(cx, "expr: '...' stands for the other axes of the first tensor of .with");
    ck_assert_ptr_null(eg_expr("i j", "1.0"));
    eg_assert_error(NULL, "expr: .with has no tensor, and its first one determines the context");
    eg_close(cx);
}

/* Without tensors, .cx gives the context, and the axes give the sizes. */
static int positions_step(void *user, eg_tensor **out)
{
    out[0] = eg_add(user, eg_expr("i=3 j=4", "i + 0.5 * j", .cx = eg_context(user)));
    return 0;
}
TEST(formulas_of_positions_alone)
{
    for (int k = 0; k < 2; k++) {
        eg_ctx *cx = eg_open(.dtype = k ? EG_F64 : EG_F32, .threads = 1);
        eg_tensor *x = eg_expr("i=3 j=4", "i + 0.5 * j", .cx = cx),
                  *n = eg_expr("i=3 j=4", "10 * i + j", .cx = cx),
                  *mask = eg_expr("i=3 j=4", "j <= i", .cx = cx),
                  *one = eg_expr("", "2.5", .cx = cx), *none = eg_expr("i=0", "i", .cx = cx);
        eg_assert_ok(cx);
        ck_assert(eg_type(x) == eg_default_type(cx) && eg_type(n) == EG_I64);
        ck_assert(eg_type(mask) == EG_BOOL && eg_item(one) == 2.5 && eg_size(none) == 0);
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 4; j++) {
                ck_assert(eg_get(x, i, j) == i + 0.5 * j && eg_get(n, i, j) == 10 * i + j);
                ck_assert(eg_get(mask, i, j) == (j <= i));
            }
        eg_tensor *zero = eg_zeros(cx, 3, 4);
        eg_captured *c = eg_capture(cx, positions_step, zero, 1);
        ck_assert_int_eq(eg_captured_run(c), 0);
        eg_assert_close(eg_captured_output(c, 0), x, 0);
        /* a given tensor decides the context, and .cx may be given too */
        eg_assert_close(eg_expr("i j", "x + 0 * j", .with = { { "x", x } }, .cx = cx), x, 0);
        eg_assert_ok(cx);
        eg_close(cx);
    }
}

/* Each limit of a text is named with its number, and of a long name the first 40 letters. */
TEST(refusals_of_long_texts)
{
    eg_ctx *cx = eg_open();
    eg_tensor *s = eg_ones(cx, 3, 4);
    enum { LONG = 5000, DEEP = 200, NAME = 300 };
    char text[LONG + 1] = "";
    memset(text, ' ', LONG);
    ck_assert(!eg_ok(eg_expr("i j", text, .with = { { "s", s } })));
    eg_assert_error(cx, "expr: the expression has 5000 bytes, more than 4000");
    memset(text, '(', DEEP), memset(text + DEEP, 0, LONG - DEEP);
    ck_assert(!eg_ok(eg_expr("i j", text, .with = { { "s", s } })));
    eg_assert_error(cx, "expr: the expression is nested too deeply, in more than 64 levels");
    for (int k = 0; k < 400; k++) sprintf(text + 8 * k, "s * %03d+", k);
    strcat(text, "s");
    ck_assert(!eg_ok(eg_expr("i j", text, .with = { { "s", s } })));
    eg_assert_error(cx, "expr: the expression is too long: it has more than 256 different values");
    memset(text, 'n', NAME), memset(text + NAME, 0, LONG - NAME);
    const char *const shown = "'nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn' ";
    ck_assert(!eg_ok(eg_expr("i j", "s", .with = { { "s", s }, { text, s } })));
    eg_assert_error(cx, shown);
    ck_assert(!eg_ok(eg_expr("i j", "s", .with = { { text, s }, { text, s } })));
    eg_assert_error(cx, shown);
    strcpy(text + NAME, "[i]");
    char name[NAME + 1];
    memcpy(name, text, NAME), name[NAME] = 0;
    ck_assert(!eg_ok(eg_expr("i j", text, .with = { { name, s } })));
    eg_assert_error(cx, shown);
    eg_close(cx);
}

/* A table may be longer than a call along letters of positions: in what is computed or compared,
 * along keys, and along the query before them. One that is longer than a batch or a head is
 * refused, with the message of attention. */
TEST(tables_longer_than_a_letter)
{
    eg_ctx *cx = eg_open();
    eg_tensor *s = eg_ones(cx, 3, 4), *r = eg_ones(cx, 6), *t = eg_ones(cx, 2, 3, 4),
              *n = eg_from(cx, ((int[]){ 4, 3, 2, 1, 0, 5 }), 6),
              *doc = eg_cast(eg_ones(cx, 2, 9), EG_I32);
    ck_assert(!eg_ok(eg_expr("i j", "s * r[j]", .with = { { "s", s }, { "r", r } })));
    eg_assert_error(cx, "expr: axis 0 of 'r' is 6, but index 'j' is 4\n  s * r[j]");
    ck_assert(eg_ok(eg_expr("i j", "j < 2 ? s * r[j] : s", .with = { { "s", s }, { "r", r } })));
    ck_assert(eg_ok(eg_expr("i j", "s * r[i + 1]", .with = { { "s", s }, { "r", r } })));
    ck_assert(!eg_ok(eg_softmax("b i [j]", t, .where = "j < n[b]", .with = { { "n", n } })));
    eg_assert_error(cx, "softmax: axis 0 of 'n' is 6, but index 'b' is 2\n  j < n[b]");
    ck_assert(eg_ok(
        eg_softmax("b i [j]", t, .where = "doc[b,i] == doc[b,j]", .with = { { "doc", doc } })));
    ck_assert(eg_ok(eg_softmax("b i [j]", t, .where = "j < n[i]", .with = { { "n", n } })));
    const int64_t size[] = { 2, 3, 4 };
    ck_assert(!eg_ok(eg_where_mask(cx, "n[b] <= j", "b i j", 0, size, .with = { { "n", n } })));
    eg_assert_error(cx, "where_mask: axis 0 of 'n' is 6, but index 'b' is 2\n  n[b] <= j");
    ck_assert(eg_ok(eg_where_mask(cx, "n[i] <= n[j]", "b i j", 0, size, .with = { { "n", n } })));
    ck_assert(eg_ok(eg_where_mask(cx, "n[i] <= j", "i b j", 2, size, .offset_letter = "i",
                                  .with = { { "n", n } })));
    eg_assert_ok(cx);
    eg_close(cx);
}

/* -- blocks, as attention reads them ---------------------------------------------------------- */
static const eg_axis_name h_name = { "h", 1, 2, -1 }, i_name = { "i", 1, 60, -1 },
                          j_name = { "j", 1, 90, -1 }, *const hij[] = { &h_name, &i_name, &j_name };
typedef struct scoring {
    eg_expression *e;
    eg_expression_source source;
    eg_readable table;
    int64_t dim[2];
} scoring;
static void scoring_open(scoring *s, eg_ctx *cx, const char *text)
{
    static const int64_t size[] = { 2, 60, 90 }, low[] = { 0, 0, 0 };
    s->dim[0] = 2, s->dim[1] = 64;
    s->table = (eg_readable){ "r", EG_F32, 2, s->dim, 0, 0, EG_F32 };
    s->source = (eg_expression_source){ .who = "score",
                                        .text = text,
                                        .noun = "score",
                                        .letters = 3,
                                        .letter = hij,
                                        .given = 1,
                                        .readable = &s->table,
                                        .score = true,
                                        .number = true };
    s->e = eg__expression_parse(cx, &s->source);
    eg_assert_ok(cx);
    ck_assert(eg__expression_fits(cx, &s->source, s->e,
                                  &(eg_box){ .low = low, .high = size, .size = size }));
}
GROUP("blocks")
TEST(a_block_of_scores_and_its_cotangents)
{
    enum { ROWS = 7, WIDE = 40 };
    eg_ctx *cx = eg_open();
    static const int lanes[] = { 16, 29, 32, 1 };
    float score[ROWS][WIDE], out[ROWS][WIDE], g[ROWS][WIDE], back[ROWS][WIDE];
    float r[2][64];
    static double dr[2][64], want[2][64];
    scoring s;
    scoring_open(&s, cx, "30 * tanh((score + r[h, clip(i - j, 0, 63)]) / 30)");
    for (int k = 0; k < ROWS * WIDE; k++) {
        (&score[0][0])[k] = (float)sin(k * .7) * 20;
        (&g[0][0])[k] = (float)cos(k * .3);
    }
    for (int k = 0; k < 128; k++) (&r[0][0])[k] = (float)cos(k * .9) * 5;
    for (int way = 0; way < 8; way++) {
        const int n = lanes[way / 2], by_value = way & 1; /* lanes are queries, then keys */
        const double factor = way & 2 ? 2.5 : 0;          /* factor of the result */
        int64_t keys[WIDE];
        for (int k = 0; k < WIDE; k++) keys[k] = 3 + (by_value ? (k * 7) % 50 : k);
        const eg_letter_values letter[] = { { 1, NULL },
                                            { 20, NULL },
                                            { 3, by_value ? keys : NULL } };
        const int64_t stride[] = { 64, 1 };
        eg_block_plan p;
        /* a letter that is the only one to vary along lanes has no values */
        eg__block_plan(&p, s.e, s.e->root, false, ROWS, WIDE, 2, by_value ? 4 | 8 : 4,
                       1u | 1u << 31);
        void *work = aligned_alloc(64, p.bytes);
        const eg_sink sink = { .data = dr, .stride = stride };
        memset(dr, 0, sizeof dr), memset(want, 0, sizeof want);
        const eg_source source = { r, stride, EG_F32, s.dim };
        const eg_block_data b = {
            .rows = ROWS,
            .lanes = n,
            .letter = letter,
            .source = &source,
            .score = score,
            .out = out,
            .factor = factor,
            .score_step = WIDE,
            .out_step = WIDE,
            .g = g,
            .dscore = back,
            .g_step = WIDE,
            .dscore_step = WIDE,
            .sink = &sink,
        };
        eg__block_values(&p, &b, work);
        eg__block_slopes(&p, &b, work);
        free(work);
        for (int q = 0; q < ROWS; q++)
            for (int k = 0; k < n; k++) {
                const int64_t i = 20 + q, j = keys[k], at = i - j < 0 ? 0 : i - j;
                const double t = tanh(((double)score[q][k] + r[1][at]) / 30),
                             d = g[q][k] * (1 - t * t);
                const double y = 30 * t * (way & 2 ? factor : 1);
                ck_assert_msg(fabs(out[q][k] - y) < 1e-5, "%d: %g, not %g", way, out[q][k], y);
                ck_assert_msg(fabs(back[q][k] - d) < 1e-6, "%d: slope %g, not %g", way, back[q][k],
                              d);
                want[1][at] += d;
            }
        for (int k = 0; k < 128; k++) ck_assert(fabs((&dr[0][0])[k] - (&want[0][0])[k]) < 1e-5);
    }
    eg_close(cx);
}

/* Computes from its values whether the predicate is true at some and at all positions of a box. */
static void some_and_all(const eg_expression *e, const eg_source *source, const int64_t *low,
                         const int64_t *high, bool *any, bool *every)
{
    eg_block_plan p;
    uint8_t out[16][16];
    const int rows = (int)(high[1] - low[1]), lanes = (int)(high[2] - low[2]);
    *any = false, *every = true;
    eg__block_plan(&p, e, e->root, false, 16, 16, 2, 4, 0);
    void *work = aligned_alloc(64, p.bytes);
    for (int64_t h = low[0]; h < high[0]; h++) {
        const eg_letter_values letter[] = { { h, NULL }, { low[1], NULL }, { low[2], NULL } };
        eg__block_values(&p,
                         &(eg_block_data){ .rows = rows,
                                           .lanes = lanes,
                                           .letter = letter,
                                           .source = source,
                                           .out = out,
                                           .out_step = 16 },
                         work);
        for (int r = 0; r < rows; r++)
            for (int l = 0; l < lanes; l++) *any |= out[r][l], *every &= out[r][l];
    }
    free(work);
}
TEST(bounds_of_a_predicate_hold_for_each_position)
{
    static const char *const text[] = { "doc[h, i] == doc[h, j] & j <= i",
                                        "abs(doc[h, i] - doc[0, j]) < 2",
                                        "doc[1, i] % 3 == 0 | i / 8 == j / 8",
                                        "min(doc[h, i], 2) < max(j, 3)",
                                        "clip(i - j, 0, 4) < 4",
                                        "j <= i & doc[h, clip(i - j, 0, 59)] < 3",
                                        "(i < 20 ? doc[h, i] : 9) == doc[h, j]",
                                        "keep[j] & j <= i",
                                        "!keep[i] | keep[j / 2]",
                                        "doc[h, i / 7 * 10] == doc[h, j]",
                                        "keep[j / 10 + 22 * (i / 6 % 2)]",
                                        "keep[i / 6 + j / 10]" };
    eg_ctx *cx = eg_open();
    int64_t doc[2 * 2 * 90], dim[] = { 2, 90 };
    uint8_t keep[90];
    int sure = 0;
    for (int way = 0; way < 3; way++) { /* in order, reversed, and every second element */
        const int64_t stride[] = { way == 2 ? 1 : 90, way == 0 ? 1 : way == 1 ? -1 : 2 }, one = 1;
        int64_t *at = way == 1 ? doc + 89 : doc;
        for (int k = 0; k < 360; k++) doc[k] = 99;
        for (int h = 0; h < 2; h++)
            for (int k = 0; k < 90; k++) at[h * stride[0] + k * stride[1]] = k / 13 + h;
        for (int k = 0; k < 90; k++) keep[k] = k / 22 % 2 == 0;
        const eg_source source[] = { { at, stride, EG_I64, dim },
                                     { keep, &one, EG_BOOL, dim + 1 } };
        const eg_readable table[] = { { "doc", EG_I64, 2, dim, 0, 7, EG_I64 },
                                      { "keep", EG_BOOL, 1, dim + 1, 0, 0, EG_BOOL } };
        const int64_t size[] = { 2, 60, 90 }, zero[3] = { 0 }, block[] = { 1, 6, 10 };
        for (size_t t = 0; t < sizeof text / sizeof *text; t++) {
            const eg_expression_source s = { .who = "mask",
                                             .text = text[t],
                                             .noun = "predicate",
                                             .letters = 3,
                                             .letter = hij,
                                             .given = 2,
                                             .readable = table,
                                             .predicate = true };
            eg_expression *e = eg__expression_parse(cx, &s);
            eg_assert_ok(cx);
            eg_box box = { zero, size, size, { 0 }, { 7 }, NULL };
            ck_assert_msg(eg__expression_fits(cx, &s, e, &box), "%s", eg_error(cx));
            eg_bounds bounds;
            eg__bounds_plan(&bounds, e, source, block);
            eg_interval *numbers = malloc((size_t)(bounds.entries + 1) * sizeof *numbers);
            eg__bounds_fill(&bounds, source, numbers);
            for (int64_t i = 0; i < 60; i += 6)
                for (int64_t j = 0; j < 90; j += 10)
                    for (int several = 0; several < 2; several++) {
                        const int64_t low[] = { !several, i, j }, high[] = { 2, i + 6, j + 10 };
                        bool any, every;
                        eg_interval range[EG_NODES_MAX];
                        box = (eg_box){ low, high, size, { 0 }, { 7 }, NULL };
                        const eg_cover loose = eg__expression_cover(e, &box, range);
                        box.bounds = &bounds;
                        const eg_cover three = eg__expression_cover(e, &box, range);
                        const int64_t half[] = { 2, i + 6, j + 5 };
                        box.high = half;
                        ck_assert_int_eq(eg__expression_cover_moved(e, &box, 1u << 2, range),
                                         eg__expression_cover(e, &box, range));
                        some_and_all(e, source, low, high, &any, &every);
                        ck_assert_msg((three != EG_COVER_NONE || !any) &&
                                          (three != EG_COVER_ALL || every) &&
                                          (loose == EG_COVER_SOME || loose == three),
                                      "'%s' at (%d, %d): %d", text[t], (int)i, (int)j, three);
                        sure += three != EG_COVER_SOME;
                        /* documents are skipped unless their blocks touch */
                        if (t == 0 && way < 2 && (i + 5) / 13 < j / 13)
                            ck_assert_int_eq(three, EG_COVER_NONE);
                        /* an entry for each block of i and j is known */
                        if (t > 9 && !several) ck_assert_int_ne(three, EG_COVER_SOME);
                    }
            free(numbers);
        }
    }
    ck_assert_int_gt(sure, 1500);
    eg_close(cx);
}

TEST(predicates_have_the_language_too)
{
    static const struct {
        const char *where, *rows;
    } masks[] = {
        { "abs(i - j) < 2", "1100 1110 0111" },
        { "i < 1 ? j < 1 : j > 2", "1000 0001 0001" },
        { "min(i, j) == 1", "0000 0111 0100" },
        { "max(i, j) == 2", "0010 0010 1110" },
        { "clip(j - i, 0, 2) == 2", "0011 0001 0000" },
        { "(i < 2 ? i : j) == 1", "0000 1111 0100" },
    };
    eg_ctx *cx = eg_open();
    for (size_t k = 0; k < sizeof masks / sizeof *masks; k++) {
        eg_tensor *y = eg_where_mask(cx, masks[k].where, "i j", 0, (int64_t[]){ 3, 4 });
        char rows[16] = "";
        eg_assert_ok(cx);
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 4; j++)
                snprintf(rows + strlen(rows), 3, "%d%s", (int)eg_get(y, i, j),
                         j == 3 && i < 2 ? " " : "");
        ck_assert_msg(!strcmp(rows, masks[k].rows), "'%s': %s", masks[k].where, rows);
    }
    eg_where_mask(cx, "exp(i) < j", "i j", 0, (int64_t[]){ 3, 4 });
    eg_assert_error(cx, "exp makes a float, and a predicate consists of integers");
    eg_where_mask(cx, "i < 0.5 * j", "i j", 0, (int64_t[]){ 3, 4 });
    eg_assert_error(cx, "not of floats");
    eg_close(cx);
}

/* -- memory ----------------------------------------------------------------------------------- */
GROUP("memory", .timeout = 60)
TEST(each_allocation_may_fail)
{
    int left = 0, most = 0;
    for (bool done = false; !done; most++) {
        left = most;
        eg_ctx *cx = eg_open(.realloc = failing, .user = &left, .threads = 1, .dtype = EG_F64);
        if (!cx) continue;
        eg_tensor *x = eg_ones(cx, 5, 90), *r = eg_ones(cx, 95), *d[2], *e[2];
        eg_tensor *y =
            eg_expr("i j", "x * tanh(r[i + j]) + (i >= j ? r[i - j] : 0)",
                    .with = { { "x", eg_transpose(eg_transpose(x, 0, 1), 0, 1) }, { "r", r } });
        const int failed = eg_grad(y, y, 2, (eg_tensor *[]){ x, r }, d) ||
                           eg_grad(d[1], d[1], 2, (eg_tensor *[]){ x, r }, e);
        done = !failed && !eg_error(cx);
        if (!done)
            ck_assert_msg(eg_error(cx) && strstr(eg_error(cx), "memory"), "%s", eg_error(cx));
        left = 1 << 30;
        eg_close(cx);
        ck_assert_int_lt(most, 400);
    }
}

/* clip(x, low, high) is min(max(x, low), high), also where low is above high, and NaN if one of the
 * three is; of the three the one that is chosen has the gradient. */
TEST(clip_takes_limits_in_any_order)
{
    enum { VALUES = 6, ALL = VALUES * VALUES * VALUES };
    static const double value[VALUES] = { -2, -.5, .25, 1, 3, NAN };
    static const eg_dtype types[] = { EG_F64, EG_F32, EG_I64 };
    eg_ctx *cx = eg_open();
    double x[3][ALL];
    for (int k = 0; k < ALL; k++)
        for (int i = 0, of = k; i < 3; i++, of /= VALUES) x[i][k] = value[of % VALUES];
    for (int t = 0; t < 3; t++) {
        eg_tensor *a[3], *d[3];
        for (int i = 0; i < 3; i++) a[i] = eg_cast(eg_from(cx, x[i], ALL), types[t]);
        eg_tensor *y = eg_expr("i", "clip(x, l, h)",
                               .with = { { "x", a[0] }, { "l", a[1] }, { "h", a[2] } }),
                  *want = eg_minimum(eg_maximum(a[0], a[1]), a[2]);
        ck_assert(same_bits(y, want));
        if (types[t] == EG_I64) continue;
        ck_assert_int_eq(eg_grad(y, eg_ones_like(y), 3, a, d), 0);
        for (int k = 0; k < ALL; k++) {
            const double v = x[0][k], l = x[1][k], h = x[2][k], m = v < l ? l : v;
            const double is[3] = { v >= l && v <= h, v < l && l <= h, m > h };
            for (int i = 0; i < 3 && !isnan(v + l + h); i++)
                ck_assert_msg(eg_get(d[i], k) == is[i], "clip(%g, %g, %g): operand %d has %g", v, l,
                              h, i + 1, eg_get(d[i], k));
            for (int i = 0; i < 3; i++) ck_assert(!isnan(eg_get(d[i], k)));
        }
    }
    eg_assert_ok(cx);
    eg_close(cx);
}

/* The exponential of tanh, sigmoid and softplus is kept for the derivative. The derivatives have
 * small relative errors wherever the value varies with rows, with lanes or with both, whether the
 * value itself is needed or not, and for infinite and large numbers. */
TEST(derivatives_from_the_exponential_of_the_value)
{
    enum { HALF = 17, N = 2 * HALF + 1, ROWS = 3 };
    static const double size[HALF] = { 0,  1e-30, 1e-4, .3,   .624, .626, 1,   5,       9.9,
                                       20, 40,    43.4, 43.6, 60,   88,   100, INFINITY };
    static const char *const function[] = { "tanh", "sigmoid", "softplus" };
    static const char *const form[] = { "%s(x)", "%s(x) * u", "%s(r[j]) * u", "%s(c[i]) * u" };
    double at[N], wide[ROWS * N], u[ROWS * N];
    for (int k = 0; k < N; k++) at[k] = k == 2 * HALF ? NAN : k < HALF ? size[k] : -size[k - HALF];
    for (int k = 0; k < ROWS * N; k++) wide[k] = at[k % N], u[k] = 1;
    for (int f = 0; f < 3; f++)
        for (int t = 0; t < 8; t++) {
            eg_ctx *cx = eg_open();
            const bool tall = t % 4 == 3;
            char text[40];
            eg_tensor *x[3] = {
                eg_from(cx, tall ? u : wide, tall ? N : ROWS, tall ? ROWS : N),
                eg_from(cx, u, tall ? N : ROWS, tall ? ROWS : N),
                eg_from(cx, at, N)
            };
            for (int k = 0; k < 3; k++) x[k] = eg_cast(x[k], t < 4 ? EG_F32 : EG_F64);
            snprintf(text, sizeof text, form[t % 4], function[f]);
            const int by = t % 4 < 2 ? 0 : 2;
            eg_expr_args o = { .size = sizeof o, .axes = "i j", .text = text };
            o.with[0] = (eg_given){ "x", x[0] };
            if (t % 4) o.with[0] = (eg_given){ "u", x[1] };
            if (t % 4 == 1) o.with[1] = (eg_given){ "x", x[0] };
            if (by) o.with[1] = (eg_given){ tall ? "c" : "r", x[2] };
            eg_tensor *y = eg_expr_with(&o), *d;
            ck_assert(!eg_grad(eg_sum(NULL, y), NULL, 1, &x[by], &d));
            for (int k = 0; k < N; k++) {
                const long double z = fabsl((long double)(t < 4 ? (float)at[k] : at[k])),
                                  e = expl(f ? -z : -2 * z), step = f ? 1 : 4;
                const double want = (double)((by ? ROWS : 1) * step *
                                             (f < 2       ? e / ((1 + e) * (1 + e))
                                              : at[k] > 0 ? 1 / (1 + e)
                                                          : e / (1 + e))),
                             have = element(d, k), ulp = t < 4 ? 6e-8 : 1.2e-16;
                if (isnan(at[k]))
                    ck_assert(isnan(have));
                else
                    ck_assert_msg(fabs(have - want) <= 8 * ulp * want + (t < 4 ? 3e-37 : 1e-300),
                                  "%s at %g: %g, not %g", text, at[k], have, want);
            }
            eg_close(cx);
        }
}

/* Formulas over many blocks, whole and with a rest, of one axis and of two, on contiguous, strided
 * and reversed operands, with cotangents that are all equal or not, are those of the operations. */
LOOP_TEST(formulas_over_many_blocks_are_the_operations, 2 * 3 * 5)
{
    static const int64_t sizes[][2] = {
        { 1, 17 }, { 1, 4096 }, { 1, 5003 }, { 60, 96 }, { 7, 1300 }
    };
    const int64_t m = sizes[_i / 6][0], n = sizes[_i / 6][1];
    const int layout = _i / 2 % 3;
    const double close = _i % 2 ? 1e-14 : 2e-6;
    eg_ctx *cx = eg_open(.dtype = _i % 2 ? EG_F64 : EG_F32, .seed = 5, .threads = 1 + _i % 3);
    eg_tensor *a[3];
    for (int k = 0; k < 3; k++) {
        a[k] = eg_normal(cx, 0, 1, m, layout == 1 ? 2 * n : n);
        if (layout == 1 && k < 2) a[k] = eg_slice_axis(a[k], 1, 0, 2 * n, 2);
        if (layout == 1 && k == 2) a[k] = eg_slice_axis(a[k], 1, n / 2, n / 2 + n, 1);
        if (layout == 2) a[k] = eg_flip_axis(a[k], k % 2);
        if (m == 1) a[k] = eg_slice_axis(a[k], 0, 0, 1, 1), a[k] = eg_squeeze(a[k], 0);
    }
    eg_tensor *x = a[0], *y = a[1], *z = a[2], *tanhy = eg_tanh(y);
    const struct {
        const char *text;
        eg_tensor *ops;
    } cases[] = {
        { "x*y + z", eg_add(eg_mul(x, y), z) },
        { "x - y + z", eg_add(eg_sub(x, y), z) },
        { "-(x + y) - z*2", eg_sub(eg_neg(eg_add(x, y)), eg_scale(z, 2)) },
        { "x*x*x + tanh(y)*z + y", eg_add(eg_add(eg_mul(eg_mul(x, x), x), eg_mul(tanhy, z)), y) },
        { "(x > 0 ? y : z)*tanh(y) + max(x, y)",
          eg_add(eg_mul(eg_where(eg_gt(x, eg_zeros_like(x)), y, z), tanhy), eg_maximum(x, y)) },
    };
    for (int q = 0; q < 5; q++)
        for (int even = 0; even < 2; even++) {
            eg_tensor *d[3], *e[3];
            eg_tensor *f = eg_expr(m == 1 ? "j" : "i j", cases[q].text,
                                   .with = { { "x", x }, { "y", y }, { "z", z } });
            eg_tensor *g = even ? eg_expand_n(eg_full(cx, .5, 1), eg_rank(f), eg_dims(f))
                                : eg_normal_n(cx, EG_DEFAULT, 0, 1, eg_rank(f), eg_dims(f));
            eg_assert_close(f, cases[q].ops, close);
            ck_assert(!eg_grad(f, g, 3, a, d) && !eg_grad(cases[q].ops, g, 3, a, e));
            for (int k = 0; k < 3; k++) eg_assert_close(d[k], e[k], 4 * close);
        }
    eg_assert_ok(cx);
    eg_close(cx);
}

TEST(expr_floor_is_that_of_the_operation)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 3);
    eg_tensor *x = eg_uniform(cx, -3, 3, 40), *w = eg_normal(cx, 0, 1, 40), *d[2];
    eg_tensor *y = eg_expr("i", "floor(x) * w + floor(3) + floor(-i / 4.0)",
                           .with = { { "x", x }, { "w", w } });
    eg_tensor *i = eg_arange(cx, EG_F64, 0, 40, 1),
              *z = eg_add(eg_shift(eg_mul(eg_floor(x), w), 3), eg_floor(eg_scale(i, -.25)));
    ck_assert_double_le(eg_item(eg_max(NULL, eg_abs(eg_sub(y, z)))), 1e-14);
    ck_assert(!eg_grad(eg_sum(NULL, y), NULL, 2, (eg_tensor *[]){ x, w }, d));
    ck_assert_double_eq(eg_item(eg_max(NULL, eg_abs(d[0]))), 0);
    ck_assert_double_eq(eg_item(eg_max(NULL, eg_abs(eg_sub(d[1], eg_floor(x))))), 0);
    eg_close(cx);
}

/* A tangent, and the tangent of a gradient, compute the formula once, whatever the number of
 * tensors that move: at most three times as many operations as of the formula without eg_expr. */
TEST(tangents_compute_a_formula_once)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 3);
    eg_tensor *x[4] = { eg_normal(cx, 0, 1, 3, 4), eg_normal(cx, 0, 1, 4), eg_normal(cx, 0, 1, 3),
                        eg_normal(cx, 0, 1, 3, 4) },
              *v[4], *t[2], *hv[2][4];
    uint64_t nodes[2][2];
    for (int k = 0; k < 4; k++) v[k] = eg_normal_n(cx, EG_F64, 0, 1, eg_rank(x[k]), eg_dims(x[k]));
    for (int f = 0; f < 2; f++) {
        uint64_t before = eg_stats(cx).nodes;
        eg_tensor *y =
            f ? eg_add(eg_on("ij,i", eg_mul,
                             eg_on("ij,j", eg_mul, eg_mul(x[0], eg_sigmoid(x[0])), x[1]), x[2]),
                       eg_tanh(x[3]))
              : eg_expr("i j", "a * sigmoid(a) * b[j] * c[i] + tanh(d)",
                        .with = { { "a", x[0] }, { "b", x[1] }, { "c", x[2] }, { "d", x[3] } });
        t[f] = eg_jvp(y, 4, x, v);
        nodes[f][0] = eg_stats(cx).nodes - before, before = eg_stats(cx).nodes;
        ck_assert(!eg_hvp(eg_sum(NULL, eg_square(y)), 4, x, v, hv[f]));
        nodes[f][1] = eg_stats(cx).nodes - before;
    }
    eg_assert_ok(cx);
    eg_assert_close(t[0], t[1], 1e-13);
    for (int k = 0; k < 4; k++) eg_assert_close(hv[0][k], hv[1][k], 1e-13);
    for (int k = 0; k < 2; k++)
        ck_assert_msg(nodes[0][k] <= 3 * nodes[1][k], "%llu operations, without eg_expr %llu",
                      (unsigned long long)nodes[0][k], (unsigned long long)nodes[1][k]);
    eg_close(cx);
}

/* If the last two letters are short, the rows of a block are along a longer one before them: the
 * values and cotangents are those of the operations, with the same bits on any number of threads.
 */
TEST(a_long_letter_before_short_ones)
{
    for (int wide = 0; wide < 2; wide++) {
        eg_tensor *y[2], *d[2][4], *e[4];
        eg_ctx *cx[2];
        for (int n = 0; n < 2; n++) {
            cx[n] = eg_open(.dtype = wide ? EG_F64 : EG_F32, .seed = 3, .threads = n + 1);
            eg_tensor *x[4] = { eg_transpose(eg_normal(cx[n], 0, 1, 3, 5, 9000, 2), 0, 2),
                                eg_normal(cx[n], 0, 1, 9000), eg_normal(cx[n], 0, 1, 3),
                                eg_normal(cx[n], 0, 1, 2) };
            y[n] = eg_expr("i h j k", "tanh(x * a[i]) * b[j] + c[k]",
                           .with = { { "x", x[0] }, { "a", x[1] }, { "b", x[2] }, { "c", x[3] } });
            eg_tensor *g = eg_normal_n(cx[n], EG_DEFAULT, 0, 1, 4, eg_dims(y[n]));
            ck_assert(!eg_grad(y[n], g, 4, x, d[n]));
            if (n) break;
            eg_tensor *z = eg_tanh(eg_on("ihjk,i", eg_mul, x[0], x[1]));
            z = eg_on("ihjk,k", eg_add, eg_on("ihjk,j", eg_mul, z, x[2]), x[3]);
            ck_assert(!eg_grad(z, g, 4, x, e));
            eg_assert_close(y[n], z, 0);
            for (int k = 0; k < 4; k++) eg_assert_close(d[n][k], e[k], wide ? 1e-13 : 1e-5);
        }
        for (int n = 0; n < 2; n++) eg_assert_ok(cx[n]);
        const size_t width = wide ? 8 : 4;
        for (int k = 0; k < 4; k++)
            ck_assert(!memcmp(eg_raw(eg_contiguous(d[0][k]), NULL),
                              eg_raw(eg_contiguous(d[1][k]), NULL),
                              (size_t)eg_size(d[0][k]) * width));
        for (int n = 0; n < 2; n++) eg_close(cx[n]);
    }
}

/* Computes the gradient of a formula of x, (4, 1600, 96) in f32, into *dx. Returns how many bytes
 * the context took from the allocator at most. */
static size_t peak_of_gradient(eg_ctx *cx, const char *text, eg_tensor **dx)
{
    eg_tensor *x = eg_normal_n(cx, EG_F32, 0, 1, 3, (int64_t[]){ 4, 1600, 96 });
    eg_tensor *y = eg_expr("b i=1600 h=96", text, .with = { { "x", x } });
    ck_assert(!eg_grad(y, eg_normal_n(cx, EG_F32, 0, 1, 3, eg_dims(x)), 1, &x, dx));
    eg_assert_ok(cx);
    return eg_stats(cx).peak;
}
/* The cotangents of reads at shifted positions, of which at most two meet in an element, are added
 * in the gradient itself: it needs no sums in f64, and has the bits of the operations. */
TEST(few_cotangents_are_added_in_place)
{
    static const char *const text[] = { "x[b, i, h]",
                                        "i >= 1 ? x[b, i - 1, h] : 0.0",
                                        "x[b, i, h] - (i >= 1 ? x[b, i - 1, h] : 0.0)",
                                        "x[b, |i| - 1 - i, h]",
                                        "x[b, i, |h| - 1 - h]",
                                        "x[b, (i + 3) % |i|, h]",
                                        "x[b, clip(i - 1, 0, |i| - 1), h]",
                                        "i >= h ? x[b, i - h, h] : 0.0",
                                        "i >= b ? x[b, i - b, h] : 0.0",
                                        "x[b, min(i + 1, |i| - 1), max(h, 0)]",
                                        "i < 799 & h < 47 ? x[b, 2 * i + 1, 3 + h * 2] : 1.0" };
    size_t first = 0;
    for (int k = 0; k < (int)(sizeof text / sizeof *text); k++) {
        eg_ctx *cx = eg_open(.seed = 3, .threads = 1);
        eg_tensor *dx;
        const size_t peak = peak_of_gradient(cx, text[k], &dx);
        if (!k) first = peak;
        ck_assert_msg(peak <= first + 4 * 1600 * 96 * 4, "%s: %zu bytes, x alone %zu", text[k],
                      peak, first);
        eg_close(cx);
    }
    eg_ctx *cx = eg_open(.seed = 3, .threads = 1);
    eg_tensor *x = eg_normal_n(cx, EG_F32, 0, 1, 3, (int64_t[]){ 4, 1600, 96 }), *dx,
              *by_operations;
    eg_tensor *y = eg_expr("b i h", "x - (i >= 1 ? x[b, i - 1, h] : 0.0)", .with = { { "x", x } });
    eg_tensor *before = eg_pad("b [i] h", eg_slice("b [i] h", x, 0, 1599, 1), 1, 0, 0);
    eg_tensor *z = eg_sub(x, before), *g = eg_normal_n(cx, EG_F32, 0, 1, 3, eg_dims(x));
    ck_assert(!eg_grad(y, g, 1, &x, &dx) && !eg_grad(z, g, 1, &x, &by_operations));
    eg_assert_close(y, z, 0);
    eg_assert_close(dx, by_operations, 0);
    eg_close(cx);
}

/* Blocks whose lanes are along the last axis and blocks that are transposed into the result have
 * the same bits: those of the same formula with its letters in another order. */
static eg_tensor *ordered_formula(const char *axes, const char *text, eg_tensor *x, eg_tensor *z,
                                  eg_tensor *r)
{
    const bool reads_r = strstr(text, "r[") != NULL;
    return eg_expr(axes, text, .with = { { "x", x }, { "z", z }, { reads_r ? "r" : NULL, r } });
}
LOOP_TEST(the_order_of_letters_changes_no_bit, 2)
{
    static const char *const reordered[] = {
        "x[a,b,c] * exp(z[c,a,b] - r[c]) * (c + 1)",
        "tanh(x[a,b,c] * b - z[c,a,b] / (a - c + 9000)) + r[c]",
        "min(x[a,b,c], 7 - c) * z[c,a,b] + r[(a - b + 9 * |c|) % |c|]",
        "(a * 3 - b) * c + (x[a,b,c] > z[c,a,b] ? b : 5) + (r[c] > 0 ? 1 : 0)",
        "x[a,b,c] * exp(z[c,a,b] * .1) - z[c,a,b] / (c + 1)",
        "x[a,b,c] < z[c,a,b] + r[c] * b",
    };
    static const int64_t dims[][3] = {
        { 40, 7, 3 },   { 3, 70, 15 }, { 2600, 1, 2 }, { 33, 20, 8 },
        { 12, 600, 3 }, { 5, 5, 5 },   { 4, 33, 9 },   { 1, 999, 1 }
    };
    eg_ctx *cx = eg_open(.threads = 2);
    uint64_t state = 5;
    for (int turn = 0; turn < 8 * 6; turn++) {
        const int64_t *n = dims[turn / 6], of_z[3] = { n[2], n[0], n[1] };
        const char *text = reordered[turn % 6];
        eg_mark m = eg_push(cx);
        const eg_dtype type = _i ? EG_F64 : EG_F32;
        eg_tensor *x = random_view(cx, &state, type, 3, n),
                  *r = random_view(cx, &state, type, 1, n + 2),
                  *z = random_view(cx, &state, type, 3, of_z), *d[4];
        eg_tensor *y = ordered_formula("a b c", text, x, z, r),
                  *same = eg_permute(ordered_formula("c b a", text, x, z, r), 2, 1, 0);
        ck_assert_msg(same_bits(elements_of(y), elements_of(same)), "turn %d: %s", turn, text);
        if (turn % 6 < 3 || turn % 6 == 4) {
            eg_tensor *g = random_view(cx, &state, type, 3, n), *both[] = { x, z };
            ck_assert_int_eq(eg_grad(y, g, 2, both, d), 0);
            ck_assert_int_eq(eg_grad(same, g, 2, both, d + 2), 0);
            for (int k = 0; k < 2; k++)
                ck_assert_msg(same_bits(elements_of(d[k]), elements_of(d[k + 2])),
                              "turn %d: %s, operand %d", turn, text, k + 1);
        }
        eg_assert_ok(cx);
        eg_pop(cx, m);
    }
    eg_close(cx);
}

/* -- at a kink reverse and forward mode have the same derivative --------------------------------
 */
static const char *const kinked[] = {
    "clip(x, -1.0, 1.0)",
    "clip(x, -1, 1)",
    "clip(x, x, 1.0)",
    "clip(x, 0.0, 0.0)",
    "clip(1.0, x, 1.0)",
    "clip(1, 0, x)",
    "clip(x, 1.0 + x * 0, x)",
    "clip(0.5, 1.0, x)",
    "abs(x)",
    "max(x, 0.0)",
    "min(x, x * x)",
    "min(max(x, -1.0), 1.0)",
};
LOOP_TEST(forward_mode_agrees_with_reverse_mode_at_a_kink, (int)(sizeof kinked / sizeof *kinked))
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_from(cx, ((double[]){ -1, 0, 0.5, 1, 2 }), 5), *one = eg_ones_like(x), *d,
              *dd;
    eg_tensor *y = eg_expr("i", kinked[_i], .with = { { "x", x } });
    eg_grad(y, one, 1, &x, &d);
    eg_grad(eg_jvp(y, 1, &x, &one), one, 1, &x, &dd);
    const double *reverse = eg_f64(d), *forward = eg_f64(eg_jvp(y, 1, &x, &one));
    const double *second = eg_f64(eg_jvp(d, 1, &x, &one)), *mixed = eg_f64(dd);
    ck_assert_msg(!eg_error(cx), "%s", eg_error(cx));
    for (int k = 0; k < 5; k++) {
        ck_assert_msg(reverse[k] == forward[k], "%s at %g: reverse %g, forward %g", kinked[_i],
                      eg_get(x, k), reverse[k], forward[k]);
        ck_assert_msg(second[k] == mixed[k], "%s at %g: second derivative %g, %g", kinked[_i],
                      eg_get(x, k), second[k], mixed[k]);
    }
    eg_close(cx);
}
