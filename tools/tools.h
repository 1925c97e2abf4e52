/* tools.h: declarations that the commands of the program share. A command is one file with one
 * struct `command`; main.c lists these. The program uses only the public interface of the
 * library. */
#ifndef EG_TOOLS_H
#define EG_TOOLS_H
#include <eingrad.h>
#include <limits.h>

/* -- options.c: the table of a command's options: name, kind of argument, and where the value is
 * stored -- */
typedef enum option_kind {
    FLAG,     /* bool */
    TEXT,     /* const char * */
    INPUT,    /* const char *, a file that is read */
    OUTPUT,   /* const char *, a file that is written */
    OUTPUTS,  /* list of files that are written */
    TEXTS,    /* list of texts */
    OPTIONAL, /* const char *, "" if no value follows */
    REMOVED,  /* it no longer exists: `help` names its replacement */
    INTEGER,  /* int64_t */
    REAL,     /* double */
    CHOICE    /* const char *, one of the words of `argument` */
} option_kind;
typedef struct option {
    char letter;      /* 'o' for -o; 0: none */
    const char *name; /* "out" for --out; NULL: none */
    option_kind kind;
    const char *argument, *help; /* "FILE", "where to write it"; CHOICE: "encoder|decoder" */
    size_t at;                   /* offset in the command's struct */
    double low, high;            /* for INTEGER and REAL: the range, including both ends */
    bool kept; /* resuming with another value than the checkpoint has is refused */
} option;
typedef struct list {
    int count;
    const char **item;
} list;

typedef struct command {
    const char *name, *usage, *about; /* "mask", "PREDICATE i=SIZE ...", one line */
    const char *more;                 /* the rest of the text of --help */
    const option *options;            /* ended by an entry of zeros; NULL: none */
    /* name of the first word, which is not read as an option whatever it begins with; NULL: it may
     * be an option */
    const char *first;
    /* is given the words after the command's name; returns the exit status */
    int (*run)(const struct command *, int count, char **word);
    void (*list)(FILE *);         /* prints the part of --help that is computed; NULL: none */
    const char *input;            /* "the model": the name of words that are files, in messages */
    int input_first, input_count; /* which words these are */
    bool (*prints)(const void *values); /* true if the command prints anything; NULL: always */
} command;

typedef struct words {
    int count;
    char **word;    /* those that are not options, in order */
    uint64_t given; /* bit k: the k-th option was given */
} words;
typedef enum parsed { PARSED, HELPED, REFUSED } parsed;
/* Reads the words into `values` and moves those that are not options to the front. HELPED: --help
 * was printed. REFUSED: an error message was printed. */
parsed read_options(const command *, int count, char **word, void *values, words *);
bool was_given(const words *, const command *, const char *name);
/* Returns the name on the command line of the option whose C member is n bytes long: "kv_heads" is
 * "kv-heads". NULL if the running command has no such option. */
const char *option_of_member(const char *member, size_t n);
void print_help(FILE *, const command *);
bool read_integer(const char *text, int64_t *value); /* true if the text is an integer */
/* reads "4x8"; "()" is a scalar. Returns the rank; −1 after an error message */
int read_shape(const command *, const char *text, int64_t *dim);

/* -- files.c: each file that a command reads or writes is registered here before it is opened;
 * read_options registers those of the options and words. False after a message that says why it
 * cannot be used: an output is also an input or another output, or cannot be written. */
bool use_file(const char *part, const char *path, bool written); /* "--out"; NULL: nothing */
/* False after saying that the path is a device that may give bytes without an end, such as
 * /dev/zero: neither a terminal nor /dev/null. */
bool has_end(const char *part, const char *path);
bool use_stream(const char *part, int descriptor, bool written);
/* True if no other process of this machine writes to the path, which this process then claims until
 * it ends; else prints a message. Devices are not claimed. */
bool claim_file(const char *part, const char *path);
/* files that do not exist yet are equal if folder and name are */
bool same_file(const char *a, const char *b);
bool hold_streams(void); /* makes sure that descriptors 0, 1, 2 are open; false if that fails */

/* -- model.c ---------------------------------------------------------------------------------- */
bool all_finite(eg_tensor *); /* no NaN and no infinity */
bool same_sizes(const eg_tensor *, const eg_tensor *);
/* true if its parameters are finite; else prints a message */
bool finite_model(eg_trainer *, const char *path);
/* A text to continue: the tokens of a .npy, else the characters of a file. NULL after an error. */
eg_data *text_data(eg_ctx *, const char *path);
eg_trainer *load_model(eg_ctx *, const eg_trainer_load_args *); /* NULL after an error message */

/* -- text.c ----------------------------------------------------------------------------------- */
/* prints "eingrad: …" to stderr; returns EXIT_FAILURE */
int print_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool has_printed_error(void); /* print_error has printed a message */
/* true: print_error keeps its message instead of printing it. Returns the last one kept, or NULL */
const char *keep_errors(bool);
/* prints the context's error, after "where: " if that is not NULL */
int print_context_error(eg_ctx *, const char *where);
/* as print_context_error, for a model that could not be loaded: if `text` is NULL and the model's
 * text is not found, the message names the option --text */
int print_load_error(eg_ctx *, const char *model, const char *text);
/* as print_context_error, with `shown` in place of `path` in the text */
int print_context_error_naming(eg_ctx *, const char *path, const char *shown);
enum { PRINTABLE = 400 };
/* Copies a text of a foreign file to `out`, cut if it is longer, with '?' for control characters,
 * which a terminal would obey, and for marks that change the direction of writing; returns out. */
const char *printable(const char *text, char out[PRINTABLE]);
/* True if the path ends in `end`, a dot and letters of either case: ".npy". */
bool has_ending(const char *path, const char *end);
bool is_picture(const char *path); /* true if the path ends in .png or .svg */
int columns(const char *utf8);     /* number of columns on a terminal, one for each character */
void pad(FILE *, const char *text, int width); /* prints the text, then blanks up to the width */
bool is_terminal(FILE *);
bool in_colour(FILE *);   /* true on a terminal if NO_COLOR (no-color.org) is not set */
int terminal_width(void); /* 80 if it is unknown */
/* the most similar name; NULL if none is similar */
const char *nearest(const char *word, const char *(*name)(int k));
const char *program(void); /* the name by which the user called this program */
void set_program(const char *argv0);

enum { GROUPS_SIZE = 4096 }; /* bytes of the text of eg_opt_groups_write that are shown */

/* -- progress.c, show.c: what `train` prints and logs ----------------------------------------- */
/* The exponentially weighted mean of a quantity over steps, for alarms. */
typedef struct moving_mean {
    int64_t count; /* number of steps */
    double mean, variance;
    double was, deviation; /* mean and deviation before the last step */
} moving_mean;
typedef struct progress {
    bool bar;  /* a bar that is redrawn in one line of a terminal; else lines */
    FILE *log; /* a file of JSON lines; NULL: none */
    const char *log_path;
    char log_place[PATH_MAX], log_beside[PATH_MAX + 8]; /* a log that it replaces, and itself until
                                                         * its first line is written; else "" */
    int64_t first;       /* number of steps that were done before this run */
    bool text;           /* the data are a text: bits per character (or token), not sequences */
    double goal;         /* share of sequences that are exactly right */
    double start, shown; /* seconds() at the start, and at the last line */
    double sequences; /* share of exactly right sequences in a batch, smoothed; −1: no step yet */
    moving_mean loss, norm;
    int alarms;                           /* number of alarms */
    double smooth, lowest;                /* smoothed loss, and its minimum */
    double guess;                         /* the loss of a uniform guess */
    bool risen;                           /* the loss is rising (see divergence) */
    bool saturated_printed, dead_printed; /* a saturated head, a dead head was printed */
    const char *unit;                     /* of a text: "character" or "token"; else NULL */
    const char *curve;                    /* path of the picture of the losses; NULL: none */
    double *point; /* of each step: number, loss, held-out loss (NaN: not evaluated) */
    int64_t points, capacity;
} progress;
double seconds(void);
#define LOG_BEGINS "{\"data\": " /* the first bytes of a log */
/* false after an error message */
bool progress_open(progress *, eg_trainer *, const char *log_path, bool append);
bool progress_step(progress *, eg_trainer *, const eg_progress *);
/* writes the picture if it was requested; false after an error message */
bool progress_curve(const progress *, eg_trainer *);
/* Returns the name of the axis of losses; unit: "character" or "token" for a text, else NULL. */
const char *loss_name(const char *unit);
void progress_clear(const progress *); /* removes the bar before something else is printed */
bool progress_close(progress *, const eg_score *, const eg_progress *);
/* evaluate.c: reads "0.1,1.3"; false after an error message */
bool switch_heads_off(eg_trainer *, const char *names);
/* show.c: prints s as one word of a shell */
void print_quoted(const char *s);
/* True if the file is the checkpoint of t's run at this step. */
bool holds_step(eg_trainer *t, const char *path, int64_t step);
/* Prints the end of `train` and returns the exit status. path, best: the files of the last model,
 * and of the one with the smallest held-out loss or NULL. */
int print_result(eg_trainer *, const char *path, const char *best, const eg_score *,
                 const eg_progress *, const progress *);

/* -- train.c: a check that `grid` makes before its first run ----------------------------------- */
/* Returns EXIT_SUCCESS if `train` can run with these words, and if the file of --out does not exist
 * or is a checkpoint of this run; else prints an error message. Nothing is written. */
int train_check(int count, char **word);

/* -- gradvalues.c: gradcheck --points and --values; returns the exit status -------------------- */
int check_values(int count, char **word);

/* -- heads.c ---------------------------------------------------------------------------------- */
/* Prints the measures of each head of the weights (layer h i j), and the similarity of heads.
 * apart: the positions of queries are those of another sequence than the keys'. */
void print_heads(eg_tensor *weights, bool apart);

extern const command train_command, grid_command, predict_command, evaluate_command,
    generate_command, attend_command, compare_command, curve_command, einsum_command,
    explain_command, gradcheck_command, mask_command, ops_command, info_command, help_command;
#endif
