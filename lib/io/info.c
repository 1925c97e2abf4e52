/* info.c: the libraries that draw pictures. */
#include <config.h>
#include <eingrad/io.h>
#if HAVE_CAIRO
#include "fonts.h"
#define TEXT_OF(n)    #n
#define NUMBER(n)     TEXT_OF(n)
#define FONTS_VERSION NUMBER(FC_MAJOR) "." NUMBER(FC_MINOR) "." NUMBER(FC_REVISION)

const char *eg_io_info(void)
{
    return "cairo " CAIRO_VERSION_STRING ", fontconfig " FONTS_VERSION ", FriBidi " FRIBIDI_VERSION;
}
#else
const char *eg_io_info(void) { return "no cairo: pictures are SVG"; }
#endif
