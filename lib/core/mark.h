/* mark.h: included ahead of every source of the library (-include, Makefile.am). Each object file
 * leaves a line in section eg_text: where its code begins and ends, so that a return address can be
 * told to be the library's or its user's, however the library is linked. */
#if defined(__ELF__) && defined(__GNUC__) && (defined(__x86_64__) || defined(__aarch64__))
#define EG_TEXT_MARKED 1
__asm__(".text 0\n9801:\n.text 8191\n9802:\n.pushsection eg_text,\"a\"\n.balign 4\n.long 9801b - "
        "., 9802b - .\n.popsection\n.text\n");
#endif
