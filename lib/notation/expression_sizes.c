/* expression_sizes.c: sizes of the letters of an expression, from the axes that they alone
 * index. */
#include "notation/expression_parser.h"

bool eg__expression_sizes(eg_ctx *cx, const eg_expression_source *s, const eg_expression *e,
                          int64_t *size)
{
    const char *from[EG_EXPRESSION_LETTERS] = { NULL };
    bool fixed[EG_EXPRESSION_LETTERS] = {
        false
    }; /* given by the caller, or by a read without brackets */
    for (int l = 0; l < s->letters && l < EG_EXPRESSION_LETTERS; l++) fixed[l] = size[l] >= 0;
    for (int brackets = 0; brackets < 2; brackets++) {
        for (int k = 0; k < e->nodes; k++) {
            const eg_node *n = &e->node[k];
            if (n->code != EG_X_READ || n->plain == brackets) continue;
            const eg_readable *x = &s->readable[n->tensor];
            for (int r = 0; r < n->count; r++) {
                const int l = e->node[n->in[r]].in[0];
                if (e->node[n->in[r]].code != EG_X_LETTER || (brackets && fixed[l])) continue;
                if (size[l] < 0) size[l] = x->dim[r], from[l] = x->name;
                if (size[l] == x->dim[r]) continue;
                return eg__caret(cx, s->who, s->text, 1, &(eg_caret){ n->at, n->length }, NULL,
                                 NULL, "index '%.*s' is %lld%s%s%s but %lld in '%s'",
                                 eg__limited(s->letter[l]->length), s->letter[l]->text,
                                 (long long)size[l], from[l] ? " in '" : "", from[l] ? from[l] : "",
                                 from[l] ? "'" : "", (long long)x->dim[r], x->name),
                       false;
            }
        }
        for (int l = 0; l < s->letters && l < EG_EXPRESSION_LETTERS; l++) fixed[l] = size[l] >= 0;
    }
    for (int l = 0; l < s->letters; l++) {
        char name[80];
        if (size[l] >= 0) continue;
        snprintf(name, sizeof name, "%.*s", eg__limited(s->letter[l]->length), s->letter[l]->text);
        return eg__names_refuse(cx, s->who, s->text, NULL, 1, (const char *const[]){ name },
                                EG_ERROR_NOTATION,
                                "letter '%s' has no size: no tensor has it as an axis; write it "
                                "beside the letter, '%s=8'",
                                name, name);
    }
    return true;
}
