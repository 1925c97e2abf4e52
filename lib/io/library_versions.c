/* library_versions.c: the libraries that read, write and draw, with their versions. */
#include <config.h>
#include <eingrad/io.h>
#include <zlib.h>
#if HAVE_CAIRO
#include "fonts.h"
#define TEXT_OF(n)    #n
#define NUMBER(n)     TEXT_OF(n)
#define FONTS_VERSION NUMBER(FC_MAJOR) "." NUMBER(FC_MINOR) "." NUMBER(FC_REVISION)
#define DRAWING \
    "cairo " CAIRO_VERSION_STRING ", fontconfig " FONTS_VERSION ", FriBidi " FRIBIDI_VERSION
#else
#define DRAWING "no cairo: pictures are SVG"
#endif

const char *eg_io_info(void) { return "zlib " ZLIB_VERSION ", " DRAWING; }
