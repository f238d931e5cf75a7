/* For cppcheck, which cannot read the macros of jansson. */
#define json_array_foreach(array, index, value)                                                    \
    for (index = 0, value = json_array_get(array, 0); value; index++, value = 0)
#define json_object_foreach(object, key, value)                                                    \
    for (key = "", value = json_object_get(object, ""); value; value = 0)
