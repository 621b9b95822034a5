#include <libmemcached/memcached.h>
#include <hiredis/hiredis.h>
