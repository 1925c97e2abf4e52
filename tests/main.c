/* Runs every suite of tests.h in one go, so that Check prints one summary; exits 1 if a test
 * failed. EG_TEST_CORES=n: contexts see n cores (threads by default) CK_RUN_SUITE=name
 * CK_RUN_CASE=name  CK_FORK=no (for gdb, valgrind)  CK_VERBOSITY=verbose */
#include <sched.h>
#include <stdlib.h>
#include "tests.h"

int __real_sched_getaffinity(pid_t, size_t, cpu_set_t *),
    __wrap_sched_getaffinity(pid_t, size_t, cpu_set_t *);
int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
    const char *cores = getenv("EG_TEST_CORES");
    if (!cores) return __real_sched_getaffinity(pid, size, set);
    CPU_ZERO_S(size, set);
    for (int k = 0; k < atoi(cores); k++) CPU_SET_S((size_t)k, size, set);
    return 0;
}

static Suite *(*const suites[])(void) = {
#define SUITE(name) suite_##name,
#include "tests.h"
};

int main(void)
{
    /* Check's 4 seconds are short for training under a sanitizer */
    setenv("CK_DEFAULT_TIMEOUT", "60", 0);
    SRunner *runner = srunner_create(NULL);
    for (size_t i = 0; i < sizeof suites / sizeof *suites; i++)
        srunner_add_suite(runner, suites[i]());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
