/* expression_names.c: finds the names of an expression: functions, letters and tensors of .with.
 * The message for an unknown name suggests the most similar one. */
#include "notation/expression_parser.h"
#include <string.h>

static const eg_function_entry functions[] = {
#define LIST(CODE, NAME, ...) { NAME, EG_X_##CODE, 1, EG_X_##CODE == EG_X_ABS },
    EG_FUNCTIONS_1(LIST)
#undef LIST
#define LIST(CODE, NAME, ...) { NAME, EG_X_##CODE, 2, EG_X_##CODE != EG_X_POW },
        EG_FUNCTIONS_2(LIST)
#undef LIST
            { "clip", EG_X_CLIP, 3, true },
};
bool eg__name_is(const char *word, const char *text, int length)
{
    return (int)strlen(word) == length && memcmp(word, text, (size_t)length) == 0;
}
const eg_function_entry *eg__function_called(const char *text, int length)
{
    for (size_t k = 0; k < sizeof functions / sizeof *functions; k++)
        if (length && eg__name_is(functions[k].name, text, length)) return &functions[k];
    return NULL;
}

/* Returns the edit distance of two words (insertions, deletions and replacements); 40 if one of
 * them is too long. */
static int edits(const char *a, int n, const char *b)
{
    const int m = (int)strlen(b);
    int row[40];
    if (n >= 40 || m >= 40) return 40;
    for (int j = 0; j <= m; j++) row[j] = j;
    for (int i = 1; i <= n; i++) {
        int corner = row[0];
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            const int up = row[j], side = row[j - 1], change = corner + (a[i - 1] != b[j - 1]);
            row[j] = up < side ? up + 1 : side + 1;
            if (change < row[j]) row[j] = change;
            corner = up;
        }
    }
    return row[m];
}
/* Writes "is 'tanh' meant?" to hint, with the known name that is nearest to the word; "" if none is
 * near. A word of two letters is near to too many names, unless brackets follow (read), which only
 * tensors have. Returns hint. */
static const char *nearest(const eg_parser *p, const char *word, int length, bool read, char *hint,
                           size_t capacity)
{
    const bool tensors = read && length == 2;
    int best = length < 3 ? 2 * tensors : length < 4 ? 2 : 3;
    const char *found = NULL;
    hint[0] = 0;
    for (int k = 0; k < p->s->given; k++)
        if (edits(word, length, p->s->readable[k].name) < best)
            best = edits(word, length, found = p->s->readable[k].name);
    for (size_t k = 0; k < sizeof functions / sizeof *functions && !tensors; k++)
        if (functions[k].name[0] && (functions[k].integer || !p->s->predicate) &&
            edits(word, length, functions[k].name) < best)
            best = edits(word, length, found = functions[k].name);
    if (p->s->score && !tensors && edits(word, length, "score") < best) found = "score";
    if (found) snprintf(hint, capacity, "is '%s' meant?", found);
    return hint;
}
/* Records that a name is unknown, with the names that are known. Returns −1. */
int eg__name_unknown(eg_parser *p, int at, int length)
{
    char known[200] = "", hint[64];
    size_t used = 0;
    const int all = p->s->letters + p->s->given;
    for (int k = 0; k < all && used < sizeof known; k++) {
        const bool letter = k < p->s->letters;
        const char *name = letter ? p->s->letter[k]->text : p->s->readable[k - p->s->letters].name;
        used += (size_t)snprintf(known + used, sizeof known - used, "%s'%.*s'", k ? ", " : "",
                                 eg__limited(letter ? p->s->letter[k]->length : (int)strlen(name)),
                                 name);
    }
    int behind = at + length;
    while (p->text[behind] == ' ') behind++;
    const bool read = p->text[behind] == '[';
    nearest(p, p->text + at, length, read, hint, sizeof hint);
    return eg__expression_refuse(p, at, length,
                                 hint[0] ? hint
                                 : read  ? "give the tensor in .with"
                                         : NULL,
                                 "the %s's %s '%.*s' is not %s%s", p->s->noun,
                                 read          ? "tensor"
                                 : p->s->given ? "name"
                                               : "index",
                                 eg__limited(length), p->text + at,
                                 all ? "one of " : "in the string", known);
}
int eg__name_length(const eg_parser *p)
{
    int n = 0;
    while (eg__name_starts(p->text[p->at + n]) || eg__digit(p->text[p->at + n])) n++;
    return n;
}
int eg__letter_called(const eg_parser *p, const char *text, int length)
{
    for (int k = 0; k < p->s->letters; k++)
        if (p->s->letter[k]->length == length &&
            memcmp(p->s->letter[k]->text, text, (size_t)length) == 0)
            return k;
    return -1;
}
