/* The suites of tests/check_eingrad: one line for each tests/test_X.c, which defines `Suite
 * *suite_X(void)`. main.c includes this file a second time, with SUITE making a table, so there is
 * no include guard. */
#include <check.h>
#ifndef SUITE
#define SUITE(name) Suite *suite_##name(void);
#endif

SUITE(attention)
SUITE(build)
SUITE(complex)
SUITE(core)
SUITE(decode)
SUITE(einsum)
SUITE(explain)
SUITE(forward)
SUITE(flash)
SUITE(gallery)
SUITE(trust)
SUITE(plants)
SUITE(golden)
SUITE(grad)
SUITE(heads)
SUITE(gradcheck)
SUITE(index)
SUITE(io)
SUITE(limits)
SUITE(loss)
SUITE(memory)
SUITE(mha)
SUITE(model)
SUITE(names)
SUITE(nn)
SUITE(notation)
SUITE(ops)
SUITE(order)
SUITE(pair)
SUITE(plan)
SUITE(pointwise)
SUITE(recompute)
SUITE(reduce)
SUITE(seeds)
SUITE(seq2seq)
SUITE(softmax)
SUITE(sort)
SUITE(tape)
SUITE(tensor)
SUITE(text)
SUITE(train)
SUITE(view)

#undef SUITE
