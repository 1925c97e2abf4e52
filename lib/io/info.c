/* info.c: the libraries that read and write. */
#include <eingrad/io.h>
#include <png.h>
#include <zlib.h>

const char *eg_io_info(void) { return "libpng " PNG_LIBPNG_VER_STRING ", zlib " ZLIB_VERSION; }
