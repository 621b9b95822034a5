#include <libmemcached/memcached.h>
#include <hiredis/hiredis.h>
#include <openssl/crypto.h>
#include <openssl/hmac.h>
