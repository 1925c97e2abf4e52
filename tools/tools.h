/* tools.h: what the commands of the program share. A command is one file with one row; main.c lists the rows.
 * Everything below the command line is the public interface of the library: the program is a user of it. */
#ifndef EG_TOOLS_H
#define EG_TOOLS_H
#include <eingrad.h>

/* -- options.c: a row says what an option is called, what it takes, and where the value goes ------------------------------------ */
typedef enum option_kind { FLAG, TEXT, LIST, WHOLE, REAL, CHOICE } option_kind;     /* bool, const char *, list, int64_t, double, const char * */
typedef struct option {
    char letter;                        /* 'o' of -o; 0: none                                               */
    const char *name;                   /* "out" of --out; NULL: none                                       */
    option_kind kind;
    const char *argument, *help;        /* "FILE", "where to write it"; CHOICE: "encoder|decoder"           */
    size_t at;                          /* offset in the command's own struct                               */
    double low, high;                   /* WHOLE, REAL: the range, both ends included                       */
    bool kept;                          /* belongs to a model: not to be given again when it is resumed     */
} option;
typedef struct list { int count; const char **item; } list;

typedef struct command {
    const char *name, *usage, *about;   /* "mask", "PREDICATE i=SIZE ...", one line                         */
    const char *more;                   /* the rest of --help                                               */
    const option *options;              /* ended by a row of zeros; NULL: none                              */
    const char *first;                  /* what the word after the command is, whatever it begins with; NULL: options may come first */
    int (*run)(const struct command *, int count, char **word);    /* the words after the command's name; exit status */
    void (*list)(FILE *);               /* the end of --help that is computed; NULL: none                   */
} command;

typedef struct words {
    int count;
    char **word;                        /* those that are no options, in order                              */
    uint64_t given;                     /* bit k: the k-th option was there                                 */
} words;
typedef enum parsed { PARSED, HELPED, REFUSED } parsed;
/* Reads the words into `values` and moves those that are no options to the front. HELPED: --help was printed; REFUSED: said why. */
parsed read_options(const command *, int count, char **word, void *values, words *);
void print_help(FILE *, const command *);
bool read_whole(const char *text, int64_t *value);      /* a whole number, nothing else                      */

/* -- text.c ----------------------------------------------------------------------------------------------------------------------- */
int  say(const char *format, ...) __attribute__((format(printf, 1, 2)));    /* "eingrad: …" to stderr; returns EXIT_FAILURE */
int  say_error(eg_ctx *, const char *where);            /* the context's error, after "where: " if it is not NULL */
int  columns(const char *utf8);                         /* of a terminal, one a character                    */
void pad(FILE *, const char *text, int width);          /* the text, then blanks up to the width             */
bool is_terminal(FILE *);
bool in_colour(FILE *);                                 /* a terminal, and NO_COLOR (no-color.org) is not set */
int  terminal_width(void);                              /* 80 where nothing is known                         */
const char *nearest(const char *word, const char *(*name)(int k));      /* NULL: none is near                */
const char *program(void);                              /* how the user calls this program                   */
void set_program(const char *argv0);

extern const command train_command, predict_command, attend_command, einsum_command, gradcheck_command, mask_command, ops_command, info_command;
#endif
