#pragma once
/* The object storage that Daytona's SDKs send the local files of an image to
 * (core/build_storage.h): of S3's protocol what they use, with the address in the path and one
 * bucket.
 *
 *   GET    .../builds?list-type=2&prefix=TENANT/MD5/    ListObjectsV2, of one archive
 *   HEAD   .../builds/TENANT/MD5/context.tar
 *   PUT    .../builds/TENANT/MD5/context.tar            the archive
 *   POST   the same?uploads                             it comes in parts: the upload's id
 *   PUT    the same?partNumber=N&uploadId=ID            a part
 *   POST   the same?uploadId=ID                         the parts are all there
 *   DELETE the same?uploadId=ID                         they are not wanted any more
 *
 * Errors are S3's, in XML. The session token of push-access says whose a request is and decides
 * alone: signatures are not looked at, since what they prove the token proves. Bodies of POST are
 * not read: which parts there are is known here. */

#include "cayd/connloop_internal.h"

/* false: it is no request below DAYTONA_STORAGE_PATH. */
bool storage_handle(struct connloop *l, struct http_exchange *x);
