/* origin.c: describes for messages how a tensor was computed: the operation, einsum's string, and
 * the source line of the program that called it. */
#include "autograd/autograd.h"
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>
#if HAVE_LIBDW
#include <dwarf.h>
#include <elfutils/libdwfl.h>
#include <stdlib.h>
#endif

/* Returns the file name at the end of the path. */
static const char *base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

#if defined(__SANITIZE_ADDRESS__)
/* LeakSanitizer (gcc 12, glibc 2.36) misreads the thread-local storage of libraries that dlopen
 * loads, and crashes with "Tracer caught signal 11", so it is turned off. */
const char *__asan_default_options(void);
__attribute__((visibility("default"), weak)) const char *__asan_default_options(void)
{
    return "intercept_tls_get_addr=0";
}
#endif

#if HAVE_LIBDW
/* libdw is loaded with dlopen when a message needs it, so that programs that use eingrad need not
 * link it and do not start slower. */
/* clang-format off */
#define FUNCTIONS(X)                                                                          \
    X(dwfl_begin) X(dwfl_end) X(dwfl_linux_proc_find_elf) X(dwfl_linux_proc_report)           \
    X(dwfl_report_end) X(dwfl_addrmodule)                                                     \
    X(dwfl_module_getsrc) X(dwfl_lineinfo) X(dwfl_module_addrinfo)                            \
    X(dwfl_module_nextcu) X(dwarf_haspc) X(dwarf_getsrc_die) X(dwarf_linesrc) X(dwarf_lineno) \
    X(dwarf_getscopes) X(dwarf_tag) X(dwarf_attr) X(dwarf_formudata) X(dwarf_getsrcfiles)     \
    X(dwarf_filesrc)
/* clang-format on */
#define MEMBER(name) __typeof__(name) *name;
/* The functions of libdw that are used here; stored in eg__lines.libdw. */
typedef struct dw {
    Dwfl_Callbacks callbacks;
    FUNCTIONS(MEMBER)
} dw;
_Static_assert(sizeof(dw) <= sizeof((eg__lines *)0)->libdw,
               "eg__lines has room for libdw's functions");

/* A callback for libdw that finds no separate debugging information. Only the program's own file is
 * read; nothing is searched for on disk or on the network. */
static int no_debuginfo(Dwfl_Module *m, void **data, const char *name, Dwarf_Addr start,
                        const char *file, const char *link, GElf_Word crc, char **found)
{
    (void)m, (void)data, (void)name, (void)start, (void)file, (void)link, (void)crc, (void)found;
    return -1;
}
/* Sets *function to the address of the named function of library so. False if there is none. The
 * bytes are copied because ISO C has no cast from void * to a pointer to a function. */
static bool origin_find(void *so, const char *name, void *function)
{
    void *p = so ? dlsym(so, name) : NULL;
    memcpy(function, &p, sizeof p);
    return p != NULL;
}
/* session remains NULL if libdw or one of its functions is missing, or if the process cannot be
 * examined. */
void eg__lines_open(eg__lines *l)
{
    dw *f = (dw *)(void *)l->libdw;
    bool all = true;
    *l = (eg__lines){ .so = dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL) };
#define FIND(name) all = origin_find(l->so, #name, &f->name) && all;
    FUNCTIONS(FIND)
    if (!all) return;
    f->callbacks =
        (Dwfl_Callbacks){ .find_elf = f->dwfl_linux_proc_find_elf, .find_debuginfo = no_debuginfo };
    Dwfl *d = l->session = f->dwfl_begin(&f->callbacks);
    if (!d || (!f->dwfl_linux_proc_report(d, getpid()) && !f->dwfl_report_end(d, NULL, NULL)))
        return;
    f->dwfl_end(d);
    l->session = NULL;
}
void eg__lines_close(eg__lines *l)
{
    if (l->session) ((dw *)(void *)l->libdw)->dwfl_end(l->session);
    if (l->so) dlclose(l->so);
}
/* Writes "file:line" of the call that returns to `caller`, or "function+0xoffset" if the debugging
 * information has no line for it. False if libdw finds neither. */
static bool line_of(const eg__lines *l, const void *caller, char *out, size_t size)
{
    const dw *f = (const dw *)(const void *)l->libdw;
    const uintptr_t at =
        (uintptr_t)caller - 1; /* an address inside the call; `caller` is the address after it */
    Dwfl_Module *m = l->session ? f->dwfl_addrmodule(l->session, at) : NULL;
    Dwfl_Line *line = m ? f->dwfl_module_getsrc(m, at) : NULL;
    int number = 0;
    GElf_Off offset = 0;
    GElf_Sym symbol;
    const char *file = line ? f->dwfl_lineinfo(line, NULL, &number, NULL, NULL, NULL) : NULL;
    Dwarf_Die *unit = NULL;
    Dwarf_Addr bias;
    /* clang writes no index of addresses (.debug_aranges), so each compilation unit is searched */
    while (m && !file && (unit = f->dwfl_module_nextcu(m, unit, &bias))) {
        Dwarf_Line *l_of =
            f->dwarf_haspc(unit, at - bias) > 0 ? f->dwarf_getsrc_die(unit, at - bias) : NULL;
        if (l_of && !f->dwarf_lineno(l_of, &number)) file = f->dwarf_linesrc(l_of, NULL, NULL);
    }
    if (file) {
        snprintf(out, size, "%s:%d", base(file), number);
        return true;
    }
    const char *function =
        m ? f->dwfl_module_addrinfo(m, at, &offset, &symbol, NULL, NULL, NULL) : NULL;
    if (function) snprintf(out, size, "%s+0x%llx", function, (unsigned long long)offset + 1);
    return function != NULL;
}
/* Sets *n to a numeric attribute of die. False if die does not have it. (The number of a file may
 * be 0: since DWARF 5 that is the unit's own file, and clang uses it.) */
static bool origin_number(const dw *f, Dwarf_Die *die, unsigned name, Dwarf_Word *n)
{
    Dwarf_Attribute a;
    return f->dwarf_attr(die, name, &a) && !f->dwarf_formudata(&a, n);
}
/* Writes "file:line" of the call of the function whose inlined copy contains the call that returns
 * to `caller`. False if no function was inlined there. */
static bool line_of_inlined(const eg__lines *l, const void *caller, char *out, size_t size)
{
    const dw *f = (const dw *)(const void *)l->libdw;
    const uintptr_t at = (uintptr_t)caller - 1;
    Dwfl_Module *m = l->session ? f->dwfl_addrmodule(l->session, at) : NULL;
    Dwarf_Die *unit = NULL, *scope = NULL;
    Dwarf_Addr bias;
    Dwarf_Files *files;
    bool found = false;
    while (m && (unit = f->dwfl_module_nextcu(m, unit, &bias)))
        if (f->dwarf_haspc(unit, at - bias) > 0) break;
    const int n = unit ? f->dwarf_getscopes(unit, at - bias, &scope) : 0;
    for (int k = 0; k < n; k++) { /* the innermost first */
        const int tag = f->dwarf_tag(&scope[k]);
        if (tag == DW_TAG_subprogram) break;
        if (tag != DW_TAG_inlined_subroutine) continue;
        Dwarf_Word file, line;
        const bool known = origin_number(f, &scope[k], DW_AT_call_file, &file) &&
                           origin_number(f, &scope[k], DW_AT_call_line, &line) &&
                           !f->dwarf_getsrcfiles(unit, &files, NULL);
        const char *name = known ? f->dwarf_filesrc(files, (size_t)file, NULL, NULL) : NULL;
        if ((found = name != NULL))
            snprintf(out, size, "%s:%llu", base(name), (unsigned long long)line);
        break;
    }
    free(scope);
    return found;
}
#else
static bool line_of_inlined(const eg__lines *l, const void *caller, char *out, size_t size)
{
    (void)l, (void)caller, (void)out, (void)size;
    return false;
}
void eg__lines_open(eg__lines *l) { *l = (eg__lines){ 0 }; }
void eg__lines_close(eg__lines *l) { (void)l; }
static bool line_of(const eg__lines *l, const void *caller, char *out, size_t size)
{
    (void)l, (void)caller, (void)out, (void)size;
    return false;
}
#endif
/* Without debugging information the nearest symbol or the file and an offset are written. */
const char *eg__line(const eg__lines *l, const void *caller, char *out, size_t size)
{
    Dl_info info;
    out[0] = 0;
    if (!caller || line_of(l, caller, out, size) || !dladdr((const char *)caller - 1, &info))
        return out;
    const uintptr_t at = (uintptr_t)caller;
    if (info.dli_sname)
        snprintf(out, size, "%s+0x%llx", info.dli_sname,
                 (unsigned long long)(at - (uintptr_t)info.dli_saddr));
    else if (info.dli_fname)
        snprintf(out, size, "%s+0x%llx", base(info.dli_fname),
                 (unsigned long long)(at - (uintptr_t)info.dli_fbase));
    return out;
}

const char *eg__line_around(const eg__lines *l, const void *caller, const void *outer, char *out,
                            size_t size)
{
    if (caller && line_of_inlined(l, caller, out, size)) return out;
    return eg__line(l, outer ? outer : caller, out, size);
}

const char *eg__origin(const eg_tensor *t, char *out, size_t size)
{
    char line[128], spec[128];
    const char *name = eg_name_of(t), *string = eg__einsum_text(t, spec, sizeof spec);
    eg__lines l;
    eg__lines_open(&l);
    size_t w = (size_t)snprintf(out, size, "%s", t->op ? t->op->name : "a leaf");
    if (string && w < size) w += (size_t)snprintf(out + w, size - w, " \"%s\"", string);
    if (!t->op && name && w < size) w += (size_t)snprintf(out + w, size - w, " \"%s\"", name);
    if (t->op && w < size && eg__line(&l, t->caller, line, sizeof line)[0])
        snprintf(out + w, size - w, " (%s)", line);
    eg__lines_close(&l);
    return out;
}

const char *eg_origin(eg_tensor *t)
{
    char text[256];
    if (!eg__check_usable("origin", t)) return "";
    eg__origin(t, text, sizeof text);
    char *kept = eg__alloc(t->cx, strlen(text) + 1);
    return kept ? strcpy(kept, text) : "";
}
