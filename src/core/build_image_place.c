#include "core/build_image.h"

bool build_image_is_place(const struct build_image_places *p)
{
    return p->own == 0 && p->fresh < BUILD_IMAGES_MAX &&
           p->fresh + p->slow < BUILD_IMAGES_MAX + BUILD_IMAGES_SLOW_MAX;
}
