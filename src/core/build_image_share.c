#include "core/build_image.h"

bool build_image_may_begin(const struct build_image_counts *p)
{
    return p->own == 0 && p->fresh < BUILD_IMAGES_MAX &&
           p->fresh + p->slow < BUILD_IMAGES_MAX + BUILD_IMAGES_SLOW_MAX;
}
