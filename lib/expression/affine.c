/* affine.c: eg_affine, y = f(einsum(x, W) + b) + r. If the activation is the name of an operation,
 * the node of the product applies it (ops/affine.c); if it is an expression, the expression is
 * applied to the result of the product. */
#include "expression/expression.h"
#include <ctype.h>
#include <string.h>

static bool activation_is_name(const char *text)
{
    const char *at = text;
    while (isalnum((unsigned char)*at) || *at == '_') at++;
    return !*at && strcmp(text, "x") != 0 && !isdigit((unsigned char)*text);
}
/* Returns f(z), elementwise; the expression reads z by the name x. */
static eg_tensor *activation_expression(const char *text, eg_tensor *z)
{
    if (!eg_ok(z)) return z;
    const int64_t dims[] = { eg_size(z), 1 };
    eg_tensor *y = eg_expr("element one", text, .with = { { "x", eg_reshape_n(z, 2, dims) } });
    return eg_reshape_n(y, z->rank, z->dim);
}
eg_tensor *eg_affine_with(const eg_affine_args *given)
{
    eg_affine_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    eg_affine_call call = { .spec = o.spec, .x = o.x, .W = o.W, .b = o.b, .add = o.add };
    if (!o.activation) return eg__affine(&call);
    call.f = eg__pointwise(call.name = o.activation);
    if (call.f) return eg__affine(&call);
    eg_ctx *cx = eg__context_of("affine", 2, (eg_tensor *[]){ o.x, o.W });
    if (!cx) return NULL;
    if (activation_is_name(o.activation))
        return eg_fail_as(
            cx, EG_ERROR_MISUSE,
            "affine: .activation is \"%.40s\"; it is an operation of one operand "
            "without constants, such as \"gelu\", or an expression of x, such as \"x * "
            "sigmoid(1.702 * x)\"",
            o.activation);
    call.add = NULL;
    eg_tensor *z = eg__affine(&call), *y = activation_expression(o.activation, z);
    if (!o.add || !eg_ok(y)) return y;
    if (!eg__check("affine", o.add)) return eg__poison(cx);
    return eg__affine_fits(cx, NULL, o.add, y->rank, y->dim) ? eg__add(y, o.add) : eg__poison(cx);
}
