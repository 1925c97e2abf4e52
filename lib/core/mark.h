/* mark.h: included before every source file of the library (option -include, Makefile.am). Each
 * object file adds an entry to the section eg_text with the range of its code, so that a return
 * address can be assigned to the library or to its user, no matter how the library is linked. */
#if defined(__ELF__) && defined(__GNUC__) && (defined(__x86_64__) || defined(__aarch64__))
#define EG_TEXT_MARKED 1
__asm__(".text 0\n9801:\n.text 8191\n9802:\n.pushsection eg_text,\"a\"\n.balign 4\n.long 9801b - "
        "., 9802b - .\n.popsection\n.text\n");
#endif
