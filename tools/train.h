/* train.h: declarations that the files of `eingrad train` share. */
#ifndef EG_TOOLS_TRAIN_H
#define EG_TOOLS_TRAIN_H
#include "tools.h"

typedef struct train {
    eg_trainer_args model;
    const char *pairs, *text, *log, *out, *resume, *best, *curve, *schedule, *milestones;
    int64_t threads, every;
    bool force, best_given; /* best_given: --best was given, not derived from --out */
    bool joined;            /* the group of ranks was opened, or all ranks know why it was not */
    /* options of the attentions, from which model.attention is made */
    int64_t kv_heads, window;
    bool rotary, alibi, linear;
    const char *where, *score;
    list group; /* texts of groups, from which model.groups are read */
} train;

/* -- train_options.c -------------------------------------------------------------------------- */
extern const option train_options[];
const char *task_name(int k);                /* NULL after the last one */
const eg_task *train_task(const char *name); /* NULL after an error message */
/* Writes TASK.safetensors or TASK-MODEL.safetensors, in the present folder, so that two models of
 * the same data have different files. */
void train_file(const train *, const char *task, char *out, size_t size);
/* reads "300,600"; false after an error message */
bool train_milestones(const char *text, int64_t *out);
enum { WHERE_SIZE = 4096 };
/* Sets o->model.groups, in the open scope, from the texts of --group. False after an error
 * message. */
bool train_groups(eg_ctx *, train *o);
/* Returns --where and --window as one predicate; NULL if neither is given. */
const char *train_where(const train *, char *out);
/* Returns the weight decay of an optimiser (NULL: adam) that is given none. */
double train_default_decay(const char *optimiser);
/* Makes a new trainer from the options; NULL after an error message. */
eg_trainer *train_fresh(eg_ctx *, train *, const char *task, const words *, const command *);

/* -- stored.c: a checkpoint in the words of the options ---------------------------------------- */
enum { STORED_SIZE = 160 };
const char *stored_name(const char *key, size_t length, char out[STORED_SIZE]);
const char *stored_value(const char *key, const char *text, char out[STORED_SIZE]);
const char *stored_metadata(const eg_safetensors *, const char *key, char out[STORED_SIZE]);
const char *stored_milestones(const eg_safetensors *, char out[STORED_SIZE]);
/* The first difference of two runs, "clip 0, not 1". */
const char *saved_differs(const eg_saved *, char out[STORED_SIZE]);

/* -- train_resume.c --------------------------------------------------------------------------- */
/* Loads the trainer of a checkpoint, if options that are given again agree with it; NULL after an
 * error message. */
eg_trainer *train_resumed(eg_ctx *, train *, const char *task, const words *, const command *,
                          const char *path);
/* True if --out, --best, --log and --curve can and may be written; else prints a message. *step
 * receives the step of this run that the file of --out has. `from` is the checkpoint that is
 * resumed, or NULL. */
bool train_try_outputs(eg_ctx *, eg_trainer *, const train *, const char *path, const char *from,
                       int64_t *step);
#endif
