/* main.c: runs every test that registered itself (tests.h) in one process, so that Check prints one
 * summary; exits with 1 if a test failed. `check_eingrad --list` prints the names of the suites
 * instead.
 *
 *     EG_TEST_CORES=n: contexts see n cores (by default the number of threads)
 *     EG_RUN_TEST=name, or name:k for _i = k of a loop: runs only that test
 *     CK_RUN_SUITE=name, CK_RUN_CASE=name, CK_FORK=no (for gdb, valgrind), CK_VERBOSITY=verbose:
 *         see Check's manual */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

#if defined(__SANITIZE_THREAD__)
/* The loader's own lock, under which threads open and close libdw for a message, is unknown to the
 * thread sanitizer. */
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void) { return "race:_dl_close_worker\n"; }
#endif

static test_row *rows; /* unordered: constructors run in the order of the linker */
static int row_count;

/* Adds row, and finds its suite: "view" of "../tests/test_view.c". */
void test_add(test_row *row)
{
    const char *file = strrchr(row->test.file, '/');
    file = file ? file + 1 : row->test.file;
    if (strncmp(file, "test_", 5) == 0) file += 5;
    snprintf(row->suite, sizeof row->suite, "%.*s", (int)strcspn(file, "."), file);
    row->next = rows;
    rows = row;
    row_count++;
}

/* By suite, then by line: suites in alphabetical order, tests as they are written. */
static int by_place(const void *a, const void *b)
{
    const test_row *x = *(test_row *const *)a, *y = *(test_row *const *)b;
    const int suite = strcmp(x->suite, y->suite);
    return suite ? suite : (x->test.line > y->test.line) - (x->test.line < y->test.line);
}

static TCase *add_group(Suite *suite, const char *name, const test_row *group)
{
    TCase *tcase = tcase_create(name);
    if (group->setup) tcase_add_checked_fixture(tcase, group->setup, group->teardown);
    if (group->timeout > 0) tcase_set_timeout(tcase, group->timeout);
    suite_add_tcase(suite, tcase);
    return tcase;
}

/* Adds the test, or the part of it that EG_RUN_TEST names. */
static void add_test(TCase *group, const test_row *row)
{
    const char *only = getenv("EG_RUN_TEST");
    int from = 0, to = row->count();
    if (only) {
        const size_t n = strlen(row->test.name);
        if (strncmp(only, row->test.name, n) != 0 || (only[n] && only[n] != ':')) return;
        if (only[n]) {
            char *end;
            const long turn = strtol(only + n + 1, &end, 10);
            if (end == only + n + 1 || *end || turn < 0 || turn >= to) return;
            from = (int)turn;
            to = from + 1;
        }
    }
    tcase_add_loop_test(group, &row->test, from, to);
}

/* Makes the suites of the tests, which are sorted. */
static SRunner *runner_of(test_row *const *sorted)
{
    SRunner *runner = srunner_create(NULL);
    Suite *suite = NULL;
    TCase *group = NULL;
    for (int k = 0; k < row_count; k++) {
        test_row *row = sorted[k];
        if (k == 0 || strcmp(row->suite, sorted[k - 1]->suite) != 0) {
            srunner_add_suite(runner, suite = suite_create(row->suite));
            group = NULL;
        }
        if (!row->test.fn)
            group = add_group(suite, row->test.name, row);
        else if (!group)
            group = add_group(suite, row->suite, row);
        if (row->test.fn) add_test(group, row);
    }
    return runner;
}

int main(int argc, char **argv)
{
    test_row **sorted = malloc((size_t)row_count * sizeof *sorted);
    int n = 0;
    for (test_row *row = rows; row; row = row->next) sorted[n++] = row;
    qsort(sorted, (size_t)n, sizeof *sorted, by_place);
    int failed = 0;
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (int k = 0; k < n; k++)
            if (k == 0 || strcmp(sorted[k]->suite, sorted[k - 1]->suite) != 0)
                puts(sorted[k]->suite);
    } else if (argc == 1) {
        /* Check's 4 seconds are short for training under a sanitizer */
        setenv("CK_DEFAULT_TIMEOUT", "60", 0);
        SRunner *runner = runner_of(sorted);
        srunner_run_all(runner, CK_ENV);
        failed = srunner_ntests_failed(runner);
        if (getenv("EG_RUN_TEST") && !srunner_ntests_run(runner)) {
            fprintf(stderr, "EG_RUN_TEST names no test of these\n");
            failed = 1;
        }
        srunner_free(runner);
    } else {
        fprintf(stderr, "usage: %s [--list]\n", argv[0]);
        failed = 1;
    }
    free(sorted);
    return failed != 0;
}
