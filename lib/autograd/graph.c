/* graph.c: the history of a tensor as text and as DOT, in the order in which a reader follows it:
 * operands before results. */
#include "autograd/autograd.h"
#include <string.h>

typedef struct list {
    eg_tensor **t;
    int64_t n, room;
} list;
static bool graph_append(eg_ctx *cx, list *l, eg_tensor *t)
{
    if (l->n == l->room) {
        eg_tensor **more =
            eg__alloc(cx, (size_t)(l->room = l->room ? 2 * l->room : 64) * sizeof *more);
        if (!more) return false;
        if (l->n) memcpy(more, l->t, (size_t)l->n * sizeof *more);
        l->t = more;
    }
    l->t[l->n++] = t;
    return true;
}

/* All that y was made of, each once; slot: the place in the list. On the stack a tensor stands
 * until its operands are in the list. */
static bool history(const char *who, eg_tensor *y, list *all)
{
    enum { ENTERED = -1 };
    eg_ctx *cx = y->cx;
    const uint64_t number = ++cx->sweep;
    list stack = { 0 };
    if (!graph_append(cx, &stack, y)) return false;
    while (stack.n) {
        eg_tensor *t = stack.t[stack.n - 1];
        const bool entered = t->sweep == number;
        if (entered) {
            stack.n--;
            if (t->slot != ENTERED) continue; /* on the stack twice, and done */
            t->slot = all->n;
            if (!graph_append(cx, all, t)) return false;
            continue;
        }
        t->sweep = number;
        t->slot = ENTERED;
        for (int i = t->count; i-- > 0;) {
            if (!eg__operand_lives(t, i)) return eg__operand_gone(cx, who, t, i);
            if (t->in[i]->sweep != number && !graph_append(cx, &stack, t->in[i])) return false;
        }
    }
    return true;
}

bool eg__history(const char *who, eg_tensor *y, int64_t *count, eg_tensor ***nodes)
{
    list all = { 0 };
    const bool good = history(who, y, &all);
    *count = all.n;
    *nodes = all.t;
    return good;
}

typedef struct writer {
    FILE *f;
    eg__lines lines;
} writer;
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
/* The operand's letters stand at its edge, the output's at the sizes. */
static void node_dot(const writer *w, const eg_tensor *t)
{
    char text[256], dims[256];
    const char *name = eg_name_of(t), *letters = eg__einsum_text(t, text, sizeof text),
               *out = letters ? strstr(letters, "->") + 2 : NULL;
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

static int graph_each(const char *who, FILE *f, eg_tensor *y,
                      void (*write)(const writer *, const eg_tensor *), const char *head,
                      const char *tail)
{
    if (!y || !eg__check(who, y)) return -1;
    if (!f) {
        eg_fail_as(y->cx, EG_ERROR_MISUSE, "%s: the file is NULL", who);
        return -1;
    }
    list all = { 0 };
    const eg_mark m = eg_push(y->cx);
    const bool good = history(who, y, &all);
    writer w = { .f = f };
    eg__lines_open(&w.lines);
    if (good) fputs(head, f);
    for (int64_t k = 0; good && k < all.n; k++) write(&w, all.t[k]);
    if (good) fputs(tail, f);
    eg__lines_close(&w.lines);
    eg_pop(y->cx, m);
    if (good && ferror(f))
        eg_fail_as(y->cx, EG_ERROR_MISUSE, "%s: the file cannot be written", who);
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
