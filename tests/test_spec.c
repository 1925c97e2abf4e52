/* test_spec.c: eingrad/notation.h: strings and predicates as data, how they are edited, and
 * refusals. */
#include <eingrad/check.h>
#include <eingrad/notation.h>
#include "fixtures.h"
#include "tests.h"

static eg_ctx *cx;
static void open_cx(void) { cx = eg_open(.dtype = EG_F64, .seed = 3); }
static void close_cx(void) { eg_close(cx); }
GROUP("data", .setup = open_cx, .teardown = close_cx)

static const eg_spec *spec(const char *text) { return eg_spec_parse(cx, "mine", text); }
static const eg_formula *formula(const char *text) { return eg_formula_parse(cx, "mine", text); }

TEST(terms_as_data)
{
    const eg_spec *s = spec("b (h=8 d) [1 ...], () -> b d");
    eg_assert_ok(cx);
    ck_assert(s->terms == 2 && s->arrow && !s->names && s->indices == 3);
    ck_assert_str_eq(s->index[1].name, "h");
    ck_assert(s->index[1].size == 8 && s->index[1].fixed && s->index[2].size == -1);
    const eg_spec_term *t = &s->term[0];
    ck_assert(t->axes == 4 && t->items == 5);
    ck_assert(t->item[0].axis == 0 && t->item[0].group == 0 && !t->item[0].bracket);
    ck_assert(t->item[1].axis == 1 && t->item[2].axis == 1 && t->item[1].group == t->item[2].group);
    ck_assert(t->item[3].index == EG_INDEX_ONE && t->item[3].bracket && t->item[3].axis == 2);
    ck_assert(t->item[4].index == EG_INDEX_REST && t->item[4].axis == 3 && t->item[4].at == 13);
    ck_assert(s->term[1].axes == 1 && s->term[1].item[0].index == EG_INDEX_ONE);
    ck_assert(eg_spec_find_item(s, 0, "d") == 2 && eg_spec_axis(s, 0, "d") == 1);
    ck_assert(eg_spec_axis(s, 2, "d") == 1 && eg_spec_axis(s, 1, "d") == -1);
    ck_assert(eg_spec_axis(s, 0, "q") == -1 && eg_spec_axis(s, 3, "d") == -1);
    ck_assert(eg_spec_axis(NULL, 0, "d") == -1);
    s = spec("names: query head, head -> query");
    ck_assert(s->names && s->indices == 2 && !strcmp(s->index[0].name, "query"));
    s = spec("");
    ck_assert(s->terms == 1 && s->term[0].items == 0 && s->term[0].axes == 0);
    eg_assert_ok(cx);
}

TEST(sizes_are_bound)
{
    const eg_spec *s = spec("b (h=8 d), d k -> k"), *t;
    eg_tensor *x[] = { eg_ones(cx, 2, 24), eg_ones(cx, 3, 5) };
    t = eg_spec_bind(s, 2, x);
    eg_assert_ok(cx);
    ck_assert(t->index[0].size == 2 && t->index[2].size == 3 && t->index[3].size == 5);
    ck_assert(t->index[1].fixed && !t->index[2].fixed && s->index[0].size == -1);
    ck_assert_str_eq(eg_spec_of_term(t, 0)->text, "b (h=8 d)");
    x[0] = NULL;
    ck_assert_ptr_null(eg_spec_bind(s, 2, x));
    eg_assert_error(cx, "mine: index 'b' has no size");
    x[0] = eg_ones(cx, 2, 25);
    ck_assert_ptr_null(eg_spec_bind(s, 2, x));
    eg_assert_error(cx, "mine: (h=8 d) is 25 in operand 1, but h = 8, d = 3 gives another size\n"
                        "  b (h=8 d), d k -> k\n    ^^^^^^^");
    x[0] = eg_ones(cx, 2);
    ck_assert_ptr_null(eg_spec_bind(s, 2, x));
    ck_assert_int_eq(eg_error_code(cx), EG_ERROR_SHAPE);
    eg_clear(cx);
}

/* Each edit gives the shortest text with the same meaning, and its data are those of the text. */
enum { PICK, RENAME, REPLACE, INSERT, BRACKET, ITEMS };
static const struct {
    int edit;
    const char *text;
    int term, at;
    const char *name, *with, *is;
} edits[] = {
    { PICK, "b i [j], b j -> b", 0, 0, NULL, NULL, "b i [j]" },
    { PICK, "letters: b i, (h=8 d) -> b", 1, 0, NULL, NULL, "(h=8 d)" },
    { PICK, "names: b i -> b", 1, 0, NULL, NULL, "names: b" },
    { RENAME, "ij, jk -> ik", 0, 0, "j", "t", "it,tk->ik" },
    { RENAME, "i (j=4 k)", 0, 0, "j", "t", "i (t=4 k)" },
    { RENAME, "names: query key -> key", 0, 0, "key", "place_2",
      "names: query place_2 -> place_2" },
    { RENAME, "ij,jk", 0, 0, "j", "j", "ij,jk" },
    { REPLACE, "bhj,hj->b", 0, 0, "h", "(g r)", "b (g r) j, h j -> b" },
    { REPLACE, "bhj,hj->b", -1, 0, "h", "", "bj,j->b" },
    { REPLACE, "bhj,hj->b", -1, 0, "h", "gr", "bgrj,grj->b" },
    { REPLACE, "b (h d)", 0, 0, "h", "h=8", "b (h=8 d)" },
    { REPLACE, "b (h) d", 0, 0, "h", "", "b d" },
    { REPLACE, "b [h] d", 0, 0, "h", "", "b d" },
    { REPLACE, "b h -> h", 1, 0, "h", "1", "b h -> 1" },
    { INSERT, "bij,jk->bik", -1, 0, NULL, "c", "cbij,cjk->cbik" },
    { INSERT, "bij,jk->bik", 2, -1, NULL, "c", "bij,jk->bikc" },
    { INSERT, "b (h d) [j]", 0, 1, NULL, "c", "b c (h d) [j]" },
    { INSERT, "b (h d) [j]", 0, 2, NULL, "c", "b (h c d) [j]" },
    { INSERT, ",i", 0, 0, NULL, "c", "c,i" },
    { INSERT, "b [h] d", 0, -1, NULL, "fg", "b [h] d f g" },
    { REPLACE, "b (h d), b", 0, 0, "b", "fg=2", "f g=2 (h d), b" },
    { REPLACE, "b (h d)", 0, 0, "d", "fgj", "b (h f g j)" },
    { INSERT, "names: query key", 0, 5, NULL, "copy=3", "names: query key copy=3" },
    { BRACKET, "b [h] i (j k)", 0, 0, "k", NULL, "b h i (j [k])" },
    { BRACKET, "b [h] i j", 0, 0, NULL, NULL, "b h i j" },
    { BRACKET, "b h i j", 0, 0, "i", NULL, "b h [i] j" },
    { ITEMS, "names: query key, key -> key", 0, 0, NULL, NULL, "query key" },
    { ITEMS, "b ([h=2] d) 1 ... ()", 0, 0, NULL, NULL, "b ([h=2] d) 1 ... ()" },
    { ITEMS, "[(h d)] k", 0, 0, NULL, NULL, "([h d]) k" },
};
LOOP_TEST(edits_print_and_read_back, sizeof edits / sizeof *edits)
{
    const eg_spec *s = spec(edits[_i].text), *y = NULL;
    const char *name = edits[_i].name, *with = edits[_i].with;
    const int term = edits[_i].term;
    switch (edits[_i].edit) {
    case PICK: y = eg_spec_of_term(s, term); break;
    case RENAME: y = eg_spec_rename(s, name, with); break;
    case REPLACE: y = eg_spec_replace(s, term, name, with); break;
    case INSERT: y = eg_spec_insert(s, term, edits[_i].at, with); break;
    case BRACKET: y = eg_spec_bracket(s, term, name != NULL, &name); break;
    default: y = eg_spec_like(s, eg_spec_items(s, term)); break;
    }
    eg_assert_ok(cx);
    ck_assert_str_eq(y->text, edits[_i].is);
    const eg_spec *again = spec(y->text);
    eg_assert_ok(cx);
    ck_assert(edits[_i].edit == ITEMS || again->names == y->names);
    ck_assert(again->terms == y->terms && again->indices == y->indices);
}

TEST(terms_are_joined)
{
    const eg_spec *a = spec("b i [j]"), *b = spec("j k, never"), *out = spec("b k"),
                  *w = spec("names: query k"), *two[] = { a, b };
    ck_assert_str_eq(eg_spec_join(2, two, out)->text, "b i [j], j k -> b k");
    ck_assert_str_eq(eg_spec_join(1, two, NULL)->text, "b i [j]");
    ck_assert_ptr_null(eg_spec_join(2, NULL, NULL));
    two[0] = spec("ij");
    ck_assert_str_eq(eg_spec_join(2, two, out)->text, "ij,jk->bk");
    two[1] = w;
    ck_assert_str_eq(eg_spec_join(2, two, NULL)->text, "names: i j, query k");
    ck_assert_str_eq(eg_spec_like(w, "head k")->text, "head k");
    ck_assert(eg_spec_like(w, "head k")->indices == 2);
    ck_assert_str_eq(eg_spec_like(w, "head")->text, "names: head"); /* alone it is four letters */
    ck_assert_str_eq(eg_spec_like(w, "(d_k [head])")->text, "names: (d_k [head])");
    ck_assert_str_eq(eg_spec_like(w, "d1")->text, "names: d1"); /* an axis d and one of size 1 */
    ck_assert_str_eq(eg_spec_like(spec("letters: ij k"), "ij k")->text, "ijk");
    ck_assert_str_eq(eg_spec_unused(a, "n"), "n");
    ck_assert_str_eq(eg_spec_unused(a, "b"), "a");
    ck_assert_str_eq(eg_spec_unused(w, "query"), "query_2");
    eg_assert_ok(cx);
    two[0] = NULL;
    ck_assert_ptr_null(eg_spec_join(2, two, out));
    ck_assert_ptr_null(eg_spec_rename(eg_spec_of_term(NULL, 0), "a", "b"));
    ck_assert_ptr_null(eg_spec_items(NULL, 0));
    ck_assert_ptr_null(eg_spec_unused(NULL, "a"));
    eg_assert_ok(cx);
    const eg_spec *full = spec("abcdefghijklmnopqrstuvwxyz,ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    ck_assert_ptr_null(eg_spec_unused(full, "a"));
    eg_assert_error(cx, "the string already uses every letter");
}

TEST(specs_refuse)
{
    const eg_spec *s = spec("b i [j]");
    ck_assert_ptr_null(spec("b (i"));
    eg_assert_error(cx, "mine: '(' is not closed\n  b (i\n    ^");
    ck_assert_ptr_null(spec(NULL));
    eg_assert_error(cx, "mine: the spec is NULL");
    ck_assert_ptr_null(eg_spec_parse(NULL, "mine", "b"));
    ck_assert_ptr_null(eg_spec_rename(s, "i", "j"));
    eg_assert_error(cx, "mine: 'i' cannot be renamed to 'j', which is in the string already");
    ck_assert_ptr_null(eg_spec_rename(s, "i", "head"));
    eg_assert_error(cx, "mine: exactly one letter is needed\n  head\n  ^^^^");
    ck_assert_ptr_null(eg_spec_rename(s, "q", "h"));
    eg_assert_error(cx, "mine: the string has no index 'q'");
    ck_assert_ptr_null(eg_spec_replace(s, 0, "i", "a, c"));
    eg_assert_error(cx, "mine: items of exactly one term are needed");
    ck_assert_ptr_null(eg_spec_replace(s, 0, "i", "->"));
    eg_assert_error(cx, "mine: items of exactly one term are needed");
    ck_assert_ptr_null(eg_spec_replace(s, 0, "j", "[k]"));
    eg_assert_error(cx, "mine: brackets cannot be nested\n  b i [[k]]\n      ^^");
    ck_assert_ptr_null(eg_spec_replace(s, 7, "i", "a"));
    eg_assert_error(cx, "mine: \"b i [j]\" has no term 7");
    ck_assert_int_eq(eg_spec_bracket(s, 0, 0, NULL)->indices, 3);
    ck_assert_ptr_null(eg_spec_bracket(s, 0, 1, NULL));
    eg_assert_error(cx, "mine: the string has no index 'NULL'");
    ck_assert_ptr_null(eg_spec_bracket(s, 0, 1, (const char *const[]){ "q" }));
    eg_assert_error(cx, "mine: the string has no index 'q'");
    ck_assert_ptr_null(eg_spec_insert(s, 0, 0, NULL));
    eg_assert_error(cx, "mine: the items are NULL");
    ck_assert(!eg_ok(eg_spec_fail(s, EG_ERROR_INDEX, 0, 2, "no %s", "keys")));
    ck_assert_int_eq(eg_error_code(cx), EG_ERROR_INDEX);
    eg_assert_error(cx, "mine: no keys\n  b i [j]\n       ^");
    eg_spec_fail(s, EG_ERROR_SHAPE, 0, -1, "all");
    eg_assert_error(cx, "mine: all\n  b i [j]\n  ^^^^^^");
    eg_fail(cx, "before"); /* after an error nothing is made */
    ck_assert_ptr_null(spec("b"));
    ck_assert_ptr_null(eg_spec_of_term(s, 0));
    ck_assert_ptr_null(eg_formula_replace(formula("j"), "j", "i", NULL));
    eg_clear(cx);
}

static const struct {
    const char *text, *name, *value, *size, *is;
} changed[] = {
    { "j <= i", "i", "i + 5", NULL, "j <= (i + 5)" },
    { "j <= i & i < |i|", "i", "k", "|k| + 2", "j <= k & k < (|k| + 2)" },
    { "j - | j | <= i - |i|", "j", NULL, "12", "j - 12 <= i - |i|" },
    { "h % 2 == 0 | hh == h", "h", "g*4+r", "8", "(g*4+r) % 2 == 0 | hh == (g*4+r)" },
    { "i - 3 < j <= i", "i", "-i", NULL, "(-i) - 3 < j <= (-i)" },
    { "j <= i", "q", "1", "2", "j <= i" },
    { "j <= i || i < 2", "i", "(i)", NULL, "j <= ((i)) || ((i)) < 2" },
    { "i", "i", "7", NULL, "7" },
    { "j % h == 0 & i / h < 2", "h", "0", NULL, "j % (0) == 0 & i / (0) < 2" },
    { "clip(i - j, 0, |i|) < abs(i)", "i", "i + 1", "9", "clip((i + 1) - j, 0, 9) < abs((i + 1))" },
    { "i < j ? min(i, 4) : -i", "i", "k", NULL, "k < j ? min(k, 4) : -k" },
};
LOOP_TEST(formulas_are_changed, sizeof changed / sizeof *changed)
{
    const eg_formula *f = formula(changed[_i].text),
                     *y = eg_formula_replace(f, changed[_i].name, changed[_i].value,
                                             changed[_i].size);
    eg_assert_ok(cx);
    ck_assert_str_eq(y->text, changed[_i].is);
    ck_assert(y->condition == f->condition);
}

TEST(an_offset_counts_positions)
{
    static const char message[] =
        ".offset is -1, but it is the number of positions before the first query";
    static const char *const who[] = { "softmax: ",   "where_mask: ",       "attention: ",
                                       "attention: ", "linear_attention: ", "mha \"a\": " };
    eg_tensor *q = eg_ones(cx, 1, 3, 2), *m = eg_ones(cx, 1), *x = eg_ones(cx, 1, 3, 4);
    eg_mha *a = eg_mha_new(eg_params_open(cx), "a", .d_model = 4, .heads = 2, .rotary = 1e4);
    for (int k = 0; k < 6; k++) {
        char want[120];
        switch (k) {
        case 0: eg_softmax("i [j]", eg_ones(cx, 3, 3), .where = "j <= i", .offset = -1); break;
        case 1: eg_where_mask(cx, "j <= i", "i [j]", -1, (int64_t[]){ 3, 3 }); break;
        case 2: eg_attention("bid,bjd,bje->bie", q, q, q, .where = "j < 2", .offset = -1); break;
        case 3: eg_attention("bid,bjd,bje->bie", q, q, q, .alibi = { "b", m }, .offset = -1); break;
        case 4: eg_linear_attention("bid,bjd,bje->bie", q, q, q, .offset = -1); break;
        case 5: eg_mha_run(a, x, .offset = -1); break; /* only rotary positions */
        }
        snprintf(want, sizeof want, "%s%s", who[k], message);
        eg_assert_error(cx, want);
    }
}

/* i replaced by i + 2 is the mask with an offset of 2; the same with |i|. */
TEST(a_replaced_index_is_an_offset)
{
    static const char *const where[] = { "j <= i", "i - 3 < j <= i", "(i - j) % 3 == 1 | i*i < j",
                                         "j - |j| <= i - |i|", "!(i/2 == j/2) & |i| > j" };
    for (size_t k = 0; k < sizeof where / sizeof *where; k++) {
        const eg_formula *f = eg_formula_replace(formula(where[k]), "i", "i + 2", "|i| + 2");
        const int64_t sizes[] = { 4, 9 };
        eg_tensor *a = eg_where_mask(cx, f->text, "i [j]", 0, sizes),
                  *b = eg_where_mask(cx, where[k], "i [j]", 2, sizes);
        eg_assert_close(eg_cast(a, EG_F64), eg_cast(b, EG_F64), 0);
        eg_tensor *x = eg_normal(cx, 0, 1, 4, 9);
        eg_assert_close(eg_softmax("i [j]", x, .where = where[k], .offset = 2),
                        eg_softmax("i [j]", x, .where = f->text), 0);
        eg_tensor *q = eg_normal(cx, 0, 1, 4, 3), *v = eg_normal(cx, 0, 1, 9, 3);
        for (int form = EG_FUSED; form <= EG_UNFUSED; form++)
            eg_assert_close(
                eg_attention("id,jd,je->ie", q, v, v, .where = where[k], .offset = 2,
                             .form = (eg_form)form),
                eg_attention("id,jd,je->ie", q, v, v, .where = f->text, .form = (eg_form)form), 0);
    }
}

TEST(formulas_as_data)
{
    const eg_formula *f = formula("j <= i & |h| > i");
    ck_assert(f->condition && f->indices == 3 && !strcmp(f->index[0], "j"));
    ck_assert(eg_formula_has(f, "h") && !eg_formula_has(f, "k") && !eg_formula_has(NULL, "h"));
    ck_assert(!formula("i + 1")->condition);
    /* the name of a function is not an index */
    f = formula("max(i, 3) == abs(i - |abs|) | 0 <= abs < 4");
    ck_assert(f->condition && f->indices == 2 && !strcmp(f->index[1], "abs"));
    ck_assert_str_eq(eg_formula_replace(f, "abs", "a", "8")->text,
                     "max(i, 3) == abs(i - 8) | 0 <= a < 4");
    f = formula("j <= i & |h| > i");
    ck_assert_str_eq(eg_formula_and(f, formula("1 < j | i == 0"))->text,
                     "(j <= i & |h| > i) & (1 < j | i == 0)");
    ck_assert(eg_formula_and(NULL, f) == f && eg_formula_and(f, NULL) == f);
    ck_assert(eg_formula_equals(formula("j<= i"), formula(" j <=i ")));
    ck_assert(!eg_formula_equals(formula("j <= i"), formula("j < i")));
    ck_assert(!eg_formula_equals(formula("j <= i"), formula("j <= i1")));
    ck_assert(!eg_formula_equals(formula("j <= i"), NULL));
    /* a name before brackets is a tensor; its indices are those of the formula */
    f = formula(
        "j <= i & doc[b, i] == doc[b, bucket[j]] | keep[b,j] & !(i < 2 ? keep[b, i] : i < j)");
    eg_assert_ok(cx);
    ck_assert(f->condition && f->indices == 3 && f->tensors == 3);
    ck_assert(!strcmp(f->tensor[0], "doc") && !strcmp(f->tensor[1], "bucket") &&
              !strcmp(f->tensor[2], "keep") && !eg_formula_has(f, "doc"));
    ck_assert_str_eq(eg_formula_replace(f, "i", "i + 4", "|i|")->text,
                     "j <= (i + 4) & doc[b, (i + 4)] == doc[b, bucket[j]] | "
                     "keep[b,j] & !((i + 4) < 2 ? keep[b, (i + 4)] : (i + 4) < j)");
    ck_assert(formula("keep[b,j]")->condition && formula("!keep[j]")->condition);
    ck_assert(!formula("doc[b,j] + 1")->condition);
    eg_assert_ok(cx);
    ck_assert_ptr_null(formula("doc[b,j"));
    eg_assert_error(cx, "mine: '[' is not closed");
    ck_assert_ptr_null(formula("j <= "));
    eg_assert_error(cx, "mine: the predicate ends where a number or an index is expected\n"
                        "  j <= \n       ^");
    ck_assert_ptr_null(eg_formula_replace(f, "i", "i <", NULL));
    eg_assert_error(cx, "mine: the predicate ends");
    ck_assert_ptr_null(eg_formula_replace(f, "i", "i < 2", NULL));
    eg_assert_error(cx, "mine: a number is needed, but this is a condition");
    ck_assert_ptr_null(eg_formula_and(f, formula("i")));
    eg_assert_error(cx, "mine: '&' joins conditions, but there is a number after it");
    ck_assert_ptr_null(formula("i < 0.5"));
    eg_assert_error(cx, "mine: a predicate consists of integers and booleans, not of floats");
    ck_assert_ptr_null(formula("exp(i) < j"));
    eg_assert_error(cx, "mine: exp makes a float");
    char many[800] = "i";
    for (int k = 1; k < 256; k++) strcat(many, "+i");
    ck_assert_int_eq(formula(many)->occurrences, 256);
    ck_assert_ptr_null(formula(strcat(many, "+i")));
    eg_assert_error(cx, "mine: the predicate is too long");
    ck_assert_ptr_null(eg_formula_parse(NULL, "mine", "i"));
    ck_assert(!eg_formula_parse_with(NULL, NULL) && eg_formula_terms(NULL, 1, NULL) == -1);
    ck_assert_int_eq(eg_formula_terms(formula("i < j"), 1, NULL), -1);
    eg_assert_error(cx, "mine: the list for the conditions is NULL");
}

/* If several query indices are in the predicate, the call says which one is shifted. */
TEST(offset_letters)
{
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 3, 8), *q = eg_normal(cx, 0, 1, 3, 2, 4),
              *k = eg_normal(cx, 0, 1, 8, 2, 4), *m = eg_ones(cx, 2);
    static const char spec_[] = "ihd,jhd,jhe->ihe";
    ck_assert(!eg_ok(eg_softmax("h i [j]", x, .where = "j <= i + h", .offset = 2)));
    eg_assert_error(cx, "softmax: .offset is 2, but \"j <= i + h\" has more than one index that it "
                        "could move; name one by .offset_letter");
    eg_assert_close(
        eg_softmax("h i [j]", x, .where = "j <= i + h", .offset = 2, .offset_letter = "i"),
        eg_softmax("h i [j]", x, .where = "j <= i + h + 2"), 0);
    eg_assert_close(
        eg_softmax("h i [j]", x, .where = "j <= i + 2*h", .offset = 2, .offset_letter = "h"),
        eg_softmax("h i [j]", x, .where = "j <= i + 2*h + 4"), 0);
    ck_assert(!eg_ok(eg_softmax("h i [j]", x, .where = "j <= i", .offset_letter = "j")));
    eg_assert_error(cx, "softmax: .offset_letter is 'j', which is no index of the queries");
    /* attention knows the letter that only the query has */
    eg_assert_close(
        eg_attention(spec_, q, k, k, .where = "j <= i + h", .offset = 2),
        eg_attention(spec_, q, k, k, .where = "j <= i + h", .offset = 2, .offset_letter = "i"), 0);
    eg_tensor *one = eg_attention(spec_, q, k, k, .where = "j <= i + h", .offset = 2,
                                  .offset_letter = "i"),
              *two = eg_attention(spec_, q, k, k, .where = "j <= i + h", .offset = 2,
                                  .offset_letter = "h");
    eg_assert_close(one, eg_attention(spec_, q, k, k, .where = "j <= i + 2 + h"), 0);
    eg_assert_close(two, eg_attention(spec_, q, k, k, .where = "j <= i + h + 2"), 0);
    ck_assert(!eg_ok(
        eg_attention(spec_, q, k, k, .where = "j < 4 + h", .offset = 2, .alibi = { "h", m })));
    eg_assert_error(cx, "attention: .offset is 2, but .alibi counts from 'i' and \"j < 4 + h\" has "
                        "another index that it could move; say .offset_letter = \"i\"");
    ck_assert(eg_ok(eg_attention(spec_, q, k, k, .where = "j < 4 + h", .offset = 2,
                                 .offset_letter = "i", .alibi = { "h", m })));
    /* the letter of the queries whose distance ALiBi takes, among grouped heads that share slopes
     */
    static const char grouped[] = "ighd,jhd,jhe->ighe";
    eg_tensor *g = eg_normal(cx, 0, 1, 3, 5, 2, 4), *slopes = eg_from(cx, ((double[]){ 1, .5 }), 2);
    ck_assert(!eg_ok(eg_attention(grouped, g, k, k, .alibi = { "h", slopes })));
    eg_assert_error(cx, "attention: .alibi takes the distance between one query index and one key "
                        "index that the slopes do not have; here are 2 and 1");
    for (int offset = 0; offset < 3; offset += 2)
        for (int form = EG_FUSED; form <= EG_UNFUSED; form++)
            eg_assert_close(eg_attention(grouped, g, k, k, .alibi = { "h", slopes },
                                         .offset = offset, .offset_letter = "i", .form = form),
                            eg_attention(grouped, g, k, k, .with = { { "m", slopes } },
                                         .score = offset ? "score - m[h] * abs(i + 2 - j)"
                                                         : "score - m[h] * abs(i - j)",
                                         .form = form),
                            1e-12);
    ck_assert(!eg_ok(eg_where_mask(cx, "j <= i + h", "h i [j]", 2, (int64_t[]){ 2, 3, 8 })));
    eg_assert_error(cx, "where_mask: .offset is 2, but \"j <= i + h\" has more than one index that "
                        "it could move; name one by .offset_letter");
    eg_tensor *first =
        eg_where_mask(cx, "j <= i + h", "h i [j]", 2, (int64_t[]){ 2, 3, 8 }, .offset_letter = "h");
    eg_assert_close(first, eg_where_mask(cx, "j <= i + h + 2", "h i [j]", 0, eg_dims(first)), 0);
    ck_assert(eg_ok(eg_where_mask(cx, "j <= i + h", "[h] i [j]", 2, (int64_t[]){ 2, 3, 8 })));
}

/* Each allocation fails in turn: NULL, with the code of the error. */
TEST(specs_without_memory)
{
    int failures = 0;
    for (int allowed = 0; allowed < 40; allowed++) {
        int left = allowed;
        eg_ctx *small = eg_open(.realloc = failing, .user = &left);
        bool good = small != NULL;
        for (int k = 0; k < 600 && good; k++) {
            const eg_spec *s = eg_spec_parse(small, "mine", "b (h=8 d), d k -> k");
            const eg_formula *f = eg_formula_parse(small, "mine", "j <= i");
            good = eg_spec_items(eg_spec_replace(eg_spec_rename(s, "b", "c"), 0, "d", "e f"), 0) &&
                   eg_formula_and(f, eg_formula_replace(f, "i", "i + 1", "|i| + 1"));
        }
        failures += !good;
        if (small && !good) ck_assert_int_eq(eg_error_code(small), EG_ERROR_MEMORY);
        eg_close(small);
    }
    ck_assert_int_gt(failures, 2);
}

/* -- formulas over known names ----------------------------------------------------------------- */
GROUP("known", .setup = open_cx, .teardown = close_cx)

TEST(formulas_over_known_names)
{
    eg_tensor *doc = eg_full_n(cx, EG_I32, 0, 2, (int64_t[]){ 2, 3 });
    eg_formula_args o = { .size = sizeof o, .who = "mine", .indices = "batch  i j" };
    o.text = "doc[batch, i] == doc[batch, j] & pad[j] & i < |j|";
    const eg_formula *f = eg_formula_parse_with(cx, &o);
    eg_assert_ok(cx);
    ck_assert(f->condition && f->indices == 3 && f->tensors == 2 && eg_formula_reads(f, "pad"));
    f = eg_formula_replace(f, "i", "i + 5", "9");
    ck_assert_str_eq(f->text, "doc[batch, (i + 5)] == doc[batch, j] & pad[j] & (i + 5) < |j|");
    o.complete = true;
    const eg_given with[] = { { "doc", doc }, { NULL, NULL } };
    o.with = with;
    ck_assert_ptr_null(eg_formula_parse_with(cx, &o));
    eg_assert_error(cx,
                    "mine: the predicate's tensor 'pad' is not one of 'batch', 'i', 'j', 'doc'\n");
    o.any_tensor = true;
    ck_assert_ptr_nonnull(eg_formula_parse_with(cx, &o));
    /* an integer is not a condition; an element of an unknown tensor may be one */
    o.text = "doc[batch, i]";
    ck_assert_ptr_null(eg_formula_parse_with(cx, &o));
    eg_assert_error(cx, "mine: the predicate is a number, not a condition");
    o.text = "pad[j]";
    ck_assert_ptr_nonnull(eg_formula_parse_with(cx, &o));
    o.text = "doc[i]";
    ck_assert_ptr_null(eg_formula_parse_with(cx, &o));
    eg_assert_error(cx, "mine: 'doc' has 2 axes, but its brackets have 1 index");
    o.text = "b < i";
    ck_assert_ptr_null(eg_formula_parse_with(cx, &o));
    eg_assert_error(cx, "mine: the predicate's name 'b' is not one of");
    o.text = "score + 1.5", o.score = true;
    ck_assert_ptr_nonnull(eg_formula_parse_with(cx, &o));
    o.with = (const eg_given[]){ { "doc", NULL }, { NULL, NULL } };
    ck_assert_ptr_null(eg_formula_parse_with(cx, &o));
    eg_assert_error(cx, "mine: 'doc' of .with is NULL");
}

LOOP_TEST(terms_of_a_predicate, 19)
{
    static const struct {
        const char *text, *terms[4];
    } cases[] = {
        { "j <= i", { "j <= i" } },
        { "j <= i & pad[b,j] && h < 2", { "j <= i", "pad[b,j]", "h < 2" } },
        { "(j <= i & pad[j]) & (i > 3)", { "j <= i", "pad[j]", "i > 3" } },
        { "((j<=i) & (x[i] & (y[j])))", { "j<=i", "x[i]", "y[j]" } },
        { "j <= i | pad[j]", { "j <= i | pad[j]" } },
        { "(j <= i | pad[j]) & !(i < 2 & j < 3)", { "j <= i | pad[j]", "!(i < 2 & j < 3)" } },
        { "0 <= j <= i & j < 5", { "0 <= j <= i", "j < 5" } },
        { "j <= i & (j <= i)", { "j <= i", "j <= i" } },
        { "a[j] & b[j] & a[j]", { "a[j]", "b[j]", "a[j]" } },
        { "i > 0 ? j < 3 : j < 4", { "i > 0 ? j < 3 : j < 4" } },
        { "(i > 0 & j > 0) & (i < 4 | j < 4)", { "i > 0", "j > 0", "i < 4 | j < 4" } },
        { "i < |i| - 1 & j < |j| - 1", { "i < |i| - 1", "j < |j| - 1" } },
        { "i <= j & j <= i & i % 2 == 0", { "i <= j", "j <= i", "i % 2 == 0" } },
        { "j <= i & 0 <= j <= i", { "j <= i", "0 <= j <= i" } },
        { "0 <= j <= i & j <= i", { "0 <= j <= i", "j <= i" } },
        { "(0 <= i < 3) & 0 <= i & i < 3", { "0 <= i < 3", "0 <= i", "i < 3" } },
        { "((i < 1) & b[j]) & ((j < 2 & i < 3))", { "i < 1", "b[j]", "j < 2", "i < 3" } },
        { "all(k=2, a[k] & k < i) & (i < 2 ? b[j] & j < 3 : j < 4)",
          { "all(k=2, a[k] & k < i)", "i < 2 ? b[j] & j < 3 : j < 4" } },
        { "a[j] & i + i + i + i + i + i + i + i + i + i + i + i + i + i < 9 & c[j]",
          { "a[j]", "i + i + i + i + i + i + i + i + i + i + i + i + i + i < 9", "c[j]" } },
    };
    const eg_formula *term[4] = { NULL }, *f = formula(cases[_i].text);
    int n = 0;
    while (n < 4 && cases[_i].terms[n]) n++;
    ck_assert_int_eq(eg_formula_terms(f, 4, term), n);
    for (int k = 0; k < n; k++) ck_assert_str_eq(term[k]->text, cases[_i].terms[k]);
    if (n == 1) return;
    ck_assert_int_eq(eg_formula_terms(f, 1, term), -1);
    eg_assert_error(cx, "mine: more than 1 condition is joined: ");
}
