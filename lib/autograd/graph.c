/* graph.c: the history of a tensor as text and as DOT, operands before results, and the cost of its
 * operations. */
#include "autograd/autograd.h"
#include <string.h>

typedef struct writer {
    FILE *f;
    eg__lines lines;
} writer;
/* Writes one line: number, operation, operands' numbers, dtype, shape, name, source line. */
static void node_text(const writer *w, const eg_tensor *t)
{
    char text[256], dims[256];
    const char *name = eg_name_of(t), *spec = eg__einsum_text(t, text, sizeof text);
    fprintf(w->f, "%4lld  %s", (long long)t->slot + 1, t->op ? t->op->name : "leaf");
    if (spec) fprintf(w->f, " \"%s\"", spec);
    for (int i = 0; i < t->count; i++)
        fprintf(w->f, "%s %lld", i ? "," : "", (long long)t->in[i]->slot + 1);
    fprintf(w->f, "  %s %s", eg_type_name((eg_dtype)t->dtype), eg__dims_text(t, dims, sizeof dims));
    if (name) fprintf(w->f, "  \"%s\"", name);
    if (t->op && eg__line(&w->lines, t->caller, text, sizeof text)[0]) fprintf(w->f, "  %s", text);
    fputc('\n', w->f);
}

static void quoted(FILE *f, const char *text)
{
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') fputc('\\', f);
        fputc(*text == '\n' ? ' ' : *text, f);
    }
}
/* Writes a node and the edges to it. Edges are labelled with the letters of an einsum's operands;
 * the letters of its output are beside the sizes. */
static void node_dot(const writer *w, const eg_tensor *t)
{
    char text[256], dims[256];
    const char *name = eg_name_of(t), *letters = eg__einsum_text(t, text, sizeof text),
               *out = letters ? letters + eg__arrow(letters) + 2 : NULL;
    fprintf(w->f, "  n%lld [%slabel=\"", (long long)t->slot + 1, t->op ? "" : "shape=box, ");
    if (name) {
        quoted(w->f, name);
        fputs("\\n", w->f);
    } else if (!t->op)
        fputs("leaf\\n", w->f);
    if (t->op) {
        quoted(w->f, t->op->name);
        fputs("\\n", w->f);
    }
    fprintf(w->f, "%s ", eg_type_name((eg_dtype)t->dtype));
    if (!out) fputs(eg__dims_text(t, dims, sizeof dims), w->f);
    for (int r = 0; out && r < t->rank; r++)
        fprintf(w->f, "%s%c=%lld", r ? " " : "", out[r], (long long)t->dim[r]);
    if (t->op && eg__line(&w->lines, t->caller, dims, sizeof dims)[0]) {
        fputs("\\n", w->f);
        quoted(w->f, dims);
    }
    fputs("\"];\n", w->f);
    for (int i = 0; i < t->count; i++) {
        fprintf(w->f, "  n%lld -> n%lld", (long long)t->in[i]->slot + 1, (long long)t->slot + 1);
        if (letters) {
            const int n = (int)strcspn(letters, ",-");
            fprintf(w->f, " [label=\"%.*s\"]", n, letters);
            letters += n + 1;
        }
        fputs(";\n", w->f);
    }
}

/* Calls `write` for every node of y's history, between head and tail. 0, or −1 after an error. */
static int graph_each(const char *who, FILE *f, eg_tensor *y,
                      void (*write)(const writer *, const eg_tensor *), const char *head,
                      const char *tail)
{
    if (!y) eg_fail_as(NULL, EG_ERROR_MISUSE, "%s: y is NULL", who);
    if (!y || !eg__check_usable(who, y)) return -1;
    if (!f) {
        eg_fail_as(y->cx, EG_ERROR_MISUSE, "%s: the file is NULL", who);
        return -1;
    }
    eg_walk w = { .cx = y->cx, .who = who };
    const eg_mark m = eg_push(y->cx);
    const bool good = eg__walk(&w, 1, &y);
    writer out = { .f = f };
    eg__lines_open(&out.lines);
    if (good) fputs(head, f);
    for (int64_t k = 0; good && k < w.n; k++) write(&out, w.node[k]);
    if (good) fputs(tail, f);
    eg__lines_close(&out.lines);
    eg_pop(y->cx, m);
    if (good && ferror(f)) eg_fail_as(y->cx, EG_ERROR_FILE, "%s: the file cannot be written", who);
    return good && !ferror(f) ? 0 : -1;
}
int eg_graph_print(FILE *f, eg_tensor *y)
{
    return graph_each("graph_print", f, y, node_text, "", "");
}
int eg_graph_dot(FILE *f, eg_tensor *y)
{
    return graph_each("graph_dot", f, y, node_dot,
                      "digraph eingrad {\n  node [shape=ellipse, fontname=monospace];\n", "}\n");
}

/* -- sums of costs ----------------------------------------------------------------------------- */
/* Adds the costs of a node to the sums. */
static void graph_add(eg_explained_graph *e, const eg_tensor *t)
{
    eg_op_cost cost = { 0, 0 };
    const double size = (double)eg_size(t);
    const bool own = t->st == &t->own;
    if (t->op) {
        e->nodes++;
        if (t->op->cost) t->op->cost(t, &cost);
        e->multiply_adds += cost.multiply_adds;
        e->bytes += cost.bytes + (own ? size * eg__width[t->dtype] : 0);
        if (eg__is_float(t->dtype) || t->dtype == EG_F16 || t->dtype == EG_BF16)
            if (!e->narrowest || eg__width[t->dtype] < eg__width[e->narrowest])
                e->narrowest = t->dtype;
        return;
    }
    e->leaves++;
    if (eg__is_float(t->dtype) && t->arena->owned)
        e->parameters += eg_size(t);
    else
        e->inputs += eg_size(t);
}
/* The nodes are listed in a scope that is closed before the result is allocated. */
const eg_explained_graph *eg_explain_graph(eg_tensor *y)
{
    char text[512];
    if (!y || !eg__check("explain_graph", y)) return NULL;
    eg_walk w = { .cx = y->cx, .who = "explain_graph" };
    eg_explained_graph sum = { 0 }, *e;
    const eg_mark m = eg_push(y->cx);
    const bool good = eg__walk(&w, 1, &y);
    for (int64_t k = 0; good && k < w.n && !y->cx->failed; k++) graph_add(&sum, w.node[k]);
    eg_pop(y->cx, m);
    const int n = snprintf(text, sizeof text,
                           "%lld operation%s and %lld lea%s (%lld number%s in parameters, %lld in "
                           "others): %.15g multiply-adds, %.15g bytes\n",
                           (long long)sum.nodes, sum.nodes == 1 ? "" : "s", (long long)sum.leaves,
                           sum.leaves == 1 ? "f" : "ves", (long long)sum.parameters,
                           sum.parameters == 1 ? "" : "s", (long long)sum.inputs, sum.multiply_adds,
                           sum.bytes);
    if (y->cx->failed || !(e = eg__alloc(y->cx, sizeof *e + (size_t)n + 1))) return NULL;
    *e = sum;
    e->text = memcpy(e + 1, text, (size_t)n + 1);
    return e;
}
