/* fuzz_checkpoint.c: damaged and hostile checkpoints through load, predict, a step, save, load.
 * Nothing may crash; loading n bytes takes at most 8 n + 64 MB; what was loaded and saved can be
 * loaded.
 *
 * libFuzzer: the input is a checkpoint. -DFUZZ_MAIN (tests/mutate_checkpoint): COUNT [FIRST] runs
 * that many mutated checkpoints, from number FIRST on; --seeds FOLDER writes the valid ones that
 * they are made from. */
#include <eingrad/grad.h>
#include <eingrad/train.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include "header.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);
enum { SPARE = 64 << 20, BATCH_MOST = 64 };

static struct {
    long loaded, stepped;
    size_t memory;
    double seconds;
} seen;

static double spent(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const char *path_of(const char *name)
{
    static char path[2][128];
    static int k;
    k ^= 1;
    snprintf(path[k], sizeof *path, "%s/eg_fuzz_%ld_%s",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm", (long)getpid(), name);
    return path[k];
}

static void check(bool good, const char *what, eg_ctx *cx)
{
    if (good) return;
    fprintf(stderr, "%s: %s\n", what, eg_error(cx) ? eg_error(cx) : "no error");
    abort();
}

/* answers, a step where the batch is small, and the file again */
/* True if the optimiser's moments are finite; a step with very large values may leave some that are
 * not, and such a file is refused. */
static bool finite_moments(eg_trainer *t)
{
    bool finite = true;
    for (int k = 0; eg_opt_state(eg_trainer_opt(t), k); k++)
        finite &= !eg_first_nonfinite(eg_opt_state(eg_trainer_opt(t), k)->x);
    return finite;
}

static void use(eg_ctx *cx, eg_trainer *t)
{
    bool free_text = eg_data_is_text(eg_trainer_data(t)), trained = false;
    if (free_text)
        eg_trainer_generate(t, "ab", .length = 4);
    else
        eg_trainer_predict(t, "12");
    eg_clear(cx);
    if (!free_text && eg_trainer_config(t)->batch <= BATCH_MOST) {
        trained = !eg_trainer_step(t, NULL);
        check(trained == !eg_error(cx), "step", cx);
        seen.stepped += trained;
        eg_clear(cx);
    }
    const char *path = path_of("saved");
    check(!eg_trainer_save(t, path), "save", cx);
    eg_ctx *other = eg_open(.threads = 1);
    const bool finite = finite_moments(t),
               loaded = other && eg_trainer_load(other, path, 0, .inference_only = true);
    check(loaded == finite, finite ? "load what was saved" : "refuse what is not finite", other);
    eg_close(other);
    unlink(path);
}

static void load(const char *path, size_t bytes)
{
    eg_ctx *cx = eg_open(.threads = 1);
    size_t before = eg_stats(cx).bytes;
    double start = spent();
    eg_trainer *t = eg_trainer_load(cx, path, 0, .inference_only = true);
    double took = spent() - start;
    size_t memory = eg_stats(cx).peak - before;
    check(!t != !eg_error(cx), "load", cx);
    if (memory > 8 * bytes + SPARE) {
        fprintf(stderr, "%zu bytes took %zu bytes of memory\n", bytes, memory);
        abort();
    }
    seen.memory = memory > seen.memory ? memory : seen.memory;
    seen.seconds = took > seen.seconds ? took : seen.seconds;
    seen.loaded += t != NULL;
    if (t) use(cx, t);
    eg_close(cx);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    const char *path = path_of("in");
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    check(fd >= 0 && write(fd, bytes, count) == (ssize_t)count, path, NULL);
    close(fd);
    load(path, count);
    unlink(path);
    return 0;
}

#ifndef FUZZ_MAIN
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    uint64_t state = seed;
    return header_change(data, size, most, &state);
}
#else
enum { SEEDS = 5, MOST = 1 << 17 };
static uint8_t seed_bytes[SEEDS][MOST], mutant[MOST];
static size_t seed_size[SEEDS];

/* Small models of each kind: a task, pairs with each model, a corpus. */
static bool make_seed(int k, const char *path)
{
    static const char pairs[] = "12\t21\n34\t43\n56\t65\n78\t87\n13\t31\n24\t42\n57\t75\n68\t86\n14"
                                "\t41\n15\t51\n16\t61\n17\t71\n";
    static const char text[] =
        "abababbabaabbabaababbabbaababababbabaabbabaababbabbaababababbabaabbabaababbabbaab";
    static const char *const model[SEEDS] = { "encoder", "encoder", "decoder", "seq2seq",
                                              "decoder" };
    eg_ctx *cx = eg_open(.threads = 1);
    eg_data *d = !k              ? eg_data_task(cx, eg_task_find("sort"))
                 : k < SEEDS - 1 ? eg_data_parse(cx, pairs, "pairs")
                                 : eg_data_corpus_of(cx, text, sizeof text - 1, "/nowhere/text");
    eg_trainer *t =
        eg_trainer_new(d, .model = model[k], .layers = 1, .d_model = 8, .heads = 2, .width = 8,
                       .batch = 4, .steps = 20, .context = k == SEEDS - 1 ? 4 : 0,
                       .block = k == 2 ? 2 : 0, .dropout = k == 1 ? 0.1 : 0);
    bool good = t && !eg_trainer_step(t, NULL) && !eg_trainer_save(t, path);
    if (!good) fprintf(stderr, "%s\n", eg_error(cx));
    eg_close(cx);
    return good;
}

static bool make_seeds(const char *folder)
{
    for (int k = 0; k < SEEDS; k++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%d.safetensors", folder ? folder : "", k);
        const char *to = folder ? path : path_of("seed");
        FILE *f = make_seed(k, to) ? fopen(to, "rb") : NULL;
        if (!f) return false;
        seed_size[k] = fread(seed_bytes[k], 1, MOST - 4096, f);
        fclose(f);
        if (!folder) unlink(to);
    }
    return true;
}

int main(int count, char **argument)
{
    bool seeds = count == 3 && !strcmp(argument[1], "--seeds");
    if (!make_seeds(seeds ? argument[2] : NULL)) return 1;
    long n = seeds       ? 0
             : count > 1 ? strtol(argument[1], NULL, 10)
                         : 1000,
         first = count > 2 && !seeds ? strtol(argument[2], NULL, 10) : 0;
    for (int k = 0; k < SEEDS; k++) LLVMFuzzerTestOneInput(seed_bytes[k], seed_size[k]);
    if (seen.loaded != SEEDS) return 1;
    for (long k = first; k < first + n; k++) {
        uint64_t state = (uint64_t)k * 0x9e3779b97f4a7c15u;
        int which = (int)(header_draw(&state) % SEEDS),
            changes = 1 + (header_draw(&state) % 4 == 0);
        size_t size = seed_size[which];
        memcpy(mutant, seed_bytes[which], size);
        while (changes--) size = header_change(mutant, size, MOST, &state);
        LLVMFuzzerTestOneInput(mutant, size);
    }
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    printf("%ld mutated checkpoints: %ld loaded, %ld trained a step; loading took at most %.1f MB "
           "and %.3f s; the process %.0f MB\n",
           n, seen.loaded - SEEDS, seen.stepped, (double)seen.memory / 1e6, seen.seconds,
           (double)use.ru_maxrss / 1e3);
    return 0;
}
#endif
