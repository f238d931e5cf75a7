#include "job/kinds.h"
#include "job/say.h"

#include <errno.h>

int base_build(void)
{
    return say_failure(ENOSYS, "not yet");
}
