/* tests.h: how a test registers itself in tests/check_eingrad.
 *
 *     #include "tests.h"
 *     GROUP("cache", .setup = open_f64, .teardown = close_cx)
 *     TEST(prefixes_name_the_row_that_each_continues) { ck_assert(…); }
 *     LOOP_TEST(each_row_is_as_stored, ROWS) { ck_assert(row[_i]…); }
 *
 * The suite is the file: the tests of tests/test_view.c are the suite "view". A GROUP is a TCase of
 * Check; it contains the tests below it, up to the next GROUP. Tests above the first GROUP are in
 * one with the suite's name, without fixtures. Tests are listed nowhere else; Makefile.am lists
 * their files. */
#ifndef TESTS_H
#define TESTS_H
#include "asserts.h"

/* A test of many random cases makes this many times fewer where each is slower: under a sanitizer,
 * or qemu (tests/processors.sh: CPPFLAGS=-DSLOWER=5). */
#if defined(SLOWER)
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOWER 5
#else
#define SLOWER 1
#endif

/* The data of one TEST, LOOP_TEST or GROUP. */
typedef struct test_row test_row;
struct test_row {
    TTest test;             /* name, function (NULL: a group), file, line */
    int (*count)(void);     /* of a test: it runs for each _i from 0 to count − 1 */
    void (*setup)(void);    /* of a group: before each of its tests, in the test's own process */
    void (*teardown)(void); /* of a group: after each */
    double timeout;         /* of a group: seconds for each test; 0: CK_DEFAULT_TIMEOUT */
    char suite[32];         /* set by test_add, from the name of the file */
    test_row *next;         /* in main.c's list */
};
void test_add(test_row *);

#define TEST_ROW(row, ...)             \
    static test_row row = __VA_ARGS__; \
    __attribute__((constructor)) static void row##_add(void) { test_add(&row); }

#define TEST(name) LOOP_TEST(name, 1)
#define LOOP_TEST(name, times)                                                             \
    static void name##_run(int);                                                           \
    static int name##_times(void) { return (int)(times); }                                 \
    TEST_ROW(name##_row,                                                                   \
             { .test = { #name, name##_run, __FILE__, __LINE__ }, .count = name##_times }) \
    static void name##_run(int _i CK_ATTRIBUTE_UNUSED)

/* GROUP(name, .setup = f, .teardown = g, .timeout = seconds): all except the name may be
 * omitted. */
#define GROUP(...)          GROUP_AT(__LINE__, __VA_ARGS__, .next = NULL)
#define GROUP_AT(line, ...) GROUP_ROW(line, __VA_ARGS__)
#define GROUP_ROW(line, label, ...) \
    TEST_ROW(group_##line, { .test = { label, NULL, __FILE__, line }, __VA_ARGS__ })
#endif
