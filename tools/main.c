/* eingrad: the program. main finds the command; each command is in a separate file. */
#include "tools.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static const command *const commands[] = {
    &train_command,    &grid_command,    &predict_command,   &evaluate_command,
    &generate_command, &attend_command,  &compare_command,   &curve_command,
    &einsum_command,   &explain_command, &gradcheck_command, &mask_command,
    &ops_command,      &info_command,    &help_command,      NULL
};
static const char *command_name(int k) { return commands[k] ? commands[k]->name : NULL; }

static void help(FILE *file)
{
    fprintf(file,
            "eingrad %s: attention and gradients in index notation\n\nusage: %s COMMAND ...\n\n",
            eg_version(), program());
    for (int k = 0; commands[k]; k++)
        fprintf(file, "  %-10s %s\n", commands[k]->name, commands[k]->about);
    fprintf(file, "\n  %s COMMAND --help   what a command takes\n  %s --version\n", program(),
            program());
}

static int run(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "--help";
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 ||
        (strcmp(word, "help") == 0 && argc == 2)) {
        help(argc > 1 ? stdout : stderr);
        return argc > 1 ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    if (strcmp(word, "--version") == 0) {
        printf("eingrad %s\n", eg_version());
        return EXIT_SUCCESS;
    }
    for (int k = 0; commands[k]; k++)
        if (strcmp(word, commands[k]->name) == 0)
            return commands[k]->run(commands[k], argc - 2, argv + 2);
    const char *near = nearest(word, command_name);
    if (near) return print_error("there is no command \"%s\"; is it %s?", word, near);
    return print_error("there is no command \"%s\"; see %s --help", word, program());
}

int main(int argc, char **argv)
{
    /* exceeding the limit of file size is then an error like a full disk */
    signal(SIGXFSZ, SIG_IGN);
    set_program(argv[0]);
    if (!hold_streams()) return print_error("/dev/null: %s", strerror(errno));
    /* of the processes that mpirun starts only the first prints; the others compute */
    int rank, status = EXIT_SUCCESS;
    eg_ranks_launched(&rank);
    if (rank) keep_errors(true);
    if (rank && !freopen("/dev/null", "w", stdout)) fclose(stdout);
    if (!rank || (argc > 1 && strcmp(argv[1], train_command.name) == 0)) status = run(argc, argv);
    errno = 0;
    /* compare and gradcheck also end with a status of 1 after an answer */
    if ((fflush(stdout) || ferror(stdout)) && (status == EXIT_SUCCESS || !has_printed_error()))
        status = print_error("standard output: %s",
                             errno ? strerror(errno) : "not everything could be written");
    return status;
}
