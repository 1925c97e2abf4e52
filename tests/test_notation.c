/* test_notation.c: the parser, sizes, every refusal with its message, mask predicates. The values
 * are tested in test_einsum.c. */
#include <eingrad/check.h>
#include <eingrad/einsum.h>
#include <notation/notation.h>
#include <stdlib.h>
#include "fixtures.h"
#include "tests.h"

static eg_ctx *cx;
static void open_cx(void) { cx = eg_open(); }
static void close_cx(void) { eg_close(cx); }

enum {
    I = EG_NOTATION_IMPLICIT,
    B = EG_NOTATION_BRACKETS,
    ONES = EG_NOTATION_ONES,
    NEW = EG_NOTATION_NEW_OUT,
    UNION = EG_NOTATION_UNION
};

static int shapes(const char *s, eg_tensor **x) /* "2x3, 4, ()": tensors; "-": NULL */
{
    int n = 0;
    while (*s) {
        int64_t dim[EG_RANK_MAX];
        int rank = 0;
        bool none = false;
        for (; *s && *s != ','; s++) {
            if (*s == '-') none = true;
            if (*s >= '0' && *s <= '9') {
                char *end;
                dim[rank++] = strtoll(s, &end, 10);
                s = end - 1;
            }
        }
        x[n++] = none ? NULL : eg_full_n(cx, EG_F32, 0, rank, dim);
        if (*s) s++;
    }
    return n;
}
static const eg_bound *bind_to(const char *who, int flags, const char *spec, const char *operands)
{
    eg_tensor *x[70];
    const int n = shapes(operands, x);
    return eg__bind(who, spec, flags, n, x, 0, NULL);
}
/* Writes "i=2 j=3: ij,j->(i j)", with v after an operand that became a view. */
static const char *describe(const eg_bound *b)
{
    static char text[600];
    size_t n = 0;
#define SAY(...) n += (size_t)snprintf(text + n, sizeof text - n, __VA_ARGS__)
    text[0] = 0;
    for (int a = 0; a < b->axes; a++)
        SAY("%.*s=%lld ", b->axis[a].length, b->axis[a].text, (long long)b->axis[a].size);
    for (int k = 0; k <= b->terms; k++) {
        const eg_bound_term *t = k < b->terms ? &b->term[k] : &b->out;
        if (k == b->terms && !b->arrow) break;
        if (k == b->terms)
            SAY("->");
        else if (k)
            SAY(",");
        for (int r = 0; r < t->rank; r++) {
            const bool group = t->last[r] - t->first[r] > 1;
            SAY("%s%s", r ? " " : "", group ? "(" : t->last[r] == t->first[r] ? "1" : "");
            for (int i = t->first[r]; i < t->last[r]; i++) {
                const int a = t->item[i].axis;
                SAY("%s%s%.*s", i > t->first[r] ? " " : "", t->item[i].bracket ? "*" : "",
                    b->axis[a].length, b->axis[a].text);
                if (b->axis[a].text[0] == '.') SAY("%d", b->axes - a);
            }
            SAY("%s", group ? ")" : "");
        }
        if (k < b->terms && t->x && t->x->dim != t->dim) SAY("v");
    }
#undef SAY
    return text;
}

/* -- valid strings ----------------------------------------------------------------------------- */
static const struct {
    int flags;
    const char *spec, *operands, *is;
} taken[] = {
    { I, "ij,jk->ik", "2x3, 3x4", "i=2 j=3 k=4 i j,j k->i k" },
    { I, "ij,jk", "2x3, 3x4", "i=2 j=3 k=4 i j,j k->i k" },
    { I, "ba", "2x3", "b=2 a=3 b a->a b" },
    { I, "aB,Bc", "2x3, 3x4", "a=2 B=3 c=4 a B,B c->a c" },
    { I, "bA", "2x3", "b=2 A=3 b A->A b" },
    { I, "ii", "3x3", "i=3 i i->" },
    { I, "i->ii", "3", "i=3 i->i i" },
    { I, "ii->i", "3x3", "i=3 i i->i" },
    { I, "", "()", "->" },
    { I, ",", "(), ()", ",->" },
    { I, "->", "()", "->" },
    { I, ",i->", "(), 3", "i=3 ,i->" },
    { I, " i j , j k -> i k ", "2x3, 3x4", "i=2 j=3 k=4 i j,j k->i k" },
    { I, "i j,\tjk\n->ik", "2x3, 3x4", "i=2 j=3 k=4 i j,j k->i k" },
    { I, "ij->", "0x3", "i=0 j=3 i j->" },
    { I, "...", "2x3", "...=2 ...=3 ...2 ...1->...2 ...1" },
    { I, "...", "()", "->" },
    { I, "...ii->...i", "4x3x3", "i=3 ...=4 ...1 i i->...1 i" },
    { I, "i...i->i...", "3x4x3", "i=3 ...=4 i ...1 i->i ...1" },
    { I, "...,...", "2x3, 3", "...=2 ...=3 ...2 ...1,...1->...2 ...1" },
    { I, "...,...", "2x1, 3", "...=2 ...=3 ...2 1v,...1->...2 ...1" },
    { I, "...ij,...jk->...ik", "1x2x3, 5x3x4", "i=2 j=3 k=4 ...=5 1 i jv,...1 j k->...1 i k" },
    { I, "ij...,j...->ij...", "2x3x4, 3", "i=2 j=3 ...=4 i j ...1,j->i j ...1" },
    { I, "ik...,...kj->i...j", "2x3, 3x4", "i=2 k=3 j=4 i k,k j->i j" },
    { I, "i->...i", "2", "i=2 i->i" },
    { I, "i...->i...", "0x1x0", "i=0 ...=1 ...=0 i ...2 ...1->i ...2 ...1" },
    { I, "batch query d, batch key d -> batch query key", "2x3x4, 2x5x4",
      "batch=2 query=3 d=4 key=5 batch query d,batch key d->batch query key" },
    { I, "batch head, head -> batch", "2x3, 3", "batch=2 head=3 batch head,head->batch" },
    { I, "d_k d_v, d_v x1", "2x3, 3x4", "d_k=2 d_v=3 x1=4 d_k d_v,d_v x1->d_k x1" },
    { I, "... head d -> ... d", "2x3x4x5x6",
      "head=5 d=6 ...=2 ...=3 ...=4 ...3 ...2 ...1 head d->...3 ...2 ...1 d" },
    { NEW, "b l (h=8 d) -> b h l d", "2x5x64", "b=2 l=5 h=8 d=8 b l (h d)v->b h l d" },
    { NEW, "b h l d -> b l (h d)", "2x8x5x8", "b=2 h=8 l=5 d=8 b h l d->b l (h d)" },
    { NEW, "(a=2 b c=3) -> a b c", "24", "a=2 b=4 c=3 (a b c)v->a b c" },
    { NEW, "(a=2 b) -> a b", "0", "a=2 b=0 (a b)v->a b" },
    { I, "bl(hd),hde->ble", "2x5x6, 2x3x7", "b=2 l=5 h=2 d=3 e=7 b l (h d)v,h d e->b l e" },
    { I, "(ab)(bc),b->ac", "6x12, 3", "a=2 b=3 c=4 (a b) (b c)v,b->a c" },
    { I, "(ab),(bc),c->a", "6, 12, 4", "a=2 b=3 c=4 (a b)v,(b c)v,c->a" }, /* c gives b gives a */
    { NEW, "b 1 l -> l b 1 ()", "2x1x3", "b=2 l=3 b 1 lv->l b 1 1" },
    { NEW, "b () -> b (1)", "2x1", "b=2 b 1v->b 1" },
    { NEW, "(h 1) -> h", "2", "h=2 h->h" },
    { NEW, "b -> b r=3", "2", "b=2 r=3 b->b r" },
    { NEW, "b ... -> (b ...)", "2x3x4", "b=2 ...=3 ...=4 b ...2 ...1->(b ...2 ...1)" },
    { NEW, "head=2 width -> width head", "2x3", "head=2 width=3 head width->width head" },
    { B, "b h i [j]", "2x3x4x5", "b=2 h=3 i=4 j=5 b h i *j" },
    { B, "b [s t]", "2x3x4", "b=2 s=3 t=4 b *s *t" },
    { B, "b ([h=2] d)", "2x6", "b=2 h=2 d=3 b (*h d)v" },
    { B, "b [(h=2 d)]", "2x6", "b=2 h=2 d=3 b (*h *d)v" },
    { B, "[...] d -> d", "2x3x4", "d=4 ...=2 ...=3 *...2 *...1 d->d" },
    { B, "[v] m, b l -> b l m", "26x8, 2x5", "v=26 m=8 b=2 l=5 *v m,b l->b l m" },
    { UNION, "bhij, hij", "2x3x4x5, 3x4x5", "b=2 h=3 i=4 j=5 b h i j,h i j->b h i j" },
    { UNION, "i, j", "2, 3", "i=2 j=3 i,j->i j" },
    { UNION, "j, ...j", "3, 2x3", "j=3 ...=2 j,...1 j->j ...1" },
    { ONES | I, "ij,jk->ik", "2x1, 3x4", "i=2 j=3 k=4 i 1v,j k->i k" },
    { ONES | I, "ik,jk->ij", "4x1, 1x3", "i=4 k=3 j=1 i 1v,j k->i j" },
    { ONES | I, "i,i", "1, 1", "i=1 i,i->" },
    { ONES | I, "i,i,i->i", "1, 0, 1", "i=0 1v,i,1v->i" },
    { I, "names: ij,jk->ij", "2, 3", "ij=2 jk=3 ij,jk->ij" },
    { I, "names:batch,batch->batch", "2, 2", "batch=2 batch,batch->batch" },
    { I, "names: i j, j k", "2x3, 3x4", "i=2 j=3 k=4 i j,j k->i k" },
    { I, "names: ...k ij->...", "2x3x4", "k=3 ij=4 ...=2 ...1 k ij->...1" },
    { I, "\tletters :ij k->k", "2x3x4", "i=2 j=3 k=4 i j k->k" },
    { I, "letters: ...k ij->...", "2x3x4x5", "k=3 i=4 j=5 ...=2 ...1 k i j->...1" },
    { I, "letters:", "()", "->" },
    { NEW, "names: head ... -> ... head", "2x3x4",
      "head=2 ...=3 ...=4 head ...2 ...1->...2 ...1 head" },
    { NEW, "letters: head ... -> ... head", "2x3x4x5x6",
      "h=2 e=3 a=4 d=5 ...=6 h e a d ...1->...1 h e a d" },
    { NEW, "names: (bt=2) -> bt", "2", "bt=2 bt->bt" },
    { B, "names: [key]", "5", "key=5 *key" },
    /* words that make one axis in groups on both sides: letters or names give the same result */
    { NEW, "b(hd=2)->(hd)b", "3x6", "b=3 h=3 d=2 b (h d)v->(h d) b" },
    { NEW, "(hd=2) ... -> ... (hd)", "6x3", "h=3 d=2 ...=3 (h d) ...1v->...1 (h d)" },
    { I, "b i, b -> b", "2x3, -", "b=2 i=3 b i,b->b" },
};

GROUP("strings", .setup = open_cx, .teardown = close_cx, .timeout = 60)

LOOP_TEST(valid_strings_are_bound_as_described, sizeof taken / sizeof *taken)
{
    const eg_bound *b = bind_to("test", taken[_i].flags, taken[_i].spec, taken[_i].operands);
    ck_assert_msg(b != NULL, "'%s': %s", taken[_i].spec, eg_error(cx));
    ck_assert_str_eq(describe(b), taken[_i].is);
    for (int k = 0; k < b->terms; k++)
        for (int i = 0; b->term[k].x && i < b->term[k].items; i++)
            ck_assert_int_eq(eg_dim(b->term[k].x, i), b->axis[b->term[k].item[i].axis].size);
}

/* -- invalid strings, with the complete message ------------------------------------------------ */
static const struct {
    const char *who;
    int flags;
    const char *spec, *operands, *says;
} refused[] = {
    { "einsum", I, "ibhd,jbhd->ijbh", "10x2x8x64, 12x2x8x32",
      "einsum: index 'd' is 64 in operand 1 but 32 in operand 2\n"
      "  ibhd,jbhd->ijbh\n"
      "     ^    ^        operand 1 is (10, 2, 8, 64), operand 2 is (12, 2, 8, 32)" },
    { "einsum", I, "ibhd,jbhd->ijbh", "10x2x8x64, 12x2x64x8",
      "einsum: index 'h' is 8 in operand 1 but 64 in operand 2\n"
      "  ibhd,jbhd->ijbh\n"
      "    ^    ^         operand 1 is (10, 2, 8, 64), operand 2 is (12, 2, 64, 8)\n"
      "  operand 2 would fit as 'jbdh'" },
    { "einsum", I, "ij,jk->ik", "4x5, 3x4", "\n  operands 1 and 2 exchanged would fit" },
    { "on", UNION, "bijh,hij", "2x9x9x3, 9x9x3",
      "\n  operand 2 would fit as 'ijh'" }, /* 'jih' fits as well */
    { "einsum", I, "batch query d, batch key d -> query key", "2x3x4, 5x2x4",
      "\n  operand 2 would fit as 'key batch d'" },
    { "einsum", I, "ij,jk->ik", "4x5, 1x4",
      "einsum: index 'j' is 5 in operand 1 but 1 in operand 2\n"
      "  ij,jk->ik\n"
      "   ^ ^       operand 1 is (4, 5), operand 2 is (1, 4)\n"
      "  an axis of size 1 is not broadcast here: set .broadcast, or leave the "
      "letter out of operand 2" },
    { "on", UNION, "ij,j", "4x5, 1", "on: index 'j' is 5 in operand 1 but 1 in operand 2" },
    { "on", UNION, "ij,j", "4x5, 1", "leave the letter out of operand 2, and it broadcasts" },
    { "einsum", I, "ii->i", "4x5",
      "einsum: index 'i' is 4 and 5 in operand 1\n  ii->i\n  ^^     operand 1 is (4, 5)" },
    { "einsum", I | ONES, "ii->i", "1x5", "einsum: index 'i' is 1 and 5 in operand 1" },
    { "einsum", I, "...ij,...jk", "7x4x5, 3x5x4",
      "einsum: under '...' axis 0 of operand 1 is 7 but axis 0 of operand 2 is 3\n"
      "  ...ij,...jk\n"
      "  ^^^   ^^^    operand 1 is (7, 4, 5), operand 2 is (3, 5, 4)" },
    { "einsum", I, "...i,i...", "2x7x4, 4x9x7",
      "einsum: under '...' axis 0 of operand 1 is 2 but axis 1 of operand 2 is 9\n"
      "  ...i,i...\n"
      "  ^^^   ^^^  operand 1 is (2, 7, 4), operand 2 is (4, 9, 7)" },
    { "einsum", I, "...ij->ij", "7x4x5",
      "einsum: the output has no '...', which stands for 1 axis of operand 1\n  ...ij->ij\n  ^^^" },
    { "einsum", I, "ij,jk->ik", "2x3x4, 4x5",
      "einsum: operand 1 has rank 3: (2, 3, 4), its term 'ij' names 2 axes\n  ij,jk->ik\n  ^^" },
    { "einsum", I, "i...j", "2",
      "einsum: operand 1 has rank 1: (2,), its term 'i...j' names at least 2 axes" },
    { "einsum", I, "i", "()", "einsum: operand 1 has rank 0: (), its term 'i' names 1 axis" },
    { "einsum", I, "ij k->k", "2x3x4",
      "einsum: operand 1 has rank 3: (2, 3, 4), its term 'ij k' names 2 axes\n"
      "  ij k->k\n"
      "  ^^^^\n"
      "  blanks separate these, so they are read as names: letters are written 'i j k' or "
      "'ijk'" },
    { "einsum", I, "...k ij->...", "2x3x4x5",
      "einsum: with '...' the string can be read as letters and as names\n"
      "  ...k ij->...\n"
      "  for names begin it with 'names:', for letters with 'letters:'" },
    { "rearrange", NEW, "head ... -> ... head", "2x3x4x5x6",
      "rearrange: 'head' can be read as a name or as the letters h e a d\n"
      "  head ... -> ... head\n"
      "  ^^^^\n"
      "  say 'names: head ... -> ... head', or write 'h e a d ... -> ... h e a d'" },
    { "rearrange", NEW, "time ... -> ... time", "2x3x4x5x6", "or as the letters t i m e" },
    { "rearrange", NEW, "(bt=2) -> bt", "6",
      "rearrange: 'bt' can be read as a name or as the letters b t\n"
      "  (bt=2) -> bt\n"
      "   ^^\n"
      "  say 'names: (bt=2) -> bt', or write '(b t=2) -> b t'" },
    { "sum", B, "[hd] ... -> ...", "2x3x4",
      "\n  say 'names: [hd] ... -> ...', or write '[h d] ... -> ...'" },
    { "softmax", B, "[hd] ..., ...", "2x3x4, 4", "or as the letters h d" },
    { "einsum", I, "x1 ... -> ... x1", "2x1x3", "or write 'x 1 ... -> ... x 1'" },
    { "einsum", I, "(hd=2)b,h,d->(hd=2)b", "4x3, 2, 2", "or as the letters h d" },
    { "einsum", I, "names: ij,jk->ik", "2, 3",
      "einsum: output index 'ik' is in no operand\n  names: ij,jk->ik\n                ^^" },
    { "einsum", I, " names : head,head -> head", "2, 3",
      "einsum: index 'head' is 2 in operand 1 but 3 in operand 2\n"
      "   names : head,head -> head\n"
      "           ^^^^ ^^^^          operand 1 is (2,), operand 2 is (3,)" },
    { "einsum", I, "letters: ij", "2",
      "einsum: operand 1 has rank 1: (2,), its term 'ij' names 2 axes\n"
      "  letters: ij\n"
      "           ^^" },
    { "einsum", I, "letters: i_k", "2x3", "'_' is not an index letter" },
    { "einsum", I, "ij,names: jk", "2x3, 3x4",
      "einsum: character ':' has no meaning here\n  ij,names: jk\n          ^\n"
      "  only 'names:' and 'letters:' have one, before all terms" },
    { "einsum", I, "Names: ij", "2x3", "character ':' has no meaning here" },
    { "einsum", I, "batch,batch->batch", "2, 2",
      "\n  every letter is an axis here: for names begin the string with 'names:'" },
    { "einsum", I, "ij,jk->ik", "2x3",
      "einsum: the string has 2 operands but 1 was given\n  ij,jk->ik\n     ^^" },
    { "einsum", I, "ij->i", "2x3, 3, 4",
      "einsum: the string has 1 operand but 3 were given\n  ij->i\n    ^\n"
      "  operands are separated by commas" },
    { "einsum", I, "ij jk->ik", "2x3, 3x4",
      "einsum: the string has 1 operand but 2 were given\n  ij jk->ik\n       ^\n"
      "  operands are separated by commas: 'ij, jk ->ik'" },
    { "einsum", I, "ij jk", "2x3, 3x4", "operands are separated by commas: 'ij, jk'" },
    { "einsum", I, "ij->I", "2x3",
      "einsum: output index 'I' is in no operand\n  ij->I\n      ^\n  is it 'i'?" },
    { "einsum", I, "i1->i", "2",
      "einsum: operand 1 has rank 1: (2,), its term 'i1' names 2 axes\n  i1->i\n  ^^\n"
      "  1 is an axis of size 1 here, no part of a name" },
    { "einsum", I, "i1->i", "2x3",
      "einsum: axis 1 of operand 1 is 3 where the string has 1\n  i1->i\n   ^     operand 1 is (2, "
      "3)\n"
      "  1 is an axis of size 1 here, no part of a name" },
    { "einsum", I, "i=>i", "2",
      "einsum: '=>' has no meaning here: the arrow is '->'\n  i=>i\n   ^^" },
    { "einsum", I, "i => i", "2",
      "einsum: '=>' has no meaning here: the arrow is '->'\n  i => i\n    ^^" },
    { "einsum", I, "i>", "2",
      "einsum: character '>' has no meaning here\n  i>\n   ^\n  the arrow is '->'" },
    { "einsum", I, "i>i", "2", "\n  the arrow is '->'" },
    { "einsum", I, "i→i", "2",
      "einsum: character '→' has no meaning here\n  i→i\n   ^\n  the arrow is '->'" },
    { "einsum", I, "α->α", "2",
      "einsum: character 'α' has no meaning here\n  α->α\n  ^\n"
      "  an index is a letter from a to z or A to Z" },
    { "einsum", I, "i->éα", "2", "einsum: character 'é' has no meaning here\n  i->éα\n     ^" },
    { "einsum", I, "i…", "2", "\n  an ellipsis is three dots" },
    { "einsum", I, "ij->ik", "2x3",
      "einsum: output index 'k' is in no operand\n  ij->ik\n       ^" },
    { "einsum", I, "ij->iJ", "2x3", "\n  is it 'j'?" },
    { "einsum", I, "batch query -> batch querry", "2x3",
      "einsum: output index 'querry' is in no operand\n  batch query -> batch querry\n             "
      "          ^^^^^^\n  is it 'query'?" },
    { "rearrange", NEW, "b -> b r", "2",
      "rearrange: output index 'r' is in no operand and has no size\n  b -> b r\n         ^\n  a "
      "new axis needs a size: write r=3" },
    { "einsum", I, "ij->i->j", "2x3", "einsum: the string has two arrows\n  ij->i->j\n       ^^" },
    { "einsum", I, "ij-i", "2x3", "einsum: '-' without '>': the arrow is '->'" },
    { "sum", I, "-1", "2x3", "an axis is a letter, not a number" },
    { "einsum", I, "ij->i,j", "2x3",
      "einsum: a comma follows '->', but there is only one output\n  ij->i,j\n       ^" },
    { "einsum", I, "i..", "2x3", "einsum: an ellipsis is three dots\n  i..\n   ^^" },
    { "einsum", I, "....i", "2x3", "einsum: an ellipsis is three dots" },
    { "einsum", I, ".i...", "2x3", "einsum: an ellipsis is three dots" },
    { "einsum", I, "j->.j...", "2", "einsum: an ellipsis is three dots" },
    { "einsum", I, "...i...", "2x3", "einsum: a term has two ellipses; at most one" },
    { "einsum", I, "i%...", "2x3", "einsum: character '%' has no meaning here\n  i%...\n   ^" },
    { "einsum", I, "i\xc3\xa9", "2x3",
      "einsum: character '\xc3\xa9' has no meaning here\n  i\xc3\xa9\n   ^" },
    { "einsum", I, "i\xc3", "2x3", "einsum: byte 0xc3 has no meaning here\n  i?\n   ^" },
    { "einsum", I, "i\xff\xc2\x85j", "2x3", "einsum: byte 0xff has no meaning here\n  i??j\n   ^" },
    { "einsum", I, "i_k", "2x3",
      "einsum: '_' is not an index letter (names may have it: 'names: d_k head')" },
    { "einsum", I, "i2", "2x3",
      "einsum: the only number that is an axis is 1: give the axis a name, as in 'r=2'" },
    { "einsum", I, "i0", "2x3", "einsum: the only number that is an axis is 1" },
    { "einsum", I, "i ([c2=2] d)", "2x6",
      "in 'r=2'\n  i ([c2=2] d)\n       ^\n  every letter is an axis here: for names begin the "
      "string with 'names:'" },
    { "einsum", I, "=2i", "2x3",
      "einsum: '=' follows no name\n  =2i\n  ^\n  a size follows its name, as in 'h=8'" },
    { "rearrange", NEW, "(h d)=8 -> h d", "8",
      "'=' follows no name\n  (h d)=8 -> h d\n       ^\n"
      "  a size belongs to one name, as in '(h=8 d)'" },
    { "rearrange", NEW, "(h 1=8) -> h", "8", "'=' follows no name" },
    { "einsum", I, "i=", "2", "einsum: 'i =' is not followed by a size" },
    { "einsum", I, "i=-2", "2", "einsum: 'i =' is not followed by a size" },
    { "einsum", I, "i=99999999999999999999", "2",
      "einsum: the size of 'i' does not fit in 64 bits" },
    { "einsum", I, "i=2 j,i=3", "2x3, 2", "einsum: the string gives index 'i' two sizes, 2 and 3" },
    { "einsum", I, "i=3", "2",
      "einsum: index 'i' is given as 3 but is 2 in operand 1\n  i=3\n  ^    operand 1 is (2,)" },
    { "einsum", I, "[i]", "2", "einsum: brackets have no meaning here" },
    { "softmax", B, "b [j", "2x3", "softmax: '[' is not closed\n  b [j\n    ^" },
    { "softmax", B, "b j]", "2x3", "softmax: ']' closes nothing" },
    { "softmax", B, "b [[j]]", "2x3", "softmax: brackets cannot be nested" },
    { "softmax", B, "b []", "2x3", "softmax: brackets without an axis" },
    { "softmax", B, "b [(h] d)", "2x3", "softmax: '(' is not closed before ']'" },
    { "softmax", B, "b (h [d)]", "2x3", "softmax: '[' is not closed before ')'" },
    { "softmax", B, "b [(h d])", "2x3", "softmax: '(' is not closed before ']'" },
    { "rearrange", NEW, "(h d -> h d", "6", "rearrange: '(' is not closed" },
    { "rearrange", NEW, "h d) -> h d", "6", "rearrange: ')' closes nothing" },
    { "rearrange", NEW, "((h) d) -> h d", "6", "rearrange: groups cannot be nested" },
    { "rearrange", NEW, "b (h=3 d) -> b h d", "2x10",
      "rearrange: (h=3 d) is 10 in operand 1, which h = 3 does not divide\n"
      "  b (h=3 d) -> b h d\n"
      "    ^^^^^^^           operand 1 is (2, 10)" },
    { "rearrange", NEW, "b (h d) -> b h d", "2x10",
      "rearrange: (h d) is 10 in operand 1, and more than one of its sizes is unknown: 'h', 'd'\n"
      "  b (h d) -> b h d\n"
      "    ^^^^^           operand 1 is (2, 10)\n"
      "  write h=2 in the string, or .h = 2" },
    { "rearrange", NEW, "(h d) -> h d", "64", "write h=8 in the string, or .h = 8" },
    { "rearrange", NEW, "(g=3 h d) -> g h d", "45", "write h=3 in the string" },
    { "rearrange", NEW, "(head=8) -> (head)", "64",
      "rearrange: (head=8) is 64 in operand 1, and more than one of its sizes is unknown: 'h', "
      "'e', 'a'\n"
      "  (head=8) -> (head)\n"
      "  ^^^^^^^^            operand 1 is (64,)\n"
      "  every letter is an axis here: for names begin the string with 'names:'" },
    { "rearrange", NEW, "(h=2 d=3) -> h d", "10",
      "rearrange: (h=2 d=3) is 10 in operand 1, but h = 2, d = 3 gives another size" },
    { "rearrange", NEW, "(h=0 d) -> h d", "0",
      "rearrange: (h=0 d) is 0 in operand 1, and with h = 0, 'd' can have any size: give it" },
    { "rearrange", NEW, "(h=0 d) -> h d", "4", "which h = 0 does not divide" },
    { "rearrange", NEW, "(... d) -> d", "4",
      "rearrange: an ellipsis is inside of a group of operand 1, so its axes cannot be "
      "determined" },
    { "rearrange", NEW, "b 1 -> b", "2x3",
      "rearrange: axis 1 of operand 1 is 3 where the string has 1\n  b 1 -> b\n    ^       operand "
      "1 is (2, 3)" },
    { "rearrange", NEW, "b -> b r=4611686018427387904", "2",
      "rearrange: the sizes multiply to more than 64 bits can count\n  b -> b "
      "r=4611686018427387904\n       ^^^^^^^^^^^^^^^^^^^^^^^" },
    { "einsum", I, "batch query, batc key -> query key", "4x3, 4x5",
      "einsum: name 'batc' occurs once and differs by one typing error from 'batch': if it is "
      "another axis, "
      "call it something else\n"
      "  batch query, batc key -> query key\n"
      "  ^^^^^        ^^^^" },
    { "einsum", I, "b i, c", "2x3, -", "einsum: index 'c' has no size" },
};
LOOP_TEST(wrong_strings_are_refused_with_carets, sizeof refused / sizeof *refused)
{
    const eg_bound *b =
        bind_to(refused[_i].who, refused[_i].flags, refused[_i].spec, refused[_i].operands);
    ck_assert_msg(!b, "'%s' was taken", refused[_i].spec);
    eg_assert_error(cx, refused[_i].says);
}

TEST(similar_names_are_accepted_if_both_have_sizes)
{
    ck_assert_ptr_nonnull(bind_to("einsum", I, "d_k m, d_v m", "4x3, 4x3"));
    ck_assert_ptr_nonnull(bind_to("einsum", I, "xpos m, ypos m", "4x3, 4x3"));
    ck_assert_ptr_nonnull(bind_to("einsum", I, "axis1 m, axis2 m", "4x3, 4x3"));
    ck_assert_ptr_nonnull(bind_to("einsum", I, "token m, tokens m", "4x3, 5x3"));
    ck_assert_ptr_nonnull(bind_to("einsum", I, "token tokens, m", "4x4, 4"));
    ck_assert_ptr_null(bind_to("einsum", I, "token m, tokens m", "4x3, 4x3"));
    eg_assert_error(cx, "'tokens' occurs once");
}

TEST(plain_specs_make_no_tensors)
{
    eg_tensor *a = eg_zeros(cx, 2, 3), *b = eg_zeros(cx, 3, 4);
    const uint64_t before = eg_stats(cx).nodes;
    const eg_bound *y = eg__bind("einsum", "ij,jk->ik", I, 2, (eg_tensor *[]){ a, b }, 0, NULL);
    ck_assert_ptr_eq(y->term[0].x, a);
    ck_assert_ptr_eq(y->term[1].x, b);
    ck_assert_uint_eq(eg_stats(cx).nodes, before);
}

/* Every allocation fails in turn: an error, never a crash; and the strings work again
 * afterwards. */
TEST(each_allocation_may_fail)
{
    int failures = 0;
    for (int allowed = 0; allowed < 40; allowed++) {
        int left = allowed;
        eg_ctx *small = eg_open(.realloc = failing, .user = &left);
        if (!small) {
            failures++;
            continue;
        }
        eg_tensor *x = eg_ones(small, 2, 12);
        for (int k = 0; k < 40 && !eg_error(small); k++) {
            eg__bind("rearrange", "b (h=3 d) -> b h d", NEW, 1, &x, 0, NULL);
            eg_where_mask(small, "j <= i", "i [j]", 0, (int64_t[]){ 60, 60 });
        }
        if (eg_error(small)) {
            failures++;
            ck_assert_ptr_nonnull(strstr(eg_error(small), "out of memory"));
        }
        eg_close(small);
    }
    ck_assert_int_gt(failures, 0);
}

TEST(given_sizes)
{
    eg_tensor *x = eg_zeros(cx, 2, 12);
    const eg_sized h = { "h", 1, 3 }, q = { "q", 1, 3 }, minus = { "h", 1, -3 };
    const eg_bound *b = eg__bind("rearrange", "b (h d) -> b h d", NEW, 1, &x, 1, &h);
    ck_assert_str_eq(describe(b), "b=2 h=3 d=4 b (h d)v->b h d");
    ck_assert_ptr_null(eg__bind("rearrange", "b (h d) -> b h d", NEW, 1, &x, 1, &q));
    eg_assert_error(cx, "rearrange: a size is given for 'q', which is not in the string");
    ck_assert_ptr_null(eg__bind("rearrange", "batch (head d) -> batch head d", NEW, 1, &x, 1, &h));
    eg_assert_error(cx, "rearrange: a size is given for 'h', which is not in the string\n"
                        "  batch (head d) -> batch head d\n"
                        "  the size of a name is written in the string: 'head=3'");
    ck_assert_ptr_null(eg__bind("rearrange", "b (h d) -> b h d", NEW, 1, &x, 1, &minus));
    eg_assert_error(cx, "rearrange: the size given for 'h' is -3");
    ck_assert_ptr_null(eg__bind("rearrange", "b (h=4 d) -> b h d", NEW, 1, &x, 1, &h));
    eg_assert_error(cx, "rearrange: index 'h' is 4 in the string but 3 in the option .h");
}

TEST(the_largest_string_is_bound_and_no_larger_one) /* 64 operands, 32 axes each; one more of either
                                                       is refused */
{
    char spec[3000] = "", names[400] = "";
    eg_tensor *x[65];
    int64_t one[EG_RANK_MAX + 1];
    for (int r = 0; r <= EG_RANK_MAX; r++) one[r] = 1;
    for (int r = 0; r < EG_RANK_MAX; r++) snprintf(names + strlen(names), 16, "a%d ", r);
    for (int k = 0; k < 65; k++) x[k] = eg_full_n(cx, EG_F32, 0, EG_RANK_MAX, one);
    for (int k = 0; k < 64; k++)
        snprintf(spec + strlen(spec), sizeof spec - strlen(spec), "%s...", k ? "," : "");
    const eg_bound *b = eg__bind("einsum", spec, I, 64, x, 0, NULL);
    ck_assert_msg(b != NULL, "%s", eg_error(cx));
    ck_assert_int_eq(b->out.rank, EG_RANK_MAX);
    b = eg__bind("einsum", names, I, 1, x, 0, NULL);
    ck_assert_msg(b != NULL, "%s", eg_error(cx));
    ck_assert_int_eq(b->axes, EG_RANK_MAX);
    snprintf(spec + strlen(spec), sizeof spec - strlen(spec), ",...");
    ck_assert_ptr_null(eg__bind("einsum", spec, I, 65, x, 0, NULL));
    eg_assert_error(cx, "einsum: the string has more than 64 operands");
    snprintf(names + strlen(names), 16, "a32");
    ck_assert_ptr_null(eg__bind("einsum", names, I, 1, x, 0, NULL));
    eg_assert_error(cx, "einsum: a term has more than 32 axes");
}

TEST(long_specs_are_clipped)
{
    char spec[1600] = "";
    eg_tensor *x[40];
    for (int k = 0; k < 40; k++)
        snprintf(spec + strlen(spec), 40, "%salpha%d beta%d", k ? ", " : "", k / 20, k),
            x[k] = eg_zeros(cx, k == 19 ? 3 : 2, 2);
    ck_assert_ptr_null(eg__bind("einsum", spec, I, 40, x, 0, NULL));
    const char *line = strchr(eg_error(cx), '\n') + 1, *carets = strchr(line, '\n') + 1;
    ck_assert_int_lt(carets - line, 120);
    ck_assert_ptr_nonnull(strstr(line, "…"));
    ck_assert_ptr_nonnull(strchr(carets, '^'));
    eg_assert_error(cx, "einsum: index 'alpha0' is 2 in operand 1 but 3 in operand 20");
}

TEST(axes_reads_sizes_in_the_order_of_the_string)
{
    eg_tensor *q = eg_zeros(cx, 2, 3, 4, 5);
    int64_t b, i, h, d;
    ck_assert(eg_axes("b i h d", q, &b, &i, &h, &d));
    ck_assert(b == 2 && i == 3 && h == 4 && d == 5);
    ck_assert(eg_axes("b i (h=2 g) d", q, NULL, &i, &h));
    ck_assert(i == 3 && h == 2);
    ck_assert(eg_axes("b ... d", q, &b, &d));
    ck_assert(b == 2 && d == 5);
    ck_assert(eg_axes("batch query head=4 width", q, &b));
    b = 7;
    ck_assert(!eg_axes("b i h", q, &b));
    ck_assert_int_eq(b, 0);
    eg_assert_error(cx, "axes: operand 1 has rank 4: (2, 3, 4, 5), its term 'b i h' names 3 axes");
    ck_assert(!eg_axes("b i h=3 d", q));
    eg_assert_error(cx, "axes: index 'h' is given as 3 but is 4 in operand 1");
    ck_assert(!eg_axes("b i i d", q, &b, &i, &d, &h));
    eg_assert_error(cx, "axes: index 'i' is 3 and 4 in operand 1");
    ck_assert(!eg_axes("b...", q, &b, &i));
    eg_assert_error(cx, "axes: 2 sizes are asked for, but the string has 1 axis");
    ck_assert(!eg_axes("b i h d -> b", q, &b));
    eg_assert_error(cx, "axes: the string has an output");
    ck_assert(!eg_axes("b", NULL, &b));
    ck_assert(!eg_axes(NULL, q, &b));
    eg_assert_error(cx, "axes: no string was given");
}

/* -- 100 000 strings from pieces of the language: a binding or an error, never anything else --- */
static uint32_t state = 1;
static uint32_t draw(uint32_t n)
{
    state ^= state << 13, state ^= state >> 17, state ^= state << 5;
    return state % n;
}
TEST(random_strings)
{
    static const char *const piece[] = { "i", "j",  "k",   "h",  "d", "ij", "key", "batch", " ",
                                         " ", ",",  ",",   "->", "(", ")",  "[",   "]",     "...",
                                         "1", "=2", "h=2", "()", ".", "-",  "%",   "17",    "_" };
    int bound = 0, failed = 0;
    for (int k = 0; k < 100000; k++) {
        char spec[160] = "";
        const eg_mark mark = eg_push(cx);
        const int n = 1 + (int)draw(3);
        eg_tensor *x[3];
        for (int i = 0; i < n; i++)
            x[i] = eg_full_n(cx, EG_F32, 0, (int)draw(4), (int64_t[]){ 2, 2, draw(8) ? 2 : 6 });
        for (uint32_t i = 0, m = draw(10); i < m; i++)
            strcat(spec, piece[draw(sizeof piece / sizeof *piece)]);
        const eg_bound *b = eg__bind("random", spec, (int)draw(32), n, x, 0, NULL);
        ck_assert_msg(!b == (eg_error(cx) != NULL), "'%s'", spec);
        if (b)
            bound++;
        else
            failed++;
        eg_clear(cx);
        eg_pop(cx, mark);
    }
    ck_assert_int_gt(bound, 1000);
    ck_assert_int_gt(failed, 1000);
}

/* Random valid specs: the sizes that were drawn are found again. */
TEST(random_valid)
{
    for (int k = 0; k < 100000; k++) {
        const eg_mark mark = eg_push(cx);
        int64_t size[6];
        char spec[200] = "";
        eg_tensor *x[4];
        const int n = 1 + (int)draw(4), blanks = (int)draw(2);
        bool had[6] = { false };
        for (int a = 0; a < 6; a++) size[a] = draw(4);
        for (int i = 0; i < n; i++) {
            int64_t dim[6];
            int rank = 0;
            if (i) strcat(spec, ",");
            for (uint32_t m = draw(4); m; m--) {
                const int a = (int)draw(6);
                had[a] = true;
                /* a group with a size in the string and one to infer */
                if (draw(5) == 0 && size[a]) {
                    const int b = (int)draw(6);
                    snprintf(spec + strlen(spec), 20, "(%c=%d %c)", 'a' + a, (int)size[a], 'a' + b);
                    if (b == a) {
                        dim[rank++] = size[a] * size[a];
                        continue;
                    }
                    had[b] = true, dim[rank++] = size[a] * size[b];
                } else
                    snprintf(spec + strlen(spec), 20, "%c%s", 'a' + a, blanks ? " " : ""),
                        dim[rank++] = size[a];
            }
            x[i] = eg_full_n(cx, EG_F32, 0, rank, dim);
        }
        char out[20] = "->";
        for (int a = 5; a >= 0; a--)
            if (had[a] && draw(2)) snprintf(out + strlen(out), 8, "%c", 'a' + a);
        if (draw(2)) strcat(spec, out);
        const eg_bound *b = eg__bind("random", spec, I, n, x, 0, NULL);
        ck_assert_msg(b != NULL, "%s", eg_error(cx));
        for (int a = 0; a < b->axes; a++)
            ck_assert_int_eq(b->axis[a].size, size[b->axis[a].text[0] - 'a']);
        eg_pop(cx, mark);
    }
}

/* -- letters or names ------------------------------------------------------------------------- */
enum { WORDS = 5 };
static const char *const word_of[WORDS] = { "ab", "b", "ca", "d", "bd" };
typedef struct pattern {
    char s[200];
    int rank;
    int64_t dim[12];
} pattern;
static void add(pattern *p, const char *s) { strcat(p->s, s); }
/* One side: the names of `order` from the first to the last, some in groups, and an ellipsis of two
 * axes at some position. Blanks between tokens are random, except where two names would become
 * one. */
static void side(pattern *p, int n, const int *order, const int64_t *size, int dots, bool left)
{
    bool name_before = false;
    for (int k = 0, open = 0; k <= n; k++) {
        if (k == dots && !open) {
            const size_t end = strlen(p->s);
            add(p, k == n ? " ..." : !end || strchr(">)", p->s[end - 1]) ? "... " : " ... ");
            for (int e = 0; left && e < 2; e++) p->dim[p->rank++] = 2 + e;
            name_before = false;
        }
        if (k == n) break;
        const bool opens = !open && k + 1 < n && k + 1 != dots && !draw(4),
                   alone = !open && !draw(8);
        if (opens || alone) add(p, draw(2) ? " (" : "("), name_before = false, open = opens ? 2 : 1;
        const bool grouped = open > 0;
        if (name_before) add(p, " ");
        add(p, word_of[order[k]]), name_before = true;
        if (left && grouped) snprintf(p->s + strlen(p->s), 8, "=%d", (int)size[order[k]]);
        if (left && grouped && !opens && !alone)
            p->dim[p->rank - 1] *= size[order[k]];
        else if (left)
            p->dim[p->rank++] = size[order[k]];
        if (open && --open == 0) add(p, draw(2) ? ") " : ")"), name_before = false;
    }
}
static eg_tensor *read_as(bool sum, const char *spec, eg_tensor *x)
{
    return sum ? eg_einsum(spec, x) : eg_rearrange(spec, x);
}
/* einops' patterns on operands that fit them: without "names:" a pattern is refused, or has the
 * same result as with it. */
TEST(names_are_not_read_as_letters)
{
    int different = 0, refused_here = 0, equal = 0;
    for (int k = 0; k < 1500; k++) {
        const eg_mark mark = eg_push(cx);
        int order[WORDS], n = 1 + (int)draw(3);
        int64_t size[WORDS];
        for (int a = 0; a < WORDS; a++) order[a] = a, size[a] = 2 + draw(2);
        for (int a = WORDS - 1; a > 0; a--) {
            const int b = (int)draw((uint32_t)a + 1), t = order[a];
            order[a] = order[b], order[b] = t;
        }
        pattern p = { .s = "" };
        const bool sum = draw(2), dots = draw(4);
        side(&p, n, order, size, dots ? (int)draw((uint32_t)n + 1) : -1, true);
        add(&p, draw(2) ? " -> " : "->");
        const int first = (int)draw((uint32_t)n), t = order[0];
        order[0] = order[first], order[first] = t;
        const int kept = sum ? (int)draw((uint32_t)n + 1) : n;
        side(&p, kept, order, size, dots ? (int)draw((uint32_t)kept + 1) : -1, false);
        char named[240];
        snprintf(named, sizeof named, "names: %s", p.s);
        eg_tensor *x = eg_normal_n(cx, EG_F32, 0, 1, p.rank, p.dim);
        eg_tensor *y = read_as(sum, named, x);
        ck_assert_msg(!eg_error(cx), "%s", eg_error(cx));
        eg_tensor *z = read_as(sum, p.s, x);
        if (eg_error(cx))
            refused_here++, eg_clear(cx);
        else if (same_bits(y, z))
            equal++;
        else
            different++;
        eg_pop(cx, mark);
    }
    ck_assert_msg(different == 0 && equal > 500 && refused_here > 200,
                  "%d silently different, %d refused, %d equal", different, refused_here, equal);
}

/* NumPy's strings: letters without blanks, an ellipsis next to them, blanks beside commas and
 * arrow */
TEST(letters_are_not_taken_for_names)
{
    for (int k = 0; k < 500; k++) {
        const eg_mark mark = eg_push(cx);
        const int n = 1 + (int)draw(3);
        char spec[80] = "";
        eg_tensor *x[3];
        bool had[5] = { false }, dots = draw(2);
        for (int i = 0; i < n; i++) {
            int64_t dim[8];
            int rank = 0;
            if (i) strcat(spec, draw(2) ? ", " : ",");
            if (dots) strcat(spec, "..."), dim[rank++] = 7;
            for (uint32_t m = (uint32_t)dots + draw(4); m; m--) {
                const int a = (int)draw(5);
                snprintf(spec + strlen(spec), 2, "%c", 'a' + a);
                had[a] = true, dim[rank++] = 2 + a;
            }
            x[i] = eg_full_n(cx, EG_F32, 1, rank, dim);
        }
        if (dots || draw(2)) {
            strcat(spec, draw(2) ? " -> " : "->");
            if (dots) strcat(spec, "...");
            for (int a = 4; a >= 0; a--)
                if (had[a] && draw(2)) snprintf(spec + strlen(spec), 2, "%c", 'a' + a);
        }
        char message[100];
        snprintf(message, sizeof message, "letters: %s", spec);
        eg_tensor *y = eg_einsum_n(spec, n, x), *z = eg_einsum_n(message, n, x);
        ck_assert_msg(!eg_error(cx), "%s", eg_error(cx));
        ck_assert_msg(same_bits(y, z), "'%s'", spec);
        eg_pop(cx, mark);
    }
}

/* Masks are appended to the string after its operands; modules read strings themselves. */
TEST(the_prefix_names_applies_to_all_strings)
{
    eg_tensor *x = eg_normal(cx, 0, 1, 3, 4), *m = eg_gt(x, eg_zeros_like(x)),
              *q = eg_normal(cx, 0, 1, 2, 3, 4), *k = eg_normal(cx, 0, 1, 2, 5, 4),
              *keep = eg_cast(eg_ones(cx, 2, 5), EG_BOOL), *w[2];
    ck_assert(same_bits(
        eg_softmax("i [j]", x, .where = "j <= i", .keep = { "ij", m }),
        eg_softmax("names: query[key]", x, .where = "key <= query", .keep = { "query key", m })));
    ck_assert(same_bits(eg_softmax("i [j]", x), eg_softmax("letters: i[j]", x)));
    eg_assert_ok(cx);
    ck_assert(same_bits(
        eg_attention("bid,bjd,bje->bie", q, k, k, .keep = { "bj", keep }, .weights = &w[0]),
        eg_attention("names: b to d,b from d,b from e->b to e", q, k, k, .keep = { "b from", keep },
                     .weights_axes = "b to from", .weights = &w[1])));
    eg_assert_ok(cx);
    ck_assert(same_bits(w[0], w[1]));
    ck_assert(same_bits(eg_sum("[j] ...", x), eg_sum("names: [key] ...", x)));
    ck_assert(same_bits(eg_on("ij,i", eg_add, x, eg_select_axis(x, 1, 0)),
                        eg_on("names: to from,to", eg_add, x, eg_select_axis(x, 1, 0))));
    int64_t key = 0;
    ck_assert(eg_axes("names: key...", x, &key) && key == 3);
    eg_assert_ok(cx);
    const eg_explained *e =
        eg_explain("names: key,key->key", eg_select_axis(x, 1, 0), eg_select_axis(x, 1, 1));
    ck_assert_str_eq(e->gradient[0], "d1: names: key, key -> key");
}

/* -- predicates ------------------------------------------------------------------------------- */
static const eg_axis_name i_name = { "i", 1, 9, 0 },
                          j_name = { "j", 1, 7, 0 }, *const ij[] = { &i_name, &j_name };

static const struct {
    const char *where, *rows;
} masks[] = {
    /* i of 3, j of 4 */
    { "j <= i", "1000 1100 1110" },
    { "j - |j| <= i - |i|", "1100 1110 1111" },
    { "i - 1 < j <= i", "1000 0100 0010" },
    { "0 <= i - j < 2 <= |j|", "1000 1100 0110" },
    { "(i - j) % 2 == 0", "1010 0101 1010" },
    { "i/2 == j/2", "1100 1100 0011" },
    { "j <= i | j < 2", "1100 1100 1110" },
    { "j <= i || j < 2", "1100 1100 1110" },
    { "j < 1 | i == 2 & j < 3", "1000 1000 1110" },
    { "!(j <= i) && j != 3", "0110 0010 0000" },
    { "!j <= i", "0111 0011 0001" },
    { "-j + 1 >= -i", "1100 1110 1111" },
    { "(j - 3) / 2 == -1", "0110 0110 0110" }, /* rounded down */
    { "(j - 3) % 4 == 1", "1000 1000 1000" },  /* never negative */
    { "j % (i - 1) == 0 & j / (i - 1) == 0",
      "1000 1111 1000" }, /* division by 0 gives 0; j % −1 is 0 and j / −1 is −j */
    { "|i| == 3 & | j | == 4", "1111 1111 1111" },
    { "j<=i&j>=0", "1000 1100 1110" },
    { "1 < 2", "1111 1111 1111" },
    { "i * 9223372036854775807 >= j", "1000 1111 1111" },
};

GROUP("predicates", .setup = open_cx, .teardown = close_cx, .timeout = 60)

LOOP_TEST(where_masks, sizeof masks / sizeof *masks)
{
    eg_tensor *y = eg_where_mask(cx, masks[_i].where, "i [j]", 0, (int64_t[]){ 3, 4 });
    eg_assert_ok(cx);
    char rows[16] = "";
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 4; j++)
            snprintf(rows + strlen(rows), 3, "%d%s", (int)eg_get(y, i, j),
                     j == 3 && i < 2 ? " " : "");
    ck_assert_str_eq(rows, masks[_i].rows);
}

TEST(where_offset_and_shapes)
{
    /* queries 3 and 4 of a cache */
    eg_tensor *y = eg_where_mask(cx, "j <= i", "i [j]", 3, (int64_t[]){ 2, 6 });
    const bool *m = eg_bool(y);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 6; j++) ck_assert(m[6 * i + j] == (j <= i + 3));
    /* without brackets the last axis is the key */
    m = eg_bool(eg_where_mask(cx, "j <= i", "ij", 3, (int64_t[]){ 2, 6 }));
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 6; j++) ck_assert(m[6 * i + j] == (j <= i + 3));
    y = eg_where_mask(cx, "key <= query & batch == 1", "batch query key", 0,
                      (int64_t[]){ 2, 3, 4 });
    ck_assert_int_eq(eg_rank(y), 3);
    ck_assert(eg_get(y, 1, 2, 2) == 1 && eg_get(y, 0, 2, 2) == 0 && eg_get(y, 1, 2, 3) == 0);
    y = eg_where_mask(cx, "1 == 1", "", 0, NULL);
    ck_assert_int_eq(eg_rank(y), 0);
    ck_assert(eg_item(y) == 1);
    ck_assert_int_eq(eg_size(eg_where_mask(cx, "j <= i", "ij", 0, (int64_t[]){ 3, 0 })), 0);
    eg_assert_ok(cx);
    ck_assert(!eg_ok(eg_where_mask(cx, "i < 2", "i i", 0, (int64_t[]){ 3, 3 })));
    eg_assert_error(cx, "where_mask: the axes must be different letters or names");
    ck_assert(!eg_ok(eg_where_mask(cx, "i < 2", "i,j", 0, (int64_t[]){ 3, 3 })));
    eg_assert_error(cx, "where_mask: the axes must be one term");
    ck_assert(!eg_ok(eg_where_mask(cx, "i < 2", "i", 0, (int64_t[]){ -3 })));
    eg_assert_error(cx, "where_mask: index 'i' is given the size -3");
    ck_assert(!eg_ok(eg_where_mask(cx, NULL, "i", 0, (int64_t[]){ 3 })));
    eg_assert_error(cx, "where_mask: no predicate was given");
}

static const struct {
    const char *where, *says;
} wrong[] = {
    { "k <= i", "softmax: the predicate's index 'k' is not one of 'i', 'j'\n  k <= i\n  ^" },
    { "ij <= i", "softmax: the predicate's index 'ij' is not one of 'i', 'j'\n  ij <= i\n  ^^" },
    { "", "softmax: the predicate is empty" },
    { "i <", "softmax: the predicate ends where a number or an index is expected\n  i <\n     ^" },
    { "i", "softmax: the predicate is a number, not a condition\n  i\n  ^\n  compare it, as in i % "
           "2 == 0" },
    { "i % 2 | j < 2", "softmax: '|' joins conditions, but there is a number before it\n  i % 2 | "
                       "j < 2\n        ^" },
    { "j < 2 & i", "softmax: '&' joins conditions, but there is a number after it" },
    { "!i", "softmax: '!' needs a condition, but a number follows" },
    { "-(i < j)", "softmax: a condition cannot have a sign" },
    { "(i < j) + 1 < 2", "softmax: arithmetic on a condition" },
    { "(i < j) < 2", "softmax: a condition is compared" },
    { "i = j", "softmax: equality is written ==\n  i = j\n    ^" },
    { "(i < j", "softmax: '(' is not closed" },
    { "i < j)", "softmax: ')' closes nothing" },
    { "|i < j", "softmax: the bar of a size is not closed, as in |i|" },
    { "|2| < j", "softmax: a size has exactly one index between its bars, as in |i|" },
    { "i / 0 < j", "softmax: division by zero\n  i / 0 < j\n    ^^^" },
    { "i % 00 < j", "softmax: division by zero\n  i % 00 < j\n    ^^^^" },
    { "i < 99999999999999999999", "softmax: the number does not fit in 64 bits" },
    { "9223372036854775807 + 1 < i", "softmax: the value does not fit in 64 bits" },
    { "2i < j", "softmax: a name follows a number\n  2i < j\n   ^\n  a product is written with *, "
                "as in 2 * i" },
    { "i < j j", "softmax: a name where an operator is expected" },
    { "i < j @", "softmax: character '@' has no meaning in a predicate" },
    { "i < j \xc3", "softmax: byte 0xc3 has no meaning in a predicate" },
    { "i < * j", "softmax: a number, an index or '(' is expected here" },
};
/* A predicate over i and j. */
static eg_expression *predicate_of(const char *who, const char *text)
{
    return eg__expression_parse(cx, &(eg_expression_source){ .who = who,
                                                             .text = text,
                                                             .noun = "predicate",
                                                             .letters = 2,
                                                             .letter = ij,
                                                             .predicate = true });
}
/* Its values at (i, j), (i, j + 1), …. */
static void predicate_row(eg_expression *e, int count, int64_t i, int64_t j, const int64_t *sizes,
                          uint8_t *out)
{
    const int64_t low[] = { i, j }, high[] = { i + 1, j + count };
    const eg_expression_source source = { .who = "row", .text = "", .letters = 2, .letter = ij };
    const eg_letter_values letter[] = { { i, NULL }, { j, NULL } };
    eg_block_plan p;
    ck_assert(
        eg__expression_fits(cx, &source, e, &(eg_box){ .low = low, .high = high, .size = sizes }));
    eg__block_plan(&p, e, e->root, false, 1, count, 1, 2, 0);
    void *work = aligned_alloc(64, p.bytes);
    eg__block_values(
        &p,
        &(eg_block_data){
            .rows = 1, .lanes = count, .letter = letter, .out = out, .out_step = count },
        work);
    free(work);
}
static bool predicate_at(eg_expression *e, int64_t i, int64_t j, const int64_t *sizes)
{
    uint8_t is;
    predicate_row(e, 1, i, j, sizes, &is);
    return is;
}
static eg_cover predicate_cover(const eg_expression *e, int64_t i, int64_t j, int64_t to_i,
                                int64_t to_j, const int64_t *sizes)
{
    const int64_t low[] = { i, j }, high[] = { to_i, to_j };
    eg_interval range[EG_NODES_MAX];
    return eg__expression_cover(e, &(eg_box){ .low = low, .high = high, .size = sizes }, range);
}
LOOP_TEST(where_refuses, sizeof wrong / sizeof *wrong)
{
    ck_assert_ptr_null(predicate_of("softmax", wrong[_i].where));
    eg_assert_error(cx, wrong[_i].says);
}

TEST(where_depth)
{
    char text[3000] = "";
    for (int k = 0; k < 70; k++) strcat(text, "(");
    strcat(text, "i < j");
    for (int k = 0; k < 70; k++) strcat(text, ")");
    ck_assert_ptr_null(predicate_of("w", text));
    eg_assert_error(cx, "w: the predicate is nested too deeply");
    strcpy(text, "i < j");
    for (int k = 0; k < 300; k++) strcat(text, "|i < j");
    ck_assert_ptr_null(predicate_of("w", text));
    eg_assert_error(cx, "w: the predicate is too long");
}

/* Random predicates compared with their meaning: at one index, in a row, in a tile. */
static int64_t number(char *text, int depth, int64_t i, int64_t j);
static bool truth(char *text, int depth, int64_t i, int64_t j);
static uint32_t script[64]; /* the draws of one predicate, repeated for every (i, j) */
static int cursor;
static uint32_t choose(uint32_t n) { return script[cursor++ & 63] % n; }
static int64_t number(char *text, int depth, int64_t i, int64_t j)
{
    switch (choose(depth > 3 ? 4 : 10)) {
    case 0: strcat(text, "i"); return i;
    case 1: strcat(text, "j"); return j;
    case 2: {
        const int c = 1 + (int)choose(9);
        snprintf(text + strlen(text), 12, "%d", c);
        return c;
    }
    case 3: strcat(text, "|j|"); return 7;
    default: {
        const uint32_t op = choose(5);
        strcat(text, "(");
        const int64_t a = number(text, depth + 1, i, j);
        strcat(text, (const char *const[]){ " + ", " - ", " * ", " / ", " % " }[op]);
        if (op >= 3) { /* by a positive constant */
            const int64_t c = 1 + (int64_t)choose(5);
            snprintf(text + strlen(text), 4, "%d)", (int)c);
            const int64_t rest = ((a % c) + c) % c;
            return op == 3 ? (a - rest) / c : rest;
        }
        const int64_t b = number(text, depth + 1, i, j);
        strcat(text, ")");
        return op == 0 ? a + b : op == 1 ? a - b : a * b;
    }
    }
}
static bool truth(char *text, int depth, int64_t i, int64_t j)
{
    const uint32_t kind = choose(depth > 2 ? 1 : 4);
    if (kind == 0) {
        const int64_t a = number(text, 2, i, j);
        const uint32_t op = choose(6);
        strcat(text, (const char *const[]){ " < ", " <= ", " > ", " >= ", " == ", " != " }[op]);
        const int64_t b = number(text, 2, i, j);
        return op == 0   ? a < b
               : op == 1 ? a <= b
               : op == 2 ? a > b
               : op == 3 ? a >= b
               : op == 4 ? a == b
                         : a != b;
    }
    if (kind == 1) {
        strcat(text, "!(");
        const bool a = truth(text, depth + 1, i, j);
        strcat(text, ")");
        return !a;
    }
    strcat(text, "(");
    const bool a = truth(text, depth + 1, i, j);
    strcat(text, kind == 2 ? " & " : " | ");
    const bool b = truth(text, depth + 1, i, j);
    strcat(text, ")");
    return kind == 2 ? a & b : a | b;
}
TEST(where_random)
{
    const int64_t sizes[2] = { 9, 7 };
    for (int k = 0; k < 3000; k++) {
        const eg_mark mark = eg_push(cx);
        char text[4096] = "";
        for (int s = 0; s < 64; s++) script[s] = draw(1u << 30);
        cursor = 0;
        truth(text, 0, 0, 0);
        eg_expression *p = predicate_of("random", text);
        /* too long, or nested too deep */
        if (!p) {
            eg_assert_error(cx, "the predicate is ");
            eg_pop(cx, mark);
            continue;
        }
        bool any = false, all = true;
        for (int64_t i = -2; i < 9; i++) {
            uint8_t row[9];
            predicate_row(p, 9, i, -2, sizes, row);
            for (int64_t j = -2; j < 7; j++) {
                char again[4096] = "";
                cursor = 0;
                const bool is = truth(again, 0, i, j);
                ck_assert_msg(predicate_at(p, i, j, sizes) == is, "'%s' at (%d, %d)", text, (int)i,
                              (int)j);
                ck_assert_msg(row[j + 2] == is, "'%s' in the row of %d at %d", text, (int)i,
                              (int)j);
                any |= is, all &= is;
            }
        }
        const eg_cover cover = predicate_cover(p, -2, -2, 9, 7, sizes);
        ck_assert_msg(cover != EG_COVER_NONE || !any, "'%s'", text);
        ck_assert_msg(cover != EG_COVER_ALL || all, "'%s'", text);
        eg_pop(cx, mark);
    }
}

/* The cover of tiles is exact for the usual masks. */
TEST(where_tiles)
{
    static const char *const exact[] = { "j <= i",         "i - 5 < j <= i",     "i/4 == j/4",
                                         "j <= i | j < 3", "j - |j| <= i - |i|", "j < 10",
                                         "1 < 0" };
    const int64_t sizes[2] = { 40, 48 };
    for (size_t k = 0; k < sizeof exact / sizeof *exact; k++) {
        eg_expression *p = predicate_of("tile", exact[k]);
        for (int64_t i = 0; i < 40; i += 8)
            for (int64_t j = 0; j < 48; j += 8) {
                int count = 0;
                for (int64_t r = i; r < i + 8; r++)
                    for (int64_t c = j; c < j + 8; c++) count += predicate_at(p, r, c, sizes);
                const eg_cover cover = predicate_cover(p, i, j, i + 8, j + 8, sizes);
                ck_assert_msg(cover == (count == 0    ? EG_COVER_NONE
                                        : count == 64 ? EG_COVER_ALL
                                                      : EG_COVER_SOME),
                              "'%s' at (%d, %d)", exact[k], (int)i, (int)j);
            }
    }
}

/* beyond 32 bits rows agree with single indices; nothing overflows */
TEST(where_wide)
{
    static const char *const text[] = { "i * i - j * j > 0", "i * 4611686018427387904 > j",
                                        "j - i < 3", "(j + 9223372036854775807) % 3 == 1",
                                        "-i * 9223372036854775807 / j < 0" };
    const int64_t start[] = { 0,         1 << 20,         1ll << 31,
                              1ll << 40, INT64_MAX - 400, -(1ll << 33),
                              INT64_MIN };
    const int64_t sizes[2] = { 9, 7 };
    for (size_t k = 0; k < sizeof text / sizeof *text; k++) {
        eg_expression *p = predicate_of("wide", text[k]);
        eg_assert_ok(cx);
        for (size_t s = 0; s < sizeof start / sizeof *start; s++) {
            uint8_t row[300];
            predicate_row(p, 300, start[s] / 2, start[s], sizes, row);
            for (int j = 0; j < 300; j++)
                ck_assert_int_eq(row[j], predicate_at(p, start[s] / 2, start[s] + j, sizes));
        }
    }
    ck_assert_uint_eq(predicate_of("uses", "j < |i|")->positions, 2);
}
