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
 * them is too long, −1 if they differ in capitals only. */
static int edits(const char *a, int n, const char *b, int m)
{
    int row[40] = { 0 }, same = 0;
    if (n >= 40 || m >= 40) return 40;
    while (same < n && same < m && (a[same] | 32) == (b[same] | 32)) same++;
    if (same == n && n == m) return -1;
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
/* The known name that is nearest to a word: `best` is more than its distance. */
typedef struct name_search {
    const char *word, *found;
    int length, best, found_length;
} name_search;
static void name_compare(name_search *s, const char *name, int length)
{
    const int distance = edits(s->word, s->length, name, length);
    if (!length || distance >= s->best) return;
    *s = (name_search){ s->word, name, s->length, distance, length };
}
/* Writes "is 'tanh' meant?" to hint, with the known name that is nearest to the word; "" if none is
 * near. A word of two letters is near to too many names, unless brackets follow (read), which only
 * tensors have. Returns hint. */
static const char *nearest(const eg_parser *p, const char *word, int length, bool read, bool called,
                           char *hint, size_t capacity)
{
    const bool tensors = read && length == 2;
    name_search s = { word, NULL, length, length < 3 ? 2 * tensors : length < 4 ? 2 : 3, 0 };
    hint[0] = 0;
    for (int k = 0; k < p->s->letters && !read && !called; k++)
        name_compare(&s, p->s->letter[k]->text, p->s->letter[k]->length);
    for (int k = 0; k < p->s->given; k++)
        name_compare(&s, p->s->readable[k].name, (int)strlen(p->s->readable[k].name));
    for (size_t k = 0; k < sizeof functions / sizeof *functions && !tensors; k++)
        if (functions[k].integer || !p->s->predicate)
            name_compare(&s, functions[k].name, (int)strlen(functions[k].name));
    for (int k = 0; eg__reduction_name(k) && !tensors; k++)
        name_compare(&s, eg__reduction_name(k), (int)strlen(eg__reduction_name(k)));
    if (p->s->score && !tensors) name_compare(&s, "score", 5);
    if (s.found) snprintf(hint, capacity, "is '%.*s' meant?", eg__limited(s.found_length), s.found);
    return hint;
}
/* Words of other languages, with what the language has in their place. */
const char *eg__foreign_name(const char *text, int length)
{
    static const struct {
        const char *word, *hint;
    } foreign[] = {
        { "and", "write &" },
        { "or", "write |" },
        { "not", "write !" },
        { "mod", "a remainder is written %" },
        { "if", "a choice is written c ? a : b" },
        { "else", "a choice is written c ? a : b" },
        { "where", "a choice is written c ? a : b" },
        { "relu", "write max(x, 0)" },
        { "silu", "write x * sigmoid(x)" },
        { "gelu", "write 0.5 * x * (1 + erf(x / sqrt(2)))" },
        { "logsigmoid", "write -softplus(-x)" },
        { "sign", "write x > 0 ? 1 : x < 0 ? -1 : 0" },
        { "square", "write pow(x, 2)" },
        { "rsqrt", "write 1 / sqrt(x)" },
        { "log2", "write log(x) / log(2)" },
        { "sinh", "write (exp(x) - exp(-x)) / 2" },
        { "cosh", "write (exp(x) + exp(-x)) / 2" },
        { "asinh", "write log(x + sqrt(x * x + 1))" },
        { "tan", "write sin(x) / cos(x)" },
        { "isnan", "write x != x" },
        { "ceil", "write -floor(-x)" },
        { "round", "write floor(x + 0.5)" },
        { "mean", "write sum(k=8, …) / 8" },
        { "ln", "the natural logarithm is log(x)" },
        { "inf", "1 / 0.0 is infinite; pairs are forbidden by .where" },
        { "infinity", "1 / 0.0 is infinite; pairs are forbidden by .where" },
        { "pi", "write 3.141592653589793" },
        { "maximum", "write max(a, b)" },
        { "minimum", "write min(a, b)" },
        { "clamp", "write clip(x, low, high)" },
        { "true", "a comparison is true or false, as i < 0" },
        { "false", "a comparison is true or false, as i < 0" },
    };
    for (size_t k = 0; k < sizeof foreign / sizeof *foreign; k++) {
        const char *word = foreign[k].word;
        int n = 0;
        while (n < length && word[n] && (text[n] | 32) == word[n]) n++;
        if (n == length && !word[n]) return foreign[k].hint;
    }
    return NULL;
}
const char *eg__foreign_operator(const char *text, int at)
{
    const char before = at ? text[at - 1] : 0;
    switch (text[at]) {
    case '^': return "a power is written pow(a, b)";
    case '*': return before == '*' ? "a power is written pow(a, b)" : NULL;
    case '/': return before == '/' ? "a quotient is written with one /" : NULL;
    case '>': return before == '<' ? "write !=" : NULL;
    case '~': return "write !";
    default: return NULL;
    }
}
/* Writes the names of all functions that the text may call. */
static void functions_listed(const eg_parser *p, char *list, size_t size)
{
    size_t used = (size_t)snprintf(list, size, "functions are");
    for (size_t k = 0; k < sizeof functions / sizeof *functions; k++)
        if (functions[k].name[0] && (functions[k].integer || !p->s->predicate) && used < size)
            used += (size_t)snprintf(list + used, size - used, " %s", functions[k].name);
    for (int k = 0; eg__reduction_name(k) && used < size; k++)
        used += (size_t)snprintf(list + used, size - used, " %s", eg__reduction_name(k));
}
/* Returns the number of the axis of that name among `count`; −1 if there is none. */
static int axis_called(const eg_axis_name *const *axis, int count, const char *text, int length)
{
    for (int k = 0; k < count; k++)
        if (axis[k]->length == length && memcmp(axis[k]->text, text, (size_t)length) == 0) return k;
    return -1;
}
/* True if the word is written in the string of axes, where each of its letters is an axis. */
static bool read_as_letters(const eg_parser *p, const char *word, int length)
{
    const eg_axis_name *const *letter = p->s->letter;
    int n = 0;
    for (int k = 0; k < p->s->letters && n < length; k++) {
        const bool next = n && letter[k]->text == letter[k - 1]->text + 1;
        n = letter[k]->length > 1 || letter[k]->text[0] != word[next ? n : 0] ? 0
            : next                                                            ? n + 1
                                                                              : 1;
    }
    return length > 2 && n == length; /* two letters are rarely a name */
}
/* Records that a name is unknown, with the names that are known. Returns −1. */
int eg__name_unknown(eg_parser *p, int at, int length)
{
    const char *word = p->text + at, *foreign = eg__foreign_name(word, length);
    char known[200] = "", hint[200] = "";
    size_t used = 0;
    const int all = p->s->letters + p->s->given;
    for (int k = 0; k < all && used < sizeof known; k++) {
        const bool letter = k < p->s->letters;
        const char *name = letter ? p->s->letter[k]->text : p->s->readable[k - p->s->letters].name;
        if (*name == '.') continue; /* an axis of an ellipsis has no name */
        used += (size_t)snprintf(known + used, sizeof known - used, "%s'%.*s'", used ? ", " : "",
                                 eg__limited(letter ? p->s->letter[k]->length : (int)strlen(name)),
                                 name);
    }
    int behind = at + length;
    while (p->text[behind] == ' ') behind++;
    const bool read = p->text[behind] == '[', called = p->text[behind] == '(';
    if (foreign)
        snprintf(hint, sizeof hint, "%s", foreign);
    else if (!read && !called && axis_called(p->s->other, p->s->others, word, length) >= 0)
        snprintf(hint, sizeof hint, "%s", p->s->why_not);
    else if (p->s->predicate && eg__name_is("score", word, length))
        snprintf(hint, sizeof hint, "a predicate does not depend on scores");
    else if (!read && !called && read_as_letters(p, word, length))
        snprintf(hint, sizeof hint, "%s", EG_LETTERS_HINT);
    else if (!nearest(p, word, length, read, called, hint, sizeof hint)[0] && called)
        functions_listed(p, hint, sizeof hint);
    else if (!hint[0] && read)
        snprintf(hint, sizeof hint, "give the tensor in .with");
    if (called)
        return eg__expression_refuse(p, at, length, hint, "'%.*s' is not a function",
                                     eg__limited(length), word);
    return eg__expression_refuse(
        p, at, length, hint[0] ? hint : NULL, "the %s's %s '%.*s' is not %s%s", p->s->noun,
        read          ? "tensor"
        : p->s->given ? "name"
                      : "index",
        eg__limited(length), word, all ? "one of " : "in the string", known);
}
int eg__name_length(const eg_parser *p)
{
    int n = 0;
    while (eg__name_starts(p->text[p->at + n]) || eg__digit(p->text[p->at + n])) n++;
    return n;
}
int eg__letter_called(const eg_parser *p, const char *text, int length)
{
    return axis_called(p->s->letter, p->s->letters, text, length);
}
