/* Checks the gradient of kernel.c. Only the tests need eingrad. */
#include "kernel.h"
#include <eingrad.h>
#include <eingrad/check.h>

START_TEST(the_gradient_of_rms)
{
    const double x[RMS_N] = { 1, -2, 0.5, 3, 0.1, -0.7 };
    eg_ctx *cx = eg_open();
    const eg_report *r = eg_gradcheck_fn(cx, rms, rms_vjp, NULL, RMS_N, RMS_N, x, .full = true);
    ck_assert_msg(r != NULL, "%s", eg_error(cx));
    ck_assert_msg(r->passed, "%s", r->text);
    eg_close(cx);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kernel");
    TCase *t = tcase_create("kernel");
    tcase_add_test(t, the_gradient_of_rms);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
