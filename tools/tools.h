/* tools.h: what the commands of the program share. A command is one file with one row; main.c lists
 * the rows. Everything below the command line is the public interface of the library: the program
 * is a user of it. */
#ifndef EG_TOOLS_H
#define EG_TOOLS_H
#include <eingrad.h>

/* -- options.c: a row says what an option is called, what it takes, and where the value goes */
typedef enum option_kind {
    FLAG,    /* bool                                              */
    TEXT,    /* const char *                                      */
    INPUT,   /* const char *, a file that is read                 */
    OUTPUT,  /* const char *, a file that is written              */
    OUTPUTS, /* list of files that are written                    */
    MAYBE,   /* const char *, "" where no value follows           */
    GONE,    /* there is none any more: help says what there is  */
    WHOLE,   /* int64_t                                           */
    REAL,    /* double                                            */
    CHOICE   /* const char *, one of the words of `argument`      */
} option_kind;
typedef struct option {
    char letter;      /* 'o' of -o; 0: none */
    const char *name; /* "out" of --out; NULL: none */
    option_kind kind;
    const char *argument, *help; /* "FILE", "where to write it"; CHOICE: "encoder|decoder" */
    size_t at;                   /* offset in the command's own struct */
    double low, high;            /* WHOLE, REAL: the range, both ends included */
    bool kept;                   /* a checkpoint has it: resuming with another value is refused */
} option;
typedef struct list {
    int count;
    const char **item;
} list;

typedef struct command {
    const char *name, *usage, *about; /* "mask", "PREDICATE i=SIZE ...", one line */
    const char *more;                 /* the rest of --help */
    const option *options;            /* ended by a row of zeros; NULL: none */
    /* what the next word is, whatever it begins with; NULL: it may be an option */
    const char *first;
    /* the words after the command's name; exit status */
    int (*run)(const struct command *, int count, char **word);
    void (*list)(FILE *);               /* the end of --help that is computed; NULL: none */
    const char *input;                  /* "the model": what words that are files are called */
    int input_first, input_count;       /* which words those are */
    bool (*prints)(const void *values); /* true if anything is printed; NULL: always */
} command;

typedef struct words {
    int count;
    char **word;    /* those that are no options, in order */
    uint64_t given; /* bit k: the k-th option was there */
} words;
typedef enum parsed { PARSED, HELPED, REFUSED } parsed;
/* Reads the words into `values` and moves those that are no options to the front. HELPED: --help
 * was printed; REFUSED: said why. */
parsed read_options(const command *, int count, char **word, void *values, words *);
bool was_given(const words *, const command *, const char *name);
/* What the running command calls the option that is n bytes in C: "kv_heads" is "kv-heads". NULL:
 * it has none. */
const char *option_of_member(const char *member, size_t n);
void print_help(FILE *, const command *);
bool read_whole(const char *text, int64_t *value); /* a whole number, nothing else */
/* "4x8", "()" is a scalar: the rank; −1 after saying why */
int read_shape(const command *, const char *text, int64_t *dim);

/* -- files.c: each file that a command reads or writes is told here before it is opened;
 * read_options tells those of the rows and words. False after saying why: an output that is an
 * input too, or another output, or that no file can be. */
bool use_file(const char *part, const char *path, bool written); /* "--out"; NULL: nothing */
bool use_stream(const char *part, int descriptor, bool written);
/* True if no other process of this machine writes to the path, which this process then claims until
 * it ends; else says so. Devices are not claimed. */
bool claim_file(const char *part, const char *path);
bool same_file(const char *a, const char *b); /* not there yet: one folder, one name */
bool hold_streams(void);                      /* takes descriptors 0, 1, 2; false: it cannot */

/* -- model.c ---------------------------------------------------------------------------------- */
bool all_finite(eg_tensor *);                      /* no NaN and no infinity */
bool finite_model(eg_trainer *, const char *path); /* true if its parameters are; else says not */
/* A text to continue: the tokens of a .npy, else the characters of a file. NULL after an error. */
eg_data *text_data(eg_ctx *, const char *path);
eg_trainer *load_model(eg_ctx *, const eg_trainer_load_args *); /* NULL after saying why */

/* -- text.c ----------------------------------------------------------------------------------- */
/* "eingrad: …" to stderr; returns EXIT_FAILURE */
int say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* From now on `say` keeps its sentence instead of printing it; returns the last one, or NULL */
const char *say_nothing(bool);
/* the context's error, after "where: " if it is not NULL */
int say_error(eg_ctx *, const char *where);
/* the same of a model that was not loaded: that its text, which `text` does not give, may have been
 * moved */
int say_load_error(eg_ctx *, const char *model, const char *text);
/* the same, with `shown` where it says `path` */
int say_error_of(eg_ctx *, const char *path, const char *shown);
bool is_picture(const char *path);             /* ends in .png or .svg */
int columns(const char *utf8);                 /* of a terminal, one a character */
void pad(FILE *, const char *text, int width); /* the text, then blanks up to the width */
bool is_terminal(FILE *);
bool in_colour(FILE *);   /* a terminal, and NO_COLOR (no-color.org) is not set */
int terminal_width(void); /* 80 where nothing is known */
const char *nearest(const char *word, const char *(*name)(int k)); /* NULL: none is near */
const char *program(void); /* how the user calls this program */
void set_program(const char *argv0);

/* -- progress.c, show.c: what `train` prints and logs ----------------------------------------- */
/* The mean of a number over some steps, for alarms. */
typedef struct usual {
    int64_t count; /* steps so far */
    double mean, variance;
    double was, deviation; /* mean and deviation before the last step */
} usual;
typedef struct progress {
    bool bar;  /* one line of a terminal, drawn again and again; else plain lines */
    FILE *log; /* JSON lines; NULL: none */
    const char *log_path;
    int64_t first;       /* steps done before this run */
    bool text;           /* bits a character (or token), not sequences */
    double goal;         /* share of exact sequences */
    double start, shown; /* seconds() of the start, and of the last line */
    double sequences;        /* share of exact sequences in a batch, smoothed; −1: no step yet */
    usual loss, norm;
    int alarms;            /* so far */
    double smooth, lowest; /* loss over some steps, and its minimum */
    double guess;          /* the loss of a uniform guess */
    bool risen;            /* the loss diverges */
    bool told, told_dead;  /* a saturated head was shown, one that is dead */
    const char *unit;      /* of a text: "character"; else NULL */
    double unseen;         /* the last held-out loss */
    const char *curve;     /* the picture of the losses; NULL: none */
    double *point;         /* step, loss, held-out loss (NaN: not evaluated) of each step */
    int64_t points, room;
} progress;
double seconds(void);
/* false after saying why */
bool progress_open(progress *, eg_trainer *, const char *log_path, bool append);
bool progress_step(progress *, eg_trainer *, const eg_progress *);
/* writes it, if it was asked for; false after saying why */
bool progress_curve(const progress *, eg_trainer *);
/* The name of a loss's axis; unit: of a text its "character" or "token", else NULL. */
const char *loss_name(const char *unit);
void progress_clear(const progress *); /* the bar goes away before something else is printed */
bool progress_close(progress *, const eg_score *, const eg_progress *);
/* evaluate.c: "0.1,1.3"; false after saying why */
bool heads_off(eg_trainer *, const char *names);
/* Prints the end of `train`; returns the exit status. path, best: where the last model is, and the
 * one of smallest unseen loss or NULL. */
int show(eg_trainer *, const char *path, const char *best, const eg_score *, const eg_progress *,
         const progress *);

/* -- train.c: what `grid` asks before its first run ------------------------------------------- */
/* Returns EXIT_SUCCESS if `train` can run with these words and --out has nothing, or this very run;
 * else says why not. Nothing is written. */
int train_check(int count, char **word);

/* -- gradvalues.c: gradcheck --points and --values: numbers from files; exit status */
int check_values(int count, char **word);

/* -- heads.c ---------------------------------------------------------------------------------- */
/* Prints what each head of the weights (layer h i j) does, and how alike heads are. apart: the
 * queries are positions of another sequence than the keys. */
void print_heads(eg_tensor *weights, bool apart);

extern const command train_command, grid_command, predict_command, evaluate_command,
    generate_command, attend_command, compare_command, curve_command, einsum_command,
    explain_command, gradcheck_command, mask_command, ops_command, info_command, help_command;
#endif
