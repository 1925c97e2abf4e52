/* mark.h: included before every source file of the library (option -include, Makefile.am). Each
 * object file adds an entry to the section eg_text with the range of its code, so that a return
 * address can be assigned to the library or to its user, no matter how the library is linked. The
 * flag R keeps the section with --gc-sections, under which lld drops what only __start_eg_text
 * refers to; configure defines EG_HAVE_RETAIN if the assembler knows it. */
#if defined(__ELF__) && defined(__GNUC__) && (defined(__x86_64__) || defined(__aarch64__))
#define EG_TEXT_MARKED 1
#ifdef EG_HAVE_RETAIN
#define EG_MARK_FLAGS "aR"
#else
#define EG_MARK_FLAGS "a"
#endif
__asm__(".text 0\n9801:\n.text 8191\n9802:\n.pushsection eg_text,\"" EG_MARK_FLAGS
        "\"\n.balign 4\n.long 9801b - ., 9802b - .\n.popsection\n.text\n");
#endif
